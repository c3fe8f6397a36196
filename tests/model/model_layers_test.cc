// Which layers of a config.json rotate, and with which block, for classes whose layers differ. The expected values are
// those of transformers 5.24's classes; scripts/conformance mutations runs these classes and their models.
#include <gtest/gtest.h>

#include <algorithm>

#include "posenc/model/model.h"
#include "tests/service/call.h"

namespace posenc::model_layers_test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::Field;

std::vector<ModelLayers> Read(const std::string& fields) {
  const auto all = ReadModel({.config_json = "{" + fields + "}"}, {});
  EXPECT_THAT(all, IsOk()) << fields;
  return all.ok() ? *all : std::vector<ModelLayers>(1);
}

ModelLayers LayersOf(const std::string& fields, const std::string& layer_type) {
  for (ModelLayers& layers : Read(fields)) {
    if (layers.layer_type == layer_type) return layers;
  }
  ADD_FAILURE() << "no " << layer_type << " in " << fields;
  return {};
}

const RopeParameters& ParametersOf(const ModelLayers& layers) {
  return std::get<RopeParameters>(layers.rotary->frequencies);
}

// Indices of the layers that rotate.
std::vector<uint32_t> Rotated(const std::string& fields) {
  std::vector<uint32_t> found;
  for (const ModelLayers& layers : Read(fields)) {
    if (layers.rotary) found.insert(found.end(), layers.layer_index.begin(), layers.layer_index.end());
  }
  std::sort(found.begin(), found.end());
  return found;
}

auto HasNote(const std::string& code, const std::string& field) {
  return Contains(testing::AllOf(Field(&Note::code, code), Field(&Note::field, field)));
}

TEST(ModelLayersOf, AParsedFileIsNotParsedAgain) {
  const std::string part = R"({"model_type": "llama", "head_dim": 8})";
  ModelSource source{.config_json = R"({"a_config": )" + part + R"(, "b_config": )" + part + "}"};
  ASSERT_THAT(Parse({}, &source), IsOk());
  source.config_json.clear();
  EXPECT_THAT(*ComponentsOf(source, {}), ElementsAre("a", "b"));
  source.component = "b";
  const auto layers = ReadModel(source, {});
  ASSERT_THAT(layers, IsOk());
  EXPECT_TRUE(layers->front().rotary);
}

TEST(ModelLayersOf, HeadsOfTheirOwn) {
  const std::string gemma = R"("model_type": "gemma4_text", "num_hidden_layers": 4,
      "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
      "rope_parameters": {"sliding_attention": {"rope_type": "default"}, "full_attention": {"rope_type": "default"}},
      "per_layer_config": {"2": {"head_dim": 64}, "3": {"head_dim": 128}})";
  EXPECT_EQ(LayersOf(gemma, "sliding_attention").rotary->head_dim, 64);
  EXPECT_EQ(LayersOf(gemma, "full_attention").rotary->head_dim, 128);
  const std::string dots = R"("model_type": "dots3_note_text", "num_hidden_layers": 8, "swa_head_dim": 40,
      "swa_qk_nope_head_dim": 24)";
  EXPECT_EQ(LayersOf(dots, "sliding_attention").rotary->head_dim, 16);
}

TEST(ModelLayersOf, DeepSeekV4ScalesLayersWithACompressor) {
  const std::string file = R"("model_type": "deepseek_v4", "num_hidden_layers": 3, "compress_ratios": [0, 4, 128, 4],
      "head_dim": 512, "qk_rope_head_dim": 32, "rope_theta": 500, "compress_rope_theta": 40000,
      "rope_scaling": {"type": "yarn", "factor": 16, "original_max_position_embeddings": 65536})";
  const ModelLayers main = LayersOf(file, "main"), compress = LayersOf(file, "compress");
  EXPECT_THAT(main.layer_index, ElementsAre(0));
  EXPECT_THAT(compress.layer_index, ElementsAre(1, 2));
  EXPECT_EQ(ParametersOf(main).rope_type, "default");
  EXPECT_EQ(ParametersOf(main).rope_theta, 500);
  EXPECT_EQ(ParametersOf(compress).rope_type, "yarn");
  EXPECT_EQ(ParametersOf(compress).rope_theta, 40000);
  EXPECT_EQ(ParametersOf(compress).attention_factor, 1);  // yarn without a factor of cos and sin
  EXPECT_EQ(ParametersOf(main).partial_rotary_factor, 32.0 / 512);
  EXPECT_EQ(main.rotary_offset, 480);
  EXPECT_THAT(main.notes, HasNote("NOT_USED", "config_json.rope_scaling"));
}

TEST(ModelLayersOf, BothBlocksOfDeepSeekV4ReplaceTheFieldsOutside) {
  const ModelLayers compress = LayersOf(R"("model_type": "deepseek_v4", "num_hidden_layers": 2,
      "compress_rope_theta": 40000, "rope_parameters": {"main": {"rope_type": "default", "rope_theta": 500},
      "compress": {"rope_type": "default", "partial_rotary_factor": 0.25}})",
                                        "compress");
  EXPECT_EQ(ParametersOf(compress).rope_theta, 10000);  // rope_theta's default
  EXPECT_EQ(ParametersOf(compress).partial_rotary_factor, 0.25);
}

TEST(ModelLayersOf, AShareOfDeepSeekV4WiderThanItsIndexerIsNoted) {
  const ModelLayers compress = LayersOf(R"("model_type": "deepseek_v4", "num_hidden_layers": 2, "rope_parameters": {
      "main": {"rope_type": "default"}, "compress": {"rope_type": "default"}})",
                                        "compress");
  EXPECT_EQ(ParametersOf(compress).partial_rotary_factor, 1);
  EXPECT_THAT(compress.notes,
              HasNote("WIDER_THAN_INDEXER", "config_json.rope_parameters.compress.partial_rotary_factor"));
}

TEST(ModelLayersOf, DeepSeekV4RefusesOtherLayerTypes) {
  EXPECT_THAT(ReadModel({.config_json = R"({"model_type": "deepseek_v4", "num_hidden_layers": 2,
      "layer_types": ["sliding_attention", "full_attention"]})"},
                        {}),
              IsInvalid("UNKNOWN_VALUE", "config_json.layer_types[1]"));
}

TEST(ModelLayersOf, DeepSeekV4IgnoresOtherBlocksAlsoWithoutANumberOfLayers) {
  const std::string file = R"("model_type": "deepseek_v4", "rope_parameters": {
      "sliding_attention": {"rope_theta": 5}, "full_attention": {"rope_theta": 6}})";
  for (const auto& [layer_type, theta] : {std::pair{"main", 10000}, {"compress", 160000}}) {
    const ModelLayers layers = LayersOf(file, layer_type);
    EXPECT_EQ(layers.rotary ? ParametersOf(layers).rope_theta.value_or(0) : -1, theta);
    EXPECT_THAT(layers.notes, HasNote("NOT_USED", "config_json.rope_parameters"));
  }
}

TEST(ModelLayersOf, Step35HasListsOfThetaAndShares) {
  const std::string file = R"("model_type": "step3p5", "num_hidden_layers": 3, "num_nextn_predict_layers": 1,
      "layer_types": ["full_attention", "sliding_attention", "full_attention", "sliding_attention"],
      "rope_theta": [5e6, 10000, 7e6, 10000], "partial_rotary_factors": [0.5, 1, 0.5, 1],
      "rope_scaling": {"rope_type": "linear", "factor": 2})";
  const ModelLayers full = LayersOf(file, "full_attention"), sliding = LayersOf(file, "sliding_attention");
  EXPECT_THAT(full.layer_index, ElementsAre(0, 2));
  EXPECT_EQ(ParametersOf(full).rope_theta, 5e6);
  EXPECT_EQ(ParametersOf(full).partial_rotary_factor, 0.5);
  EXPECT_EQ(ParametersOf(full).factor, 2);
  EXPECT_THAT(full.notes, HasNote("NOT_USED", "config_json.rope_theta[2]"));
  EXPECT_EQ(ParametersOf(sliding).rope_theta, 10000);
  EXPECT_EQ(ParametersOf(sliding).rope_type, "default");
  EXPECT_THAT(sliding.notes, HasNote("NOT_USED", "config_json.rope_scaling"));
  EXPECT_THAT(ReadModel({.config_json = R"({"model_type": "step3p5", "num_hidden_layers": 2, "rope_theta": []})"}, {}),
              IsOk());
  EXPECT_THAT(ReadModel({.config_json = R"({"model_type": "step3p5", "num_hidden_layers": 2,
      "layer_types": ["full_attention", "sliding_attention"], "rope_theta": [1e4]})"},
                        {}),
              IsInvalid("MISMATCH", "config_json.rope_theta"));
}

TEST(ModelLayersOf, Step35IgnoresASingleBlockInRopeParameters) {
  const ModelLayers full = LayersOf(R"("model_type": "step3p5", "num_hidden_layers": 2, "rope_theta": 500,
      "rope_parameters": {"rope_type": "linear", "factor": 2, "rope_theta": 20000})",
                                    "full_attention");
  EXPECT_EQ(ParametersOf(full).rope_type, "default");
  EXPECT_EQ(ParametersOf(full).rope_theta, 500);
  EXPECT_THAT(full.notes, HasNote("NOT_USED", "config_json.rope_parameters"));
}

TEST(ModelLayersOf, Dots3HasAnotherHeadInItsSlidingLayers) {
  const std::string file = R"("model_type": "dots3_note_text", "num_hidden_layers": 6, "qk_nope_head_dim": 128)";
  const ModelLayers sliding = LayersOf(file, "sliding_attention"), indexed = LayersOf(file, "indexed_attention");
  EXPECT_THAT(indexed.layer_index, ElementsAre(0, 1, 5));
  EXPECT_EQ(ParametersOf(indexed).rope_theta, 8e7);
  EXPECT_EQ(ParametersOf(sliding).rope_theta, 5e4);
  EXPECT_EQ(sliding.rotary_offset, 192);
  EXPECT_EQ(sliding.whole_head, 256);
  EXPECT_THAT(LayersOf(file + R"(, "use_dsa": false)", "full_attention").layer_index, ElementsAre(0, 1, 5));
  EXPECT_EQ(Read(file + R"(, "use_sliding_window": false)").size(), 1);
  EXPECT_THAT(ReadModel({.config_json = "{" + file + R"(, "swa_head_dim": 200, "swa_qk_rope_head_dim": 64})"}, {}),
              IsInvalid("CONFLICT", "config_json.swa_head_dim"));
}

TEST(ModelLayersOf, DenseLayersOfCohere2MoeRotate) {
  const std::string file = R"("model_type": "cohere2_moe", "num_hidden_layers": 6, "sliding_window_pattern": 4)";
  EXPECT_THAT(Rotated(file), ElementsAre(0, 1, 2, 4, 5));
  EXPECT_THAT(Rotated(file + R"(, "first_k_dense_replace": 1)"), ElementsAre(0, 1, 2, 3, 5));
  EXPECT_THAT(Rotated(file + R"(, "first_k_dense_replace": 1, "prefix_dense_sliding_window_pattern": 2)"),
              ElementsAre(0, 1, 2, 3, 5));
  EXPECT_THAT(Rotated(file + R"(, "first_k_dense_replace": 1, "sliding_window": null)"), ElementsAre(0));
  EXPECT_THAT(Read(file + R"(, "rope_scaling": {"type": "linear", "factor": 2})")[0].notes,
              HasNote("NOT_USED", "config_json.rope_scaling"));
}

TEST(ModelLayersOf, OnlyHybridLayersOfZamba2Rotate) {
  const std::string file =
      R"("model_type": "zamba2", "hidden_size": 64, "num_attention_heads": 2, "use_mem_rope": true)";
  EXPECT_THAT(Rotated(file + R"(, "num_hidden_layers": 54)"), ElementsAre(6, 12, 18, 24, 30, 36, 42, 47, 51));
  EXPECT_THAT(Rotated(file + R"(, "num_hidden_layers": 2, "layers_block_type": ["full_attention", "hybrid"])"),
              ElementsAre(1));
  EXPECT_EQ(LayersOf(file, "hybrid").rotary->head_dim, 64);  // twice the usual width
}

TEST(ModelLayersOf, OlmoHybridNeedsBothKindsOfLayers) {
  const std::string file = R"("model_type": "olmo_hybrid", "hidden_size": 64, "num_attention_heads": 2)";
  EXPECT_THAT(Rotated(file + R"(, "num_hidden_layers": 3)"), ElementsAre(2));
  EXPECT_THAT(Rotated(file + R"(, "num_hidden_layers": 4, "rope_theta": null)"), ElementsAre());
  EXPECT_THAT(Read(file + R"(, "num_hidden_layers": 2, "layer_types": ["full_attention", "full_attention"])")[0].notes,
              HasNote("LAYERS_DISAGREE", "config_json.layer_types"));
}

TEST(ModelLayersOf, OlderNamesOfStep35sVisionPartPrevail) {
  const auto layers = Read(R"("model_type": "step3p5_vision", "hidden_size": 64, "num_attention_heads": 4, "width": 128,
      "heads": 2)");
  EXPECT_EQ(std::get<AxialRope>(layers[0].rotary->frequencies).axes[0].dim, 32);
}

TEST(ModelLayersOf, WidthsThatOtherFieldsGive) {
  EXPECT_EQ(Read(R"("model_type": "jetmoe", "head_dim": 64)")[0].rotary->head_dim, 64);
  EXPECT_EQ(Read(R"("model_type": "moonshine", "hidden_size": 64, "encoder_num_attention_heads": 4,
      "decoder_num_attention_heads": 2)")[0]
                .rotary->head_dim,
            32);
  const ModelLayers neox =
      Read(R"("model_type": "gpt_neox", "hidden_size": 64, "num_attention_heads": 2, "head_dim": 16)")[0];
  EXPECT_EQ(neox.rotary->head_dim, 16);  // of which a quarter rotates
  EXPECT_EQ(neox.whole_head, 32);
  const ModelLayers audio =
      Read(R"("model_type": "dots3_note_audio_encoder", "hidden_size": 64, "num_attention_heads": 2,
      "head_dim": 64, "whisper_config": {"d_model": 128})")[0];
  EXPECT_EQ(audio.rotary->head_dim, 64);
  const ModelLayers falcon =
      Read(R"("model_type": "falcon", "hidden_size": 64, "num_attention_heads": 2, "head_dim": 64)")[0];
  EXPECT_EQ(falcon.rotary->head_dim, 32);
  EXPECT_THAT(falcon.notes, HasNote("NOT_USED", "config_json.head_dim"));
  EXPECT_THAT(ReadModel({.config_json = R"({"model_type": "gptj", "n_embd": 64, "n_head": 4, "rotary_dim": 32})"}, {}),
              IsInvalid("OUT_OF_RANGE", "config_json.rotary_dim"));
}

// Mistral4Config writes the share of the whole head that rotates, which its modules multiply with the whole head.
TEST(ModelLayersOf, Mistral4sShareIsOfTheWholeHead) {
  const std::string yarn = R"("model_type": "mistral4", "qk_rope_head_dim": 32, "qk_nope_head_dim": 96,
      "rope_parameters": {"rope_type": "yarn", "rope_theta": 10000, "factor": 128,
      "original_max_position_embeddings": 8192, "partial_rotary_factor": )";
  const ModelLayers layers = Read(yarn + "0.25}")[0];
  EXPECT_EQ(layers.rotary->head_dim, 32);
  EXPECT_FALSE(ParametersOf(layers).partial_rotary_factor.has_value());
  EXPECT_EQ(layers.rotary_offset, 96);
  EXPECT_THAT(ReadModel({.config_json = "{" + yarn + "0.5}}"}, {}),
              IsInvalid("CONFLICT", "config_json.rope_parameters.partial_rotary_factor"));
  EXPECT_THAT(Read(R"("model_type": "mistral4", "partial_rotary_factor": 0.25)")[0].notes,
              HasNote("NOT_USED", "config_json.partial_rotary_factor"));
}

TEST(ModelLayersOf, ClassesThatFailAreRefused) {
  EXPECT_THAT(ReadModel({.config_json = R"({"model_type": "phi", "hidden_size": 64, "num_attention_heads": 2,
      "rope_scaling": {"type": "proportional", "partial_rotary_factor": 0.5}})"},
                        {}),
              IsInvalid("UNSUPPORTED", "config_json.rope_scaling.type"));
  EXPECT_THAT(
      ReadModel({.config_json = R"({"model_type": "dinov3_vit", "hidden_size": 64, "num_attention_heads": 3})"}, {}),
      IsInvalid("OUT_OF_RANGE", "config_json.hidden_size"));
  EXPECT_THAT(ReadModel({.config_json = R"({"model_type": "eomt_dinov3", "hidden_size": 64, "num_attention_heads": 2,
      "rope_parameters": {"rope_type": "axial", "rope_theta": 100}})"},
                        {}),
              IsInvalid("UNSUPPORTED", "config_json.rope_parameters.rope_type"));
  EXPECT_THAT(ReadModel({.config_json = R"({"model_type": "efficientloftr", "num_attention_heads": 4})"}, {}),
              IsInvalid("MISMATCH", "config_json.num_attention_heads"));
}

TEST(ModelLayersOf, MusesListOnlySelectsLayers) {
  const std::string file = R"("model_type": "muse_glimmer_text", "num_hidden_layers": 3, "rope_theta": 500,
      "layer_rope_theta": [20000, 0, 7])";
  EXPECT_THAT(Rotated(file), ElementsAre(0, 2));
  const ModelLayers rope = LayersOf(file, "rope");
  EXPECT_EQ(ParametersOf(rope).rope_theta, 500);
  EXPECT_THAT(rope.notes, HasNote("NOT_USED", "config_json.layer_rope_theta"));
}

TEST(ModelLayersOf, MllamaDoesNotReadLayerTypes) {
  EXPECT_THAT(Rotated(R"("model_type": "mllama_text_model", "hidden_size": 64, "num_attention_heads": 2,
      "num_hidden_layers": 5, "layer_types": ["full_attention",
      "full_attention", "full_attention", "full_attention", "full_attention"])"),
              ElementsAre(0, 1, 2, 4));
}

TEST(ModelLayersOf, PatternsTellTheTypesOfAnUnknownNumberOfLayers) {
  const auto layers = Read(R"("model_type": "qwen3_next")");
  ASSERT_EQ(layers.size(), 2);
  EXPECT_TRUE(layers[0].rotary.has_value());
  EXPECT_FALSE(layers[1].rotary.has_value());
}

}  // namespace
}  // namespace posenc::model_layers_test
