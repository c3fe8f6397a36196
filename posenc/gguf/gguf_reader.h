// Reader for GGUF files: what llama.cpp rotates, or adds to its scores, by a file's metadata.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/base/limits.h"
#include "posenc/gguf/gguf_fields.h"
#include "posenc/gguf/gguf_types.h"
#include "posenc/settings/model_layers.h"

namespace posenc {

// Returns all settings of the GGUF in source.gguf, one entry per kind of layer. INVALID_ARGUMENT names gguf and the key
// that is missing, out of range or in conflict with another, or that llama.cpp cannot read.
absl::StatusOr<std::vector<ModelLayers>> ReadGgufModel(const ModelSource& source, const Limits& limits);

// A file while it is being read.
struct GgufFile {
  const Gguf& gguf;
  const GgufType& type;
  const GgufFields& fields;
  const Limits& limits;
  int64_t blocks = 0;  // block_count
  int64_t layers = 0;  // of these, without those that predict later tokens (nextn_predict_layers)
  std::vector<Note> notes;

  void Say(std::string code, std::string field, std::string message) {
    AddNote({std::move(code), std::move(field), std::move(message)}, notes);
  }
};

// The settings in which layers of a model differ.
struct GgufLayerKind {
  bool attends = true;
  bool sliding = false;
  bool rotates = true;

  bool operator==(const GgufLayerKind&) const = default;
};

// Returns the kind of each layer.
absl::StatusOr<std::vector<GgufLayerKind>> GgufLayerKinds(const GgufFile& file);

// Widths of the heads, in elements.
struct GgufHeads {
  int64_t width = 0;  // of layers that are not sliding
  int64_t sliding_width = 0;
  int64_t rotated = 0;
  int64_t sliding_rotated = 0;
};

// Returns the number of heads of layer 0.
absl::StatusOr<int64_t> GgufHeadCount(const GgufFile& file);
absl::StatusOr<GgufHeads> GgufHeadsOf(const GgufFile& file, bool first_is_sliding);

// Sets the rotary settings of layers of a kind that rotates, the fields that they come from, and their notes.
absl::Status SetGgufRotary(const GgufFile& file, const GgufHeads& heads, bool sliding, ModelLayers* layers);

// Sets the factor of q of layers of a kind, the fields that it comes from, and a note.
absl::Status SetGgufQueryScale(const GgufFile& file, bool rotates, bool has_sliding, ModelLayers* layers);

}  // namespace posenc
