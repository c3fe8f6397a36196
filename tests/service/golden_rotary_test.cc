// The results of transformers for real config.json files (tests/golden/recorded/rotary), against ours.
//
// torch's own pow, cos and sin are not correctly rounded, so not all bits agree. Frequencies must be within 2 float32
// ulp, and tables within 2 ulp if both sides start from the same frequencies.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "posenc/model/model.h"
#include "posenc/rotary/generate_table.h"
#include "tests/reference/golden.h"
#include "tests/reference/ulp.h"
#include "tests/service/call.h"

namespace posenc::golden_rotary_test {
namespace {

using golden::json;
using reference::Float32Ulps;

ModelSource SourceOf(const json& file, const json& layer_type = nullptr) {
  ModelSource source{.config_json = golden::ReadText("configs/" + file["config"].get<std::string>())};
  source.component = golden::ComponentOf(source.config_json);
  if (!layer_type.is_null()) source.layer = layer_type.get<std::string>();
  return source;
}

// transformers does not have this model type, and recorded nothing.
bool RecordedNothing(const std::string& name) { return name == "internlm2_5-7b-chat.json"; }

class GoldenRotary : public testing::TestWithParam<std::string> {
 protected:
  // Calls body(record, rotary, plan) for every record of the file.
  template <class Body>
  void ForEachRecord(const Body& body) {
    const json file = golden::Read("recorded/rotary/" + GetParam());
    for (const json& record : file["records"]) {
      SCOPED_TRACE(record["layer_type"].dump() + " at length " + record["seq_len"].dump());
      auto layers = SelectLayer(SourceOf(file, record["layer_type"]), {});
      ASSERT_THAT(layers, IsOk());
      auto rotary = Rotary::Create(*layers->rotary, Frequencies::kFloat32, {});
      ASSERT_THAT(rotary, IsOk());
      auto plan = rotary->Plan(record["seq_len"]);
      ASSERT_THAT(plan, IsOk());
      body(record, *rotary, **plan);
    }
  }
};

TEST_P(GoldenRotary, FrequenciesWithinTwoUlp) {
  double worst = 0, worst_scaling = 0;
  size_t equal = 0, all = 0;
  ForEachRecord([&](const json& record, const Rotary& rotary, const RotaryPlan& plan) {
    EXPECT_EQ(std::get<RopeParameters>(rotary.settings().frequencies).rope_type,
              record["rope_type"].get<std::string>());
    EXPECT_EQ(rotary.rotary_dim(), record["rotary_width"].get<int64_t>());
    EXPECT_EQ(rotary.NeedsSeqLen(), record["seq_len_matters"].get<bool>());
    worst_scaling =
        std::max(worst_scaling, reference::Ulps(plan.attention_scaling, record["attention_scaling"].get<double>()));
    const std::vector<double> recorded = golden::Numbers(record["inv_freq"]);
    ASSERT_EQ(plan.inv_freq.size(), recorded.size());
    for (size_t i = 0; i < recorded.size(); ++i) {
      const double distance = Float32Ulps(plan.inv_freq[i], recorded[i]);
      EXPECT_LE(distance, 2) << "inv_freq[" << i << "] is " << plan.inv_freq[i] << ", recorded " << recorded[i];
      worst = std::max(worst, distance);
      equal += distance == 0;
      ++all;
    }
  });
  EXPECT_LE(worst_scaling, 1);
  std::printf("%s: inv_freq worst %g ulp, %zu of %zu equal; attention scaling %g ulp\n", GetParam().c_str(), worst,
              equal, all, worst_scaling);
}

TEST_P(GoldenRotary, TablesWithinTwoUlpFromTheSameFrequencies) {
  double worst = 0;
  size_t equal = 0, all = 0;
  ForEachRecord([&](const json& record, const Rotary&, const RotaryPlan&) {
    v1::GenerateTableRequest request;
    auto* settings = request.mutable_rotary()->mutable_settings();
    for (double f : golden::Numbers(record["inv_freq"])) settings->mutable_given_frequencies()->add_inv_freq(f);
    settings->mutable_given_frequencies()->set_attention_scaling(record["attention_scaling"]);
    settings->set_input_pairing(v1::PAIRING_HALF_SPLIT);
    const std::vector<double> positions = golden::Numbers(record["positions"]);
    *request.mutable_positions()->mutable_ids() =
        MakeTensor(DType::kFP64, {static_cast<int64_t>(positions.size())}, positions);
    request.set_dtype(v1::DATA_TYPE_FP32);
    request.set_form(v1::TABLE_FORM_HALF_WIDTH);
    request.mutable_precision()->set_preset(v1::PRECISION_PRESET_F32);
    const auto response = Call(request);
    ASSERT_THAT(response, IsOk());
    for (const auto& [name, tensor] : {std::pair{"cos", response->cos()}, {"sin", response->sin()}}) {
      const std::vector<double> ours = ValuesOf(tensor), recorded = golden::Numbers(record[name]);
      ASSERT_EQ(ours.size(), recorded.size());
      for (size_t n = 0; n < ours.size(); ++n) {
        const double distance = Float32Ulps(ours[n], recorded[n]);
        EXPECT_LE(distance, 2) << name << "[" << n << "] is " << ours[n] << ", recorded " << recorded[n];
        worst = std::max(worst, distance);
        equal += distance == 0;
        ++all;
      }
    }
  });
  std::printf("%s: tables worst %g ulp, %zu of %zu equal\n", GetParam().c_str(), worst, equal, all);
}

std::vector<std::string> Accepted() {
  std::vector<std::string> names = golden::List("recorded/rotary");
  std::erase_if(names, RecordedNothing);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenRotary, testing::ValuesIn(Accepted()), [](const auto& instance) {
  std::string name = instance.param;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
  return name;
});

TEST(GoldenRotaryFiles, CoverAllScalingsAndManyModels) {
  std::set<std::string> scalings, configs;
  for (const std::string& name : Accepted()) {
    const json file = golden::Read("recorded/rotary/" + name);
    configs.insert(file["config"]);
    for (const json& record : file["records"]) scalings.insert(record["rope_type"]);
  }
  EXPECT_THAT(scalings,
              testing::ElementsAre("default", "dynamic", "linear", "llama3", "longrope", "ntk_alpha", "yarn"));
  EXPECT_GE(configs.size(), 12u);
}

TEST(GoldenRotaryFiles, UnknownFieldIsRefusedByName) {
  const ModelSource source{.config_json = R"({"model_type": "llama", "head_dim": 64,
                                              "rope_scaling": {"type": "linear", "factor": 2, "finetuned": true}})"};
  EXPECT_THAT(SelectLayer(source, {}), IsInvalid("UNKNOWN_FIELD", "config_json.rope_scaling.finetuned"));
}

TEST(GoldenRotaryFiles, UnknownModelTypeNeedsAPairing) {
  ModelSource source{.config_json = R"({"model_type": "unheard", "head_dim": 64, "max_position_embeddings": 32768,
                                        "rope_scaling": {"type": "dynamic", "factor": 2}})"};
  const auto refused = SelectLayer(source, {});
  EXPECT_THAT(refused, IsInvalid("MISSING", "input_pairing"));
  EXPECT_THAT(std::string(refused.status().message()), testing::HasSubstr("unheard"));
  source.input_pairing = Pairing::kHalfSplit;
  const auto layers = SelectLayer(source, {});
  ASSERT_THAT(layers, IsOk());
  EXPECT_EQ(std::get<RopeParameters>(layers->rotary->frequencies).rope_type, "dynamic");
  EXPECT_THAT(layers->notes, testing::Contains(testing::Field(&Note::code, "UNKNOWN_MODEL_TYPE")));
}

}  // namespace
}  // namespace posenc::golden_rotary_test
