// Computes frequencies from rotary settings.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/base/limits.h"
#include "posenc/base/shared_cache.h"
#include "posenc/methods/rope/xpos.h"
#include "posenc/settings/settings.h"

namespace posenc {

class Fingerprint;  // posenc/base/fingerprint.h
struct RopeInput;   // posenc/methods/rope/rope.h
struct RopeMethod;  // posenc/methods/rope/rope.h

// The frequencies of one sequence length.
struct RotaryPlan {
  int64_t seq_len = 0;  // 0 if the frequencies do not depend on it
  std::string branch;
  std::vector<double> inv_freq;  // [Rotary::width(), terms]; float32 values under kFloat32; none for a given table
  std::vector<int64_t> axis;     // [Rotary::width()], position axis of each pair; empty: one axis, or several terms
  int64_t terms = 1;             // more than 1: an angle is the sum of as many products, one for each axis
  double attention_scaling = 1;
  double softmax_scale_factor = 1;
  double position_divisor = 1;  // 1 under kExact, which divides the frequencies instead
  std::optional<XposPlan> xpos;
  std::optional<QueryScale> query_scale;
  // Only where keys move between two plans: then the angle is position * inv_freq - from_position * from_inv_freq.
  // Other plans leave it empty.
  std::vector<double> from_inv_freq;

  // Adds everything that determines the plan's tables, except the arithmetic: fingerprints and keys of tables use it.
  void AddTo(Fingerprint& fingerprint) const;
};

// Process-wide cache of plans, keyed by everything that determines their frequencies. Thread-safe.
SharedCache<RotaryPlan>& PlanCache();

// Where the plans of a call come from.
enum class PlanSource {
  kCacheOrComputed,
  kCacheOnly,  // WouldBlock() instead of slow computation
};

// Checked and completed settings, from which plans are made. Immutable.
class Rotary {
 public:
  // Returns INVALID_ARGUMENT naming the field that is missing, out of range, or not read by the rope_type.
  static absl::StatusOr<Rotary> Create(RotarySettings settings, Frequencies arithmetic, const Limits& limits,
                                       PlanSource plan_source = PlanSource::kCacheOrComputed);

  // Settings with every default filled in; a request with them gives the same bytes.
  const RotarySettings& settings() const { return settings_; }
  Frequencies arithmetic() const { return arithmetic_; }
  PlanSource plan_source() const { return plan_source_; }
  // False if there is only a query_scale.
  bool rotates() const { return settings_.rotary_dim.has_value(); }
  int64_t rotary_dim() const { return settings_.rotary_dim.value_or(0); }
  Pairing input_pairing() const { return settings_.input_pairing.value_or(Pairing::kHalfSplit); }
  Pairing output_pairing() const { return settings_.output_pairing.value_or(Pairing::kHalfSplit); }
  int64_t half_split_parts() const { return settings_.half_split_parts; }

  // Number of axes of a position.
  int64_t axes() const { return axes_; }
  // Null if there is no given_table.
  const GivenTable* table() const { return std::get_if<GivenTable>(&settings_.frequencies); }

  // Entries of a token's table row: [heads(), 2 if differs_in_pair(), rotary_dim / 2].
  int64_t width() const { return heads_ * (differs_in_pair_ ? 2 : 1) * rotary_dim() / 2; }
  // 1 if all heads have the same entries; otherwise q and k must have as many heads.
  int64_t heads() const { return heads_; }
  // True if the two elements of a pair have entries of their own: then it is no rotation.
  bool differs_in_pair() const { return differs_in_pair_; }
  // UNSUPPORTED, naming the field of the settings, unless each pair has one angle by one axis in all heads, and rows
  // are by position.
  absl::Status CheckOneAngle() const;
  // Source of each entry of a row if it is not the entry itself: a frequency before MakePlan() expands them, or an
  // entry of a given table's row. Empty: the entry itself.
  const std::vector<size_t>& sources() const { return sources_; }
  // True if Positions.cache_index matters.
  bool ReadsCacheIndex() const {
    return settings_.query_scale && settings_.query_scale->position_source == PositionSource::kCacheIndex;
  }
  // The same without query_scale. It must rotate.
  Rotary WithoutQueryScale() const;
  // True if plans differ by sequence length.
  bool NeedsSeqLen() const;

  // seq_len must be >= 1 if NeedsSeqLen(), otherwise it is ignored. INVALID_ARGUMENT if a frequency is not finite (a
  // huge rope_theta in float32). Plans that are slow to compute come from PlanCache(); WouldBlock() if such a plan is
  // not cached and plan_source() is kCacheOnly.
  absl::StatusOr<std::shared_ptr<const RotaryPlan>> Plan(int64_t seq_len) const;

 private:
  Rotary(RotarySettings settings, Frequencies arithmetic, PlanSource plan_source)
      : settings_(std::move(settings)), arithmetic_(arithmetic), plan_source_(plan_source) {}
  RopeInput Input(int64_t seq_len) const;
  absl::StatusOr<RotaryPlan> MakePlan(int64_t seq_len) const;
  std::string CacheKey(int64_t seq_len) const;
  absl::Status CompleteParameters(RopeParameters& parameters);
  absl::Status CompleteXpos();
  absl::Status CompleteElements();

  RotarySettings settings_;
  Frequencies arithmetic_;
  PlanSource plan_source_;
  const RopeMethod* method_ = nullptr;  // null unless rope_parameters are given
  std::vector<int64_t> axis_;           // see RotaryPlan::axis
  int64_t axes_ = 1;
  int64_t heads_ = 1;
  bool differs_in_pair_ = false;
  std::vector<size_t> sources_;
};

}  // namespace posenc
