// ALiBi as BLOOM, MPT and Falcon compute it (tests/golden/recorded/alibi.json), and against MPFR.
#include <gtest/gtest.h>

#include "posenc/methods/bias/bias_methods.h"
#include "tests/reference/alibi_recipe.h"
#include "tests/reference/golden.h"
#include "tests/reference/ulp.h"
#include "tests/service/call.h"

namespace posenc::alibi_golden_test {
namespace {

using golden::json;
using reference::Number;

std::vector<double> Slopes(Frequencies arithmetic, AlibiSlopeRule rule, int heads, double bias_max = 8) {
  AlibiSettings settings{.num_heads = heads, .slopes = rule, .alibi_bias_max = bias_max};
  EXPECT_THAT(Complete(settings, {}), IsOk());
  return AlibiSlopes(arithmetic, settings).values;
}

template <class T>
std::vector<double> Float32(const std::vector<T>& numbers) {
  std::vector<double> values;
  for (const T& x : numbers) values.push_back(x.template RoundedTo<24>());
  return values;
}

TEST(AlibiSlopes, EqualToTheCorrectlyRoundedChain) {
  using T = Number<24>;
  using P = Number<53>;
  for (int heads : {1, 2, 3, 6, 7, 8, 12, 16, 25, 32, 40, 71, 112, 128}) {
    for (double bias_max : {8.0, 16.0, 5.5}) {
      SCOPED_TRACE(testing::Message() << heads << " heads, alibi_bias_max " << bias_max);
      EXPECT_EQ(Slopes(Frequencies::kFloat32, AlibiSlopeRule::kPowerOfTwo, heads, bias_max),
                Float32(reference::BloomSlopes<T, P>(heads, bias_max)));
      EXPECT_EQ(Slopes(Frequencies::kFloat32, AlibiSlopeRule::kMpt, heads, bias_max),
                Float32(reference::MptSlopes<T, P>(heads, bias_max)));
    }
  }
}

TEST(AlibiSlopes, ExactOnesAreTheFormulaRoundedOnce) {
  using Real = Number<300>;
  for (int heads : {1, 2, 3, 6, 7, 8, 12, 16, 25, 32, 40, 71, 112, 128}) {
    for (double bias_max : {8.0, 16.0, 5.5}) {
      SCOPED_TRACE(testing::Message() << heads << " heads, alibi_bias_max " << bias_max);
      const std::vector<double> exact = Float32(reference::BloomSlopes<Real, Real>(heads, bias_max));
      EXPECT_EQ(Slopes(Frequencies::kExact, AlibiSlopeRule::kPowerOfTwo, heads, bias_max), exact);
      EXPECT_EQ(Slopes(Frequencies::kExact, AlibiSlopeRule::kMpt, heads, bias_max), exact);
      EXPECT_EQ(Slopes(Frequencies::kExact, AlibiSlopeRule::kGeometric, heads, bias_max),
                Float32(reference::GeometricSlopes<Real>(heads, bias_max)));
    }
  }
}

// torch's powers: BLOOM's are up to 7.1 ulp from exact, MPT's 1.1; both are nearer to the correctly rounded chain.
TEST(AlibiSlopes, NearTheRecorded) {
  const json file = golden::Read("recorded/alibi.json");
  const struct {
    const char* model;
    AlibiSlopeRule rule;
    double from_chain, from_exact;
  } models[] = {{"bloom", AlibiSlopeRule::kPowerOfTwo, 1, 8}, {"mpt", AlibiSlopeRule::kMpt, 1, 2}};
  for (const auto& [model, rule, from_chain, from_exact] : models) {
    double worst_chain = 0, worst_exact = 0;
    for (const json& record : file[model]) {
      const int heads = record["n_heads"];
      const double bias_max = record.value("alibi_bias_max", 8.0);
      const std::vector<double> recorded = golden::Numbers(record["slopes"]);
      const std::vector<double> chain = Slopes(Frequencies::kFloat32, rule, heads, bias_max);
      const std::vector<double> exact = Slopes(Frequencies::kExact, rule, heads, bias_max);
      ASSERT_EQ(chain.size(), recorded.size());
      for (size_t h = 0; h < recorded.size(); ++h) {
        worst_chain = std::max(worst_chain, reference::Float32Ulps(chain[h], recorded[h]));
        worst_exact = std::max(worst_exact, reference::Float32Ulps(exact[h], recorded[h]));
      }
    }
    EXPECT_LE(worst_chain, from_chain) << model;
    EXPECT_LE(worst_exact, from_exact) << model;
    std::printf("%s: recorded slopes %g ulp from the chain, %g from exact\n", model, worst_chain, worst_exact);
  }
}

// A request for a record's whole bias with its own slopes, one row of keys per head.
v1::GenerateBiasRequest RequestFor(const json& record, v1::AlibiForm form) {
  v1::GenerateBiasRequest request;
  v1::Alibi* alibi = request.mutable_method()->mutable_alibi();
  alibi->set_num_heads(record["n_heads"]);
  alibi->set_form(form);
  const std::vector<double> slopes = golden::Numbers(record["slopes"]);
  *alibi->mutable_given() = MakeTensor(DType::kFP32, {static_cast<int64_t>(slopes.size())}, slopes);
  if (form == v1::ALIBI_FORM_BLOOM) {
    const auto mask = record["attention_mask"].get<std::vector<uint8_t>>();
    *alibi->mutable_position_mask() = MakeTensor(DType::kBOOL, {1, static_cast<int64_t>(mask.size())}, mask);
  }
  request.mutable_geometry()->set_query_length(1);
  request.mutable_geometry()->set_key_length(record["n_keys"]);
  request.mutable_geometry()->set_query_offset(0);
  request.set_form(v1::BIAS_FORM_DENSE);
  request.set_dtype(Wire(golden::ReadDType(record["dtype"])));
  return request;
}

void ExpectRecordedBias(const char* model, v1::AlibiForm form, bool bias_in_bfloat16) {
  const json file = golden::Read("recorded/alibi.json");
  for (const json& record : file.at(model)) {
    SCOPED_TRACE(std::string(model) + ", heads " + record["n_heads"].dump() + ", mask " +
                 record["attention_mask"].dump());
    v1::GenerateBiasRequest request = RequestFor(record, form);
    if (bias_in_bfloat16) request.mutable_method()->mutable_alibi()->set_bias_dtype(v1::DATA_TYPE_BF16);
    const auto response = Call(request);
    ASSERT_THAT(response, IsOk());
    EXPECT_EQ(ValuesOf(response->bias()), golden::Numbers(record["bias"]));
  }
}

TEST(AlibiBias, BloomsFromItsSlopes) { ExpectRecordedBias("bloom", v1::ALIBI_FORM_BLOOM, false); }
TEST(AlibiBias, MptsFromItsSlopes) { ExpectRecordedBias("mpt", v1::ALIBI_FORM_MPT, false); }
TEST(AlibiBias, FalconsFromItsSlopes) { ExpectRecordedBias("falcon", v1::ALIBI_FORM_BLOOM, true); }

// The slopes come from config.json: bfloat16 hides their last place, so Falcon's bias is bit-equal.
TEST(AlibiBias, FalconsFromItsConfig) {
  const json file = golden::Read("recorded/alibi.json");
  for (const json& record : file.at("falcon")) {
    if (record["n_heads"] != 32 || record["attention_mask"][0] == 0) continue;
    v1::GenerateBiasRequest request = RequestFor(record, v1::ALIBI_FORM_BLOOM);
    request.mutable_method()->mutable_model()->set_config_json(golden::ReadText("configs/falcon-rw-1b.json"));
    const auto response = Call(request);
    ASSERT_THAT(response, IsOk());
    const std::vector<double> bias = ValuesOf(response->bias());
    EXPECT_EQ(bias, golden::Numbers(record["bias"]));
    if (record["n_keys"] == 300) {
      EXPECT_EQ(std::vector<double>(bias.begin() + 255, bias.begin() + 261),
                (std::vector<double>{214, 215, 215, 217, 218, 218}));
    }
    EXPECT_EQ(response->info().notes(0).code(), "ADDED_BEFORE_SCALING");
  }
}

TEST(AlibiBias, BloomsAndMptsFromTheirConfigs) {
  for (const char* model : {"bloom", "mpt"}) {
    const json record = golden::Read("recorded/alibi.json")[model][0];
    v1::GenerateBiasRequest request = RequestFor(record, v1::ALIBI_FORM_MPT);
    request.mutable_method()->mutable_model()->set_config_json(
        golden::ReadText("configs/" + record["config"].get<std::string>()));
    request.mutable_precision()->set_preset(v1::PRECISION_PRESET_MODEL);
    request.mutable_hints()->set_return_plan(true);
    const auto response = Call(request);
    ASSERT_THAT(response, IsOk());
    EXPECT_EQ(response->info().plan().slopes_size(), record["n_heads"].get<int>());
    const std::vector<double> ours = ValuesOf(response->bias()), recorded = golden::Numbers(record["bias"]);
    ASSERT_EQ(ours.size(), recorded.size());
    for (size_t n = 0; n < ours.size(); ++n) EXPECT_LE(reference::Float32Ulps(ours[n], recorded[n]), 2) << n;
  }
}

}  // namespace
}  // namespace posenc::alibi_golden_test
