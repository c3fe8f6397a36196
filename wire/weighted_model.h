// config.json beside a model's weights: what a message leaves unset is filled in from the file.
#pragma once

#include <google/protobuf/message.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "posenc/model/model.h"
#include "wire/read.h"

namespace posenc::wire {

// The layers that the model selects, which have what is wanted. Errors name the field from "model" on.
absl::StatusOr<ModelLayers> SelectWeighted(const Reader& reader, const v1::ModelConfig& model, Wanted wanted);

// Puts into `given` each setting that `said`, of the same type, has and it has not. CONFLICT: one that says otherwise,
// or a message within it that `said` has not; MISSING: one that `said` has. Tensors, their layouts and the field
// `model` are not touched.
absl::Status FillFrom(const google::protobuf::Message& said, google::protobuf::Message* given);

}  // namespace posenc::wire
