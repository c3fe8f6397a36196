// Resolves a request's rotary source to plans, and writes the answer's info about them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/mapping/read.h"
#include "posenc/model/model.h"
#include "posenc/rotary/rotary_plan.h"
#include "posenc/rotary/table_rows.h"
#include "posenc/v1/service.pb.h"

namespace posenc::wire {

struct ResolvedRotary {
  std::optional<Rotary> rotary;  // absent: the model's layer has no rotary embedding
  Precision precision;
  std::string layer_type;
  std::vector<Note> notes;
  bool scales_softmax = true;                  // the model multiplies its softmax scale by the plan's factor
  std::optional<double> softmax_scale_factor;  // replaces the plan's
  // As in ModelLayers; 0 without a model.
  int64_t whole_head = 0;
  int64_t rotary_offset = 0;
  std::optional<double> longest, window;
  std::string_view longest_field;
  std::string_view original;
  double SoftmaxScaleFactor(const RotaryPlan& plan) const {
    return softmax_scale_factor.value_or(scales_softmax ? plan.softmax_scale_factor : 1);
  }
  std::string parameters_field;  // path of the parameters in the request or in its file, for errors of plans
};

// Returns the error of a plan (Rotary::Plan) as an error of the parameters that it is made of. Others are unchanged.
absl::Status OfParameters(const ResolvedRotary& resolved, const absl::Status& status);

// Errors name the field by its path from `field`, or from "precision" on.
absl::StatusOr<ResolvedRotary> ResolveRotary(const Reader& reader, const v1::RotarySource& source,
                                             const v1::Precision& precision, std::string_view field = "rotary");
// Errors name the field within the settings.
absl::StatusOr<ResolvedRotary> ResolveRotary(const Reader& reader, const v1::RotarySettings& settings,
                                             const Precision& precision);
// Overload for layers already selected.
absl::StatusOr<ResolvedRotary> ResolveRotary(const ModelLayers& layers, const Precision& precision,
                                             const Limits& limits,
                                             PlanSource plan_source = PlanSource::kCacheOrComputed);

// Settles the rule for the scaling's length in a request with a model. A rule that its frequencies do not depend on is
// dropped. An absent one becomes WHOLE_BATCH for a config.json, as in transformers, and a note says so; `notes` is null
// where positions are of no batch.
void SettleLengthRule(const v1::RotarySource& source, const Rotary& rotary, Positions& positions,
                      std::vector<Note>* notes);

// Settles Positions.cache_index. With a model it is dropped where it is not read, and where it is read but not known,
// positions are taken, and a note says so. MISSING if settings need it.
absl::Status SettleCacheIndex(const v1::RotarySource& source, const Rotary& rotary, Positions& positions,
                              std::vector<Note>* notes);

// Keeps the rotation that q and k have in common, for what serves both. Returns UNSUPPORTED if nothing rotates. The
// factor of q is left out: NOT_READ in settings, a note with a model.
absl::Status KeepRotation(const v1::RotarySource& source, ResolvedRotary* resolved);

// UNSUPPORTED: nothing rotates.
absl::Status HasNoFrequencies(const v1::RotarySource& source, const ResolvedRotary& resolved, std::string_view field);

// UNSUPPORTED unless Rotary::CheckOneAngle() is OK.
absl::Status RequireOneAngle(const v1::RotarySource& source, const Rotary& rotary, std::string_view field);

// CachedLayer(), or WouldBlock() if the file is not cached and the reader takes only what is.
absl::StatusOr<std::shared_ptr<const ModelLayers>> LayerOf(const Reader& reader, const ModelSource& model);

// Writes the info that every answer has: precision, device, versions and notes.
void WriteCommonInfo(const Precision& precision, const std::vector<Note>& notes, v1::AnswerInfo* info);
// Copies an info into an answer. Memory for a large plan can be refused, unlike in protobuf's move assignment, which
// copies between arenas and must not throw.
void CopyInfo(const v1::AnswerInfo& info, v1::AnswerInfo* copy);

// Writes the info of a rotary answer. `plans`: one per sequence, in order, or one shared by all.
void WriteRotaryInfo(const ResolvedRotary& resolved, const std::vector<const RotaryPlan*>& plans, bool with_plan,
                     v1::AnswerInfo* info);
// TOO_LARGE (hints.return_plan) if the plans of several sequences have more frequencies than max_plan_values.
absl::Status CheckReturned(const std::vector<const RotaryPlan*>& plans, const Limits& limits);
std::vector<const RotaryPlan*> PlansOf(const TableRows& rows);

}  // namespace posenc::wire
