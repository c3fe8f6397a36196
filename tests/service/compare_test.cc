// Compare: what counts as equal, where two settings first differ, and how large differences are, against plain long
// double arithmetic.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/service/call.h"

namespace posenc::compare_test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using testing::UnorderedElementsAre;

constexpr char kLlama3[] = R"({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                               "original_max_position_embeddings": 8192})";

// A config.json with Llama 3.1's sizes. `more` begins with a comma.
std::string Llama(const std::string& more = "", int layers = 4) {
  return R"({"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "max_position_embeddings": 131072,
             "num_hidden_layers": )" +
         std::to_string(layers) + more + "}";
}
std::string Gemma3(const std::string& more) {
  return R"({"model_type": "gemma3_text", "hidden_size": 1152, "head_dim": 256, "num_attention_heads": 4,
             "num_hidden_layers": 6, "sliding_window_pattern": 3, "rope_theta": 1000000)" +
         more + "}";
}

v1::ComparedSettings Model(const std::string& config_json) {
  v1::ComparedSettings side;
  side.mutable_model()->set_config_json(config_json);
  return side;
}
v1::ComparedSettings Rope(const std::string& rope_type, int64_t rotary_dim = 128) {
  v1::ComparedSettings side;
  side.mutable_rotary()->mutable_rope_parameters()->set_rope_type(rope_type);
  side.mutable_rotary()->set_rotary_dim(rotary_dim);
  side.mutable_rotary()->set_input_pairing(v1::PAIRING_HALF_SPLIT);
  return side;
}
v1::RopeParameters& Parameters(v1::ComparedSettings& side) { return *side.mutable_rotary()->mutable_rope_parameters(); }
v1::ComparedSettings Frequencies(const std::vector<double>& inv_freq) {
  v1::ComparedSettings side;
  side.mutable_rotary()->mutable_given_frequencies()->mutable_inv_freq()->Assign(inv_freq.begin(), inv_freq.end());
  side.mutable_rotary()->set_input_pairing(v1::PAIRING_HALF_SPLIT);
  return side;
}
v1::ComparedSettings Table(const std::vector<double>& cos, const std::vector<double>& sin, DType dtype) {
  v1::ComparedSettings side;
  v1::GivenTable& table = *side.mutable_rotary()->mutable_given_table();
  const auto rows = static_cast<int64_t>(cos.size());
  *table.mutable_cos() = MakeTensor(dtype, {rows, 1}, cos);
  *table.mutable_sin() = MakeTensor(dtype, {rows, 1}, sin);
  table.set_form(v1::TABLE_FORM_HALF_WIDTH);
  side.mutable_rotary()->set_input_pairing(v1::PAIRING_HALF_SPLIT);
  return side;
}
v1::ComparedSettings Alibi(int64_t heads) {
  v1::ComparedSettings side;
  v1::Alibi& alibi = *side.mutable_bias()->mutable_alibi();
  alibi.set_num_heads(heads);
  alibi.set_rule(v1::ALIBI_SLOPE_RULE_POWER_OF_TWO);
  alibi.set_form(v1::ALIBI_FORM_CAUSAL);
  return side;
}

v1::CompareRequest Request(const v1::ComparedSettings& a, const v1::ComparedSettings& b) {
  v1::CompareRequest request;
  *request.mutable_a() = a;
  *request.mutable_b() = b;
  return request;
}
v1::CompareResponse Compared(const v1::CompareRequest& request) {
  const auto response = Call(request);
  EXPECT_THAT(response, IsOk());
  return response.ok() ? *response : v1::CompareResponse();
}
v1::CompareResponse Compared(const v1::ComparedSettings& a, const v1::ComparedSettings& b) {
  return Compared(Request(a, b));
}
bool AreSame(const v1::ComparedSettings& a, const v1::ComparedSettings& b) {
  const v1::CompareResponse response = Compared(a, b);
  for (const v1::LayerComparison& group : response.layers()) EXPECT_EQ(group.fields().empty(), group.same());
  return response.same();
}

MATCHER_P3(Differs, path, a, b, "") { return arg.path() == path && arg.a() == a && arg.b() == b; }
MATCHER_P(HasCode, code, "") { return arg.code() == code; }

std::vector<uint32_t> LayersOf(const v1::ComparedLayers& layers) {
  return {layers.layer_index().begin(), layers.layer_index().end()};
}

// The first pair that llama3 changes has a wavelength above 8192 / 4.
TEST(Compare, Llama31WithAndWithoutItsScaling) {
  const std::string theta = R"(, "rope_theta": 500000)";
  const v1::CompareResponse response =
      Compared(Model(Llama(theta + R"(, "rope_scaling": )" + kLlama3)), Model(Llama(theta)));
  EXPECT_FALSE(response.same());
  ASSERT_THAT(response.layers(), SizeIs(1));
  const v1::LayerComparison& group = response.layers(0);
  EXPECT_FALSE(group.same());
  EXPECT_THAT(LayersOf(group.a()), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(group.a().method(), "rotary");
  EXPECT_THAT(group.fields(),
              UnorderedElementsAre(Differs("rope_parameters.rope_type", "llama3", "default"),
                                   Differs("rope_parameters.factor", "8", ""),
                                   Differs("rope_parameters.low_freq_factor", "1", ""),
                                   Differs("rope_parameters.high_freq_factor", "4", ""),
                                   Differs("rope_parameters.original_max_position_embeddings", "8192", "")));
  ASSERT_THAT(group.rotary(), SizeIs(1));
  const v1::RotaryComparison& rotary = group.rotary(0);
  EXPECT_EQ(rotary.seq_len(), 0);
  int64_t first = 0;
  while (2 * M_PI * std::pow(500000.0, static_cast<double>(first) / 64) <= 2048) ++first;
  EXPECT_EQ(rotary.first_pair().pair(), first);
  EXPECT_EQ(rotary.differing_pairs(), 64 - first);
  EXPECT_NEAR(rotary.first_pair().b_inv_freq(), std::pow(500000.0, -static_cast<double>(first) / 64), 1e-18);
  EXPECT_LT(rotary.first_pair().a_inv_freq(), rotary.first_pair().b_inv_freq());
  EXPECT_EQ(rotary.first_position(), 1);
  ASSERT_THAT(rotary.positions(), SizeIs(3));
  EXPECT_GT(rotary.positions(0).largest_difference(), 1);
}

TEST(Compare, OneFileInTwoSpellingsIsTheSame) {
  const std::string parameters = R"({"rope_theta": 500000.0, )" + std::string(kLlama3).substr(1);
  EXPECT_TRUE(AreSame(Model(Llama(R"(, "rope_theta": 500000, "rope_scaling": )" + std::string(kLlama3))),
                      Model(Llama(R"(, "rope_parameters": )" + parameters))));
  EXPECT_TRUE(AreSame(Model(Llama()), Model(Llama(R"(, "rope_theta": 10000.0)"))));
}

TEST(Compare, SettingsWithTheSameEffectAreTheSame) {
  v1::ComparedSettings linear = Rope("linear"), at_positions = Rope("linear_positions"), by_one = Rope("linear");
  Parameters(linear).set_factor(4);
  Parameters(at_positions).set_factor(4);
  Parameters(by_one).set_factor(1);
  EXPECT_TRUE(AreSame(linear, at_positions));
  EXPECT_TRUE(AreSame(by_one, Rope("default")));
  EXPECT_FALSE(AreSame(linear, Rope("default")));
  EXPECT_TRUE(AreSame(Frequencies({1, 0.01}), Rope("default", 4)));
  v1::ComparedSettings parts = Rope("default");
  parts.mutable_rotary()->set_half_split_parts(2);
  EXPECT_FALSE(AreSame(parts, Rope("default")));
  parts.mutable_rotary()->set_input_pairing(v1::PAIRING_INTERLEAVED);
  v1::ComparedSettings whole = Rope("default");
  whole.mutable_rotary()->set_input_pairing(v1::PAIRING_INTERLEAVED);
  EXPECT_TRUE(AreSame(parts, whole));
}

TEST(Compare, SettingsAndTheModelThatHasThem) {
  const v1::CompareResponse response = Compared(Model(Llama()), Rope("default"));
  EXPECT_TRUE(response.same());
  ASSERT_THAT(response.layers(), SizeIs(1));
  EXPECT_THAT(response.layers(0).a().layer_index(), SizeIs(4));
  EXPECT_THAT(response.layers(0).b().layer_index(), IsEmpty());
  EXPECT_TRUE(response.layers(0).a().has_model_precision());
  EXPECT_FALSE(response.layers(0).b().has_model_precision());
}

TEST(Compare, AnotherYarnFactorScalesAttentionToo) {
  v1::ComparedSettings a = Rope("yarn"), b = Rope("yarn");
  for (v1::ComparedSettings* side : {&a, &b}) Parameters(*side).set_original_max_position_embeddings(4096);
  Parameters(a).set_factor(4);
  Parameters(b).set_factor(8);
  const v1::CompareResponse response = Compared(a, b);
  const v1::LayerComparison& group = response.layers(0);
  EXPECT_THAT(group.fields(), Contains(Differs("rope_parameters.factor", "4", "8")));
  EXPECT_NEAR(group.rotary(0).a_attention_scaling(), 0.1 * std::log(4) + 1, 1e-15);
  EXPECT_NEAR(group.rotary(0).b_attention_scaling(), 0.1 * std::log(8) + 1, 1e-15);
  EXPECT_EQ(group.rotary(0).first_position(), 0);  // the attention scaling changes cos 0
  EXPECT_EQ(group.rotary(0).searched_positions(), 1);
}

// DeepSeek's classes multiply their softmax scale; others with the same scaling block do not.
TEST(Compare, SettingsScaleTheSoftmaxAsTheOtherSidesModel) {
  v1::ComparedSettings settings = Rope("yarn", 64);
  Parameters(settings).set_factor(40);
  Parameters(settings).set_original_max_position_embeddings(4096);
  Parameters(settings).set_mscale(1);
  Parameters(settings).set_mscale_all_dim(1);
  const std::string block = R"(, "rope_scaling": {"rope_type": "yarn", "factor": 40, "mscale": 1, "mscale_all_dim": 1,
                                                  "original_max_position_embeddings": 4096}})";
  const std::string sizes = R"(, "num_hidden_layers": 1, "hidden_size": 256, "num_attention_heads": 4)";
  const auto llama = Model(R"({"model_type": "llama")" + sizes + block);
  const auto deepseek =
      Model(R"({"model_type": "deepseek_v3", "qk_rope_head_dim": 64, "rope_interleave": true)" + sizes + block);
  EXPECT_EQ(Compared(llama, settings).layers(0).rotary(0).b_softmax_scale_factor(), 1);
  EXPECT_TRUE(Compared(llama, settings).same());
  const v1::RotaryComparison with_deepseek = Compared(deepseek, settings).layers(0).rotary(0);
  const double factor = std::pow(0.1 * std::log(40.0) + 1, 2);
  EXPECT_NEAR(with_deepseek.a_softmax_scale_factor(), factor, 1e-14);
  EXPECT_NEAR(with_deepseek.b_softmax_scale_factor(), factor, 1e-14);
  const v1::RotaryComparison models = Compared(llama, deepseek).layers(0).rotary(0);
  EXPECT_EQ(models.a_softmax_scale_factor(), 1);
  EXPECT_FALSE(models.same());
}

TEST(Compare, LayerTypesAreGroupsOfTheirOwn) {
  const v1::CompareResponse response = Compared(Model(Gemma3(R"(, "rope_local_base_freq": 10000)")),
                                                Model(Gemma3(R"(, "rope_local_base_freq": 20000)")));
  EXPECT_FALSE(response.same());
  ASSERT_THAT(response.layers(), SizeIs(2));
  const v1::LayerComparison &sliding = response.layers(0), &full = response.layers(1);
  EXPECT_THAT(LayersOf(sliding.a()), ElementsAre(0, 1, 3, 4));
  EXPECT_THAT(LayersOf(full.b()), ElementsAre(2, 5));
  EXPECT_EQ(sliding.b().layer_type(), "sliding_attention");
  EXPECT_FALSE(sliding.same());
  EXPECT_THAT(sliding.fields(), ElementsAre(Differs("rope_parameters.rope_theta", "10000", "20000")));
  EXPECT_TRUE(full.same());
  EXPECT_THAT(full.fields(), IsEmpty());
}

// A chosen layer is compared with all layers of the other side.
TEST(Compare, AFactorOfQueriesThatOneSideHas) {
  v1::CompareRequest request;
  for (auto* side : {request.mutable_a(), request.mutable_b()}) {
    const std::string tuning = side == &request.a() ? "true" : "false";
    side->mutable_model()->set_config_json(
        R"({"model_type": "llama4_text", "num_hidden_layers": 4, "attn_temperature_tuning": )" + tuning + "}");
    side->mutable_model()->set_layer_index(3);
  }
  const auto response = Call(request);
  ASSERT_THAT(response, IsOk());
  EXPECT_FALSE(response->same());
  std::vector<std::string> fields;
  for (const auto& field : response->layers(0).fields()) fields.push_back(field.path());
  EXPECT_THAT(fields, testing::Contains("query_scale.floor_scale"));
  for (const v1::Note& note : response->layers(0).notes()) EXPECT_NE(note.code(), "QUERY_SCALE");
}

TEST(Compare, AChosenLayer) {
  const std::string config = Gemma3(R"(, "rope_local_base_freq": 10000)");
  v1::ComparedSettings sliding = Model(config), full = Model(config);
  sliding.mutable_model()->set_layer_type("sliding_attention");
  full.mutable_model()->set_layer_index(2);
  EXPECT_THAT(Compared(sliding, full).layers(), SizeIs(1));
  EXPECT_FALSE(Compared(sliding, full).same());
  const v1::CompareResponse with_all = Compared(sliding, Model(config));
  ASSERT_THAT(with_all.layers(), SizeIs(2));
  EXPECT_TRUE(with_all.layers(0).same());
  EXPECT_FALSE(with_all.layers(1).same());
  EXPECT_FALSE(with_all.same());
}

TEST(Compare, LayersThatOnlyOneSideHas) {
  const v1::CompareResponse response = Compared(Model(Llama("", 2)), Model(Llama("", 5)));
  EXPECT_FALSE(response.same());
  ASSERT_THAT(response.layers(), SizeIs(2));
  EXPECT_TRUE(response.layers(0).same());
  EXPECT_THAT(LayersOf(response.layers(0).b()), ElementsAre(0, 1));
  EXPECT_FALSE(response.layers(1).has_a());
  EXPECT_THAT(LayersOf(response.layers(1).b()), ElementsAre(2, 3, 4));
  EXPECT_FALSE(response.layers(1).same());
}

// All float32 entries and all differences against long double, whose cosines are far more exact than float64's.
TEST(Compare, PositionsAndDifferencesByLongDouble) {
  const std::vector<double> a = {1.0, 0.1, 0.003}, b = {1.0, 0.1 * (1 + 1e-12), 0.003 * (1 - 1e-11)};
  const v1::CompareResponse response = Compared(Frequencies(a), Frequencies(b));
  const v1::RotaryComparison& rotary = response.layers(0).rotary(0);
  ASSERT_THAT(response.layers(0).fields(), SizeIs(1));
  EXPECT_EQ(response.layers(0).fields(0).path(), "given_frequencies.inv_freq[1]");
  EXPECT_EQ(response.layers(0).fields(0).a(), "0.1");
  EXPECT_EQ(std::stod(response.layers(0).fields(0).b()), b[1]);
  EXPECT_EQ(rotary.differing_pairs(), 2);
  EXPECT_EQ(rotary.first_pair().pair(), 1);
  EXPECT_EQ(rotary.first_pair().a_inv_freq(), a[1]);
  EXPECT_EQ(rotary.first_pair().b_inv_freq(), b[1]);

  using Real = long double;
  const auto differ = [&](int64_t p, size_t i) {
    const Real x = static_cast<Real>(p) * a[i], y = static_cast<Real>(p) * b[i];
    return static_cast<float>(std::cos(x)) != static_cast<float>(std::cos(y)) ||
           static_cast<float>(std::sin(x)) != static_cast<float>(std::sin(y));
  };
  int64_t first = 0;
  while (!differ(first, 1) && !differ(first, 2)) ++first;
  EXPECT_GT(first, 100);
  EXPECT_EQ(rotary.first_position(), first);
  EXPECT_EQ(rotary.searched_positions(), first + 1);

  ASSERT_THAT(rotary.positions(), SizeIs(3));
  const int64_t positions[] = {4095, 32767, 131071};
  for (int n = 0; n < 3; ++n) {
    Real largest = 0;
    int64_t pair = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      const Real x = static_cast<Real>(positions[n]) * a[i], y = static_cast<Real>(positions[n]) * b[i];
      for (const Real difference : {std::fabs(std::cos(x) - std::cos(y)), std::fabs(std::sin(x) - std::sin(y))}) {
        if (difference > largest) {
          largest = difference;
          pair = static_cast<int64_t>(i);
        }
      }
    }
    EXPECT_EQ(rotary.positions(n).position(), positions[n]);
    EXPECT_EQ(rotary.positions(n).pair(), pair);
    EXPECT_NEAR(rotary.positions(n).largest_difference(), static_cast<double>(largest), 3e-16);
  }
}

TEST(Compare, DifferencesThatNoTableShows) {
  v1::ComparedSettings interleaved = Rope("default");
  interleaved.mutable_rotary()->set_input_pairing(v1::PAIRING_INTERLEAVED);
  const v1::CompareResponse paired = Compared(Rope("default"), interleaved);
  EXPECT_FALSE(paired.same());
  EXPECT_THAT(paired.layers(0).fields(),
              UnorderedElementsAre(Differs("input_pairing", "PAIRING_HALF_SPLIT", "PAIRING_INTERLEAVED"),
                                   Differs("output_pairing", "PAIRING_HALF_SPLIT", "PAIRING_INTERLEAVED")));
  EXPECT_TRUE(paired.layers(0).rotary(0).same());
  EXPECT_FALSE(paired.layers(0).rotary(0).has_first_position());
  EXPECT_THAT(paired.layers(0).rotary(0).positions(), IsEmpty());

  v1::ComparedSettings axes = Rope("default", 8), other_axes = axes;
  for (const int64_t pairs : {1, 1, 2}) Parameters(axes).add_mrope_section(pairs);
  for (const int64_t pairs : {2, 1, 1}) Parameters(other_axes).add_mrope_section(pairs);
  Parameters(axes).set_mrope_order(v1::MROPE_ORDER_CONTIGUOUS);
  Parameters(other_axes).set_mrope_order(v1::MROPE_ORDER_CONTIGUOUS);
  const v1::CompareResponse turned = Compared(axes, other_axes);
  EXPECT_FALSE(turned.same());
  EXPECT_THAT(turned.layers(0).fields(), ElementsAre(Differs("rope_parameters.mrope_section[0]", "1", "2")));
  EXPECT_EQ(turned.layers(0).rotary(0).first_pair().pair(), 1);
  EXPECT_EQ(turned.layers(0).rotary(0).first_pair().a_axis(), 1);
  EXPECT_EQ(turned.layers(0).rotary(0).first_pair().b_axis(), 0);
  EXPECT_EQ(turned.layers(0).rotary(0).differing_pairs(), 2);
  EXPECT_FALSE(turned.layers(0).rotary(0).has_first_position());
}

TEST(Compare, WidthsAreComparedPairByPair) {
  const v1::CompareResponse response = Compared(Frequencies({1, 0.5}), Frequencies({1, 0.5, 0.25}));
  EXPECT_FALSE(response.same());
  const v1::RotaryComparison& rotary = response.layers(0).rotary(0);
  EXPECT_EQ(rotary.differing_pairs(), 1);
  EXPECT_EQ(rotary.first_pair().pair(), 2);
  EXPECT_FALSE(rotary.first_pair().has_a_inv_freq());
  EXPECT_EQ(rotary.first_pair().b_inv_freq(), 0.25);
  EXPECT_FALSE(rotary.has_first_position());
}

TEST(Compare, XposScales) {
  v1::ComparedSettings a = Rope("default", 8), b = a, c = a;
  b.mutable_rotary()->mutable_xpos()->set_centre(16);
  c.mutable_rotary()->mutable_xpos()->set_centre(16);
  c.mutable_rotary()->mutable_xpos()->set_scale_base(512);
  EXPECT_TRUE(AreSame(b, c));
  const v1::CompareResponse response = Compared(a, b);
  EXPECT_FALSE(response.same());
  const v1::RotaryComparison& rotary = response.layers(0).rotary(0);
  EXPECT_EQ(rotary.differing_pairs(), 0);
  EXPECT_EQ(rotary.first_position(), 0);
  ASSERT_THAT(rotary.positions(), SizeIs(3));
  EXPECT_GT(rotary.positions(2).largest_difference(), 0);
}

TEST(Compare, GivenTables) {
  const std::vector<double> cos = {1, 0.5, 0.25}, sin = {0, 0.5, 0.75};
  EXPECT_TRUE(AreSame(Table(cos, sin, DType::kFP32), Table(cos, sin, DType::kFP64)));
  EXPECT_FALSE(Compared(Table(cos, sin, DType::kFP32), Table({1, 0.5}, {0, 0.5}, DType::kFP32)).same());

  // The difference is below float32's resolution: the tables differ, but there is no first position.
  const v1::CompareResponse near =
      Compared(Table(cos, sin, DType::kFP64), Table({1, 0.5, 0.25 + 1e-12}, sin, DType::kFP64));
  EXPECT_FALSE(near.same());
  EXPECT_FALSE(near.layers(0).rotary(0).has_first_position());
  EXPECT_EQ(near.layers(0).rotary(0).searched_positions(), 3);

  const v1::CompareResponse with_formula = Compared(Table(cos, sin, DType::kFP32), Rope("constant", 2));
  EXPECT_FALSE(with_formula.same());
  EXPECT_EQ(with_formula.layers(0).rotary(0).first_position(), 1);
  EXPECT_THAT(with_formula.layers(0).rotary(0).positions(), IsEmpty());
}

TEST(Compare, ANanInOneTableIsTheLargestDifference) {
  std::vector<double> cos(4096, 1), sin(4096, 0);
  const auto table = [&] { return Table(cos, sin, DType::kFP32); };
  const v1::ComparedSettings a = table();
  sin[4095] = NAN;
  const v1::CompareResponse response = Compared(a, table());
  const v1::RotaryComparison& rotary = response.layers(0).rotary(0);
  EXPECT_EQ(rotary.first_position(), 4095);
  ASSERT_THAT(rotary.positions(), SizeIs(1));
  EXPECT_EQ(rotary.positions(0).largest_difference(), INFINITY);
  EXPECT_TRUE(AreSame(table(), table()));
}

TEST(Compare, AlibiSlopes) {
  const v1::CompareResponse response = Compared(Alibi(8), Alibi(16));
  EXPECT_FALSE(response.same());
  const v1::LayerComparison& group = response.layers(0);
  EXPECT_THAT(group.fields(), ElementsAre(Differs("alibi.num_heads", "8", "16")));
  EXPECT_EQ(group.a().method(), "alibi");
  EXPECT_EQ(group.slopes().first_head(), 0);
  EXPECT_EQ(group.slopes().differing_heads(), 8);
  EXPECT_EQ(group.slopes().a_slope(), 0.5);
  EXPECT_EQ(group.slopes().b_slope(), static_cast<float>(std::sqrt(0.5)));
  double largest = 0;
  for (int h = 1; h <= 8; ++h) {
    largest = std::max(largest, std::fabs(std::exp2(-h) - static_cast<float>(std::exp2(-h / 2.0))));
  }
  ASSERT_THAT(group.slopes().distances(), SizeIs(3));
  EXPECT_EQ(group.slopes().distances(1).distance(), 32767);
  EXPECT_DOUBLE_EQ(group.slopes().distances(1).largest_difference(), largest * 32767);

  v1::ComparedSettings given = Alibi(2);
  *given.mutable_bias()->mutable_alibi()->mutable_given() =
      MakeTensor(DType::kFP32, {2}, std::vector<double>{0.0625, 0x1p-8});
  EXPECT_TRUE(AreSame(given, Alibi(2)));
  given.mutable_bias()->mutable_alibi()->set_form(v1::ALIBI_FORM_SYMMETRIC);
  EXPECT_FALSE(AreSame(given, Alibi(2)));
}

TEST(Compare, BiasesByTheirSettings) {
  v1::ComparedSettings a, b;
  a.mutable_bias()->mutable_t5()->set_bidirectional(true);
  b.mutable_bias()->mutable_t5()->set_bidirectional(true);
  b.mutable_bias()->mutable_t5()->set_num_buckets(32);  // the default
  EXPECT_TRUE(AreSame(a, b));
  EXPECT_THAT(Compared(a, b).layers(0).notes(), Contains(HasCode("WEIGHTS_NOT_COMPARED")));
  b.mutable_bias()->mutable_t5()->set_max_distance(64);
  EXPECT_THAT(Compared(a, b).layers(0).fields(), ElementsAre(Differs("t5.max_distance", "128", "64")));
  const v1::CompareResponse other = Compared(a, Alibi(8));
  EXPECT_THAT(other.layers(0).fields(), ElementsAre(Differs("method", "t5", "alibi")));
  EXPECT_FALSE(other.same());
}

// -0 and 0 are one slope, and the bias is computed with slopes of both directions rounded to float32.
TEST(Compare, SlopesThatGiveTheSameBias) {
  const auto asymmetric = [](const std::vector<double>& past, const std::vector<double>& future) {
    v1::ComparedSettings side;
    v1::Alibi& alibi = *side.mutable_bias()->mutable_alibi();
    alibi.set_num_heads(2);
    alibi.set_form(v1::ALIBI_FORM_ASYMMETRIC);
    *alibi.mutable_given() = MakeTensor(DType::kFP64, {2}, past);
    *alibi.mutable_future_slopes() = MakeTensor(DType::kFP64, {2}, future);
    return side;
  };
  const auto slopes = asymmetric({1, 0}, {0, 2});
  EXPECT_TRUE(AreSame(slopes, asymmetric({1, -0.0}, {-0.0, 2})));
  EXPECT_TRUE(AreSame(slopes, asymmetric({1 + 0x1p-40, 0}, {0, 2 + 0x1p-40})));
  EXPECT_FALSE(AreSame(slopes, asymmetric({1, 0}, {0, 2 + 0x1p-22})));
  EXPECT_FALSE(AreSame(slopes, asymmetric({1 + 0x1p-23, 0}, {0, 2})));
}

// A file does not hold the weights, but it gives their sizes.
TEST(Compare, SizesOfLearnedWeights) {
  const auto gpt2 = [](int positions, int width) {
    return Model(R"({"model_type": "gpt2", "n_head": 12, "n_positions": )" + std::to_string(positions) +
                 R"(, "n_embd": )" + std::to_string(width) + "}");
  };
  EXPECT_TRUE(AreSame(gpt2(1024, 768), gpt2(1024, 768)));
  const v1::CompareResponse tables = Compared(gpt2(1024, 768), gpt2(2048, 1600));
  EXPECT_FALSE(tables.same());
  EXPECT_THAT(tables.layers(0).fields(),
              UnorderedElementsAre(Differs("learned.rows", "1024", "2048"), Differs("learned.width", "768", "1600")));

  const auto t5 = [](const std::string& heads) {
    v1::ComparedSettings side = Model(R"({"model_type": "t5", "num_layers": 2)" + heads + "}");
    side.mutable_model()->set_component("encoder");
    return side;
  };
  const auto heads = [&](int number) { return t5(R"(, "num_heads": )" + std::to_string(number)); };
  EXPECT_TRUE(AreSame(heads(8), heads(8)));
  EXPECT_TRUE(AreSame(heads(8), t5("")));  // the file does not say
  EXPECT_THAT(Compared(heads(8), heads(12)).layers(0).fields(), ElementsAre(Differs("t5.heads", "8", "12")));

  const auto swin = [](const std::string& of_stages) {
    return Model(R"({"model_type": "swin", "num_heads": )" + of_stages + "}");
  };
  EXPECT_THAT(Compared(swin("[3, 6, 12, 24]"), swin("[4, 8, 16, 32]")).layers(0).fields(),
              ElementsAre(Differs("swin.heads", "3, 6, 12, 24", "4, 8, 16, 32")));

  const auto bert = [](int positions, int count) {
    return Model(R"({"model_type": "bert", "position_embedding_type": "relative_key", "hidden_size": 768,
                     "max_position_embeddings": )" +
                 std::to_string(positions) + R"(, "num_attention_heads": )" + std::to_string(count) + "}");
  };
  EXPECT_THAT(Compared(bert(512, 12), bert(1024, 6)).layers(0).fields(),
              UnorderedElementsAre(Differs("shaw.rows", "1023", "2047"), Differs("shaw.head_dim", "64", "128")));
}

TEST(Compare, AnAbsentTensorIsEmpty) {
  v1::ComparedSettings masked = Alibi(2);
  v1::Alibi& alibi = *masked.mutable_bias()->mutable_alibi();
  alibi.set_form(v1::ALIBI_FORM_BLOOM);
  const v1::ComparedSettings bare = masked;
  *alibi.mutable_position_mask() = MakeTensor(DType::kBOOL, {1, 1}, std::vector<uint8_t>{1});
  EXPECT_THAT(Compared(bare, masked).layers(0).fields(),
              ElementsAre(Differs("alibi.position_mask", "", "DATA_TYPE_BOOL [1, 1]")));
}

TEST(Compare, ARotaryModelAndABias) {
  const v1::CompareResponse response = Compared(Model(Llama()), Alibi(32));
  EXPECT_FALSE(response.same());
  EXPECT_THAT(response.layers(0).fields(), ElementsAre(Differs("method", "rotary", "alibi")));
  EXPECT_THAT(response.layers(0).rotary(), IsEmpty());
}

TEST(Compare, TheModelsOwnPrecisionsAreNoted) {
  const std::string cohere = R"({"model_type": "cohere", "hidden_size": 4096, "num_attention_heads": 32,
                                 "num_hidden_layers": 4})";
  EXPECT_THAT(Compared(Model(Llama()), Model(cohere)).layers(0).notes(), Contains(HasCode("MODEL_PRECISIONS_DIFFER")));
  EXPECT_THAT(Compared(Model(Llama()), Model(Llama(R"(, "rope_theta": 500000)"))).layers(0).notes(), IsEmpty());
}

TEST(Compare, LengthsWhereFrequenciesDependOnThem) {
  v1::ComparedSettings dynamic = Rope("dynamic");
  Parameters(dynamic).set_factor(2);
  dynamic.mutable_rotary()->set_max_position_embeddings(2048);
  v1::CompareRequest request = Request(Rope("default"), dynamic);
  EXPECT_THAT(Call(request), IsInvalid("MISSING", "seq_len"));
  request.add_seq_len(0);
  EXPECT_THAT(Call(request), IsInvalid("OUT_OF_RANGE", "seq_len[0]"));
  request.set_seq_len(0, 2048);
  EXPECT_TRUE(Compared(request).same());
  request.add_seq_len(8192);
  const v1::CompareResponse response = Compared(request);
  EXPECT_FALSE(response.same());
  ASSERT_THAT(response.layers(0).rotary(), SizeIs(2));
  EXPECT_TRUE(response.layers(0).rotary(0).same());
  EXPECT_EQ(response.layers(0).rotary(1).seq_len(), 8192);
  EXPECT_FALSE(response.layers(0).rotary(1).same());
  EXPECT_EQ(response.layers(0).rotary(1).first_pair().pair(), 1);  // pair 0 has frequency 1 with any base

  Limits limits;
  limits.max_plan_values = 127;  // two lengths of 64 pairs
  const auto refused = Call(request, limits);
  EXPECT_THAT(refused, FailsWith(absl::StatusCode::kResourceExhausted, "TOO_LARGE", "seq_len"));
  EXPECT_EQ(DetailsOf(refused.status()).value, "128 frequencies, for 2 lengths");
}

TEST(Compare, ErrorsNameTheSide) {
  EXPECT_THAT(Call(Request({}, Rope("default"))), IsInvalid("MISSING", "a.subject"));
  EXPECT_THAT(Call(Request(Rope("default"), {})), IsInvalid("MISSING", "b.subject"));
  EXPECT_THAT(Call(Request(Rope("default"), Rope("linear"))), IsInvalid("MISSING", "b.rotary.rope_parameters.factor"));
  EXPECT_THAT(Call(Request(Model(Llama(R"(, "rope_theta": -1)")), Rope("default"))),
              IsInvalid("OUT_OF_RANGE", "a.model.config_json.rope_theta"));
  v1::ComparedSettings alibi = Alibi(0);
  EXPECT_THAT(Call(Request(Rope("default"), alibi)), IsInvalid("OUT_OF_RANGE", "b.bias.alibi.num_heads"));
}

// The entries of both sides are equal in float32, so the search never ends by itself.
TEST(Compare, TheSearchIsBoundedAndInterruptible) {
  const auto request =
      Request(Frequencies(std::vector<double>(1024, 1e-60)), Frequencies(std::vector<double>(1024, 2e-60)));
  const v1::CompareResponse response = Compared(request);
  EXPECT_FALSE(response.same());
  EXPECT_FALSE(response.layers(0).rotary(0).has_first_position());
  EXPECT_EQ(response.layers(0).rotary(0).searched_positions(), 65536);
  EXPECT_GT(response.layers(0).rotary(0).positions(0).largest_difference(), 0);

  v1::CompareResponse unfinished;
  const auto job = wire::Prepare(request, wire::InMessage(), Limits(), &unfinished);
  ASSERT_THAT(job, IsOk());
  WorkPool pool(1);
  const Cancellation cancelled = [] { return absl::CancelledError(); };
  EXPECT_EQ(job->decide(pool, cancelled).code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace posenc::compare_test
