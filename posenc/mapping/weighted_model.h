// config.json beside a model's weights: what a message leaves unset is filled in from the file.
#pragma once

#include <google/protobuf/message.h>

#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "posenc/mapping/read.h"
#include "posenc/model/model.h"

namespace posenc::wire {

// Settings, and what their model's config.json says besides.
template <class Settings>
struct OfModel {
  Settings settings;
  std::optional<Precision> precision;  // the class's own; absent: there is no config.json
  std::vector<Note> notes;
};

// The layers that the model selects, which have what is wanted. Errors name the field from "model" on.
absl::StatusOr<ModelLayers> SelectWeighted(const Reader& reader, const v1::ModelConfig& model, Wanted wanted);

// Puts into `given` each setting that `said`, of the same type, has and it has not. CONFLICT: one that says otherwise,
// or a message within it that `said` has not; MISSING: one that `said` has. Tensors, their layouts and the field
// `model` are not touched.
absl::Status FillFrom(const google::protobuf::Message& said, google::protobuf::Message* given);

}  // namespace posenc::wire
