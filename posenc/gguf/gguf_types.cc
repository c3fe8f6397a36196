#include "posenc/gguf/gguf_types.h"

#include <initializer_list>

#include "posenc/base/status.h"
#include "posenc/gguf/gguf_reader.h"

namespace posenc {
namespace {

using When = GgufSliding::When;
using Theta = GgufSliding::Theta;
using Scaling = GgufSliding::Scaling;

constexpr std::string_view kLearned = "its positions are a learned table in its weights";
constexpr std::string_view kNoPositions = "its layers encode no positions";
constexpr std::string_view kDrafts = "it drafts for another model, whose file decides";
constexpr std::string_view kRepeats = "its layers run several times";

absl::Status NoteDeepseekV4(GgufFile& file) {
  file.Say("POSITIONS", "", std::string(kDeepseekV4Note));
  return absl::OkStatus();
}

absl::Status NoteGrokTemperature(GgufFile& file) {
  constexpr std::string_view kLength = "attention.temperature_length";
  POSENC_ASSIGN_OR_RETURN(const auto length, file.fields.Number(kLength));
  if (length.value_or(0) != 0) {
    file.Say("NOT_PART_OF_ROTATION", file.fields.Path(kLength),
             "the model multiplies its scores by a factor that grows with the query's position; llama.cpp does not");
  }
  return absl::OkStatus();
}

void Refuse(std::vector<GgufType>& types, std::string_view reason, std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) types.push_back({.name = name, .instead = reason});
}

void AddPlain(std::vector<GgufType>& types, GgufPairs pairs, bool whole_head,
              std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) types.push_back({.name = name, .pairs = pairs, .whole_head = whole_head});
}

void AddNorm(std::vector<GgufType>& types) {
  AddPlain(types, GgufPairs::kNorm, true,
           {"internlm2", "xverse", "olmo", "arctic", "chameleon", "deepseek", "ernie4_5", "ernie4_5-moe", "maincoder",
            "bailingmoe", "llada", "pockettts"});
  AddPlain(types, GgufPairs::kNorm, false, {"command-r", "chatglm", "neo-bert"});
  for (const std::string_view name : {"llama", "llama-embed", "minicpm", "granitemoe"}) {
    types.push_back({.name = name, .whole_head = true, .divisors = GgufDivisors::kByType});
  }
  types.push_back(
      {.name = "deci", .whole_head = true, .divisors = GgufDivisors::kByType, .attention = GgufAttention::kWithHeads});
  types.push_back({.name = "arcee", .whole_head = true, .divisors = GgufDivisors::kFreqs});
  types.push_back({.name = "granite",
                   .whole_head = true,
                   .divisors = GgufDivisors::kByType,
                   .rotates = GgufRotates::kUnlessNotFinetuned});
  types.push_back({.name = "granitehybrid",
                   .divisors = GgufDivisors::kFreqs,
                   .rotates = GgufRotates::kUnlessNotFinetuned,
                   .attention = GgufAttention::kWithKvHeads});
  types.push_back({.name = "granite_swa",
                   .whole_head = true,
                   .divisors = GgufDivisors::kByType,
                   .rotates = GgufRotates::kListed,
                   .sliding = GgufSliding{.theta = Theta::kFull}});
  types.push_back({.name = "mistral3",
                   .whole_head = true,
                   .divisors = GgufDivisors::kByType,
                   .log_multiplier = GgufLogMultiplier::kAsGiven,
                   .reads_betas = true,
                   .query_scale = GgufQueryScale::kByOriginalLength});
  types.push_back({.name = "llama4",
                   .whole_head = true,
                   .divisors = GgufDivisors::kFreqs,
                   .rotates = GgufRotates::kChunked,
                   .sliding = GgufSliding{.when = When::kUnlessWindowIsZero, .period = 4},
                   .query_scale = GgufQueryScale::kLlama4});
  types.push_back({.name = "smollm3", .whole_head = true, .rotates = GgufRotates::kNotEveryFourth});
  types.push_back({.name = "cohere2",
                   .rotates = GgufRotates::kSliding,
                   .sliding = GgufSliding{.period = 4, .theta = Theta::kFull}});
  types.push_back({.name = "cohere2moe",
                   .whole_head = true,
                   .rotates = GgufRotates::kSlidingOrLeading,
                   .sliding = GgufSliding{.period = 4, .full_first = true, .theta = Theta::kFull}});
  types.push_back({.name = "muse-glimmer",
                   .rotates = GgufRotates::kSliding,
                   .sliding = GgufSliding{.period = 4, .scaling = Scaling::kNoFactor}});
  types.push_back({.name = "baichuan", .whole_head = true, .alibi = GgufAlibi::kEightIf40Layers});
  types.push_back({.name = "deepseek4",
                   .sliding = GgufSliding{.when = GgufSliding::When::kUncompressed,
                                          .theta = GgufSliding::Theta::kFull,
                                          .scaling = GgufSliding::Scaling::kNone},
                   .latent = true,
                   .reads_betas = true,
                   .theta_key = "attention.compress_rope_freq_base",
                   .unit_magnitude = true,
                   .add_notes = NoteDeepseekV4});
  types.push_back({.name = "deepseek2",
                   .latent = true,
                   .scales_scores = true,
                   .log_multiplier = GgufLogMultiplier::kTenfoldBoth,
                   .query_scale = GgufQueryScale::kByTemperatureLength});
  types.push_back({.name = "mistral4",
                   .latent = true,
                   .scales_scores = true,
                   .log_multiplier = GgufLogMultiplier::kTenfold,
                   .query_scale = GgufQueryScale::kByTemperatureLength});
  types.push_back(
      {.name = "deepseek32", .latent = true, .scales_scores = true, .log_multiplier = GgufLogMultiplier::kTenfold});
  types.push_back({.name = "glm-dsa", .latent = true, .scales_scores = true});
  types.push_back({.name = "hy_v4", .latent = true});
  types.push_back({.name = "plm", .latent = true});
}

void AddNeox(std::vector<GgufType>& types) {
  AddPlain(types, GgufPairs::kNeox, true,
           {"falcon", "dbrx",  "qwen2",    "dream",      "qwen2moe",       "qwen3", "qwen3moe", "llada-moe",
            "rnd1",   "olmoe", "plamo",    "starcoder2", "codeshell",      "orion", "dots1",    "hunyuan-moe",
            "jais2",  "hy_v3", "seed_oss", "grovemoe",   "pangu-embedded", "talkie"});
  AddPlain(types, GgufPairs::kNeox, false,
           {"falcon-h1", "jina-bert-v3", "nomic-bert", "nomic-bert-moe", "eurobert", "stablelm", "bitnet", "qwen",
            "phi2", "gemma", "openelm", "gptneox", "nemotron", "bailingmoe2", "minimax-m2", "minimax-m3"});
  types.push_back({.name = "grok",
                   .pairs = GgufPairs::kNeox,
                   .whole_head = true,
                   .reads_betas = true,
                   .reads_ext_factor = true,
                   .beta_fast = 8,
                   .add_notes = NoteGrokTemperature});
  for (const std::string_view name : {"phi3", "phimoe"}) {
    types.push_back({.name = name, .pairs = GgufPairs::kNeox, .divisors = GgufDivisors::kLongShort});
  }
  types.push_back(
      {.name = "minicpm3", .pairs = GgufPairs::kNeox, .divisors = GgufDivisors::kLongShort, .latent = true});
  types.push_back(
      {.name = "apertus", .pairs = GgufPairs::kNeox, .whole_head = true, .divisors = GgufDivisors::kByType});
  types.push_back({.name = "exaone", .pairs = GgufPairs::kNeox, .whole_head = true, .divisors = GgufDivisors::kFreqs});
  types.push_back({.name = "exaone4",
                   .pairs = GgufPairs::kNeox,
                   .whole_head = true,
                   .divisors = GgufDivisors::kFreqs,
                   .rotates = GgufRotates::kSliding,
                   .sliding = GgufSliding{.when = When::kIf64Layers, .period = 4, .theta = Theta::kFull}});
  types.push_back({.name = "exaone-moe",
                   .pairs = GgufPairs::kNeox,
                   .whole_head = true,
                   .divisors = GgufDivisors::kFreqs,
                   .rotates = GgufRotates::kSliding,
                   .sliding = GgufSliding{.period = 4, .theta = Theta::kFull}});
  types.push_back({.name = "gemma2", .pairs = GgufPairs::kNeox, .sliding = GgufSliding{.period = 2}});
  types.push_back({.name = "gemma3",
                   .pairs = GgufPairs::kNeox,
                   .sliding = GgufSliding{
                       .when = When::kIfWindow, .period = 6, .theta = Theta::kOwn, .scaling = Scaling::kNoFactor}});
  types.push_back({.name = "gemma3n",
                   .pairs = GgufPairs::kNeox,
                   .sliding = GgufSliding{.period = 5, .theta = Theta::kOwn, .scaling = Scaling::kNoFactor}});
  types.push_back({.name = "gemma-embedding",
                   .pairs = GgufPairs::kNeox,
                   .sliding = GgufSliding{.period = 6, .theta = Theta::kOwn, .scaling = Scaling::kNoFactor}});
  types.push_back({.name = "gemma4",
                   .pairs = GgufPairs::kNeox,
                   .divisors = GgufDivisors::kFreqs,
                   .sliding = GgufSliding{.theta = Theta::kOwn, .scaling = Scaling::kNoFactor},
                   .width_by_layer = true});
  types.push_back(
      {.name = "gpt-oss", .pairs = GgufPairs::kNeox, .whole_head = true, .sliding = GgufSliding{.period = 2}});
  for (const std::string_view name : {"olmo2", "mellum"}) {
    types.push_back({.name = name,
                     .pairs = GgufPairs::kNeox,
                     .whole_head = true,
                     .sliding = GgufSliding{
                         .when = When::kIfWindow, .period = 4, .theta = Theta::kFull, .scaling = Scaling::kNone}});
  }
  types.push_back({.name = "modern-bert",
                   .pairs = GgufPairs::kNeox,
                   .sliding = GgufSliding{.when = When::kIfWindow,
                                          .period = 3,
                                          .full_first = true,
                                          .theta = Theta::kOwn,
                                          .scaling = Scaling::kNoFactor}});
  types.push_back({.name = "plamo3",
                   .pairs = GgufPairs::kNeox,
                   .sliding = GgufSliding{
                       .when = When::kIfWindow, .period = 8, .theta = Theta::kOwn, .scaling = Scaling::kNoFactor}});
  types.push_back({.name = "afmoe",
                   .pairs = GgufPairs::kNeox,
                   .rotates = GgufRotates::kNotEveryFourth,
                   .sliding = GgufSliding{.when = When::kIfWindow, .period = 4}});
  types.push_back({.name = "smallthinker",
                   .pairs = GgufPairs::kNeox,
                   .whole_head = true,
                   .rotates = GgufRotates::kNotFirstOfFour,
                   .sliding = GgufSliding{.when = When::kIfWindow, .period = 4, .full_first = true}});
  types.push_back(
      {.name = "laguna",
       .pairs = GgufPairs::kNeox,
       .sliding = GgufSliding{.when = When::kIfWindow, .period = 4, .full_first = true, .scaling = Scaling::kNone},
       .width_by_layer = true});
  types.push_back({.name = "mimo2",
                   .pairs = GgufPairs::kNeox,
                   .sliding = GgufSliding{.theta = Theta::kOwn, .scaling = Scaling::kNoFactor}});
  types.push_back({.name = "maple",
                   .pairs = GgufPairs::kNeox,
                   .rotates = GgufRotates::kSliding,
                   .sliding = GgufSliding{},
                   .width_by_layer = true});
  types.push_back({.name = "spark2_5", .pairs = GgufPairs::kNeox, .sliding = GgufSliding{}, .width_by_layer = true});
  types.push_back({.name = "step35",
                   .pairs = GgufPairs::kNeox,
                   .divisors = GgufDivisors::kByType,
                   .sliding = GgufSliding{.theta = Theta::kOwn, .scaling = Scaling::kNoFactor},
                   .width_by_layer = true,
                   .half_width = true});
  for (const std::string_view name : {"lfm2", "lfm2moe", "plamo2"}) {
    types.push_back({.name = name, .pairs = GgufPairs::kNeox, .attention = GgufAttention::kWithKvHeads});
  }
  types.push_back({.name = "qwen3next", .pairs = GgufPairs::kNeox, .attention = GgufAttention::kEveryFourth});
  types.push_back(
      {.name = "minimax-01", .pairs = GgufPairs::kNeox, .whole_head = true, .attention = GgufAttention::kEveryEighth});
  types.push_back(
      {.name = "cogvlm", .pairs = GgufPairs::kNeox, .whole_head = true, .unscaled = true, .fixed_theta = 10000});
  types.push_back(
      {.name = "deepseek2-ocr", .pairs = GgufPairs::kNeox, .unscaled = true, .fixed_theta = 10000, .only_theta = true});
}

void AddSections(std::vector<GgufType>& types) {
  for (const std::string_view name : {"qwen2vl", "paddleocr"}) {
    types.push_back({.name = name, .pairs = GgufPairs::kMrope, .whole_head = true});
  }
  for (const std::string_view name : {"qwen3vl", "qwen3vlmoe", "qwen3tts"}) {
    types.push_back({.name = name, .pairs = GgufPairs::kImrope, .whole_head = true});
  }
  for (const std::string_view name : {"qwen35", "qwen35moe"}) {
    types.push_back({.name = name, .pairs = GgufPairs::kImrope, .attention = GgufAttention::kEveryFourth});
  }
  types.push_back({.name = "glm4", .pairs = GgufPairs::kNormOrMrope});
  types.push_back({.name = "glm4moe", .pairs = GgufPairs::kNeoxOrMrope});
  types.push_back({.name = "hunyuan_vl", .pairs = GgufPairs::kNeoxOrMrope, .whole_head = true, .reads_alpha = true});
  types.push_back({.name = "hunyuan-dense", .pairs = GgufPairs::kNeox, .whole_head = true, .reads_alpha = true});
}

void AddOthers(std::vector<GgufType>& types) {
  for (const std::string_view name : {"bloom", "refact", "jina-bert-v2"}) {
    types.push_back({.name = name, .alibi = GgufAlibi::kEight});
  }
  for (const std::string_view name : {"mpt", "jais"}) types.push_back({.name = name, .alibi = GgufAlibi::kByKey});
  Refuse(types, kLearned, {"gpt2", "bert", "starcoder"});
  Refuse(types, kNoPositions,
         {"mamba", "mamba2", "jamba", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7", "nemotron_h", "nemotron_h_moe",
          "kimi-linear", "kimi-k3", "glm5-next", "wavtokenizer-dec"});
  Refuse(types, kDrafts, {"eagle3", "dflash", "gemma4-assistant"});
  Refuse(types, kRepeats, {"hrm_text", "nanbeige"});
  Refuse(types, "it is an image or audio encoder, whose keys differ", {"clip"});
  Refuse(types, "llama.cpp does not run it", {"gptj"});
  Refuse(types, "it has T5's buckets, which llama.cpp's code fixes; use the model's config.json", {"t5", "t5encoder"});
  Refuse(types, "it compresses keys and rotates them by positions of its own", {"qwen4exp"});
  Refuse(types, "its layers mix latent attention of several shapes", {"dots3note", "bailingmoe3"});
  Refuse(types, "its layers are routed adapters", {"graniteswitch"});
}

}  // namespace

const std::vector<GgufType>& GgufTypes() {
  static const std::vector<GgufType>* const types = [] {
    auto* list = new std::vector<GgufType>;
    AddNorm(*list);
    AddNeox(*list);
    AddSections(*list);
    AddOthers(*list);
    return list;
  }();
  return *types;
}

const GgufType* FindGgufType(std::string_view architecture) {
  for (const GgufType& type : GgufTypes()) {
    if (type.name == architecture) return &type;
  }
  return nullptr;
}

}  // namespace posenc
