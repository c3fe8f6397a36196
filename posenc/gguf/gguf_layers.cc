// Kinds of a GGUF's layers, and the widths of their heads.
#include <fmt/format.h>

#include "posenc/base/status.h"
#include "posenc/gguf/gguf_reader.h"

namespace posenc {
namespace {

constexpr std::string_view kWindow = "attention.sliding_window", kPattern = "attention.sliding_window_pattern";
constexpr std::string_view kRatios = "attention.compress_ratios";

// Sets `sliding` of each layer. False for all if the file's architecture or its window leaves no layer sliding.
absl::Status SetSliding(const GgufFile& file, std::vector<GgufLayerKind>* kinds, bool* any) {
  *any = false;
  if (!file.type.sliding) return absl::OkStatus();
  const GgufSliding& sliding = *file.type.sliding;
  POSENC_ASSIGN_OR_RETURN(const auto window, file.fields.Number(kWindow));
  POSENC_ASSIGN_OR_RETURN(const auto list, file.fields.List(kPattern));
  switch (sliding.when) {
    case GgufSliding::When::kAlways: break;
    case GgufSliding::When::kIfWindow:
      if (window.value_or(0) == 0) return absl::OkStatus();
      break;
    case GgufSliding::When::kUnlessWindowIsZero:
      if (window && *window == 0) return absl::OkStatus();
      break;
    case GgufSliding::When::kIf64Layers:
      if (kinds->size() != 64) return absl::OkStatus();
      break;
    case GgufSliding::When::kUncompressed: {
      POSENC_ASSIGN_OR_RETURN(const auto ratios, file.fields.List(kRatios));
      const auto blocks = static_cast<size_t>(file.blocks);
      if (!ratios || ratios->size() < blocks) {
        return InvalidArgument(ratios ? "MISMATCH" : "MISSING", file.fields.Path(kRatios),
                               ratios ? fmt::format("{} entries", ratios->size()) : "absent",
                               fmt::format("must have an entry for each of the {} layers", blocks));
      }
      for (size_t n = 0; n < kinds->size(); ++n) (*kinds)[n].sliding = (*ratios)[n] == 0;
      *any = true;
      return absl::OkStatus();
    }
  }
  *any = true;
  if (list) {
    for (size_t n = 0; n < kinds->size(); ++n) (*kinds)[n].sliding = n < list->size() && (*list)[n] != 0;
    return absl::OkStatus();
  }
  if (sliding.period == 0) {
    return InvalidArgument("MISSING", file.fields.Path(kPattern), "", "must be a list with an entry for each layer");
  }
  POSENC_ASSIGN_OR_RETURN(const auto given, file.fields.Number(kPattern));
  const uint32_t period = given.value_or(sliding.period);
  for (size_t n = 0; n < kinds->size(); ++n) {
    (*kinds)[n].sliding = period == 0 || n % period != (sliding.full_first ? 0 : period - 1);
  }
  return absl::OkStatus();
}

absl::Status SetAttends(const GgufFile& file, std::vector<GgufLayerKind>* kinds) {
  const size_t count = kinds->size();
  switch (file.type.attention) {
    case GgufAttention::kAll: return absl::OkStatus();
    case GgufAttention::kWithHeads:
    case GgufAttention::kWithKvHeads: {
      const bool of_queries = file.type.attention == GgufAttention::kWithHeads;
      POSENC_ASSIGN_OR_RETURN(const auto heads,
                              file.fields.NumberOrList(of_queries ? "attention.head_count" : "attention.head_count_kv",
                                                       static_cast<size_t>(file.blocks)));
      for (size_t n = 0; heads && n < count; ++n) (*kinds)[n].attends = (*heads)[n] != 0;
      return absl::OkStatus();
    }
    case GgufAttention::kEveryFourth:
    case GgufAttention::kEveryEighth: break;
  }
  POSENC_ASSIGN_OR_RETURN(const auto recurrent, file.fields.List("attention.recurrent_layers"));
  if (recurrent) {
    for (size_t n = 0; n < count; ++n) (*kinds)[n].attends = n >= recurrent->size() || (*recurrent)[n] == 0;
    return absl::OkStatus();
  }
  POSENC_ASSIGN_OR_RETURN(const auto given, file.fields.Number("full_attention_interval"));
  const uint32_t interval = given.value_or(file.type.attention == GgufAttention::kEveryFourth ? 4 : 8);
  if (interval == 0) {
    return InvalidArgument("OUT_OF_RANGE", file.fields.Path("full_attention_interval"), "0", "must be at least 1");
  }
  for (size_t n = 0; n < count; ++n) (*kinds)[n].attends = (n + 1) % interval == 0;
  return absl::OkStatus();
}

absl::Status SetRotates(const GgufFile& file, bool has_sliding, std::vector<GgufLayerKind>* kinds) {
  const size_t count = kinds->size();
  const auto set = [kinds](auto rotates) {
    for (size_t n = 0; n < kinds->size(); ++n) (*kinds)[n].rotates = rotates(n, (*kinds)[n].sliding);
  };
  switch (file.type.rotates) {
    case GgufRotates::kAll: break;
    case GgufRotates::kSliding:
      if (has_sliding) set([](size_t, bool sliding) { return sliding; });
      break;
    case GgufRotates::kSlidingOrLeading: {
      POSENC_ASSIGN_OR_RETURN(const auto leading, file.fields.Number("leading_dense_block_count"));
      set([&](size_t n, bool sliding) { return sliding || n < leading.value_or(0); });
      break;
    }
    case GgufRotates::kChunked:
      if (!has_sliding) {
        set([count](size_t n, bool) { return n + 1 != count; });
        break;
      }
      [[fallthrough]];
    case GgufRotates::kNotEveryFourth: set([](size_t n, bool) { return (n + 1) % 4 != 0; }); break;
    case GgufRotates::kNotFirstOfFour:
      if (has_sliding && count != 4) set([](size_t n, bool) { return n % 4 != 0; });
      break;
    case GgufRotates::kUnlessNotFinetuned: {
      POSENC_ASSIGN_OR_RETURN(const auto finetuned, file.fields.Bool("rope.scaling.finetuned"));
      set([&](size_t, bool) { return finetuned.value_or(true); });
      break;
    }
    case GgufRotates::kListed: {
      POSENC_ASSIGN_OR_RETURN(const auto listed, file.fields.List("attention.rope_pattern"));
      if (listed) set([&](size_t n, bool) { return n >= listed->size() || (*listed)[n] != 0; });
      break;
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<GgufLayerKind>> GgufLayerKinds(const GgufFile& file) {
  std::vector<GgufLayerKind> kinds(static_cast<size_t>(file.layers));
  bool has_sliding = false;
  POSENC_RETURN_IF_ERROR(SetSliding(file, &kinds, &has_sliding));
  POSENC_RETURN_IF_ERROR(SetAttends(file, &kinds));
  POSENC_RETURN_IF_ERROR(SetRotates(file, has_sliding, &kinds));
  for (GgufLayerKind& kind : kinds) {
    kind.rotates &= kind.attends;
    kind.sliding &= kind.attends;
  }
  return kinds;
}

absl::StatusOr<int64_t> GgufHeadCount(const GgufFile& file) {
  constexpr std::string_view kKey = "attention.head_count";
  POSENC_ASSIGN_OR_RETURN(const auto counts, file.fields.NumberOrList(kKey, static_cast<size_t>(file.blocks)));
  if (!counts) return InvalidArgument("MISSING", file.fields.Path(kKey), "", "must be given: the number of heads");
  if ((*counts)[0] >= 1) return (*counts)[0];
  return InvalidArgument("OUT_OF_RANGE", file.fields.Path(kKey), fmt::format("{}", (*counts)[0]), "must be at least 1");
}

absl::StatusOr<GgufHeads> GgufHeadsOf(const GgufFile& file, bool first_is_sliding) {
  const GgufFields& fields = file.fields;
  GgufHeads heads;
  POSENC_ASSIGN_OR_RETURN(const int64_t count, GgufHeadCount(file));
  POSENC_ASSIGN_OR_RETURN(const auto embedding, fields.Number("embedding_length"));
  POSENC_ASSIGN_OR_RETURN(const auto key, fields.Number("attention.key_length"));
  if (!embedding && !key) {
    return InvalidArgument("MISSING", fields.Path("attention.key_length"), "",
                           "must be given, or embedding_length: they are the width of a head");
  }
  heads.width = key ? *key : *embedding / count;
  POSENC_ASSIGN_OR_RETURN(const auto sliding_key, fields.Number("attention.key_length_swa"));
  heads.sliding_width = sliding_key.value_or(heads.width);
  const int64_t attended = heads.width;  // rope.dimension_count counts from this width
  if (file.type.latent) {
    POSENC_ASSIGN_OR_RETURN(const auto decompressed, fields.Number("attention.key_length_mla"));
    if (decompressed && *decompressed != 0) heads.width = *decompressed;
  }

  POSENC_ASSIGN_OR_RETURN(const auto dimensions, fields.Number("rope.dimension_count"));
  const int64_t rotated = dimensions.value_or(attended);
  POSENC_ASSIGN_OR_RETURN(const auto sliding_dimensions, fields.Number("rope.dimension_count_swa"));
  heads.sliding_rotated = sliding_dimensions.value_or(rotated);
  heads.rotated = file.type.half_width ? rotated / 2 : rotated;
  if (!file.type.width_by_layer) {
    heads.rotated = heads.sliding_rotated = first_is_sliding ? heads.sliding_rotated : heads.rotated;
  }
  if (file.type.unscaled && !file.type.whole_head) heads.rotated = heads.sliding_rotated = heads.width;
  const auto check = [&](std::string_view name, int64_t turned, int64_t width) {
    if (turned > file.limits.max_rotary_dim) {  // before lists with a value for each pair
      return InvalidArgument("OUT_OF_RANGE", fields.Path(name), fmt::format("{}", turned),
                             fmt::format("must be at most {} (max_rotary_dim)", file.limits.max_rotary_dim));
    }
    const bool partial = file.type.whole_head && turned != width;
    if (turned >= 2 && turned % 2 == 0 && turned <= width && !partial) return absl::OkStatus();
    return Against(
        fields.Path("attention.key_length"),
        InvalidArgument("OUT_OF_RANGE", fields.Path(name), fmt::format("{}", turned),
                        file.type.whole_head ? fmt::format("must be {}, the width of a head, and even", width)
                                             : fmt::format("must be even, 2 .. {}, the width of a head", width)));
  };
  POSENC_RETURN_IF_ERROR(check("rope.dimension_count", heads.rotated, heads.width));
  if (file.type.sliding && file.type.width_by_layer) {
    POSENC_RETURN_IF_ERROR(check("rope.dimension_count_swa", heads.sliding_rotated, heads.sliding_width));
  }
  return heads;
}

}  // namespace posenc
