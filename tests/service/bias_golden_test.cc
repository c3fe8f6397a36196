// Biases as transformers computes them (tests/golden/recorded/relative_biases.json).
#include <gtest/gtest.h>

#include "posenc/methods/bias/bias_methods.h"
#include "tests/reference/golden.h"
#include "tests/reference/ulp.h"
#include "tests/service/call.h"

namespace posenc::bias_golden_test {
namespace {

using golden::json;

const json& Recorded() {
  static const json& file = *new json(golden::Read("recorded/relative_biases.json"));
  return file;
}

v1::Tensor TensorOf(const json& rows) {
  std::vector<int64_t> shape;
  for (const json* level = &rows; level->is_array(); level = &(*level)[0]) {
    shape.push_back(static_cast<int64_t>(level->size()));
  }
  return MakeTensor(DType::kFP32, shape, golden::Numbers(rows));
}

v1::GenerateBiasRequest RequestFor(const json& record, const v1::BiasMethod& method) {
  v1::GenerateBiasRequest request;
  *request.mutable_method() = method;
  if (record.contains("table")) {
    *request.mutable_method()->mutable_table() = TensorOf(record["table"]);
    request.mutable_method()->set_table_layout(v1::BIAS_TABLE_LAYOUT_BUCKETS_BY_HEADS);
  }
  request.set_form(v1::BIAS_FORM_DENSE);
  request.set_dtype(v1::DATA_TYPE_FP32);
  return request;
}

// The chain equals all records. In one odd setting the real formula is a whole number, which float32 misses.
TEST(GoldenBias, T5sBuckets) {
  for (const json& record : Recorded()["t5"]) {
    T5Settings settings{record["num_buckets"].get<int64_t>(), record["max_distance"].get<int64_t>(),
                        record["bidirectional"].get<bool>()};
    ASSERT_THAT(Complete(settings), IsOk());
    const int64_t largest = record["largest"];
    const auto recorded = record["buckets"].get<std::vector<int32_t>>();
    for (Frequencies arithmetic : {Frequencies::kFloat32, Frequencies::kExact}) {
      const std::vector<int32_t> ours = T5Buckets(arithmetic, settings, -largest, 2 * largest + 1);
      std::vector<int64_t> differ;
      for (int64_t n = 0; n <= 2 * largest; ++n) {
        if (ours[n] != recorded[n]) differ.push_back(n - largest);
      }
      const bool odd = settings.num_buckets == 34 && arithmetic == Frequencies::kExact;
      EXPECT_EQ(differ, odd ? (std::vector<int64_t>{-18, -12, 12, 18}) : std::vector<int64_t>{})
          << *settings.num_buckets << " buckets, arithmetic " << static_cast<int>(arithmetic);
    }
  }
}

TEST(GoldenBias, T5sBiasFromItsConfig) {
  for (const json& record : Recorded()["t5_bias"]) {
    v1::BiasMethod method;
    method.mutable_model()->set_config_json(record["config"].dump());
    method.mutable_model()->set_component(record["component"]);
    v1::GenerateBiasRequest request = RequestFor(record, method);
    request.mutable_precision()->set_preset(v1::PRECISION_PRESET_MODEL);
    request.mutable_geometry()->set_query_length(6);
    request.mutable_geometry()->set_key_length(6 + record["past"].get<int64_t>());
    request.mutable_geometry()->set_query_offset(record["past"]);
    const auto response = Call(request);
    ASSERT_THAT(response, IsOk());
    EXPECT_EQ(ValuesOf(response->bias()), golden::Numbers(record["bias"]));
    EXPECT_EQ(response->info().notes(0).code(), "UNSCALED_SCORES");
  }
}

// The windows of a config.json give the recorded tables and biases too.
TEST(GoldenBias, WindowsFromTheirConfig) {
  for (const char* family : {"swin", "beit"}) {
    for (const json& record : Recorded()[family]) {
      const int64_t height = record["window"][0], width = record["window"][1];
      json config;
      if (family == std::string("swin")) {
        config = {{"model_type", "swin"}, {"window_size", record["window"]}, {"depths", {2, 2}}};
      } else {
        config = {{"model_type", "beit"},
                  {"use_relative_position_bias", true},
                  {"image_size", {16 * height, 16 * width}},
                  {"patch_size", 16}};
      }
      v1::BiasMethod method;
      method.mutable_model()->set_config_json(config.dump());
      const auto response = Call(RequestFor(record, method));
      ASSERT_THAT(response, IsOk());
      const std::vector<double> ours = ValuesOf(response->bias()), recorded = golden::Numbers(record["bias"]);
      ASSERT_EQ(ours.size(), recorded.size());
      for (size_t n = 0; n < ours.size(); ++n) EXPECT_NEAR(ours[n], recorded[n], 1e-6);
      EXPECT_EQ(response->info().notes(0).code(), "TABLE_BY_LAYER");
    }
  }
}

TEST(GoldenBias, WindowsThatTheConfigDoesNotHave) {
  v1::GenerateBiasRequest request = RequestFor(Recorded()["beit"][0], {});
  v1::ModelConfig& model = *request.mutable_method()->mutable_model();
  model.set_config_json(R"({"model_type": "beit"})");
  EXPECT_THAT(Call(request), IsInvalid("UNSUPPORTED", "method.model.config_json.use_relative_position_bias"));
  model.set_config_json(R"({"model_type": "swin", "window_size": 0})");
  EXPECT_THAT(Call(request), IsInvalid("OUT_OF_RANGE", "method.model.config_json.window_size"));
  model.set_config_json(R"({"model_type": "swin", "window_size": [7, 7, 7]})");
  EXPECT_THAT(Call(request), IsInvalid("MISMATCH", "method.model.config_json.window_size"));
  for (const char* window : {"[7.5, 7]", "[7, 1e300]", "[7, -7]"}) {
    model.set_config_json(std::string(R"({"model_type": "swin", "window_size": )") + window + "}");
    EXPECT_THAT(Call(request), IsInvalid("OUT_OF_RANGE", "method.model.config_json.window_size")) << window;
  }
}

TEST(GoldenBias, T5sConfigNeedsItsComponent) {
  v1::GenerateBiasRequest request = RequestFor(Recorded()["t5_bias"][0], {});
  v1::ModelConfig& model = *request.mutable_method()->mutable_model();
  model.set_config_json(golden::ReadText("configs/t5-small.json"));
  request.mutable_geometry()->set_query_length(6);
  request.mutable_geometry()->set_key_length(6);
  EXPECT_THAT(Call(request), IsInvalid("MISSING", "method.model.component"));
  model.set_component("text");
  EXPECT_FALSE(Call(request).ok());
  model.set_component("decoder");
  EXPECT_THAT(Call(request), IsOk());
  model.set_config_json(golden::ReadText("configs/llama-2-7b.json"));
  EXPECT_THAT(Call(request), IsInvalid("UNKNOWN_VALUE", "method.model.component"));
}

void ExpectIndex(const json& record, v1::GenerateBiasRequest request) {
  request.set_form(v1::BIAS_FORM_INDEX);
  request.set_dtype(v1::DATA_TYPE_INT32);
  const auto response = Call(request);
  ASSERT_THAT(response, IsOk());
  std::vector<int32_t> index(response->bias().data().size() / sizeof(int32_t));
  std::memcpy(index.data(), response->bias().data().data(), response->bias().data().size());
  const std::vector<double> recorded = golden::Numbers(record["index"]);
  EXPECT_EQ(std::vector<double>(index.begin(), index.end()), recorded);
}

TEST(GoldenBias, Swins) {
  for (const json& record : Recorded()["swin"]) {
    v1::BiasMethod method;
    method.mutable_swin()->set_window_height(record["window"][0]);
    method.mutable_swin()->set_window_width(record["window"][1]);
    const v1::GenerateBiasRequest request = RequestFor(record, method);
    const auto response = Call(request);
    ASSERT_THAT(response, IsOk());
    EXPECT_EQ(ValuesOf(response->bias()), golden::Numbers(record["bias"]));
    ExpectIndex(record, request);
  }
}

// On rectangular windows transformers resizes the table, and its float32 weights differ from ours in the last places.
TEST(GoldenBias, Beits) {
  for (const json& record : Recorded()["beit"]) {
    v1::BiasMethod method;
    v1::BeitBias& beit = *method.mutable_beit();
    beit.set_window_height(record["window"][0]);
    beit.set_window_width(record["window"][1]);
    beit.set_table(v1::BEIT_TABLE_TRANSFORMERS);
    const v1::GenerateBiasRequest request = RequestFor(record, method);
    const auto response = Call(request);
    ASSERT_THAT(response, IsOk());
    const std::vector<double> ours = ValuesOf(response->bias()), recorded = golden::Numbers(record["bias"]);
    ASSERT_EQ(ours.size(), recorded.size());
    double worst = 0;
    for (size_t n = 0; n < ours.size(); ++n) worst = std::max(worst, std::abs(ours[n] - recorded[n]));
    const bool square = beit.window_height() == beit.window_width();
    EXPECT_LE(worst, square ? 0 : 1e-6);
    std::printf("beit %lld x %lld: at most %g from the recorded\n", static_cast<long long>(beit.window_height()),
                static_cast<long long>(beit.window_width()), worst);
    ExpectIndex(record, request);
  }
}

void FillNetwork(const json& record, v1::SwinV2Bias* swin) {
  *swin->mutable_hidden_weight() = TensorOf(record["hidden_weight"]);
  *swin->mutable_hidden_bias() = TensorOf(record["hidden_bias"]);
  *swin->mutable_output_weight() = TensorOf(record["output_weight"]);
}

// torch adds 512 float32 products in its own order.
void ExpectNetworksBias(const json& record, const v1::BiasMethod& method) {
  for (auto preset : {v1::PRECISION_PRESET_EXACT, v1::PRECISION_PRESET_F32}) {
    v1::GenerateBiasRequest request = RequestFor(record, method);
    request.mutable_precision()->set_preset(preset);
    const auto response = Call(request);
    ASSERT_THAT(response, IsOk());
    const std::vector<double> ours = ValuesOf(response->bias()), recorded = golden::Numbers(record["bias"]);
    ASSERT_EQ(ours.size(), recorded.size());
    double worst = 0;
    for (size_t n = 0; n < ours.size(); ++n) worst = std::max(worst, std::abs(ours[n] - recorded[n]));
    EXPECT_LE(worst, 2e-5);
    std::printf("swin_v2 %s: at most %g from the recorded\n", v1::PrecisionPreset_Name(preset).c_str(), worst);
  }
}

TEST(GoldenBias, SwinV2s) {
  for (const json& record : Recorded()["swin_v2"]) {
    v1::BiasMethod method;
    v1::SwinV2Bias& swin = *method.mutable_swin_v2();
    swin.set_window_height(record["window"][0]);
    swin.set_window_width(record["window"][1]);
    if (record["pretrained_window"][0] != 0) {
      swin.set_pretrained_window_height(record["pretrained_window"][0]);
      swin.set_pretrained_window_width(record["pretrained_window"][1]);
    }
    FillNetwork(record, &swin);
    ExpectNetworksBias(record, method);
  }
}

// The windows come from config.json.
TEST(GoldenBias, SwinV2sStages) {
  ASSERT_EQ(Recorded()["swin_v2_stage"].size(), 3u);
  for (const json& record : Recorded()["swin_v2_stage"]) {
    v1::BiasMethod method;
    v1::SwinV2Bias& swin = *method.mutable_swin_v2();
    swin.mutable_model()->set_config_json(record["config"].dump());
    swin.mutable_model()->set_layer_type(record["layer_type"]);
    FillNetwork(record, &swin);
    ExpectNetworksBias(record, method);
  }
}

}  // namespace
}  // namespace posenc::bias_golden_test
