// Files of several parts, axes or layer types, and diffusers' files: queries rotated by config.json alone, against the
// originals' results (tests/golden/recorded/model_files.json).
#include <gtest/gtest.h>

#include <algorithm>

#include "posenc/model/model.h"
#include "posenc/model/model_types.h"
#include "tests/reference/golden.h"
#include "tests/service/call.h"

namespace posenc::model_files_test {
namespace {

using golden::json;
using testing::HasSubstr;

class ModelFile : public testing::TestWithParam<size_t> {};

json Record(size_t n) { return golden::Read("recorded/model_files.json")["records"][n]; }

// Frequencies may differ in the last place, which positions up to 60 and four-fold q amplify to 3e-5. A wrong axis,
// pairing or theta differs by far more.
TEST_P(ModelFile, TurnsAsTheOriginal) {
  const json record = Record(GetParam());
  SCOPED_TRACE(record["name"].dump());
  v1::ApplyRotaryRequest request;
  auto* model = request.mutable_rotary()->mutable_model();
  model->set_config_json(record["config"].dump());
  model->set_component(record["component"].get<std::string>());
  const std::string layer_type = record["layer_type"];
  if (!layer_type.empty()) model->set_layer_type(layer_type);
  const auto axes = static_cast<int64_t>(record["positions"].size());
  const auto tokens = static_cast<int64_t>(record["positions"][0].size());
  const auto width = static_cast<int64_t>(record["q_out"][0].size());
  *request.mutable_positions()->mutable_ids() =
      MakeTensor(DType::kFP64, {axes, tokens}, golden::Numbers(record["positions"]));
  request.mutable_positions()->set_axis_dimension(v1::AXIS_DIMENSION_FIRST);
  request.set_layout(v1::LAYOUT_THD);
  std::vector<double> q;
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t e = 0; e < width; ++e) q.push_back(static_cast<double>((37 * t + 11 * e) % 64 - 32) / 16);
  }
  *request.mutable_q()->mutable_tensor() = MakeTensor(DType::kFP32, {tokens, 1, width}, q);
  request.mutable_precision()->set_preset(v1::PRECISION_PRESET_MODEL);
  const auto response = Call(request);
  ASSERT_THAT(response, IsOk());
  EXPECT_TRUE(response->info().rotated());
  const std::vector<double> ours = ValuesOf(response->q()), recorded = golden::Numbers(record["q_out"]);
  ASSERT_EQ(ours.size(), recorded.size());
  for (size_t n = 0; n < ours.size(); ++n) ASSERT_NEAR(ours[n], recorded[n], 3e-5) << "q_out[" << n << "]";
}

INSTANTIATE_TEST_SUITE_P(Recorded, ModelFile,
                         testing::Range(size_t{0}, golden::Read("recorded/model_files.json")["records"].size()),
                         [](const auto& instance) {
                           std::string name = Record(instance.param)["name"];
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
                           return name + "_" + std::to_string(instance.param);
                         });

absl::StatusOr<std::vector<ModelLayers>> Read(const std::string& config_json, const std::string& component = "") {
  return ReadModel({.config_json = config_json, .component = component}, {});
}

std::string LimitOf(const absl::Status& status) { return DetailsOf(status).limit; }

const char kQwen[] = R"({"model_type": "qwen2_vl", "hidden_size": 3584, "num_attention_heads": 28,
    "vision_config": {"embed_dim": 1280, "num_heads": 16}})";

TEST(Components, OneOfSeveralMustBeChosen) {
  const auto none = Read(kQwen);
  EXPECT_THAT(none, IsInvalid("MISSING", "component"));
  EXPECT_THAT(LimitOf(none.status()), testing::AllOf(HasSubstr("\"text\""), HasSubstr("\"vision\"")));
  EXPECT_THAT(Read(kQwen, "text"), IsOk());
  EXPECT_THAT(Read(kQwen, "vision"), IsOk());
  const auto other = Read(kQwen, "audio");
  EXPECT_THAT(other, IsInvalid("UNKNOWN_VALUE", "component"));
  EXPECT_THAT(LimitOf(other.status()), HasSubstr("\"vision\""));
}

// CLIP's positions are a table, so LLaVA's text is the only choice.
TEST(Components, PartsWithoutSettingsAreNoChoice) {
  const char llava[] = R"({"model_type": "llava", "text_config": {"model_type": "mistral", "head_dim": 128},
      "vision_config": {"model_type": "clip_vision_model"}})";
  EXPECT_THAT(Read(llava), IsOk());
  const auto vision = Read(llava, "vision");
  EXPECT_THAT(vision, IsInvalid("UNSUPPORTED", "component"));
  EXPECT_THAT(LimitOf(vision.status()), testing::AllOf(HasSubstr("clip_vision_model"), HasSubstr("learned")));
}

TEST(Components, NestedPartsAreNamedByTheirPath) {
  const char omni[] = R"({"model_type": "qwen2_5_omni", "thinker_config": {"model_type": "qwen2_5_omni_thinker",
      "text_config": {"model_type": "qwen2_5_omni_text", "hidden_size": 3584, "num_attention_heads": 28,
                      "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}},
      "vision_config": {"model_type": "qwen2_5_omni_vision_encoder", "hidden_size": 1280, "num_heads": 16}}})";
  EXPECT_THAT(LimitOf(Read(omni).status()), HasSubstr("\"thinker.text\", \"thinker.vision\""));
  EXPECT_THAT(Read(omni, "thinker.vision"), IsOk());
}

TEST(Components, APartLeftOutIsTheClasssOwn) {
  const auto layers = Read(R"({"model_type": "llava"})");
  ASSERT_THAT(layers, IsOk());
  EXPECT_EQ((*layers)[0].rotary->head_dim, 128);
  EXPECT_THAT(Read(R"({"model_type": "llama"})"), IsInvalid("MISSING", "config_json.head_dim"));
}

TEST(Components, TextThatIsNotTheClasssOwnSaysSo) {
  const auto layers = Read(R"({"model_type": "llava", "text_config": {"model_type": "cohere", "head_dim": 128}})");
  ASSERT_THAT(layers, IsOk());
  EXPECT_EQ((*layers)[0].rotary->input_pairing, Pairing::kInterleaved);
}

// Widths that differ from hidden_size / num_attention_heads, and axes in other orders.
TEST(Components, WidthsAndAxesOfTheirOwn) {
  const auto memory = Read(R"({"model_type": "sam2_video", "memory_attention_hidden_size": 256,
      "memory_attention_num_attention_heads": 2, "memory_attention_downsample_rate": 2,
      "rope_parameters": {"rope_type": "axial", "rope_theta": 100, "factor": 2}})");
  ASSERT_THAT(memory, IsOk());
  const auto& axes = std::get<AxialRope>((*memory)[0].rotary->frequencies).axes;
  ASSERT_EQ(axes.size(), 2);
  EXPECT_EQ(axes[0].dim, 32);
  EXPECT_EQ(axes[0].rope_theta, 100);
  EXPECT_EQ((*memory)[0].notes[0].code, "NOT_USED");
  EXPECT_THAT(Read(R"({"model_type": "sam2_video", "memory_attention_hidden_size": 256,
      "memory_attention_num_attention_heads": 2, "memory_attention_downsample_rate": 0})"),
              IsInvalid("OUT_OF_RANGE", "config_json.memory_attention_downsample_rate"));

  const auto speech = Read(R"({"model_type": "clvp_encoder", "projection_dim": 768, "num_attention_heads": 2})");
  ASSERT_THAT(speech, IsOk());
  EXPECT_EQ((*speech)[0].rotary->head_dim, 192);
  EXPECT_THAT(Read(R"({"model_type": "clvp_encoder", "use_rotary_embedding": false})"),
              IsInvalid("UNSUPPORTED", "config_json.use_rotary_embedding"));

  const auto kimi = Read(R"({"model_type": "kimi_k25", "vision_config": {}})", "vision");
  ASSERT_THAT(kimi, IsOk());
  EXPECT_TRUE(std::get<AxialRope>((*kimi)[0].rotary->frequencies).alternating);
  const auto gemma = Read(R"({"model_type": "gemma4", "vision_config": {}})", "vision");
  ASSERT_THAT(gemma, IsOk());
  EXPECT_EQ((*gemma)[0].rotary->half_split_parts, 2);

  const auto neomme = Read(R"({"model_type": "neomme", "num_hidden_layers": 8,
      "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 5}}})");
  ASSERT_THAT(neomme, IsOk());
  EXPECT_EQ((*neomme)[1].layer_index, (std::vector<uint32_t>{5, 7}));
  const auto& global = std::get<RopeParameters>((*neomme)[1].rotary->frequencies);
  EXPECT_EQ(global.rope_theta, 5);
  EXPECT_EQ(global.partial_rotary_factor, 0.25);
  EXPECT_EQ(global.mrope_section, (std::vector<int64_t>{4, 4, 0}));
  EXPECT_THAT(Read(R"({"model_type": "neomme", "head_dim": 62, "num_hidden_layers": 1})"),
              IsInvalid("OUT_OF_RANGE", "config_json.rope_parameters.partial_rotary_factor"));
}

// Pairs of two angles: the settings that say how the class lays its angles out.
TEST(TwoAngles, AreSettings) {
  const auto vjepa = Read(R"({"model_type": "vjepa2", "hidden_size": 1408, "num_attention_heads": 22})");
  ASSERT_THAT(vjepa, IsOk());
  EXPECT_EQ(vjepa->at(0).rotary->input_pairing, Pairing::kInterleaved);
  EXPECT_EQ(vjepa->at(0).rotary->table_pairing, Pairing::kHalfSplit);
  EXPECT_EQ(vjepa->at(0).rotary->half_split_parts, 3);
  EXPECT_EQ(std::get<AxialRope>(vjepa->at(0).rotary->frequencies).axes[2].dim, 20);
  EXPECT_EQ(vjepa->at(0).whole_head, 64);

  const auto ernie = Read(R"({"_class_name": "ErnieImageTransformer2DModel"})");
  ASSERT_THAT(ernie, IsOk());
  EXPECT_EQ(ernie->at(0).rotary->input_pairing, Pairing::kHalfSplit);
  EXPECT_EQ(ernie->at(0).rotary->table_pairing, Pairing::kInterleaved);

  // The block of HunyuanOCR's file.
  const std::string hunyuan = R"({"model_type": "hunyuan_vl_text", "head_dim": 128, "rope_scaling": {"type": "xdrope",
      "alpha": 1000.0, "beta_fast": 32, "beta_slow": 1, "factor": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
      "xdrope_section": [16, 16, 16, 16])";
  const auto read = Read(hunyuan + "}}");
  ASSERT_THAT(read, IsOk());
  const auto& parameters = std::get<RopeParameters>(read->at(0).rotary->frequencies);
  EXPECT_EQ(parameters.rope_type, "ntk_alpha");
  EXPECT_EQ(parameters.mrope_order, MropeOrder::kElements);
  EXPECT_EQ(parameters.mrope_section, (std::vector<int64_t>{16, 16, 16, 16}));
  EXPECT_THAT(Read(hunyuan + R"(, "mrope_section": [32, 16, 16]}})"),
              IsInvalid("CONFLICT", "config_json.rope_scaling.xdrope_section"));
}

// The error says what the type has, instead of calling it unknown.
TEST(OtherTypes, AreNamed) {
  for (const auto& [model_type, what] : {std::pair{"bert", "learned"},
                                         {"whisper", "sinusoidal"},
                                         {"deberta-v2", "RelativeScores"},
                                         {"funnel", "relative score terms"},
                                         {"levit", "windows"},
                                         {"mamba", "no positional encoding"},
                                         {"lightglue", "learned frequencies"}}) {
    const auto read = Read(std::string(R"({"model_type": ")") + model_type + "\"}");
    EXPECT_THAT(read, IsInvalid("UNSUPPORTED", "config_json.model_type"));
    EXPECT_THAT(LimitOf(read.status()), HasSubstr(what)) << model_type;
  }
}

// Single stacks with T5's buckets, with their own numbers and field names.
TEST(OneStack, HasBucketsOfItsOwn) {
  struct {
    const char* config_json;
    int64_t num_buckets, max_distance;
  } const cases[] = {
      {R"({"model_type": "wavlm"})", 320, 800},
      {R"({"model_type": "wavlm", "num_buckets": 32, "max_bucket_distance": 100})", 32, 100},
      {R"({"model_type": "cpmant"})", 512, 2048},
      {R"({"model_type": "mpnet", "relative_attention_num_buckets": 64})", 32, 128},  // it has 32 anyhow
  };
  for (const auto& [config_json, num_buckets, max_distance] : cases) {
    const auto layers = Read(config_json);
    ASSERT_THAT(layers, IsOk()) << config_json;
    const auto& t5 = std::get<T5Settings>(*layers->front().bias);
    EXPECT_EQ(t5.num_buckets, num_buckets) << config_json;
    EXPECT_EQ(t5.max_distance, max_distance) << config_json;
    EXPECT_EQ(t5.bidirectional, true) << config_json;
  }
}

// UDOP's encoder adds up a list of biases; settings can describe only the tokens' buckets.
TEST(TwoStacks, MayHaveAListOfBiases) {
  const auto read = [](const std::string& biases, const std::string& component) {
    return Read(R"({"model_type": "udop", "relative_attention_num_buckets": 64)" + biases + "}", component);
  };
  const auto encoder =
      read(R"(, "relative_bias_args": [{"type": "1d"}, {"type": "vertical", "max_distance": 9}])", "encoder");
  ASSERT_THAT(encoder, IsOk());
  EXPECT_EQ(std::get<T5Settings>(*encoder->front().bias).num_buckets, 32);
  EXPECT_EQ(std::get<T5Settings>(*encoder->front().bias).bidirectional, true);
  const auto decoder = read("", "decoder");
  ASSERT_THAT(decoder, IsOk());
  EXPECT_EQ(std::get<T5Settings>(*decoder->front().bias).num_buckets, 64);
  EXPECT_EQ(std::get<T5Settings>(*decoder->front().bias).bidirectional, false);
  EXPECT_THAT(read("", "encoder"), IsOk());
  for (const char* biases : {R"([{"type": "1d", "bidirectional": false}])", R"([{"type": "horizontal"}])", R"("1d")",
                             R"([{"type": "1d"}, {"type": "1d"}])", R"([{"type": 1}, 5])"}) {
    const std::string list = std::string(R"(, "relative_bias_args": )") + biases;
    EXPECT_THAT(read(list, "encoder"), IsInvalid("UNSUPPORTED", "config_json.relative_bias_args")) << biases;
    EXPECT_THAT(read(list, "decoder"), IsOk()) << biases;
  }
  EXPECT_THAT(Read(R"({"model_type": "t5", "relative_bias_args": 5})", "encoder"), IsOk());
}

// An empty name in a table row means that there is no such field.
TEST(Rules, TheEmptyNameIsNoField) {
  const auto read = Read(R"({"model_type": "mpnet", "": 64})");
  ASSERT_THAT(read, IsOk());
  EXPECT_EQ(std::get<T5Settings>(*read->front().bias).num_buckets, 32);
}

TEST(OtherTypes, NoNameHasTwoRows) {
  std::vector<std::string_view> names;
  for (const ModelType* type : AllModelTypes()) names.push_back(type->name);
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
  EXPECT_GT(names.size(), 500u);
}

TEST(Rules, AFlagMayDecide) {
  EXPECT_THAT(Read(R"({"model_type": "esm", "hidden_size": 640, "num_attention_heads": 20})"),
              IsInvalid("MISSING", "config_json.position_embedding_type"));
  EXPECT_THAT(Read(R"({"model_type": "esm", "hidden_size": 640, "num_attention_heads": 20,
                       "position_embedding_type": "rotary"})"),
              IsOk());
}

TEST(Rules, LayersWithoutAttentionDoNotTurn) {
  const auto layers = Read(R"({"model_type": "qwen3_next", "num_hidden_layers": 8})");
  ASSERT_THAT(layers, IsOk());
  ASSERT_EQ(layers->size(), 2u);
  EXPECT_EQ((*layers)[0].layer_type, "linear_attention");
  EXPECT_FALSE((*layers)[0].rotary.has_value());
  EXPECT_TRUE((*layers)[1].rotary.has_value());
  EXPECT_THAT((*layers)[1].layer_index, testing::ElementsAre(3, 7));
}

TEST(Rules, LayersMayEachHaveATheta) {
  const auto layers = Read(R"({"model_type": "granite_swa", "head_dim": 64, "num_hidden_layers": 4,
                               "layer_rope_theta": [10000, 0, 500000, 10000]})");
  ASSERT_THAT(layers, IsOk());
  ASSERT_EQ(layers->size(), 3u);
  EXPECT_THAT((*layers)[0].layer_index, testing::ElementsAre(0, 3));
  EXPECT_FALSE((*layers)[1].rotary.has_value());
  EXPECT_EQ(std::get<RopeParameters>((*layers)[2].rotary->frequencies).rope_theta, 500000);
  EXPECT_THAT(Read(R"({"model_type": "granite_swa", "head_dim": 64, "num_hidden_layers": 4,
                       "layer_rope_theta": [10000]})"),
              IsInvalid("MISMATCH", "config_json.layer_rope_theta"));
}

// Muse does not rotate every fourth layer, counted from the last.
TEST(Rules, ThetasLeftOutAreTheClasssOwn) {
  const auto muse = Read(R"({"model_type": "muse_glimmer_text", "num_hidden_layers": 6})");
  ASSERT_THAT(muse, IsOk());
  ASSERT_EQ(muse->size(), 2u);
  EXPECT_FALSE((*muse)[1].rotary.has_value());
  EXPECT_THAT((*muse)[1].layer_index, testing::ElementsAre(1, 5));
  const auto granite = Read(R"({"model_type": "granite_swa", "head_dim": 64, "num_hidden_layers": 4})");
  ASSERT_THAT(granite, IsOk());
  EXPECT_EQ(granite->size(), 1u);
  EXPECT_THAT(Read(R"({"model_type": "granite_swa", "head_dim": 64, "num_hidden_layers": 1,
                       "layer_rope_theta": [1e-320]})"),
              IsOk());
}

TEST(Components, ManyPartsAreReadInBoundedTime) {
  std::string file = R"({"model_type": "llama", "head_dim": 64)";
  for (int n = 0; n < 20000; ++n) file += ", \"p" + std::to_string(n) + R"(_config": {"model_type": "llama"})";
  const auto read = Read(file + "}");
  EXPECT_THAT(read, IsInvalid("MISSING", "component"));
  EXPECT_LE(read.status().message().size(), 1024u);
}

TEST(Rules, SectionsAreForClassesThatHaveThem) {
  EXPECT_THAT(Read(R"({"model_type": "llama", "head_dim": 128,
                       "rope_scaling": {"type": "default", "mrope_section": [16, 24, 24]}})"),
              IsInvalid("UNKNOWN_FIELD", "config_json.rope_scaling.mrope_section"));
  EXPECT_THAT(Read(R"({"model_type": "qwen2_vl_text", "head_dim": 128,
                       "rope_scaling": {"type": "mrope", "mrope_section": [16.5, 24, 24]}})"),
              IsInvalid("OUT_OF_RANGE", "config_json.rope_scaling.mrope_section[0]"));
}

}  // namespace
}  // namespace posenc::model_files_test
