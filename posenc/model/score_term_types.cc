// Model types whose config.json selects a score term. It gives settings only: the weights come with the request. Taken
// from transformers 5.24; transfo-xl and nezha, which it no longer has, from 4.57.
#include <fmt/format.h>

#include <vector>

#include "posenc/base/status.h"
#include "posenc/model/part.h"

namespace posenc {
namespace {

using enum Scheme;

constexpr LayerPattern kInkling = {.every = 6, .field = "", .others = "hybrid_sliding", .full = "hybrid"};

// Gemma 4 assumes that its first encoding's distance is half of its context.
absl::Status CheckContext(Part& part) {
  POSENC_ASSIGN_OR_RETURN(const auto left, part.config.Integer({"attention_context_left"}));
  POSENC_ASSIGN_OR_RETURN(const auto right, part.config.Integer({"attention_context_right"}));
  POSENC_ASSIGN_OR_RETURN(const auto chunk, part.config.Integer({"attention_chunk_size"}));
  const int64_t before = left.value_or(13) - 1;
  if ((chunk.value_or(12) + before + right.value_or(0)) / 2 == before) return absl::OkStatus();
  return InvalidArgument("UNSUPPORTED", part.config.Path("attention_context_left"), fmt::format("{}", before + 1),
                         "must be attention_chunk_size + attention_context_right, or 1 more; otherwise the model's "
                         "distances are not those of its tokens");
}

std::vector<ModelType> MakeScoreTermTypes() {
  // clang-format off
  return {
      // DeBERTa's terms. A file of DeBERTa may also select a learned table that is added to the input.
      {.name = "deberta", .scheme = kTerms, .terms = Terms::kDeberta, .learned = LearnedTable{512, 768}},
      {.name = "deberta-v2", .scheme = kTerms,
       .head_dim_field = "attention_head_size",
       .terms = Terms::kDebertaV2, .learned = LearnedTable{512, 1536}},
      {.name = "sew-d", .scheme = kTerms, .head_dim_field = "attention_head_size", .terms = Terms::kSewD},

      // Conformer's term of Transformer-XL, or Shaw's relative keys if position_embeddings_type is relative_key.
      {.name = "fastspeech2_conformer", .scheme = kTerms, .terms = Terms::kConformer},
      {.name = "nemotron_asr_streaming_encoder", .scheme = kTerms, .width = {1024, 8}, .terms = Terms::kConformer},
      {.name = "parakeet_encoder", .scheme = kTerms, .width = {1024, 8}, .terms = Terms::kConformer},
      {.name = "seamless_m4t", .scheme = kTerms, .terms = Terms::kNamedConformer},
      {.name = "seamless_m4t_v2", .scheme = kTerms, .terms = Terms::kNamedShaw},

      // Transformer-XL's term.
      {.name = "transfo-xl", .scheme = kTerms, .head_dim_field = "d_head", .terms = Terms::kTransformerXl},
      {.name = "xlnet", .scheme = kTerms, .head_dim_field = "d_head", .terms = Terms::kXlnet},

      // Shaw's relative keys, and terms of a model's own.
      {.name = "gemma3n_audio", .scheme = kTerms, .width = {1536, 8}, .terms = Terms::kGemmaAudio},
      {.name = "gemma4_audio", .scheme = kTerms, .width = {1024, 8}, .rules = {.adapt = CheckContext},
       .terms = Terms::kGemmaAudio},
      {.name = "granite_speech5_encoder", .scheme = kTerms, .width = {1024, 8}, .terms = Terms::kGraniteSpeech},
      {.name = "granite_speech_encoder", .scheme = kTerms,
       .head_dim_field = "dim_head", .hidden_size_field = "hidden_dim", .width = {1024, 8},
       .terms = Terms::kGraniteSpeech},
      {.name = "granite_speech_plus_encoder", .scheme = kTerms,
       .head_dim_field = "dim_head", .hidden_size_field = "hidden_dim", .width = {1024, 8},
       .terms = Terms::kGraniteSpeech},
      {.name = "inkling2_loop_text", .scheme = kTerms, .layers = Layers::kByType, .pattern = kInkling,
       .terms = Terms::kInkling2Loop},
      {.name = "inkling2_text", .scheme = kTerms, .layers = Layers::kByType, .pattern = kInkling,
       .terms = Terms::kInkling2},
      {.name = "inkling_text", .scheme = kTerms, .layers = Layers::kByType, .pattern = kInkling,
       .terms = Terms::kInkling1},
      {.name = "nezha", .scheme = kTerms, .terms = Terms::kNezha},
      {.name = "speecht5", .scheme = kTerms,
       .terms = Terms::kSpeechT5, .sines = SineTable{SinusoidalConvention::kFairseq, 768, "hidden_size"}},
      {.name = "vits", .scheme = kTerms, .terms = Terms::kVits},
  };
  // clang-format on
}

}  // namespace

const std::vector<ModelType>& ScoreTermTypes() {
  static const std::vector<ModelType>& types = *new std::vector<ModelType>(MakeScoreTermTypes());
  return types;
}

}  // namespace posenc
