// Fills the unset fields of a message from the config.json given beside a model's weights.
#pragma once

#include <google/protobuf/message.h>

#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "posenc/mapping/read.h"
#include "posenc/model/model.h"

namespace posenc::wire {

// Settings, with the precision and notes from their model's config.json.
template <class Settings>
struct OfModel {
  Settings settings;
  std::optional<Precision> precision;  // the model class's own; absent: there is no config.json
  std::vector<Note> notes;
};

// The layers that `model` selects; they have what `wanted` names. Errors name the field from "model" on.
absl::StatusOr<ModelLayers> SelectWeighted(const Reader& reader, const v1::ModelConfig& model, Wanted wanted);

// Copies each setting that `said` has and `given` lacks to `given`, a message of the same type. CONFLICT if a setting
// differs, or if `given` has a submessage that `said` lacks; MISSING if it lacks one that `said` has. Tensors, their
// layouts and the field `model` are not touched.
absl::Status FillFrom(const google::protobuf::Message& said, google::protobuf::Message* given);

}  // namespace posenc::wire
