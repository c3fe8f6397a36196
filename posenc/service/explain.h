// Functions that Explain and Compare share: they read a config.json's layers and write their canonical settings.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "posenc/base/limits.h"
#include "posenc/mapping/bias_source.h"
#include "posenc/model/model.h"
#include "posenc/rotary/rotary_plan.h"
#include "posenc/v1/service.pb.h"

namespace posenc::wire {

// Returns the settings of all layers of the source's part, or of the layer that the source selects. Errors name the
// field within the message.
absl::StatusOr<std::vector<ModelLayers>> ReadLayers(const ModelSource& source, const Limits& limits);

// Writes info and plan of layers that have no rotary embedding but another encoding: a bias, a score term, or an
// encoding that is added to the input. Weights, which come with a request, are left out. Returns false, and writes
// nothing, for other layers.
absl::StatusOr<bool> ExplainWithoutRotary(const ModelLayers& layers, const Precision& precision, const Limits& limits,
                                          v1::AnswerInfo* info);
// Overload for a bias.
absl::Status ExplainBias(ResolvedBias resolved, const Limits& limits, v1::AnswerInfo* info);

// Sequence lengths must be at least 1, also where they are not read.
absl::Status CheckLengthsToExplain(const google::protobuf::RepeatedField<int64_t>& seq_len);

// Returns the sequence lengths to plan for; {0} if the frequencies do not depend on them. Subtracts the number of
// frequencies from `values_left`, the budget of a whole request, which starts at max_plan_values. Errors name the field
// seq_len.
absl::StatusOr<std::vector<int64_t>> LengthsToExplain(const google::protobuf::RepeatedField<int64_t>& seq_len,
                                                      const Rotary& rotary, const Limits& limits, int64_t* values_left);

}  // namespace posenc::wire
