#include "tools/files/json.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "posenc/v1/service.pb.h"
#include "tests/reference/scalar_format.h"
#include "tools/files/decimal.h"

namespace posenc::json_test {
namespace {

using testing::HasSubstr;

template <typename T>
v1::Tensor MakeTensor(v1::DataType dtype, const std::vector<T>& values) {
  v1::Tensor tensor;
  tensor.set_dtype(dtype);
  tensor.add_shape(static_cast<int64_t>(values.size()));
  tensor.set_data(std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)));
  return tensor;
}

// Reads a number like a JSON parser.
double ReadDecimal(const std::string& text) {
  if (text == "\"NaN\"") return std::numeric_limits<double>::quiet_NaN();
  if (text == "\"Infinity\"") return HUGE_VAL;
  if (text == "\"-Infinity\"") return -HUGE_VAL;
  return nlohmann::json::parse(text).get<double>();
}

// Rounds to nearest, ties to even, by bisection over the elements: simple and slow.
uint16_t ToSixteenBits(double value, double (*widen)(uint16_t)) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(value);
  uint16_t low = 0, high = 0x7fff;
  while (!(widen(high) <= HUGE_VAL)) --high;  // infinity: the largest that is not NaN
  if (std::isinf(magnitude)) return sign | high;
  const uint16_t infinity = high;
  while (high - low > 1) {
    const uint16_t middle = static_cast<uint16_t>((low + high) / 2);
    (widen(middle) <= magnitude ? low : high) = middle;
  }
  const double upper = high == infinity ? 2 * widen(low) - widen(static_cast<uint16_t>(low - 1)) : widen(high);
  const double below = magnitude - widen(low), above = upper - magnitude;
  const bool up = above < below || (above == below && (low & 1));
  return sign | (up ? high : low);
}

double WidenHalf(uint16_t bits) { return reference::Decode16(DType::kFP16, bits); }
double WidenBfloat16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

TEST(Decimal, EverySixteenBitValueReadsBack) {
  const struct {
    double (*widen)(uint16_t);
    void (*append)(uint16_t, std::string*);
    size_t longest;  // "-0.000123456"
  } types[] = {{WidenHalf, AppendHalfDecimal, 12}, {WidenBfloat16, AppendBfloat16Decimal, 12}};
  for (const auto& type : types) {
    for (uint32_t bits = 0; bits < 0x10000; ++bits) {
      std::string text;
      type.append(static_cast<uint16_t>(bits), &text);
      const double value = type.widen(static_cast<uint16_t>(bits)), read = ReadDecimal(text);
      if (std::isnan(value)) {
        ASSERT_TRUE(std::isnan(read)) << std::hex << bits;
        continue;
      }
      ASSERT_LE(text.size(), type.longest) << text;
      ASSERT_EQ(std::signbit(read), std::signbit(value)) << text;
      ASSERT_EQ(ToSixteenBits(read, type.widen), bits) << text;
      ASSERT_EQ(ToSixteenBits(static_cast<float>(read), type.widen), bits) << text << " by way of float32";
    }
  }
}

TEST(Decimal, SixteenBitValuesAreShort) {
  const auto half = [](uint16_t bits) {
    std::string text;
    AppendHalfDecimal(bits, &text);
    return text;
  };
  EXPECT_EQ(half(0x3c00), "1");
  EXPECT_EQ(half(0x2e66), "0.1");
  EXPECT_EQ(half(0x8000), "-0.0");
  EXPECT_EQ(half(0xfc00), "\"-Infinity\"");
  EXPECT_EQ(half(0x0001), "6e-08");
  std::string text;
  AppendBfloat16Decimal(0x3dcd, &text);
  EXPECT_EQ(text, "0.1");
}

TEST(Decimal, FloatsReadBack) {
  const uint64_t seed = 20240611;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 100000; ++i) {
    const auto single = std::bit_cast<float>(static_cast<uint32_t>(random()));
    const auto twice = std::bit_cast<double>(random());
    std::string a, b;
    AppendDecimal(single, &a);
    AppendDecimal(twice, &b);
    if (!std::isnan(single)) {
      ASSERT_EQ(std::bit_cast<uint32_t>(static_cast<float>(ReadDecimal(a))), std::bit_cast<uint32_t>(single)) << a;
    }
    if (!std::isnan(twice)) {
      ASSERT_EQ(std::bit_cast<uint64_t>(ReadDecimal(b)), std::bit_cast<uint64_t>(twice)) << b;
    }
  }
}

TEST(Json, TensorsAreDecimals) {
  const auto text =
      TensorToJson(MakeTensor<float>(v1::DATA_TYPE_FP32, {1, -0.5f, 0.1f, -0.0f, NAN, -HUGE_VALF, 1e20f}));
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(*text,
            R"({"dtype": "DATA_TYPE_FP32", "shape": [7], "data": [1, -0.5, 0.1, -0.0, "NaN", "-Infinity", 1e+20]})");
  EXPECT_THAT(*TensorToJson(MakeTensor<int64_t>(v1::DATA_TYPE_INT64, {INT64_MIN, 7})),
              HasSubstr("[-9223372036854775808, 7]"));
  EXPECT_THAT(*TensorToJson(MakeTensor<uint8_t>(v1::DATA_TYPE_BOOL, {1, 0})), HasSubstr("[true, false]"));
}

TEST(Json, RefusesATensorWhoseDataDoNotFit) {
  v1::Tensor tensor = MakeTensor<float>(v1::DATA_TYPE_FP32, {1, 2});
  tensor.mutable_data()->pop_back();
  EXPECT_EQ(TensorToJson(tensor).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Json, AnAnswerKeepsTheNamesOfTheProtoFiles) {
  v1::GenerateTableResponse response;
  response.mutable_info()->set_rotary_dim(128);
  response.mutable_info()->add_sequences()->set_attention_scaling(1.1386294361119891);
  *response.mutable_cos() = MakeTensor<float>(v1::DATA_TYPE_FP32, {1, 2});
  *response.mutable_sin() = MakeTensor<float>(v1::DATA_TYPE_FP32, {});
  const auto text = ToJson(response);
  ASSERT_TRUE(text.ok()) << text.status();
  const auto json = nlohmann::json::parse(*text);
  EXPECT_EQ(json.size(), 3);
  EXPECT_EQ(json["info"]["rotary_dim"], "128");  // the proto3 JSON mapping of int64
  EXPECT_EQ(json["info"]["sequences"][0]["attention_scaling"].get<double>(), 1.1386294361119891);
  EXPECT_EQ(json["info"]["rotated"], false) << "zeros are printed too";
  EXPECT_EQ(json["cos"]["data"], nlohmann::json({1, 2}));
  EXPECT_EQ(json["sin"]["data"].size(), 0);
  response.clear_info();
  EXPECT_EQ(nlohmann::json::parse(*ToJson(response)).size(), 2);
}

TEST(Json, ListsOfMessagesBesideTensors) {
  v1::AnalyzeResponse response;
  response.add_pairs()->set_wavelength(std::numeric_limits<double>::infinity());
  response.add_pairs()->set_ratio(0.125);
  *response.mutable_cosine_sum() = MakeTensor<float>(v1::DATA_TYPE_FP32, {1, 2});
  const auto json = nlohmann::json::parse(*ToJson(response));
  EXPECT_EQ(json["pairs"].size(), 2);
  EXPECT_EQ(json["pairs"][0]["wavelength"], "Infinity");
  EXPECT_EQ(json["pairs"][1]["ratio"], 0.125);
  EXPECT_EQ(json["cosine_sum"]["data"], nlohmann::json({1, 2}));
}

TEST(Json, MessagesWithoutTensorsAreProto3Json) {
  v1::ExplainResponse response;
  response.add_layers()->add_layer_index(3);
  response.mutable_layers(0)->mutable_info()->mutable_plan()->add_frequencies()->add_inv_freq(0.86596432336006535);
  const auto json = nlohmann::json::parse(*ToJson(response));
  EXPECT_EQ(json["layers"][0]["layer_index"][0], 3);
  EXPECT_EQ(json["layers"][0]["info"]["plan"]["frequencies"][0]["inv_freq"][0].get<double>(), 0.86596432336006535);
}

}  // namespace
}  // namespace posenc::json_test
