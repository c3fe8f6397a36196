// Settings of each layer of a model, from its config.json as transformers or diffusers reads it, or from its GGUF as
// llama.cpp reads it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/base/limits.h"
#include "posenc/settings/model_layers.h"

namespace posenc {

// Parses config_json for all readers of the source. INVALID_ARGUMENT names the field at which reading stopped.
absl::Status Parse(const Limits& limits, ModelSource* source);

// Returns the error of a setting as an error of the file's field that the setting comes from.
absl::Status InFile(const ModelLayers& layers, const absl::Status& status);

// Returns the parts of the file that have `source.wanted`, by name, "" for a file without parts; source.component is
// not read. INVALID_ARGUMENT if the file cannot be parsed.
absl::StatusOr<std::vector<std::string>> ComponentsOf(const ModelSource& source, const Limits& limits);

// Returns all of a model's settings, one entry per layer type. INVALID_ARGUMENT names the field of the file that is
// missing, unknown, out of range or in conflict with another.
absl::StatusOr<std::vector<ModelLayers>> ReadModel(const ModelSource& source, const Limits& limits);

// Returns the entry that source.layer selects. INVALID_ARGUMENT if none matches, or several do.
absl::StatusOr<ModelLayers> SelectLayer(const ModelSource& source, const Limits& limits);

// SelectLayer() for calls, most of which repeat the model of an earlier one: it is cached by the source's contents, and
// then neither parsed nor copied. Thread-safe.
absl::StatusOr<std::shared_ptr<const ModelLayers>> CachedLayer(const ModelSource& source, const Limits& limits);
// Returns what CachedLayer() has cached, or null. It does not read the file, which can take some hundredths of a
// second.
std::shared_ptr<const ModelLayers> FindCachedLayer(const ModelSource& source, const Limits& limits);

}  // namespace posenc
