#include <fmt/format.h>

#include "posenc/base/status.h"
#include "posenc/gguf/gguf_reader.h"

namespace posenc {
namespace {

constexpr std::string_view kTemperatureScale = "attention.temperature_scale",
                           kTemperatureLength = "attention.temperature_length";
constexpr std::string_view kOriginalKey = "rope.scaling.original_context_length", kContextKey = "context_length";

// The scale of Ministral 3 by two keys; nullopt if the first is 0 or absent, as in llama.cpp.
absl::StatusOr<std::optional<QueryScale>> ByKeys(const GgufFile& file, std::string_view length_key,
                                                 ModelLayers* layers) {
  POSENC_ASSIGN_OR_RETURN(const auto scale, file.fields.Float(kTemperatureScale));
  if (scale.value_or(0) == 0) return std::nullopt;
  POSENC_ASSIGN_OR_RETURN(const auto length, file.fields.Number(length_key));
  layers->fields.push_back({"query_scale.llama_4_scaling_beta", file.fields.Path(kTemperatureScale)});
  layers->fields.push_back({"query_scale.original_max_position_embeddings", file.fields.Path(length_key)});
  return QueryScale{.function = QueryScaleFunction::kMinistral3,
                    .llama_4_scaling_beta = scale,
                    .original_max_position_embeddings = length};
}

absl::StatusOr<std::optional<QueryScale>> ScaleOf(const GgufFile& file, bool rotates, bool has_sliding,
                                                  ModelLayers* layers) {
  switch (file.type.query_scale) {
    case GgufQueryScale::kNone: return std::nullopt;
    case GgufQueryScale::kLlama4:
      if (rotates || !has_sliding) return std::nullopt;
      return QueryScale{.function = QueryScaleFunction::kLlama4, .attn_scale = double{0.1F}, .floor_scale = 8192};
    case GgufQueryScale::kByOriginalLength: {
      POSENC_ASSIGN_OR_RETURN(const auto original, file.fields.Number(kOriginalKey));
      return ByKeys(file, original ? kOriginalKey : kContextKey, layers);
    }
    case GgufQueryScale::kByTemperatureLength: return ByKeys(file, kTemperatureLength, layers);
  }
  __builtin_unreachable();
}

}  // namespace

absl::Status SetGgufQueryScale(const GgufFile& file, bool rotates, bool has_sliding, ModelLayers* layers) {
  POSENC_ASSIGN_OR_RETURN(const auto scale, ScaleOf(file, rotates, has_sliding, layers));
  if (!scale) return absl::OkStatus();
  if (!layers->rotary) layers->rotary.emplace();
  layers->rotary->query_scale = scale;
  const bool by_key = file.type.query_scale != GgufQueryScale::kLlama4;
  AddNote({std::string(kQueryScaleNote), by_key ? file.fields.Path(kTemperatureScale) : "gguf.general.architecture",
           "q is multiplied by a factor that grows with the position, as in llama.cpp: do not multiply it again"},
          layers->notes);
  return absl::OkStatus();
}

}  // namespace posenc
