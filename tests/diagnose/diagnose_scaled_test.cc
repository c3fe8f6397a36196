// Diagnoses of queries that a factor of their position multiplies: right, and with the usual mistakes.
#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "tests/service/call.h"

namespace posenc::diagnose::diagnose_scaled_test {
namespace {

constexpr int64_t kTokens = 48, kHeads = 3, kWidth = 64;
constexpr int64_t kFirst = 16384 - 20;  // Ministral 3's first factor that is not 1 is that of token 20

v1::ModelConfig Ministral() {
  v1::ModelConfig model;
  model.set_config_json(R"({"model_type": "ministral3", "num_hidden_layers": 1, "head_dim": 64,
      "rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6, "factor": 16, "mscale": 1, "mscale_all_dim": 1,
                          "original_max_position_embeddings": 16384, "llama_4_scaling_beta": 0.1}})");
  return model;
}

v1::ModelConfig Llama4(int layer) {
  v1::ModelConfig model;
  model.set_config_json(
      R"({"model_type": "llama4_text", "num_hidden_layers": 4, "head_dim": 64, "floor_scale": 4096})");
  model.set_layer_index(layer);
  return model;
}

v1::Tensor Elements(uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::vector<double> x(kTokens * kHeads * kWidth);
  for (double& value : x) value = normal(random);
  return MakeTensor(DType::kBF16, {kTokens, kHeads, kWidth}, x);
}

struct Rotated {
  v1::ApplyRotaryRequest request;
  v1::ApplyRotaryResponse answer;
};

// The model's settings, changed, by the model's class of precision.
Rotated Rotate(const v1::ModelConfig& model, const std::function<void(v1::RotarySettings*)>& change = nullptr) {
  Rotated made;
  v1::ExplainRequest explain;
  *explain.mutable_model() = model;
  const auto explained = Call(explain);
  EXPECT_THAT(explained, IsOk());
  *made.request.mutable_rotary()->mutable_settings() = explained->layers(0).info().plan().rotary();
  if (change) change(made.request.mutable_rotary()->mutable_settings());
  made.request.mutable_precision()->set_preset(v1::PRECISION_PRESET_HF_EAGER);
  made.request.set_layout(v1::LAYOUT_THD);
  made.request.mutable_positions()->set_offset(kFirst);
  *made.request.mutable_q()->mutable_tensor() = Elements(1);
  *made.request.mutable_k()->mutable_tensor() = Elements(2);
  const auto answer = Call(made.request);
  EXPECT_THAT(answer, IsOk());
  made.answer = *answer;
  return made;
}

v1::DiagnoseRequest RequestOf(const v1::ModelConfig& model, const Rotated& made) {
  v1::DiagnoseRequest request;
  *request.mutable_expected()->mutable_model() = model;
  request.set_layout(v1::LAYOUT_THD);
  *request.mutable_positions() = made.request.positions();
  auto* rotation = request.mutable_rotation();
  *rotation->mutable_q()->mutable_before() = made.request.q().tensor();
  *rotation->mutable_q()->mutable_after() = made.answer.q();
  *rotation->mutable_k()->mutable_before() = made.request.k().tensor();
  *rotation->mutable_k()->mutable_after() = made.answer.k();
  return request;
}

v1::DiagnoseResponse Diagnosed(const v1::ModelConfig& model, const Rotated& made) {
  const auto response = Call(RequestOf(model, made));
  EXPECT_THAT(response, IsOk());
  return *response;
}

void ExpectFault(const v1::DiagnoseResponse& response, const std::string& code) {
  EXPECT_EQ(response.verdict().kind(), v1::VERDICT_KIND_DIFFERS) << response.verdict().sentence();
  ASSERT_EQ(response.verdict().faults_size(), 1);
  const v1::Fault& fault = response.verdict().faults(0);
  EXPECT_EQ(fault.departures(0).code(), code) << response.verdict().sentence();
  ASSERT_EQ(fault.parts_size(), 1) << response.verdict().sentence();
  EXPECT_FALSE(response.verdict().sentence().empty());
}

TEST(DiagnoseScaled, TheModelsOwnFactorMatches) {
  const auto right = Diagnosed(Ministral(), Rotate(Ministral()));
  EXPECT_EQ(right.verdict().kind(), v1::VERDICT_KIND_MATCHES) << right.verdict().sentence();
  EXPECT_TRUE(right.explanations(0).settings().has_query_scale());
  // A factor that is rounded elsewhere is within the bound.
  const auto wide = Rotate(Ministral(), [](auto* s) { s->mutable_query_scale()->set_rounds_factor(false); });
  EXPECT_EQ(Diagnosed(Ministral(), wide).verdict().kind(), v1::VERDICT_KIND_MATCHES);
  // Llama 4's layers without rotation are multiplied alone.
  const auto alone = Diagnosed(Llama4(3), Rotate(Llama4(3)));
  EXPECT_EQ(alone.verdict().kind(), v1::VERDICT_KIND_MATCHES) << alone.verdict().sentence();
}

TEST(DiagnoseScaled, UsualMistakes) {
  const auto missing = Diagnosed(Ministral(), Rotate(Ministral(), [](auto* s) { s->clear_query_scale(); }));
  ExpectFault(missing, "QUERY_SCALE_MISSING");
  const v1::EvidencePart& part = missing.verdict().faults(0).parts(0);
  EXPECT_EQ(part.operands(0), v1::OPERAND_QUERY);
  EXPECT_EQ(part.tokens(0).first(), 20);
  EXPECT_EQ(part.tokens(0).last(), kTokens - 1);
  EXPECT_FALSE(missing.explanations(0).settings().has_query_scale());

  ExpectFault(Diagnosed(Ministral(), Rotate(Ministral(),
                                            [](auto* s) {
                                              auto* scale = s->mutable_query_scale();
                                              scale->set_function(v1::QUERY_SCALE_FUNCTION_LLAMA4);
                                              scale->set_attn_scale(scale->llama_4_scaling_beta());
                                              scale->set_floor_scale(scale->original_max_position_embeddings());
                                              scale->clear_llama_4_scaling_beta();
                                              scale->clear_original_max_position_embeddings();
                                            })),
              "QUERY_SCALE_POSITIONS");

  Rotated of_keys = Rotate(Ministral());
  v1::ApplyRotaryRequest k_as_q = of_keys.request;
  *k_as_q.mutable_q() = k_as_q.k();
  k_as_q.clear_k();
  of_keys.answer.mutable_k()->set_data(Call(k_as_q)->q().data());
  ExpectFault(Diagnosed(Ministral(), of_keys), "QUERY_SCALE_OF_KEYS");

  const auto unscaled_q = Rotate(Ministral(), [](auto* s) { s->clear_query_scale(); });
  of_keys.answer.mutable_q()->set_data(unscaled_q.answer.q().data());
  ExpectFault(Diagnosed(Ministral(), of_keys), "QUERY_SCALE_EXCHANGED");
}

TEST(DiagnoseScaled, OneTensorMayBeK) {
  v1::DiagnoseRequest request = RequestOf(Ministral(), Rotate(Ministral()));
  const v1::BeforeAndAfter q = request.rotation().q(), k = request.rotation().k();
  request.mutable_rotation()->clear_k();
  const auto of_q = Call(request);
  EXPECT_EQ(of_q->verdict().kind(), v1::VERDICT_KIND_MATCHES);
  EXPECT_THAT(of_q->verdict().sentence(), testing::EndsWith("; q multiplied by its factor of the position"));
  *request.mutable_rotation()->mutable_q() = k;
  const auto of_k = Call(request);
  EXPECT_EQ(of_k->verdict().kind(), v1::VERDICT_KIND_UNKNOWN);
  EXPECT_EQ(of_k->verdict().sentence(),
            "if the one tensor is k, it matches; if it is q, its factor of the position is missing");
}

TEST(DiagnoseScaled, FactorsAppliedTwice) {
  const Rotated made = Rotate(Ministral());
  Rotated again = made;
  auto* settings = again.request.mutable_rotary()->mutable_settings();
  const v1::QueryScale scale = settings->query_scale();
  settings->Clear();
  *settings->mutable_query_scale() = scale;
  *again.request.mutable_q()->mutable_tensor() = made.answer.q();
  Rotated twice = made;
  twice.answer.mutable_q()->set_data(Call(again.request)->q().data());
  ExpectFault(Diagnosed(Ministral(), twice), "QUERY_SCALE_TWICE");
}

TEST(DiagnoseScaled, IndexesInTheCache) {
  const auto scale_by = [](v1::PositionSource source) {
    return [source](v1::RotarySettings* s) { s->mutable_query_scale()->set_position_source(source); };
  };
  Rotated made = Rotate(Ministral());
  made.request.mutable_positions()->set_cache_index(16384 - 10);
  scale_by(v1::POSITION_SOURCE_CACHE_INDEX)(made.request.mutable_rotary()->mutable_settings());
  const auto answer = Call(made.request);
  ASSERT_THAT(answer, IsOk());
  made.answer = *answer;

  v1::DiagnoseRequest request = RequestOf(Ministral(), made);
  *request.mutable_expected()->mutable_settings() = made.request.rotary().settings();
  const auto right = Call(request);
  ASSERT_THAT(right, IsOk());
  EXPECT_EQ(right->verdict().kind(), v1::VERDICT_KIND_MATCHES) << right->verdict().sentence();

  scale_by(v1::POSITION_SOURCE_POSITION_IDS)(request.mutable_expected()->mutable_settings());
  const auto by_index = Call(request);
  ASSERT_THAT(by_index, IsOk());
  ExpectFault(*by_index, "QUERY_SCALE_INDEX");

  scale_by(v1::POSITION_SOURCE_CACHE_INDEX)(request.mutable_expected()->mutable_settings());
  for (const int64_t bad : {int64_t{-5}, std::numeric_limits<int64_t>::max()}) {
    request.mutable_positions()->set_cache_index(bad);
    EXPECT_THAT(Call(request), IsInvalid("OUT_OF_RANGE", "positions.cache_index"));
  }
  request.mutable_positions()->clear_cache_index();
  std::vector<double> ids;
  for (int64_t n = 0; n < kTokens; ++n) ids.push_back(static_cast<double>(kFirst + n));
  *request.mutable_positions()->mutable_ids() = MakeTensor(DType::kFP64, {kTokens}, ids);
  EXPECT_THAT(Call(request), IsInvalid("MISSING", "positions.cache_index"));
  request.mutable_positions()->set_offset(-2);
  EXPECT_THAT(Call(request), IsInvalid("OUT_OF_RANGE", "positions.offset"));
}

TEST(DiagnoseScaled, ARequestedPrecisionIsSaidToBeDropped) {
  v1::DiagnoseRequest request = RequestOf(Ministral(), Rotate(Ministral()));
  request.mutable_precision()->set_preset(v1::PRECISION_PRESET_HF_EAGER);
  EXPECT_THAT(Call(request)->verdict().sentence(), testing::HasSubstr("the requested one was not compared"));
}

TEST(DiagnoseScaled, LayersAndSettingsThatOnlyMultiply) {
  const Rotated made = Rotate(Llama4(3));
  v1::DiagnoseRequest request = RequestOf(Llama4(3), made);
  const auto of_layer = Call(request);
  ASSERT_THAT(of_layer, IsOk());
  EXPECT_EQ(of_layer->verdict().sentence(),
            "nothing rotates in layers of type \"no_rope\"; q multiplied by its factor of the position");
  EXPECT_EQ(of_layer->undecided_size(), 0) << of_layer->undecided(0).message();
  *request.mutable_expected()->mutable_settings() = made.request.rotary().settings();
  EXPECT_EQ(Call(request)->verdict().sentence(),
            "nothing rotates in settings without frequencies; q multiplied by its factor of the position");
  request.mutable_inv_freq()->set_dtype(v1::DATA_TYPE_FP64);
  request.clear_layout();
  EXPECT_THAT(Call(request), IsInvalid("UNSUPPORTED", "expected.settings"));
}

TEST(DiagnoseScaled, OnLayersThatRotate) {
  const auto scale = Rotate(Llama4(3)).request.rotary().settings().query_scale();
  const auto scaled = Rotate(Llama4(0), [&](auto* s) { *s->mutable_query_scale() = scale; });
  ExpectFault(Diagnosed(Llama4(0), scaled), "QUERY_SCALE_OTHER_LAYERS");
  EXPECT_EQ(Diagnosed(Llama4(0), Rotate(Llama4(0))).verdict().kind(), v1::VERDICT_KIND_MATCHES);
}

// Another fault is found under the factor, as without one.
TEST(DiagnoseScaled, FaultsOfTheRotationAreFoundUnderIt) {
  const auto theta = Rotate(Ministral(), [](auto* s) { s->mutable_rope_parameters()->set_rope_theta(10000); });
  const auto response = Diagnosed(Ministral(), theta);
  ASSERT_GE(response.verdict().faults_size(), 1) << response.verdict().sentence();
  EXPECT_EQ(response.verdict().faults(0).departures(0).code(), "ROPE_THETA") << response.verdict().sentence();
}

}  // namespace
}  // namespace posenc::diagnose::diagnose_scaled_test
