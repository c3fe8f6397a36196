// Rules of transformers 5.24 for a config.json that is ambiguous by itself, and the notes about them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "posenc/model/model.h"
#include "posenc/rotary/rotary_plan.h"
#include "tests/reference/golden.h"
#include "tests/service/call.h"

namespace posenc::model_rules_test {
namespace {

using testing::Contains;
using testing::Field;

std::vector<ModelLayers> Read(const std::string& config_json, const std::string& component = "") {
  const auto all = ReadModel({.config_json = config_json, .component = component}, {});
  EXPECT_THAT(all, IsOk());
  return all.ok() ? *all : std::vector<ModelLayers>(1);
}

const RopeParameters& ParametersOf(const ModelLayers& layers) {
  return std::get<RopeParameters>(layers.rotary->frequencies);
}

auto HasNote(const std::string& code, const std::string& field) {
  return Contains(testing::AllOf(Field(&Note::code, code), Field(&Note::field, field)));
}

TEST(ModelRules, OriginalLengthOutsideTheBlockCounts) {
  const auto layers = Read(R"({"model_type": "qwen2", "head_dim": 64, "original_max_position_embeddings": 4096,
      "rope_scaling": {"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 32768}})");
  EXPECT_EQ(ParametersOf(layers[0]).original_max_position_embeddings, 4096);
  EXPECT_THAT(layers[0].notes, HasNote("NOT_USED", "config_json.rope_scaling.original_max_position_embeddings"));
}

TEST(ModelRules, ThetaInsideTheBlockCounts) {
  const auto layers = Read(R"({"model_type": "llama", "head_dim": 64, "rope_theta": 1e6,
      "rope_parameters": {"rope_type": "default", "rope_theta": 5e5}})");
  EXPECT_EQ(ParametersOf(layers[0]).rope_theta, 5e5);
  EXPECT_THAT(layers[0].notes, HasNote("NOT_USED", "config_json.rope_theta"));
}

TEST(ModelRules, OriginalLengthDefaultsToTheLongest) {
  const auto layers = Read(R"({"model_type": "llama", "head_dim": 64, "max_position_embeddings": 8192,
      "rope_scaling": {"type": "yarn", "factor": 4}})");
  EXPECT_EQ(ParametersOf(layers[0]).original_max_position_embeddings, 8192);
  EXPECT_THAT(layers[0].notes, HasNote("DEFAULTED", "config_json.rope_scaling.original_max_position_embeddings"));
}

TEST(ModelRules, YarnNeedsAFactorButItMayBeNull) {
  const std::string rest = R"("original_max_position_embeddings": 4096}, "max_position_embeddings": 16384,
      "model_type": "llama", "head_dim": 64})";
  EXPECT_THAT(ReadModel({.config_json = R"({"rope_scaling": {"type": "yarn", )" + rest}, {}),
              IsInvalid("MISSING", "config_json.rope_scaling.factor"));
  const auto layers = Read(R"({"rope_scaling": {"type": "yarn", "factor": null, )" + rest);
  const auto rotary = Rotary::Create(*layers[0].rotary, Frequencies::kExact, {});
  ASSERT_THAT(rotary, IsOk());
  EXPECT_EQ(std::get<RopeParameters>(rotary->settings().frequencies).factor, 4);
}

TEST(ModelRules, BetasOfZeroMeanTheirDefaults) {
  const auto layers = Read(R"({"model_type": "llama", "head_dim": 64, "rope_scaling": {"type": "yarn", "factor": 4,
      "original_max_position_embeddings": 4096, "beta_fast": 0, "beta_slow": 0}})");
  const auto rotary = Rotary::Create(*layers[0].rotary, Frequencies::kExact, {});
  ASSERT_THAT(rotary, IsOk());
  EXPECT_EQ(std::get<RopeParameters>(rotary->settings().frequencies).beta_fast, 32);
  EXPECT_EQ(std::get<RopeParameters>(rotary->settings().frequencies).beta_slow, 1);
  EXPECT_THAT(layers[0].notes, HasNote("DEFAULTED", "config_json.rope_scaling.beta_fast"));
}

TEST(ModelRules, AttentionFactorOfZeroIsVerbatim) {
  const auto layers = Read(R"({"model_type": "llama", "head_dim": 64, "rope_scaling": {"type": "yarn", "factor": 4,
      "original_max_position_embeddings": 4096, "attention_factor": 0.0}})");
  EXPECT_EQ((*Rotary::Create(*layers[0].rotary, Frequencies::kExact, {})->Plan(1))->attention_scaling, 0);
}

TEST(ModelRules, TruncateOfALayerTypesBlockIsNotRead) {
  const auto layers = Read(R"({"model_type": "olmo3", "head_dim": 64, "num_hidden_layers": 4, "rope_parameters": {
      "sliding_attention": {"rope_type": "default"},
      "full_attention": {"rope_type": "yarn", "factor": 8, "original_max_position_embeddings": 8192,
                         "truncate": false}}})");
  ASSERT_EQ(layers.size(), 2u);
  EXPECT_EQ(layers[1].layer_type, "full_attention");
  EXPECT_FALSE(ParametersOf(layers[1]).truncate.has_value());
  EXPECT_THAT(layers[1].notes, HasNote("NOT_USED", "config_json.rope_parameters.full_attention.truncate"));
}

// transformers makes the older block the one of the full_attention layers, so the same holds for it.
TEST(ModelRules, TruncateAndLengthOfAnOlderBlock) {
  const auto layers = Read(R"({"model_type": "olmo3", "head_dim": 64, "num_hidden_layers": 4,
      "max_position_embeddings": 65536, "original_max_position_embeddings": 4096,
      "rope_scaling": {"rope_type": "yarn", "factor": 8, "truncate": false}})");
  ASSERT_EQ(layers.size(), 2u);
  EXPECT_FALSE(ParametersOf(layers[1]).truncate.has_value());
  EXPECT_THAT(layers[1].notes, HasNote("NOT_USED", "config_json.rope_scaling.truncate"));
  EXPECT_EQ(ParametersOf(layers[1]).original_max_position_embeddings, 65536);
}

// Ling-1T's file, and one that gives the same width as a share.
TEST(ModelRules, FilesOfUnknownTypeSayHowManyElementsRotate) {
  for (const char* width : {R"("rotary_dim": 64)", R"("partial_rotary_factor": 0.5)",
                            R"("partial_rotary_factor": 0.5, "rotary_dim": 64)"}) {
    const std::string file = R"({"model_type": "bailing_of_tomorrow", "head_dim": 128, "rope_theta": 600000, )";
    const auto all = ReadModel({.config_json = file + width + "}", .input_pairing = Pairing::kHalfSplit}, {});
    ASSERT_THAT(all, IsOk());
    EXPECT_EQ(ParametersOf((*all)[0]).partial_rotary_factor, 0.5) << width;
    EXPECT_EQ((*all)[0].notes.size(), 1u) << width;  // that the type is not known
  }
}

// This is the form of Laguna XS. transformers reads the blocks' own lengths, but truncate beside them.
TEST(ModelRules, NumbersBesideTheBlocksOfLayerTypes) {
  const auto read = [](const std::string& beside) {
    return Read(R"({"model_type": "olmo3", "head_dim": 64, "num_hidden_layers": 4, "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 500000}, )" +
                beside + R"(,
        "full_attention": {"rope_type": "yarn", "factor": 8, "original_max_position_embeddings": 8192,
                           "rope_theta": 500000}}})");
  };
  const auto length = read(R"("original_max_position_embeddings": 4096)");
  ASSERT_EQ(length.size(), 2u);
  EXPECT_EQ(ParametersOf(length[1]).original_max_position_embeddings, 8192);
  EXPECT_THAT(length[1].notes, HasNote("NOT_USED", "config_json.rope_parameters.original_max_position_embeddings"));
  const auto truncate = read(R"("truncate": false)");
  ASSERT_EQ(truncate.size(), 2u);
  EXPECT_EQ(ParametersOf(truncate[1]).truncate, false);
  EXPECT_THAT(ReadModel({.config_json = R"({"model_type": "olmo3", "head_dim": 64, "rope_parameters": {
                  "full_attention": {"rope_type": "default"}, "warp": 3}})"},
                        {}),
              IsInvalid("OUT_OF_RANGE", "config_json.rope_parameters.warp"));
}

TEST(ModelRules, OlmosTopLevelThetaIsForFullAttentionOnly) {
  const auto layers = Read(R"({"model_type": "olmo3", "head_dim": 64, "num_hidden_layers": 4, "rope_theta": 1e7})");
  ASSERT_EQ(layers.size(), 2u);
  EXPECT_EQ(ParametersOf(layers[0]).rope_theta, 500000);
  EXPECT_THAT(layers[0].layer_index, testing::ElementsAre(0, 1, 2));
  EXPECT_EQ(ParametersOf(layers[1]).rope_theta, 1e7);
  EXPECT_THAT(layers[1].layer_index, testing::ElementsAre(3));
}

// A null or absent block means the class's default block, not a layer without rope.
TEST(ModelRules, GemmasMissingBlocksAreDefault) {
  for (const char* sliding : {R"("sliding_attention": null,)", ""}) {
    const auto layers =
        Read(std::string(R"({"model_type": "gemma3_text", "num_hidden_layers": 6, "rope_parameters": {)") + sliding +
             R"("full_attention": {"rope_type": "linear", "factor": 8}}})");
    ASSERT_EQ(layers.size(), 2u);
    ASSERT_TRUE(layers[0].rotary.has_value());
    EXPECT_EQ(ParametersOf(layers[0]).rope_type, "default");
    EXPECT_EQ(ParametersOf(layers[0]).rope_theta, 10000);
    EXPECT_EQ(ParametersOf(layers[1]).rope_type, "linear");
    EXPECT_EQ(ParametersOf(layers[1]).rope_theta, 1e6);
    EXPECT_EQ(layers[1].rotary->head_dim, 256);
  }
}

TEST(ModelRules, Phi3ReadsSuAndYarnAsLongrope) {
  for (const char* type : {"su", "yarn"}) {
    const auto layers = Read(std::string(R"({"model_type": "phi3", "head_dim": 4, "max_position_embeddings": 131072,
        "original_max_position_embeddings": 4096,
        "rope_scaling": {"short_factor": [1, 2], "long_factor": [3, 4], "type": ")") +
                             type + "\"}}");
    EXPECT_EQ(ParametersOf(layers[0]).rope_type, "longrope");
    EXPECT_THAT(layers[0].notes, HasNote("RENAMED", "config_json.rope_scaling.type"));
    EXPECT_THAT(Rotary::Create(*layers[0].rotary, Frequencies::kExact, {}), IsOk());
  }
}

TEST(ModelRules, LlamaDoesNotReadAPartialWidth) {
  const auto layers = Read(R"({"model_type": "llama", "head_dim": 64, "partial_rotary_factor": 0.5})");
  EXPECT_EQ(Rotary::Create(*layers[0].rotary, Frequencies::kExact, {})->rotary_dim(), 64);
  EXPECT_THAT(layers[0].notes, HasNote("NOT_USED", "config_json.partial_rotary_factor"));
  EXPECT_THAT(ReadModel({.config_json = R"({"model_type": "llama", "head_dim": 64, "partial_rotary_factor": 0.5,
                                            "rope_scaling": {"type": "linear", "factor": 2}})"},
                        {}),
              IsInvalid("UNSUPPORTED", "config_json.partial_rotary_factor"));
}

TEST(ModelRules, SmolLm3LeavesOutListedLayers) {
  const auto layers = Read(R"({"model_type": "smollm3", "hidden_size": 2048, "num_attention_heads": 16,
      "num_hidden_layers": 4, "no_rope_layers": [1, 0, 1, 0], "rope_theta": 5e6,
      "layer_types": ["full_attention", "full_attention", "full_attention", "full_attention"]})");
  ASSERT_EQ(layers.size(), 2u);
  EXPECT_TRUE(layers[0].rotary.has_value());
  EXPECT_THAT(layers[0].layer_index, testing::ElementsAre(0, 2));
  EXPECT_FALSE(layers[1].rotary.has_value());
  EXPECT_THAT(layers[1].layer_index, testing::ElementsAre(1, 3));
  const auto by_interval = Read(R"({"model_type": "smollm3", "head_dim": 64, "num_hidden_layers": 8})");
  ASSERT_EQ(by_interval.size(), 2u);
  EXPECT_THAT(by_interval[1].layer_index, testing::ElementsAre(3, 7));
}

TEST(ModelRules, Cohere2RotatesSlidingLayersOnly) {
  v1::ApplyRotaryRequest request;
  auto* model = request.mutable_rotary()->mutable_model();
  model->set_config_json(R"({"model_type": "cohere2", "head_dim": 4, "num_hidden_layers": 4})");
  request.set_layout(v1::LAYOUT_THD);
  request.mutable_positions()->set_offset(5);
  *request.mutable_q()->mutable_tensor() = MakeTensor(DType::kBF16, {1, 1, 4}, {1, 2, 3, 4});
  model->set_layer_index(3);
  auto response = Call(request);
  ASSERT_THAT(response, IsOk());
  EXPECT_FALSE(response->info().rotated());
  EXPECT_EQ(response->info().layer_type(), "full_attention");
  EXPECT_EQ(response->q().data(), request.q().tensor().data());
  model->set_layer_index(2);
  response = Call(request);
  ASSERT_THAT(response, IsOk());
  EXPECT_TRUE(response->info().rotated());
  EXPECT_NE(response->q().data(), request.q().tensor().data());
}

v1::ApplyRotaryRequest RotationBy(const std::string& config_json) {
  v1::ApplyRotaryRequest request;
  request.mutable_rotary()->mutable_model()->set_config_json(config_json);
  request.set_layout(v1::LAYOUT_THD);
  request.mutable_positions()->set_offset(20);
  *request.mutable_q()->mutable_tensor() = MakeTensor(DType::kFP32, {1, 1, 4}, {1, 2, 3, 4});
  return request;
}

// One request fits all models: choices that a model does not need may be given.
TEST(ModelRules, ChoicesThatDoNotMatterMayBeGiven) {
  v1::ApplyRotaryRequest request = RotationBy(R"({"model_type": "llama", "head_dim": 4})");
  const auto plain = Call(request);
  ASSERT_THAT(plain, IsOk());
  request.mutable_rotary()->mutable_model()->set_component("text");
  request.mutable_rotary()->mutable_model()->set_layer_index(7);
  request.mutable_positions()->set_scaling_length_rule(v1::SCALING_LENGTH_RULE_GIVEN);
  request.mutable_positions()->add_seq_len(9);
  const auto with_choices = Call(request);
  ASSERT_THAT(with_choices, IsOk());
  EXPECT_EQ(with_choices->q().data(), plain->q().data());
  EXPECT_EQ(with_choices->info().plan_fingerprint(), plain->info().plan_fingerprint());
}

TEST(ModelRules, ABatchsLongestSequenceIsTheDefaultLength) {
  v1::ApplyRotaryRequest request = RotationBy(R"({"model_type": "llama", "head_dim": 4, "max_position_embeddings": 8,
      "rope_scaling": {"type": "dynamic", "factor": 2}})");
  const auto by_default = Call(request);
  ASSERT_THAT(by_default, IsOk());
  ASSERT_EQ(by_default->info().notes_size(), 1);
  EXPECT_EQ(by_default->info().notes(0).code(), "DEFAULTED");
  EXPECT_EQ(by_default->info().notes(0).field(), "positions.scaling_length_rule");
  EXPECT_EQ(by_default->info().sequences(0).seq_len(), 21);
  request.mutable_positions()->set_scaling_length_rule(v1::SCALING_LENGTH_RULE_WHOLE_BATCH);
  const auto given = Call(request);
  ASSERT_THAT(given, IsOk());
  EXPECT_EQ(given->info().notes_size(), 0);
  EXPECT_EQ(given->q().data(), by_default->q().data());
  request.mutable_positions()->set_scaling_length_rule(v1::SCALING_LENGTH_RULE_UNSPECIFIED);
  request.mutable_positions()->add_seq_len(9);
  EXPECT_THAT(Call(request), IsInvalid("NOT_READ", "positions.seq_len"));
}

TEST(ModelRules, MinistralMultipliesItsQueries) {
  const auto layers = Read(golden::ReadText("configs/ministral-3-3b-reasoning-2512.json"), "text");
  EXPECT_THAT(layers[0].notes, HasNote("QUERY_SCALE", "config_json.text_config.rope_parameters.llama_4_scaling_beta"));
  const auto& scale = layers[0].rotary->query_scale;
  ASSERT_TRUE(scale);
  EXPECT_EQ(scale->function, QueryScaleFunction::kMinistral3);
  EXPECT_EQ(scale->llama_4_scaling_beta, 0.1);
  EXPECT_EQ(scale->original_max_position_embeddings, 16384);
  EXPECT_EQ(scale->position_source, PositionSource::kPositionIds);
  EXPECT_TRUE(scale->rounds_factor);
}

// A block of rope_type "default" has the length for this factor only.
TEST(ModelRules, MinistralsLengthIsReadWithAnyRopeType) {
  const auto layers = Read(R"({"model_type": "ministral3", "rope_parameters": {"rope_type": "default",
      "rope_theta": 1e6, "llama_4_scaling_beta": 0.25, "original_max_position_embeddings": 4096}})");
  EXPECT_EQ(layers[0].rotary->query_scale->original_max_position_embeddings, 4096);
  EXPECT_FALSE(ParametersOf(layers[0]).original_max_position_embeddings);
  EXPECT_FALSE(Read(R"({"model_type": "ministral3", "rope_parameters": {"rope_theta": 1e6}})")[0].rotary->query_scale);
}

TEST(ModelRules, Llama4MultipliesQueriesOfLayersThatDoNotRotate) {
  const auto layers = Read(R"({"model_type": "llama4_text", "num_hidden_layers": 4})");
  ASSERT_EQ(layers.size(), 2);
  EXPECT_FALSE(layers[0].rotary->query_scale);
  EXPECT_THAT(layers[1].notes, HasNote("QUERY_SCALE", "config_json.attn_temperature_tuning"));
  const auto& scale = layers[1].rotary->query_scale;
  ASSERT_TRUE(scale);
  EXPECT_EQ(layers[1].rotary->frequencies.index(), 0);
  EXPECT_EQ(scale->attn_scale, 0.1);
  EXPECT_EQ(scale->floor_scale, 8192);
  EXPECT_EQ(scale->position_source, PositionSource::kCacheIndex);
  const auto own = Read(R"({"model_type": "llama4_text", "num_hidden_layers": 4, "attn_temperature_tuning": 4,
      "attn_scale": 0.2, "floor_scale": 100, "no_rope_layers": [0, 1, 1, 1]})");
  EXPECT_EQ(own[0].rotary->query_scale->attn_scale, 0.2);
  EXPECT_EQ(own[0].rotary->query_scale->floor_scale, 100);
  for (const char* off : {"false", "0", "null"}) {
    const std::string file =
        std::string(R"({"model_type": "llama4_text", "num_hidden_layers": 4, "attn_temperature_tuning": )") + off + "}";
    EXPECT_FALSE(Read(file)[1].rotary);
  }
  EXPECT_THAT(Call(RotationBy(R"({"model_type": "llama4_text", "num_hidden_layers": 1, "no_rope_layer_interval": 1,
                                  "floor_scale": 0})")),
              IsInvalid("OUT_OF_RANGE", "rotary.model.config_json.floor_scale"));
}

TEST(ModelRules, BeamMultipliesQueriesOfItsFullLayers) {
  const auto layers = Read(R"({"model_type": "beam", "num_hidden_layers": 6})");
  ASSERT_EQ(layers.size(), 2);
  EXPECT_FALSE(layers[0].rotary->query_scale);
  EXPECT_EQ(layers[1].rotary->query_scale->function, QueryScaleFunction::kBeam);
}

TEST(ModelRules, QwensLogn) {
  const auto read = [](const char* file) {
    ModelSource source{.config_json = file, .input_pairing = Pairing::kHalfSplit};
    return ReadModel(source, {});
  };
  const auto off = read(R"({"model_type": "qwen", "hidden_size": 64, "num_attention_heads": 4,
      "rotary_pct": 1.0, "seq_length": 2048})");  // the class's default is false
  ASSERT_THAT(off, IsOk());
  EXPECT_FALSE((*off)[0].rotary->query_scale);
  const auto layers = read(R"({"model_type": "qwen", "hidden_size": 64, "num_attention_heads": 4,
      "rotary_pct": 1.0, "seq_length": 2048, "use_logn_attn": true})");
  ASSERT_THAT(layers, IsOk());
  const auto& scale = (*layers)[0].rotary->query_scale;
  ASSERT_TRUE(scale);
  EXPECT_EQ(scale->seq_length, 2048);
  EXPECT_EQ(scale->position_source, PositionSource::kCacheIndex);
}

TEST(ModelRules, Grok2sScoresAreNotPartOfTheRotation) {
  ModelSource source{.config_json = R"({"model_type": "grok-2", "hidden_size": 64, "num_attention_heads": 4,
      "rope_theta": 10000, "attn_temperature_len": 1024})",
                     .input_pairing = Pairing::kHalfSplit};
  const auto layers = ReadModel(source, {});
  ASSERT_THAT(layers, IsOk());
  EXPECT_THAT((*layers)[0].notes, HasNote("NOT_PART_OF_ROTATION", "config_json.attn_temperature_len"));
}

// DeepSeek's attention multiplies its softmax scale by m(s, mscale_all_dim)^2, here 1.2608^2; other classes do not.
TEST(ModelRules, SoftmaxScaleOfDeepseekOnly) {
  const auto factor = [](const char* config, const char* component = "") {
    v1::ExplainRequest request;
    request.mutable_model()->set_component(component);
    request.mutable_model()->set_config_json(golden::ReadText(config));
    const auto response = Call(request);
    EXPECT_THAT(response, IsOk());
    return response->layers(0).info().plan().softmax_scale_factor();
  };
  EXPECT_NEAR(factor("configs/deepseek-v2-lite.json"), 1.2608 * 1.2608, 1e-4);
  EXPECT_NEAR(factor("configs/deepseek-v3.json"), 1.3689 * 1.3689, 1e-4);
  EXPECT_EQ(factor("configs/ministral-3-3b-reasoning-2512.json", "text"), 1);
}

// Phi3Config has its own default outside the block, so the block's value is never used.
TEST(ModelRules, Phi3TakesTheOriginalLengthOutsideTheBlockOrItsOwn) {
  const auto layers = Read(R"({"model_type": "phi3", "head_dim": 4, "max_position_embeddings": 8192, "rope_scaling":
      {"type": "longrope", "short_factor": [1, 2], "long_factor": [3, 4], "original_max_position_embeddings": 2048}})");
  EXPECT_EQ(ParametersOf(layers[0]).original_max_position_embeddings, 4096);
  EXPECT_THAT(layers[0].notes, HasNote("NOT_USED", "config_json.rope_scaling.original_max_position_embeddings"));
}

// GPT-NeoX reads only these names, and no other class reads them.
TEST(ModelRules, NamesOutsideTheBlockAreTheClassesOwn) {
  const std::string both =
      R"("rope_theta": 5e5, "rotary_emb_base": 2e4, "partial_rotary_factor": 0.5, "rotary_pct": 0.125,
      "hidden_size": 64, "num_attention_heads": 1})";
  const auto neox = Read(R"({"model_type": "gpt_neox", )" + both);
  EXPECT_EQ(ParametersOf(neox[0]).rope_theta, 2e4);
  EXPECT_EQ(ParametersOf(neox[0]).partial_rotary_factor, 0.125);
  EXPECT_THAT(neox[0].notes, HasNote("NOT_USED", "config_json.rope_theta"));
  const auto phi = Read(R"({"model_type": "phi", )" + both);
  EXPECT_EQ(ParametersOf(phi[0]).rope_theta, 5e5);
  EXPECT_EQ(ParametersOf(phi[0]).partial_rotary_factor, 0.5);
  EXPECT_THAT(phi[0].notes, HasNote("NOT_USED", "config_json.rotary_pct"));
}

TEST(ModelRules, OneBlockForAllIsNotReadWhereTheClassWantsThemByLayerType) {
  const auto layers = Read(R"({"model_type": "gemma3_text", "num_hidden_layers": 6,
      "rope_parameters": {"rope_type": "linear", "factor": 8}})");
  ASSERT_EQ(layers.size(), 2u);
  EXPECT_EQ(ParametersOf(layers[1]).rope_type, "default");
  EXPECT_THAT(layers[1].notes, HasNote("NOT_USED", "config_json.rope_parameters"));
}

TEST(ModelRules, SomeClassesHaveABlockOfTheirOwn) {
  const auto gpt_oss = Read(R"({"model_type": "gpt_oss", "rope_theta": 1e6})");
  EXPECT_EQ(ParametersOf(gpt_oss[0]).rope_type, "yarn");
  EXPECT_EQ(ParametersOf(gpt_oss[0]).factor, 32);
  EXPECT_EQ(ParametersOf(gpt_oss[0]).rope_theta, 1e6);
  EXPECT_EQ(ParametersOf(gpt_oss[0]).truncate, false);
  EXPECT_THAT(gpt_oss[0].notes, HasNote("DEFAULTED", "config_json.rope_parameters"));
  const auto ministral = Read(R"({"model_type": "ministral3", "rope_theta": 5e6})");
  EXPECT_EQ(ParametersOf(ministral[0]).rope_theta, 1e6);
  EXPECT_EQ(ParametersOf(ministral[0]).original_max_position_embeddings, 16384);
}

TEST(ModelRules, DeepseekV3sInterleavingMayBeOff) {
  const auto layers = Read(R"({"model_type": "deepseek_v3", "rope_interleave": false})");
  EXPECT_EQ(layers[0].rotary->input_pairing, Pairing::kHalfSplit);
  EXPECT_EQ(layers[0].rotary->output_pairing, Pairing::kHalfSplit);
}

TEST(ModelRules, AHeadDimOfNullIsNotTheClasssOwn) {
  const auto layers = Read(R"({"model_type": "internlm3", "head_dim": null, "hidden_size": 1024,
      "num_attention_heads": 16})");
  EXPECT_EQ(layers[0].rotary->head_dim, 64);
}

// transformers saves both spellings of the same settings; they are legal if they agree.
TEST(ModelRules, TwoAgreeingSpellingsAreOne) {
  const auto layers = Read(R"({"model_type": "llama", "head_dim": 64,
      "rope_scaling": {"type": "linear", "factor": 2.0, "extra": null},
      "rope_parameters": {"rope_type": "linear", "type": "linear", "factor": 2}})");
  EXPECT_EQ(ParametersOf(layers[0]).rope_type, "linear");
  EXPECT_EQ(ParametersOf(layers[0]).factor, 2);
}

// Layers of a type, of files that do not list the types. The rules are those of transformers 5.24's configuration
// classes; scripts/conformance mutations runs these classes and their models.
TEST(ModelRules, LayerTypesFollowTheClassesOwnPatterns) {
  const struct {
    std::string_view fields;
    std::string_view layer_type;
    std::vector<uint32_t> layers;
  } cases[] = {
      {R"("model_type": "modernbert", "num_hidden_layers": 7)", "full_attention", {0, 3, 6}},
      {R"("model_type": "modernbert", "num_hidden_layers": 5, "global_attn_every_n_layers": 2)",
       "full_attention",
       {0, 2, 4}},
      {R"("model_type": "mimo_v2_flash", "num_hidden_layers": 12)", "full_attention", {0, 5, 11}},
      {R"("model_type": "gemma3n_text", "num_hidden_layers": 10)", "full_attention", {4, 9}},
      {R"("model_type": "bailing_hybrid", "num_hidden_layers": 12)", "full_attention", {5, 11}},
      {R"("model_type": "flint", "num_hidden_layers": 7)", "full_attention", {0, 1, 5, 6}},
      {R"("model_type": "beam", "num_hidden_layers": 8)", "full_attention", {5, 7}},
      {R"("model_type": "lfm2", "num_hidden_layers": 4, "full_attn_idxs": [1, 3])", "full_attention", {1, 3}},
      {R"("model_type": "bamba", "num_hidden_layers": 4, "attn_layer_indices": [2])", "full_attention", {2}},
      {R"("model_type": "recurrent_gemma", "num_hidden_layers": 6)", "attention", {2, 5}},
      {R"("model_type": "recurrent_gemma", "num_hidden_layers": 4, "block_types": ["recurrent", "attention"])",
       "attention",
       {1, 3}},
      {R"("model_type": "minimax", "num_hidden_layers": 4)", "full_attention", {0, 2}},
      {R"("model_type": "mllama_text_model", "num_hidden_layers": 10)", "cross_attention", {3, 8}},
      {R"("model_type": "lfm3", "num_hidden_layers": 8)", "sliding_attention", {4}},
      {R"("model_type": "lara_mini", "num_hidden_layers": 11)", "sliding_attention", {1, 4, 6, 9}},
      {R"("model_type": "dory", "num_hidden_layers": 5)", "full_attention", {3}},
      {R"("model_type": "dory", "num_hidden_layers": 6,
          "layer_types": ["full_attention", "mlp", "sliding_attention", "mlp", "full_attention", "mlp"])",
       "full_attention",
       {0, 2}},
      {R"("model_type": "gemma4_text", "num_hidden_layers": 2,
          "layer_types": ["sliding_attention", "sliding_attention"])",
       "full_attention",
       {1}},
  };
  for (const auto& [fields, layer_type, expected] : cases) {
    std::vector<uint32_t> found;
    for (const ModelLayers& layers :
         Read("{\"hidden_size\": 256, \"num_attention_heads\": 4, " + std::string(fields) + "}")) {
      if (layers.layer_type == layer_type) found = layers.layer_index;
    }
    EXPECT_EQ(found, expected) << fields;
  }
}

TEST(ModelRules, SarvamReadsDeepseekYarnAsYarn) {
  const auto layers = Read(R"({"model_type": "sarvam_mla", "rope_scaling": {"type": "deepseek_yarn", "factor": 40,
      "original_max_position_embeddings": 4096, "mscale": 1, "mscale_all_dim": 1}})");
  EXPECT_EQ(ParametersOf(layers[0]).rope_type, "yarn");
  EXPECT_THAT(layers[0].notes, HasNote("RENAMED", "config_json.rope_scaling.type"));
}

TEST(ModelRules, FilesThatLoadAndDoNotRunAreNoted) {
  EXPECT_THAT(Read(R"({"model_type": "glm4_moe_lite", "partial_rotary_factor": 0.5})")[0].notes,
              HasNote("CANNOT_RUN", "config_json.partial_rotary_factor"));
  EXPECT_THAT(
      Read(R"({"model_type": "mistral4", "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}})")[0].notes,
      HasNote("CANNOT_RUN", "config_json.rope_parameters.rope_type"));
  EXPECT_THAT(Read(R"({"model_type": "ministral3", "rope_parameters": {"rope_theta": 1e6}})")[0].notes,
              HasNote("CANNOT_RUN", "config_json.rope_parameters.llama_4_scaling_beta"));
}

TEST(ModelRules, MisspelledFieldsAreNoted) {
  const struct {
    std::string_view field, meant;
  } cases[] = {{"rope_tetha", "rope_theta"},
               {"rope_thet", "rope_theta"},
               {"rope_thetaa", "rope_theta"},
               {"rope_thete", "rope_theta"},
               {"max_position_embedding", "max_position_embeddings"}};
  for (const auto& [field, meant] : cases) {
    const auto layers = Read(fmt::format(R"({{"model_type": "llama", "head_dim": 64, "{}": 7}})", field));
    EXPECT_THAT(layers[0].notes,
                Contains(testing::AllOf(Field(&Note::field, fmt::format("config_json.{}", field)),
                                        Field(&Note::message, fmt::format("is not read; did you mean {}?", meant)))))
        << field;
  }
  // Neither where the right name is there, too, nor for other fields of real files.
  const auto both = Read(R"({"model_type": "llama", "head_dim": 64, "rope_theta": 1e6, "rope_thetas": 7})");
  EXPECT_THAT(both[0].notes, testing::Not(Contains(Field(&Note::message, testing::HasSubstr("did you mean")))));
  for (const std::string& file : golden::List("configs")) {
    const auto layers = ReadModel({.config_json = golden::ReadText("configs/" + file)}, {});
    if (!layers.ok()) continue;  // has several parts, or an unknown type
    for (const ModelLayers& each : *layers) {
      EXPECT_THAT(each.notes, testing::Not(Contains(Field(&Note::message, testing::HasSubstr("did you mean")))))
          << file;
    }
  }
}

TEST(ModelRules, NoLayerOfCohere2RotatesWithoutAWindow) {
  for (const ModelLayers& layers : Read(R"({"model_type": "cohere2", "hidden_size": 256, "num_attention_heads": 4,
           "num_hidden_layers": 4, "sliding_window": null})")) {
    EXPECT_FALSE(layers.rotary.has_value());
  }
}

TEST(ModelRules, Phi3AndErnieRefuseOtherScalings) {
  for (const char* type : {"phi3", "ernie4_5_vl_moe_text"}) {
    EXPECT_THAT(ReadModel({.config_json = std::string(R"({"model_type": ")") + type +
                                          R"(", "hidden_size": 256, "num_attention_heads": 4,
                                          "rope_scaling": {"type": "linear", "factor": 2}})"},
                          {}),
                IsInvalid("UNSUPPORTED", "config_json.rope_scaling.type"));
  }
}

TEST(ModelRules, TwoMagnitudesOfPhi35MoeMustBeEqual) {
  const std::string start = R"({"model_type": "phimoe", "hidden_size": 16, "num_attention_heads": 4, "rope_scaling": {
      "type": "longrope", "original_max_position_embeddings": 4096, "short_factor": [1, 2], "long_factor": [3, 4])";
  EXPECT_THAT(ReadModel({.config_json = start + "}}"}, {}),
              IsInvalid("MISSING", "config_json.rope_scaling.short_mscale"));
  EXPECT_THAT(ReadModel({.config_json = start + R"(, "short_mscale": 1, "long_mscale": 1.25}})"}, {}),
              IsInvalid("UNSUPPORTED", "config_json.rope_scaling.long_mscale"));
  const auto layers = Read(start + R"(, "short_mscale": 1.25, "long_mscale": 1.25}})");
  EXPECT_EQ(ParametersOf(layers[0]).longrope_branch, LongropeBranch::kShort);
  EXPECT_EQ(ParametersOf(layers[0]).attention_factor, 1.25);
}

TEST(ModelRules, ANullRopeInterleaveIsFalse) {
  const auto layers = Read(R"({"model_type": "deepseek_v3", "qk_rope_head_dim": 64, "rope_interleave": null})");
  EXPECT_EQ(layers[0].rotary->input_pairing, Pairing::kHalfSplit);
  EXPECT_THAT(layers[0].notes, HasNote("DEFAULTED", "config_json.rope_interleave"));
  EXPECT_EQ(layers[0].rotary_offset, 128);  // the class's default qk_nope_head_dim
}

TEST(ModelRules, DeepSeeksHeadDimMustAgree) {
  EXPECT_THAT(
      ReadModel({.config_json = R"({"model_type": "deepseek_v3", "qk_rope_head_dim": 64, "head_dim": 192})"}, {}),
      IsInvalid("CONFLICT", "config_json.head_dim"));
}

TEST(ModelRules, NullsThatTransformersRefusesAreNoted) {
  const auto layers = Read(R"({"model_type": "llama", "head_dim": 64, "num_hidden_layers": null,
      "rope_scaling": {"rope_type": "linear", "factor": 2, "rope_theta": null}})");
  EXPECT_THAT(layers[0].notes, HasNote("DEFAULTED", "config_json.num_hidden_layers"));
  EXPECT_THAT(layers[0].notes, HasNote("DEFAULTED", "config_json.rope_scaling.rope_theta"));
}

}  // namespace
}  // namespace posenc::model_rules_test
