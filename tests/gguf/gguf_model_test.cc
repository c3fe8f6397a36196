// Reading of GGUF files by llama.cpp's rules. tests/conformance/check_gguf.py compares all architectures with libllama.
#include <gtest/gtest.h>

#include "posenc/gguf/gguf_types.h"
#include "posenc/model/model.h"
#include "tests/gguf/gguf_file.h"
#include "tests/service/call.h"

namespace posenc::gguf_model_test {
namespace {

using gguf_file::Bool;
using gguf_file::Float;
using gguf_file::List;
using gguf_file::Model;
using gguf_file::Number;
using gguf_file::String;

absl::StatusOr<std::vector<ModelLayers>> Read(const Gguf& gguf) { return ReadModel({.gguf = WriteGguf(gguf)}, {}); }
absl::StatusOr<std::vector<ModelLayers>> Read(const std::string& architecture, std::vector<GgufPair> more = {}) {
  return Read(Model(architecture, std::move(more)));
}

auto HasNote(const std::string& code, const std::string& field) {
  return testing::Contains(testing::AllOf(testing::Field(&Note::code, code), testing::Field(&Note::field, field)));
}

const RopeParameters& ParametersOf(const ModelLayers& layers) {
  return std::get<RopeParameters>(layers.rotary->frequencies);
}

TEST(GgufModel, Plain) {
  const auto layers = Read("llama", {Float("llama.rope.freq_base", 5e5f)});
  ASSERT_THAT(layers, IsOk());
  ASSERT_EQ(layers->size(), 1);
  const ModelLayers& all = layers->front();
  EXPECT_EQ(all.layer_index, (std::vector<uint32_t>{0, 1}));
  EXPECT_EQ(ParametersOf(all).rope_type, "default");
  EXPECT_EQ(ParametersOf(all).rope_theta, 5e5);
  EXPECT_EQ(all.rotary->rotary_dim, 8);
  EXPECT_EQ(all.rotary->input_pairing, Pairing::kInterleaved);
  EXPECT_EQ(all.longest, 4096);
  EXPECT_EQ(all.file, "gguf");
  EXPECT_EQ((*Read("qwen2"))[0].rotary->input_pairing, Pairing::kHalfSplit);
  EXPECT_EQ(ParametersOf((*Read("qwen2"))[0]).rope_theta, 10000);
}

TEST(GgufModel, Scalings) {
  const auto parameters = [](std::vector<GgufPair> more, std::vector<GgufFactors> factors = {}) {
    Gguf gguf = Model("llama", std::move(more));
    gguf.factors = std::move(factors);
    const auto layers = Read(gguf);
    EXPECT_THAT(layers, IsOk());
    return ParametersOf((*layers)[0]);
  };
  EXPECT_EQ(parameters({Float("llama.rope.scaling.factor", 4)}).rope_type, "linear");
  EXPECT_EQ(parameters({Float("llama.rope.scale_linear", 2.5)}).factor, 2.5);
  EXPECT_EQ(parameters({Float("llama.rope.scaling.factor", 0)}).rope_type, "default");
  EXPECT_EQ(parameters({Float("llama.rope.scaling.factor", 4), String("llama.rope.scaling.type", "none")}).rope_type,
            "default");
  const auto yarn = parameters({Float("llama.rope.scaling.factor", 4), String("llama.rope.scaling.type", "yarn"),
                                Number("llama.rope.scaling.original_context_length", 512),
                                Float("llama.rope.scaling.attn_factor", 0.5)});
  EXPECT_EQ(yarn.rope_type, "ggml_yarn");
  EXPECT_EQ(yarn.original_max_position_embeddings, 512);
  EXPECT_EQ(yarn.ext_factor, 1);
  EXPECT_EQ(yarn.attn_factor, 0.5);  // ggml's own 1 + 0.1 ln 4 is the formula's
  const auto divided = parameters({}, {{std::string(kRopeFreqs), {1, 2, 4, 8}}});
  EXPECT_EQ(divided.rope_type, "ggml_yarn");
  EXPECT_EQ(divided.freq_factors, (std::vector<double>{1, 2, 4, 8}));
  const auto by_length =
      parameters({String("llama.rope.scaling.type", "longrope"), Float("llama.rope.scaling.factor", 2)},
                 {{std::string(kRopeFactorsLong), {1, 2, 3, 4}}});
  EXPECT_EQ(by_length.rope_type, "longrope");
  EXPECT_EQ(by_length.long_factor, (std::vector<double>{2, 4, 6, 8}));
  EXPECT_EQ(by_length.short_factor, (std::vector<double>{2, 2, 2, 2}));
}

// llama.cpp's own keys, and its numbers for Llama 4.
TEST(GgufModel, QueryScales) {
  const auto ministral = Read("mistral3", {Float("mistral3.attention.temperature_scale", 0.125f),
                                           Number("mistral3.rope.scaling.original_context_length", 512)});
  ASSERT_THAT(ministral, IsOk());
  const auto& scale = (*ministral)[0].rotary->query_scale;
  ASSERT_TRUE(scale);
  EXPECT_EQ(scale->llama_4_scaling_beta, 0.125);
  EXPECT_EQ(scale->original_max_position_embeddings, 512);
  EXPECT_THAT((*ministral)[0].notes, HasNote("QUERY_SCALE", "gguf.mistral3.attention.temperature_scale"));
  EXPECT_FALSE((*Read("mistral3"))[0].rotary->query_scale);
  const auto by_context = Read("mistral3", {Float("mistral3.attention.temperature_scale", 0.125f)});
  EXPECT_EQ((*by_context)[0].rotary->query_scale->original_max_position_embeddings, 4096);

  const auto latent = Read(
      "deepseek2", {Number("deepseek2.attention.key_length", 40), Number("deepseek2.attention.key_length_mla", 24),
                    Number("deepseek2.rope.dimension_count", 8), Float("deepseek2.attention.temperature_scale", 0.125f),
                    Number("deepseek2.attention.temperature_length", 64)});
  ASSERT_THAT(latent, IsOk());
  EXPECT_EQ((*latent)[0].rotary->query_scale->original_max_position_embeddings, 64);
  EXPECT_FALSE((*Read("llama", {Float("llama.attention.temperature_scale", 0.125f)}))[0].rotary->query_scale);

  const auto llama4 = Read("llama4", {Number("llama4.block_count", 4)});
  ASSERT_THAT(llama4, IsOk());
  ASSERT_EQ(llama4->size(), 2);
  EXPECT_FALSE((*llama4)[0].rotary->query_scale);
  EXPECT_EQ((*llama4)[1].rotary->query_scale->attn_scale, 0.1f);
  EXPECT_THAT((*llama4)[1].notes, HasNote("QUERY_SCALE", "gguf.general.architecture"));
  EXPECT_EQ((*llama4)[1].rotary->frequencies.index(), 0);
  const auto whole = Read("llama4", {Number("llama4.block_count", 4), Number("llama4.attention.sliding_window", 0)});
  ASSERT_THAT(whole, IsOk());
  for (const ModelLayers& layers : *whole) EXPECT_FALSE(layers.rotary && layers.rotary->query_scale);

  const auto grok = Read("grok", {Number("grok.attention.temperature_length", 1024)});
  ASSERT_THAT(grok, IsOk());
  EXPECT_THAT((*grok)[0].notes, HasNote("NOT_PART_OF_ROTATION", "gguf.grok.attention.temperature_length"));
  EXPECT_FALSE(Read("grok", {Float("grok.attention.temperature_length", 1024)}).ok());
}

TEST(GgufModel, LayersOfSeveralKinds) {
  const auto gemma = Read("gemma3", {Number("gemma3.block_count", 7), Number("gemma3.attention.sliding_window", 16),
                                     Float("gemma3.rope.freq_base", 1e6f), Float("gemma3.rope.scaling.factor", 8)});
  ASSERT_THAT(gemma, IsOk());
  ASSERT_EQ(gemma->size(), 2);
  EXPECT_EQ((*gemma)[0].layer_type, "sliding_attention");
  EXPECT_EQ((*gemma)[0].layer_index, (std::vector<uint32_t>{0, 1, 2, 3, 4, 6}));
  EXPECT_EQ(ParametersOf((*gemma)[0]).rope_theta, 10000);
  EXPECT_EQ(ParametersOf((*gemma)[0]).rope_type, "default");
  EXPECT_EQ(ParametersOf((*gemma)[1]).rope_theta, 1e6);
  EXPECT_EQ(ParametersOf((*gemma)[1]).factor, 8);

  const auto exaone = Read("exaone4", {Number("exaone4.block_count", 64)});
  ASSERT_EQ(exaone->size(), 2);
  EXPECT_EQ((*exaone)[0].layer_type, "sliding_attention");
  EXPECT_EQ((*exaone)[1].layer_index.size(), 16);  // every fourth does not rotate
  EXPECT_FALSE((*exaone)[1].rotary.has_value());

  const auto smol = Read("smollm3", {Number("smollm3.block_count", 8)});
  ASSERT_EQ(smol->size(), 2);
  EXPECT_EQ((*smol)[1].layer_index, (std::vector<uint32_t>{3, 7}));
  EXPECT_EQ((*smol)[1].layer_type, "no_rope");
  EXPECT_FALSE((*smol)[1].rotary.has_value());

  const auto mixed = Read("lfm2", {List("lfm2.attention.head_count_kv", {0, 2})});
  ASSERT_EQ(mixed->size(), 2);
  EXPECT_EQ((*mixed)[0].layer_type, "linear_attention");
  EXPECT_FALSE((*Read("granite", {Bool("granite.rope.scaling.finetuned", false)}))[0].rotary.has_value());
}

TEST(GgufModel, LatentAttention) {
  const std::vector<GgufPair> keys = {
      Number("deepseek2.attention.key_length", 40), Number("deepseek2.attention.key_length_mla", 24),
      Number("deepseek2.rope.dimension_count", 8),  String("deepseek2.rope.scaling.type", "yarn"),
      Float("deepseek2.rope.scaling.factor", 40),   Float("deepseek2.rope.scaling.yarn_log_multiplier", 0.0707f)};
  const auto layers = Read("deepseek2", keys);
  ASSERT_THAT(layers, IsOk());
  EXPECT_EQ((*layers)[0].whole_head, 24);
  EXPECT_EQ((*layers)[0].rotary_offset, 16);
  // DeepSeek-V2's m(40, 0.707)^2, of its own code: (0.1 * 0.707 * ln 40 + 1)^2.
  EXPECT_NEAR((*layers)[0].softmax_scale_factor.value_or(0), 1.5896261651208736, 1e-6);
}

TEST(GgufModel, SeveralAxes) {
  const auto contiguous = Read("qwen2vl", {List("qwen2vl.rope.dimension_sections", {2, 1, 1, 0})});
  ASSERT_THAT(contiguous, IsOk());
  EXPECT_EQ(ParametersOf((*contiguous)[0]).mrope_section, (std::vector<int64_t>{2, 1, 1}));
  // Qwen3-VL's [24, 20, 20]: llama.cpp leaves pairs 61 and 62 to a fourth axis.
  const auto interleaved = Read("qwen3vl", {List("qwen3vl.rope.dimension_sections", {24, 20, 20, 0}),
                                            Number("qwen3vl.attention.key_length", 128)});
  ASSERT_THAT(interleaved, IsOk());
  const RopeParameters& parameters = ParametersOf((*interleaved)[0]);
  EXPECT_EQ(parameters.mrope_order, MropeOrder::kInterleaved);
  EXPECT_EQ(parameters.mrope_section, (std::vector<int64_t>{24, 20, 20}));
  for (size_t n = 0; n < 64; ++n) EXPECT_EQ(parameters.freq_factors[n] > 1, n == 61 || n == 62) << n;
  EXPECT_THAT((*interleaved)[0].notes, HasNote("PAIRS_STOPPED", "gguf.qwen3vl.rope.dimension_sections"));
}

TEST(GgufModel, Alibi) {
  const auto bloom = Read("bloom");
  ASSERT_THAT(bloom, IsOk());
  const auto& alibi = std::get<AlibiSettings>(*(*bloom)[0].bias);
  EXPECT_EQ(alibi.num_heads, 2);
  EXPECT_EQ(alibi.form, AlibiForm::kSymmetric);
  EXPECT_EQ(alibi.alibi_bias_max, 8);
  EXPECT_FALSE((*Read("mpt"))[0].bias.has_value());
  EXPECT_TRUE((*Read("mpt", {Float("mpt.attention.max_alibi_bias", 8)}))[0].bias.has_value());
  EXPECT_TRUE((*Read("baichuan", {Number("baichuan.block_count", 40)}))[0].bias.has_value());
  EXPECT_TRUE((*Read("baichuan", {Number("baichuan.block_count", 32)}))[0].rotary.has_value());
}

TEST(GgufModel, NotesOfWhatIsNotRead) {
  Gguf gguf = Model("qwen2", {Float("qwen2.rope.freq_base_swa", 1), Float("qwen2.rope.\"f\xaa", 1)});
  gguf.factors = {{std::string(kRopeFreqs), {1, 2, 3, 4}}};
  const auto layers = Read(gguf);
  ASSERT_THAT(layers, IsOk());
  EXPECT_THAT((*layers)[0].notes, HasNote("GGUF", "gguf.general.architecture"));
  EXPECT_THAT((*layers)[0].notes, HasNote("NOT_USED", "gguf.qwen2.rope.freq_base_swa"));
  EXPECT_THAT((*layers)[0].notes, HasNote("NOT_USED", "gguf.qwen2.rope.\"f\\xaa"));  // UTF-8, as answers must be
  EXPECT_THAT((*layers)[0].notes, HasNote("NOT_USED", "gguf.rope_freqs.weight"));
}

TEST(GgufModel, Refusals) {
  const auto refuses = [](const std::string& architecture, std::vector<GgufPair> more, const char* reason,
                          const std::string& field) {
    EXPECT_THAT(Read(architecture, std::move(more)), IsInvalid(reason, field)) << architecture << " " << field;
  };
  refuses("llama\xff", {}, "UNSUPPORTED", "gguf.general.architecture");
  EXPECT_EQ(DetailsOf(Read("llama\xff").status()).value, "llama\\xff");
  refuses("llama99", {}, "UNSUPPORTED", "gguf.general.architecture");
  refuses("gpt2", {}, "UNSUPPORTED", "gguf.general.architecture");
  refuses("llama", {Number("llama.block_count", 0)}, "OUT_OF_RANGE", "gguf.llama.block_count");
  refuses("llama", {Number("llama.block_count", 513)}, "OUT_OF_RANGE", "gguf.llama.block_count");
  refuses("llama", {Number("llama.attention.head_count", 0)}, "OUT_OF_RANGE", "gguf.llama.attention.head_count");
  refuses("llama", {List("llama.attention.head_count", {2})}, "MISMATCH", "gguf.llama.attention.head_count");
  refuses("llama", {Number("llama.rope.freq_base", 10000)}, "OUT_OF_RANGE", "gguf.llama.rope.freq_base");
  refuses("llama", {Float("llama.rope.freq_base", INFINITY)}, "OUT_OF_RANGE", "gguf.llama.rope.freq_base");
  refuses("llama", {Number("llama.rope.dimension_count", 4)}, "OUT_OF_RANGE", "gguf.llama.rope.dimension_count");
  refuses("gptneox", {Number("gptneox.rope.dimension_count", 3)}, "OUT_OF_RANGE", "gguf.gptneox.rope.dimension_count");
  refuses("llama", {String("llama.rope.scaling.type", "su")}, "UNKNOWN_VALUE", "gguf.llama.rope.scaling.type");
  refuses("qwen2vl", {}, "MISSING", "gguf.qwen2vl.rope.dimension_sections");
  refuses("qwen2vl", {List("qwen2vl.rope.dimension_sections", {1, 1, 1, 0})}, "OUT_OF_RANGE",
          "gguf.qwen2vl.rope.dimension_sections");
  refuses("mimo2", {}, "MISSING", "gguf.mimo2.attention.sliding_window_pattern");
  refuses("llama", {Number("llama.nextn_predict_layers", 2)}, "OUT_OF_RANGE", "gguf.llama.nextn_predict_layers");
  Gguf gguf = Model("llama");
  gguf.factors = {{std::string(kRopeFreqs), {1, 2}}};
  EXPECT_THAT(Read(gguf), IsInvalid("MISMATCH", "gguf.rope_freqs.weight"));
  gguf.pairs.erase(gguf.pairs.begin());
  EXPECT_THAT(Read(gguf), IsInvalid("MISSING", "gguf.general.architecture"));
  EXPECT_THAT(ReadModel({.gguf = WriteGguf(Model("llama")), .component = "text"}, {}),
              IsInvalid("UNKNOWN_VALUE", "component"));
  EXPECT_THAT(ReadModel({.gguf = WriteGguf(Model("llama")), .wanted = Wanted::kTerms}, {}),
              IsInvalid("UNSUPPORTED", "gguf.general.architecture"));
  EXPECT_THAT(ReadModel({.gguf = std::string(1 << 21, 'x')}, {}), IsInvalid("OUT_OF_RANGE", "gguf"));
}

// An error of a formula names the key that the setting comes from.
TEST(GgufModel, ErrorsOfSettingsNameTheirKeys) {
  v1::GenerateTableRequest request;
  const auto fails = [&](std::vector<GgufPair> more, const std::string& field) {
    request.mutable_rotary()->mutable_model()->set_gguf(WriteGguf(Model("llama", std::move(more))));
    EXPECT_THAT(Call(request), IsInvalid("OUT_OF_RANGE", "rotary.model.gguf.llama." + field));
  };
  fails({Float("llama.rope.freq_base", -1)}, "rope.freq_base");
  fails({Float("llama.rope.scaling.factor", -4)}, "rope.scaling.factor");
  fails({Float("llama.rope.scaling.attn_factor", -1)}, "rope.scaling.attn_factor");
  request.mutable_rotary()->mutable_model()->set_config_json("{}");
  EXPECT_THAT(Call(request), IsInvalid("CONFLICT", "rotary.model.gguf"));
}

// DeepSeek V4's own theta is that of layers without a compressor; all layers get the note that config.json files get.
TEST(GgufModel, DeepseekV4RotatesTheOutputBack) {
  const auto layers = Read("deepseek4", {List("deepseek4.attention.compress_ratios", {0, 4}),
                                         Float("deepseek4.attention.compress_rope_freq_base", 160000)});
  ASSERT_THAT(layers, IsOk());
  ASSERT_EQ(layers->size(), 2);
  for (const ModelLayers& layer : *layers) {
    EXPECT_THAT(layer.notes, testing::Contains(testing::Field(&Note::message, kDeepseekV4Note)));
  }
  EXPECT_EQ(ParametersOf((*layers)[0]).rope_theta, 10000);
  EXPECT_EQ(ParametersOf((*layers)[1]).rope_theta, 160000);
}

TEST(GgufModel, EveryArchitectureIsReadOrRefused) {
  for (const GgufType& type : GgufTypes()) {
    const std::string name(type.name);
    std::vector<GgufPair> keys;
    if (type.sliding) keys.push_back(List(name + ".attention.sliding_window_pattern", {0, 1}));
    if (type.pairs == GgufPairs::kMrope || type.pairs == GgufPairs::kImrope) {
      keys.push_back(List(name + ".rope.dimension_sections", {2, 1, 1, 0}));
    }
    if (name == "deepseek4") {
      keys = {List(name + ".attention.compress_ratios", {0, 4}),
              Float(name + ".attention.compress_rope_freq_base", 160000)};
    }
    if (type.half_width) keys.push_back(Number(name + ".rope.dimension_count", 8));
    const auto layers = Read(name, keys);
    EXPECT_EQ(layers.ok(), type.instead.empty()) << name << ": " << layers.status();
  }
}

}  // namespace
}  // namespace posenc::gguf_model_test
