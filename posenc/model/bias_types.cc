// Model types whose attention has a bias by distance: ALiBi, T5's buckets, biases within windows. Taken from
// transformers 5.24.
#include <string_view>
#include <vector>

#include "posenc/base/status.h"
#include "posenc/model/class_rules.h"

namespace posenc {
namespace {

using enum Scheme;

constexpr OneStack kCpmAntBuckets = {.scales_scores = true,
                                     .num_buckets = 512,
                                     .max_distance = 2048,
                                     .buckets_field = "position_bias_num_buckets",
                                     .distance_field = "position_bias_max_distance"};
constexpr std::string_view kCpmAntSegments =
    "the table's rows after num_buckets are for tokens of different segments; the caller must look these up";
constexpr OneStack kMpnetBuckets = {
    .scales_scores = true, .buckets_field = "", .distance_field = "", .rows_field = "relative_attention_num_buckets"};
constexpr LearnedTable kMpnetTable = {
    .positions = 512, .width = 768, .start = TableStart::kAfterPadding, .reads_padding = false};
constexpr OneStack kPix2StructBuckets = {.bidirectional = false};
constexpr OneStack kWavLmBuckets = {.scales_scores = true,
                                    .num_buckets = 320,
                                    .max_distance = 800,
                                    .buckets_field = "num_buckets",
                                    .distance_field = "max_bucket_distance"};
constexpr std::string_view kWavLmGate =
    "each layer multiplies the bias by a gate computed from its queries; the caller must do this";

// UDOP's encoder sums several biases. Exactly one must be of token distance ("1d"), without arguments of its own.
absl::Status ReadUdopEncoder(Part& part) {
  constexpr std::string_view kBiases = "relative_bias_args";
  if (!part.name.ends_with("encoder")) return absl::OkStatus();
  part.type.one_stack = OneStack{.buckets_field = "", .distance_field = ""};
  part.Say("POSITIONS", std::string(kBiases),
           "this is the bias by token distance; the model adds biases by box distance to it, if it has any");
  const nlohmann::json* biases = part.config.Find(kBiases);
  if (biases == nullptr) return absl::OkStatus();
  int of_tokens = 0, bare = 0;
  for (const nlohmann::json& bias : *biases) {
    if (!bias.is_object() || !bias.contains("type") || bias["type"] != "1d") continue;
    ++of_tokens;
    bare += bias.size() == 1;
  }
  if (of_tokens == 1 && bare == 1) return absl::OkStatus();
  return InvalidArgument("UNSUPPORTED", part.config.Path(kBiases), AsText(*biases),
                         "must hold exactly one {\"type\": \"1d\"}, without other fields");
}

std::vector<ModelType> MakeBiasTypes() {
  // clang-format off
  return {
      // ALiBi; Falcon has ALiBi or a rotary embedding.
      {.name = "bloom", .scheme = kBloomAlibi},
      {.name = "falcon", .scheme = kFalcon, .head_dim_field = "",
       .rules = {.adapt = ReadOlderWidths<kOldEmbed>, .fields = {"n_embed"}}},
      {.name = "mpt", .scheme = kMptAlibi},

      // T5's buckets in the encoder and in the decoder.
      {.name = "longt5", .scheme = kT5},
      {.name = "mt5", .scheme = kT5},
      {.name = "pop2piano", .scheme = kT5},
      {.name = "switch_transformers", .scheme = kT5},
      {.name = "t5", .scheme = kT5},
      {.name = "udop", .scheme = kT5, .rules = {.adapt = ReadUdopEncoder}},
      {.name = "umt5", .scheme = kT5},

      // T5's buckets in one stack.
      {.name = "cpmant", .scheme = kT5, .one_stack = kCpmAntBuckets, .note = kCpmAntSegments},
      {.name = "mpnet", .scheme = kT5, .one_stack = kMpnetBuckets, .learned = kMpnetTable},
      {.name = "pix2struct_text_model", .scheme = kT5, .one_stack = kPix2StructBuckets},
      {.name = "wavlm", .scheme = kT5, .one_stack = kWavLmBuckets, .note = kWavLmGate},

      // Biases within windows. BEiT's window is the whole image.
      {.name = "beit", .scheme = kBeit},
      {.name = "clap_audio_model", .scheme = kSwin, .windows = {.window_size = 8}},
      {.name = "data2vec-vision", .scheme = kBeit},
      {.name = "donut-swin", .scheme = kSwin},
      {.name = "maskformer-swin", .scheme = kSwin},
      {.name = "swin", .scheme = kSwin},
      {.name = "swin2sr", .scheme = kSwinV2,
       .windows = {.window_size = 8, .image_size = 64, .patch_size = 1, .halves = false}},
      {.name = "swinv2", .scheme = kSwinV2},
  };
  // clang-format on
}

}  // namespace

const std::vector<ModelType>& BiasTypes() {
  static const std::vector<ModelType>& types = *new std::vector<ModelType>(MakeBiasTypes());
  return types;
}

}  // namespace posenc
