// From rotary settings to frequencies.
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

struct RopeInput;   // posenc/methods/rope/rope.h
struct RopeMethod;  // the same

// The frequencies of one sequence length.
struct RotaryPlan {
  int64_t seq_len = 0;  // 0 where the frequencies do not depend on it
  std::string branch;
  std::vector<double> inv_freq;  // [rotary_dim / 2]; float32 values under kFloat32; none for a given table
  std::vector<int64_t> axis;     // by which axis of a position each pair turns; empty: there is one
  double attention_scaling = 1;
  double softmax_scale_factor = 1;
  double position_divisor = 1;  // never under kExact, where the frequencies are divided
  std::optional<XposPlan> xpos;
};

// The plans of this process, by all that determines them.
SharedCache<RotaryPlan>& PlanCache();

// Settings that have been checked and completed, from which plans are made. Immutable.
class Rotary {
 public:
  // INVALID_ARGUMENT names the field that is missing, out of range, or not read by the rope_type.
  static absl::StatusOr<Rotary> Create(RotarySettings settings, Frequencies arithmetic, const Limits& limits);

  // Every default filled in; sent back, they give the same bytes.
  const RotarySettings& settings() const { return settings_; }
  Frequencies arithmetic() const { return arithmetic_; }
  int64_t rotary_dim() const { return *settings_.rotary_dim; }
  Pairing input_pairing() const { return *settings_.input_pairing; }
  Pairing output_pairing() const { return *settings_.output_pairing; }
  int64_t half_split_parts() const { return settings_.half_split_parts; }

  // How many axes a position has.
  int64_t axes() const { return axes_; }
  // Null where there is none.
  const GivenTable* table() const { return std::get_if<GivenTable>(&settings_.frequencies); }
  // Whether plans differ by sequence length.
  bool NeedsSeqLen() const;

  // seq_len >= 1 where NeedsSeqLen(), else it is not read. INVALID_ARGUMENT if a frequency is not finite (a huge
  // rope_theta in float32). From PlanCache(), where computing takes long; NotAtHand() where limits forbid to compute.
  absl::StatusOr<std::shared_ptr<const RotaryPlan>> Plan(int64_t seq_len) const;

 private:
  Rotary(RotarySettings settings, Frequencies arithmetic, bool plans_at_hand)
      : settings_(std::move(settings)), arithmetic_(arithmetic), plans_at_hand_(plans_at_hand) {}
  RopeInput Input(int64_t seq_len) const;
  absl::StatusOr<RotaryPlan> MakePlan(int64_t seq_len) const;
  std::string CacheKey(int64_t seq_len) const;
  absl::Status CompleteParameters(RopeParameters& parameters);
  absl::Status CompleteXpos();

  RotarySettings settings_;
  Frequencies arithmetic_;
  bool plans_at_hand_;
  const RopeMethod* method_ = nullptr;  // of rope_parameters, else null
  std::vector<int64_t> axis_;           // as RotaryPlan::axis
  int64_t axes_ = 1;
};

}  // namespace posenc
