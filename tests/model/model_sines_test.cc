// Sines and cosines that a model adds to its input, by config.json: GenerateEmbedding's sinusoidal.model and
// grid.model.
#include <absl/strings/ascii.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <string>

#include "posenc/model/model_types.h"
#include "tests/service/call.h"

namespace posenc::model_sines_test {
namespace {

constexpr int kRows = 5;

v1::GenerateEmbeddingRequest Sinusoidal(const std::string& config_json) {
  v1::GenerateEmbeddingRequest request;
  request.mutable_sinusoidal()->mutable_model()->set_config_json(config_json);
  request.mutable_positions()->set_offset(0);
  request.set_count(kRows);
  request.set_dtype(v1::DATA_TYPE_FP32);
  request.mutable_hints()->set_return_plan(true);
  return request;
}

v1::GenerateEmbeddingRequest Grid(const std::string& config_json) {
  v1::GenerateEmbeddingRequest request;
  request.mutable_grid()->mutable_model()->set_config_json(config_json);
  request.set_dtype(v1::DATA_TYPE_FP32);
  request.mutable_hints()->set_return_plan(true);
  return request;
}

// Like ShortDebugString(), whose text newer protobuf releases make unfit for comparisons.
std::string InOneLine(const google::protobuf::Message& message) {
  google::protobuf::TextFormat::Printer printer;
  printer.SetSingleLineMode(true);
  std::string text;
  EXPECT_TRUE(printer.PrintToString(message, &text));
  absl::StripTrailingAsciiWhitespace(&text);
  return text;
}

// Expects this plan, and the same answer for the plan's settings.
void ExpectPlan(v1::GenerateEmbeddingRequest request, const std::string& plan) {
  const auto response = Call(request);
  ASSERT_THAT(response, IsOk());
  const v1::Plan& said = response->info().plan();
  EXPECT_EQ(request.has_grid() ? InOneLine(said.grid()) : InOneLine(said.sinusoidal()), plan);
  if (request.has_grid()) {
    *request.mutable_grid() = said.grid();
  } else {
    *request.mutable_sinusoidal() = said.sinusoidal();
  }
  const auto by_settings = Call(request);
  ASSERT_THAT(by_settings, IsOk());
  EXPECT_EQ(response->embedding().data(), by_settings->embedding().data());
  EXPECT_EQ(response->info().plan_fingerprint(), by_settings->info().plan_fingerprint());
}

TEST(SinusoidalOfModel, ByTheirClass) {
  ExpectPlan(Sinusoidal(R"({"model_type": "marian", "d_model": 8})"),
             "convention: SINUSOIDAL_CONVENTION_HALVES dim: 8");
  ExpectPlan(Sinusoidal(R"({"model_type": "ctrl"})"), "convention: SINUSOIDAL_CONVENTION_HALVES dim: 1280");
  ExpectPlan(Sinusoidal(R"({"model_type": "whisper"})"), "convention: SINUSOIDAL_CONVENTION_TENSOR2TENSOR dim: 384");
  ExpectPlan(Sinusoidal(R"({"model_type": "videomae", "hidden_size": 8})"),
             "convention: SINUSOIDAL_CONVENTION_INTERLEAVED dim: 8");
  ExpectPlan(Sinusoidal(R"({"model_type": "m2m_100", "d_model": 8})"),
             "convention: SINUSOIDAL_CONVENTION_FAIRSEQ dim: 8 padding_idx: 1");
  ExpectPlan(Sinusoidal(R"({"model_type": "speecht5", "hidden_size": 8, "pad_token_id": 0})"),
             "convention: SINUSOIDAL_CONVENTION_FAIRSEQ dim: 8 padding_idx: 0");
  ExpectPlan(Sinusoidal(R"({"model_type": "musicgen", "text_encoder": {"model_type": "t5"},
                            "decoder": {"model_type": "musicgen_decoder", "hidden_size": 8}})"),
             "convention: SINUSOIDAL_CONVENTION_TENSOR2TENSOR dim: 8 cosines_first: true");
  ExpectPlan(Sinusoidal(R"({"model_type": "canary_decoder", "hidden_size": 4})"),
             "convention: SINUSOIDAL_CONVENTION_TENSOR2TENSOR dim: 4 max_timescale: 100 scale: 0.5");
  ExpectPlan(Sinusoidal(R"({"model_type": "fun_asr_nano_encoder", "num_mel_bins": 4, "num_stacked_frames": 3})"),
             "convention: SINUSOIDAL_CONVENTION_TENSOR2TENSOR dim: 12");
  ExpectPlan(Sinusoidal(R"({"model_type": "timesfm", "use_positional_embedding": true, "max_timescale": 500})"),
             "convention: SINUSOIDAL_CONVENTION_TENSOR2TENSOR dim: 1280 max_timescale: 500");
}

TEST(SinusoidalOfModel, WhatTheClassDoesWithoutOrOtherwise) {
  EXPECT_THAT(Call(Sinusoidal(R"({"model_type": "timesfm"})")).status(),
              IsInvalid("UNSUPPORTED", "sinusoidal.model.config_json.use_positional_embedding"));
  EXPECT_THAT(
      Call(Sinusoidal(R"({"model_type": "timesfm", "use_positional_embedding": true, "min_timescale": 2})")).status(),
      IsInvalid("UNSUPPORTED", "sinusoidal.model.config_json.min_timescale"));
}

TEST(SinusoidalOfModel, CosinesFirst) {
  const auto sines = Call(Sinusoidal(R"({"model_type": "whisper", "d_model": 6})"));
  const auto cosines = Call(Sinusoidal(R"({"model_type": "musicgen_decoder", "hidden_size": 6})"));
  ASSERT_THAT(sines, IsOk());
  ASSERT_THAT(cosines, IsOk());
  const std::vector<double> a = ValuesOf(sines->embedding()), b = ValuesOf(cosines->embedding());
  ASSERT_EQ(a.size(), 6u * kRows);
  for (int n = 0; n < 6 * kRows; ++n) EXPECT_EQ(a[n], b[n / 6 * 6 + (n + 3) % 6]) << n;
  EXPECT_NE(sines->info().plan_fingerprint(), cosines->info().plan_fingerprint());
}

// The request marks padding tokens.
TEST(SinusoidalOfModel, TakesTheRequestsPadding) {
  auto request = Sinusoidal(R"({"model_type": "xglm", "d_model": 4})");
  request.clear_positions();
  request.clear_count();
  *request.mutable_sinusoidal()->mutable_token_valid() =
      MakeTensor(DType::kBOOL, {1, 3}, std::vector<uint8_t>{0, 1, 1});
  const auto response = Call(request);
  ASSERT_THAT(response, IsOk());
  const std::vector<double> values = ValuesOf(response->embedding());
  EXPECT_EQ(std::vector<double>(values.begin(), values.begin() + 4), std::vector<double>(4, 0.0));
  EXPECT_NEAR(values[4], std::sin(2.0), 1e-6);
  EXPECT_EQ(response->info().notes(0).code(), "POSITIONS");
}

TEST(SinusoidalOfModel, WhatSaysOtherwiseIsRefused) {
  auto request = Sinusoidal(R"({"model_type": "marian", "d_model": 8})");
  request.mutable_sinusoidal()->set_dim(8);
  EXPECT_THAT(Call(request), IsOk());
  request.mutable_sinusoidal()->set_dim(4);
  EXPECT_THAT(Call(request), IsInvalid("CONFLICT", "sinusoidal.dim"));
  request = Sinusoidal(R"({"model_type": "marian", "d_model": 8})");
  request.mutable_sinusoidal()->set_max_timescale(10000);  // the default
  request.mutable_sinusoidal()->set_scale(1);
  EXPECT_THAT(Call(request), IsOk());
  request.mutable_sinusoidal()->set_max_timescale(5000);
  EXPECT_THAT(Call(request), IsInvalid("CONFLICT", "sinusoidal.max_timescale"));
  EXPECT_THAT(Call(Sinusoidal(R"({"model_type": "bert"})")),
              IsInvalid("UNSUPPORTED", "sinusoidal.model.config_json.model_type"));
  EXPECT_THAT(Call(Sinusoidal(R"({"model_type": "detr"})")),
              IsInvalid("UNSUPPORTED", "sinusoidal.model.config_json.model_type"));
  EXPECT_THAT(Call(Sinusoidal(R"({"model_type": "marian", "d_model": 1})")),
              IsInvalid("OUT_OF_RANGE", "sinusoidal.model.config_json.d_model"));
  EXPECT_THAT(Call(Sinusoidal(R"({"_class_name": "FluxTransformer2DModel"})")),
              IsInvalid("UNSUPPORTED", "sinusoidal.model.config_json._class_name"));
}

TEST(GridOfModel, ByTheirClass) {
  ExpectPlan(Grid(R"({"model_type": "vit_mae", "hidden_size": 8, "image_size": 48, "patch_size": 16})"),
             "convention: GRID_CONVENTION_MAE dim: 8 height: 3 width: 3 temperature: 10000 extra_tokens: 1");
  auto request = Grid(R"({"model_type": "detr", "d_model": 8})");
  request.mutable_grid()->set_height(2);
  request.mutable_grid()->set_width(3);
  ExpectPlan(request, "convention: GRID_CONVENTION_DETR dim: 8 height: 2 width: 3 temperature: 10000");
  *request.mutable_grid()->mutable_model()->mutable_config_json() = R"({"model_type": "deformable_detr"})";
  ExpectPlan(request, "convention: GRID_CONVENTION_DETR dim: 256 height: 2 width: 3 temperature: 10000 offset: -0.5");
  *request.mutable_grid()->mutable_model()->mutable_config_json() =
      R"({"model_type": "dab-detr", "sine_position_embedding_scale": 3})";
  ExpectPlan(request, "convention: GRID_CONVENTION_DETR dim: 256 height: 2 width: 3 temperature: 20 scale: 3");
  *request.mutable_grid()->mutable_model()->mutable_config_json() =
      R"({"model_type": "rt_detr", "encoder_hidden_dim": 16, "positional_encoding_temperature": 50})";
  ExpectPlan(request, "convention: GRID_CONVENTION_MAE dim: 16 height: 2 width: 3 temperature: 50 rows_first: true");
}

TEST(GridOfModel, WhatCannotBeIsRefused) {
  EXPECT_THAT(Call(Grid(R"({"model_type": "detr"})")), IsInvalid("OUT_OF_RANGE", "grid.height"));
  EXPECT_THAT(Call(Grid(R"({"model_type": "detr", "position_embedding_type": "learned"})")),
              IsInvalid("UNSUPPORTED", "grid.model.config_json.position_embedding_type"));
  EXPECT_THAT(Call(Grid(R"({"model_type": "dab-detr", "temperature_height": 10})")),
              IsInvalid("UNSUPPORTED", "grid.model.config_json.temperature_width"));
  EXPECT_THAT(Call(Grid(R"({"model_type": "vit_mae", "image_size": [32, 64]})")),
              IsInvalid("UNSUPPORTED", "grid.model.config_json.image_size"));
  EXPECT_THAT(Call(Grid(R"({"model_type": "vit_mae", "image_size": 8})")),
              IsInvalid("OUT_OF_RANGE", "grid.model.config_json.image_size"));
  auto request = Grid(R"({"model_type": "detr", "d_model": 8})");
  request.mutable_grid()->set_height(2);
  request.mutable_grid()->set_width(3);
  request.mutable_grid()->set_normalize(true);  // the defaults
  request.mutable_grid()->set_scale(2 * std::numbers::pi);
  request.mutable_grid()->set_offset(0);
  EXPECT_THAT(Call(request), IsOk());
  request.mutable_grid()->set_offset(-0.5);
  EXPECT_THAT(Call(request), IsInvalid("CONFLICT", "grid.offset"));
  request = Grid(R"({"model_type": "vit_mae"})");
  request.mutable_grid()->set_height(3);
  EXPECT_THAT(Call(request), IsInvalid("CONFLICT", "grid.height"));
}

// A class needs a default for each number that its file may omit.
TEST(SinesOfModel, EveryClassSaysItsWidth) {
  int count = 0;
  for (const ModelType* type : AllModelTypes()) {
    if (!type->sines && !type->grid) continue;
    ++count;
    EXPECT_GT(type->sines ? type->sines->width : type->grid->width, 0) << type->name;
  }
  EXPECT_GT(count, 35);
}

}  // namespace
}  // namespace posenc::model_sines_test
