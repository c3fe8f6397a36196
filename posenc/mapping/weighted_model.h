// Fills the unset fields of a message from the config.json given beside a model's weights.
#pragma once

#include <google/protobuf/message.h>

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "posenc/mapping/read.h"
#include "posenc/model/model.h"
#include "posenc/wire/payloads.h"

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

// Payloads for a copy of a part of the request: a tensor's bytes may be found by the tensor itself (BesideMessage), so
// each tensor of the copy stands for the original's. Both messages, equal when this is made, must outlive it.
class PayloadsOfCopy final : public Payloads {
 public:
  PayloadsOfCopy(const Payloads& payloads, const google::protobuf::Message& original,
                 const google::protobuf::Message& copy);
  size_t Size(const v1::Tensor& tensor) const override { return payloads_.Size(Original(tensor)); }
  absl::Span<const std::byte> From(const v1::Tensor& tensor, size_t offset) const override {
    return payloads_.From(Original(tensor), offset);
  }
  std::byte* At(const v1::Region& region) const override { return payloads_.At(region); }
  Device* DeviceOf(const v1::Region& region) const override { return payloads_.DeviceOf(region); }

 private:
  const v1::Tensor& Original(const v1::Tensor& tensor) const;

  const Payloads& payloads_;
  std::vector<std::pair<const v1::Tensor*, const v1::Tensor*>> originals_;  // by tensors of the copy
};

}  // namespace posenc::wire
