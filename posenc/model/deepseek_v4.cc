// The rules of DeepSeek V4.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "posenc/base/status.h"
#include "posenc/model/class_rules.h"
#include "posenc/model/parts.h"

namespace posenc {
namespace {

// Layers without a compressor, and those with one.
constexpr std::string_view kMain = "main", kCompress = "compress";

// The file lists the layers' types, which may go on with those of layers for several tokens at once, or their rates of
// compression.
absl::StatusOr<LayerTypeNames> TypesByCompressor(const Part& part, int64_t layers) {
  POSENC_ASSIGN_OR_RETURN(const auto listed, part.config.Strings("layer_types"));
  POSENC_ASSIGN_OR_RETURN(const auto rates, part.config.Numbers("compress_ratios"));
  const size_t given = listed ? listed->size() : rates ? rates->size() : static_cast<size_t>(layers);
  if (given < static_cast<size_t>(layers)) {
    return InvalidArgument("MISMATCH", part.config.PathOf({"layer_types", "compress_ratios"}),
                           fmt::format("{} entries", given), fmt::format("must have one entry per layer: {}", layers));
  }
  LayerTypeNames types;
  for (int64_t n = 0; n < layers; ++n) {
    bool compressed = true;  // the class's default
    if (listed) {
      compressed = (*listed)[n] != "sliding_attention";
      if (compressed && (*listed)[n] != "compressed_sparse_attention" &&
          (*listed)[n] != "heavily_compressed_attention") {
        return InvalidArgument(
            "UNKNOWN_VALUE", fmt::format("{}[{}]", part.config.Path("layer_types"), n), (*listed)[n],
            "must be sliding_attention, compressed_sparse_attention or heavily_compressed_attention");
      }
    } else if (rates) {
      compressed = (*rates)[n] != 0;
    }
    types.emplace_back(compressed ? kCompress : kMain);
  }
  return types;
}

// The rotated share of a head that DeepSeek-V4's class computes if neither a block nor the file gives it.
absl::StatusOr<double> ClassShare(Part& part, int64_t head_dim) {
  POSENC_ASSIGN_OR_RETURN(const auto width, part.config.Integer({"qk_rope_head_dim"}));
  if (!width || head_dim == 0) return *part.type.partial;
  part.Comes("rope_parameters.partial_rotary_factor", part.config.Path("qk_rope_head_dim"));
  return static_cast<double>(*width) / static_cast<double>(head_dim);
}

// One of the file's two blocks.
absl::StatusOr<LayerBlock> OwnBlock(Part& part, const RopeBlock& main, const RopeBlock& compress, bool compressed) {
  POSENC_ASSIGN_OR_RETURN(const auto outer, part.config.Number({"partial_rotary_factor"}));
  POSENC_ASSIGN_OR_RETURN(const auto indexed, part.config.Integer({"index_head_dim"}));
  POSENC_ASSIGN_OR_RETURN(const int64_t head_dim, HeadDimOf(part));
  LayerBlock result{compressed ? compress : main, part.type.theta, part.type.theta_field, false};
  auto& share = result.block->parameters.partial_rotary_factor;
  if (!share && !outer) {  // any scaling makes transformers fill in the class's share, also in the other block
    const bool scales = main.parameters.rope_type != "default" || compress.parameters.rope_type != "default";
    share = 1;
    if (scales) {
      POSENC_ASSIGN_OR_RETURN(share, ClassShare(part, head_dim));
    }
  }
  const bool whole = result.block->parameters.rope_type == "proportional";  // its tables have zeros for the rest
  const double rotated = (whole ? 1 : share.value_or(outer.value_or(1))) * static_cast<double>(head_dim);
  if (compressed && rotated > static_cast<double>(indexed.value_or(128))) {
    part.Say("WIDER_THAN_INDEXER", result.block->path + ".partial_rotary_factor",
             fmt::format("{} elements of a head rotate, more than index_head_dim, {}: transformers may fail", rotated,
                         indexed.value_or(128)));
  }
  return result;
}

// A file without both blocks scales only layers with a compressor, by its
// single block, which never multiplies cos and sin; theta and the rotated share lie outside.
absl::StatusOr<LayerBlock> MainOrCompressed(Part& part, const RopeBlocks& blocks, const std::string& layer_type,
                                            const LayerTypeNames&) {
  const bool compressed = layer_type == kCompress;
  const auto block_of = [&blocks](std::string_view type) -> const RopeBlock* {
    const auto found =
        std::find_if(blocks.begin(), blocks.end(), [&](const auto& b) { return b.first == type && b.second; });
    return found == blocks.end() ? nullptr : &*found->second;
  };
  if (const RopeBlock* main = block_of(kMain), *compress = block_of(kCompress); main && compress) {
    return OwnBlock(part, *main, *compress, compressed);
  }
  RopeBlock block;
  block.path = BlocksPath(part);
  block.parameters.rope_type = "default";
  const bool single = !blocks.empty() && !IsByLayerType(blocks);
  if (compressed && single) {
    block = *blocks[0].second;
  } else if (!blocks.empty()) {
    part.Say("NOT_USED", block.path,
             single ? "scales only layers with a compressor" : "ignored unless it has the blocks main and compress");
  }
  RopeParameters& p = block.parameters;
  for (const auto& [name, field] :
       {std::pair{"rope_theta", &p.rope_theta}, {"partial_rotary_factor", &p.partial_rotary_factor}}) {
    if (*field) {
      part.Say("NOT_USED", fmt::format("{}.{}", block.path, name), "ignored: the field outside the block is read");
    }
  }
  const std::string_view theta_field = compressed ? "compress_rope_theta" : part.type.theta_field;
  POSENC_ASSIGN_OR_RETURN(p.rope_theta, part.config.Number({theta_field}));
  if (p.rope_theta) part.Comes("rope_parameters.rope_theta", part.config.Path(theta_field));
  POSENC_ASSIGN_OR_RETURN(p.partial_rotary_factor, part.config.Number({"partial_rotary_factor"}));
  if (!p.partial_rotary_factor) {
    POSENC_ASSIGN_OR_RETURN(const int64_t head_dim, HeadDimOf(part));
    POSENC_ASSIGN_OR_RETURN(p.partial_rotary_factor, ClassShare(part, head_dim));
  }
  if (p.rope_type == "yarn" && !p.attention_factor && !block.null_attention_factor) p.attention_factor = 1;
  if (p.truncate) {
    part.Say("NOT_USED", block.path + ".truncate", "not read from a layer type's block: true is used");
    p.truncate.reset();
  }
  block.complete = true;
  return LayerBlock{std::move(block), DefaultsOf(part.type, layer_type)->rope_theta, "", true};
}

// The last elements of a head rotate.
absl::Status RotateLastElements(Part& part, RotarySettings& settings, RopeParameters& p) {
  const double share = p.partial_rotary_factor.value_or(1);
  if (!(share > 0 && share <= 1)) return absl::OkStatus();  // refused where the settings are checked
  const auto rotated = static_cast<int64_t>(static_cast<double>(*settings.head_dim) * share);
  part.rotary_offset = part.whole_head - rotated - rotated % 2;
  return absl::OkStatus();
}

}  // namespace

ClassRules DeepseekV4Rules() {
  return {.layer_types = TypesByCompressor,
          .all_layer_types = {kMain, kCompress},
          .layer_block = MainOrCompressed,
          .settings = RotateLastElements,
          .fields = {"compress_rope_theta"}};
}

}  // namespace posenc
