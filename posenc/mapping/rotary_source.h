// From a request's rotary source to plans, and what an answer says of them.
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
  std::optional<Rotary> rotary;  // none: the model's layer has no rotary embedding
  Precision precision;
  std::string layer_type;
  std::vector<Note> notes;
  bool scales_softmax = true;  // whether the settings' owner multiplies its softmax scale
};

// Errors name the field by its path from `field` on.
absl::StatusOr<ResolvedRotary> ResolveRotary(const Reader& reader, const v1::RotarySource& source,
                                             const v1::Precision& precision, std::string_view field = "rotary");
// Errors name the field within the settings.
absl::StatusOr<ResolvedRotary> ResolveRotary(const Reader& reader, const v1::RotarySettings& settings,
                                             const Precision& precision);
// A model's layers, already chosen.
absl::StatusOr<ResolvedRotary> ResolveRotary(const ModelLayers& layers, const v1::Precision& precision,
                                             const Limits& limits);

// What every answer says.
void WriteCommonInfo(const Precision& precision, const std::vector<Note>& notes, v1::AnswerInfo* info);

// Info of a rotary answer whose sequences have these plans, in their order (one: shared by all).
void WriteRotaryInfo(const ResolvedRotary& resolved, const std::vector<const RotaryPlan*>& plans, bool with_plan,
                     v1::AnswerInfo* info);
std::vector<const RotaryPlan*> PlansOf(const TableRows& rows);

}  // namespace posenc::wire
