// Messages and library types have the same content in both directions, and no field is forgotten.
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <set>

#include "posenc/mapping/bias_method.h"
#include "posenc/mapping/read.h"
#include "posenc/methods/rope/methods.h"
#include "tests/mapping/full_messages.h"
#include "tests/reference/golden.h"
#include "tests/service/call.h"

namespace posenc::wire_mapping_test {
namespace {

// The message's fields must be those of POSENC_FIELDS plus `others`.
template <class Settings, class Message>
void ExpectSameFields(std::set<std::string> others = {}) {
  std::set<std::string> of_message;
  const auto* descriptor = Message::descriptor();
  for (int n = 0; n < descriptor->field_count(); ++n) of_message.emplace(descriptor->field(n)->name());
  others.insert(kFieldNames<Settings>.begin(), kFieldNames<Settings>.end());
  EXPECT_EQ(of_message, others) << descriptor->name();
}

TEST(WireMapping, EveryFieldIsVisited) {
  ExpectSameFields<RopeParameters, v1::RopeParameters>({"rope_type"});
  ExpectSameFields<GivenFrequencies, v1::GivenFrequencies>();
  ExpectSameFields<AxialAxis, v1::AxialAxis>();
  ExpectSameFields<AxialRope, v1::AxialRope>();
  ExpectSameFields<Xpos, v1::Xpos>();
  ExpectSameFields<RotarySettings, v1::RotarySettings>(
      {"rope_parameters", "given_frequencies", "axial", "given_table"});
  ExpectSameFields<SinusoidalSettings, v1::Sinusoidal>({"token_valid", "model"});
  ExpectSameFields<LearnedSettings, v1::Learned>({"table", "token_valid", "model"});
  ExpectSameFields<TimestepSettings, v1::Timestep>();
  ExpectSameFields<GridSettings, v1::Grid>({"model"});
  ExpectSameFields<FourierSettings, v1::Fourier>();
  ExpectSameFields<AlibiSettings, v1::Alibi>({"rule", "given", "log_slopes"});
  ExpectSameFields<T5Settings, v1::T5Bias>();
  ExpectSameFields<KerpleSettings, v1::Kerple>();
  ExpectSameFields<SandwichSettings, v1::Sandwich>();
  ExpectSameFields<FireSettings, v1::Fire>();
  ExpectSameFields<NopeSettings, v1::Nope>();
}

// Sets each field to a value of its own.
struct SetAll {
  double next = 1.5;
  void operator()(std::string_view, std::optional<double>& field) { field = next++; }
  void operator()(std::string_view, std::optional<bool>& field) { field = false; }
  void operator()(std::string_view, std::vector<double>& field) { field = {next++, next++}; }
  void operator()(std::string_view, std::vector<int64_t>& field) { field = {static_cast<int64_t>(next++), 7}; }
  void operator()(std::string_view, LongropeBranch& field) { field = LongropeBranch::kLong; }
  void operator()(std::string_view, MropeOrder& field) { field = MropeOrder::kErnie; }
};

absl::StatusOr<RotarySettings> Read(const v1::RotarySettings& message) {
  const wire::InMessage payloads;
  const Limits limits;
  return wire::ReadRotarySettings({payloads, limits}, message);
}

// Prints the settings' message, which contains every field.
std::string Written(const RotarySettings& settings) {
  v1::RotarySettings message;
  wire::WriteRotarySettings(settings, &message);
  return message.DebugString();
}

TEST(WireMapping, SettingsSurviveTheRoundTrip) {
  RopeParameters parameters{.rope_type = "longrope"};
  VisitFields(parameters, SetAll{});
  RotarySettings settings{.frequencies = parameters,
                          .rotary_dim = 64,
                          .head_dim = 128,
                          .max_position_embeddings = 4096.0,
                          .input_pairing = Pairing::kInterleaved,
                          .output_pairing = Pairing::kHalfSplit};
  v1::RotarySettings message;
  wire::WriteRotarySettings(settings, &message);
  const auto* descriptor = v1::RopeParameters::descriptor();
  for (int n = 0; n < descriptor->field_count(); ++n) {
    const auto* field = descriptor->field(n);
    const auto* reflection = message.rope_parameters().GetReflection();
    EXPECT_TRUE(field->is_repeated() ? reflection->FieldSize(message.rope_parameters(), field) > 0
                                     : reflection->HasField(message.rope_parameters(), field))
        << field->name();
  }
  const auto read = Read(message);
  ASSERT_THAT(read, IsOk());
  EXPECT_EQ(Written(*read), message.DebugString());
  EXPECT_EQ(std::get<RopeParameters>(read->frequencies).truncate, false);
  EXPECT_EQ(std::get<RopeParameters>(read->frequencies).longrope_branch, LongropeBranch::kLong);
  EXPECT_EQ(read->output_pairing, Pairing::kHalfSplit);

  EXPECT_EQ(std::get<RopeParameters>(read->frequencies).mrope_order, MropeOrder::kErnie);
}

TEST(WireMapping, EveryKindOfSettingsSurvivesTheRoundTrip) {
  RopeParameters parameters{.rope_type = "longrope"};
  VisitFields(parameters, SetAll{});
  const auto bytes = std::make_shared<const std::vector<std::byte>>(2 * 4 * 2, std::byte{7});
  RotarySettings settings{.rotary_dim = 64,
                          .head_dim = 128,
                          .max_position_embeddings = 4096.0,
                          .input_pairing = Pairing::kInterleaved,
                          .output_pairing = Pairing::kHalfSplit,
                          .half_split_parts = 2};
  settings.xpos = Xpos{256, -3};
  settings.table_pairing = Pairing::kHalfSplit;
  settings.query_scale = QueryScale{QueryScaleFunction::kLogn, 1, 2, 3, 4, 5, PositionSource::kCacheIndex, true, 6, 7};
  std::vector<v1::RotarySettings> messages;
  for (const decltype(settings.frequencies)& frequencies :
       {decltype(settings.frequencies)(parameters),
        {GivenFrequencies{{1.0, 0.25}, 1.25, {1, 0}, 2, 3}},
        {AxialRope{{{8, 256.0, 0.5}, {16, {}, 1}}, true}},
        {GivenTable{DType::kBF16, 2, 4, TableForm::kDuplicated, bytes, bytes}},
        {GivenTable{DType::kBF16, 2, 2, TableForm::kPerElement, bytes, bytes, 2, 2}}}) {
    settings.frequencies = frequencies;
    wire::WriteRotarySettings(settings, &messages.emplace_back());
    const auto read = Read(messages.back());
    ASSERT_THAT(read, IsOk());
    EXPECT_EQ(Written(*read), messages.back().DebugString());
  }
  std::vector<const google::protobuf::Message*> all;
  for (const auto& message : messages) all.push_back(&message);
  ExpectAllFieldsSet(all);
}

// The settings that Explain returns give the same plan when sent back, and any change gives another plan.
TEST(WireMapping, CanonicalSettingsOfEveryKind) {
  std::set<std::string> fingerprints;
  const auto expect_canonical = [&](const v1::RotarySettings& settings) {
    v1::ExplainRequest request;
    *request.mutable_rotary() = settings;
    request.mutable_rotary()->set_input_pairing(v1::PAIRING_HALF_SPLIT);
    request.mutable_precision()->set_preset(v1::PRECISION_PRESET_F32);
    const auto first = Call(request);
    ASSERT_THAT(first, IsOk());
    *request.mutable_rotary() = first->layers(0).info().plan().rotary();
    const auto second = Call(request);
    ASSERT_THAT(second, IsOk());
    EXPECT_EQ(second->SerializeAsString(), first->SerializeAsString());
    EXPECT_TRUE(fingerprints.insert(first->layers(0).info().plan_fingerprint()).second) << settings.DebugString();
  };
  v1::RotarySettings settings;
  settings.set_rotary_dim(12);
  auto* p = settings.mutable_rope_parameters();
  p->set_rope_type("default");
  expect_canonical(settings);
  p->set_negate_angle(true);
  expect_canonical(settings);
  p->set_frequency_dim(11);
  expect_canonical(settings);
  p->set_rope_type("linear_positions");
  p->set_factor(3);
  expect_canonical(settings);
  p->set_factor(5);
  expect_canonical(settings);
  p->set_rope_type("proportional");
  p->set_partial_rotary_factor(0.34);
  expect_canonical(settings);
  p->clear_partial_rotary_factor();
  for (int64_t section : {2, 2, 2}) p->add_mrope_section(section);
  for (auto order : {v1::MROPE_ORDER_CONTIGUOUS, v1::MROPE_ORDER_INTERLEAVED, v1::MROPE_ORDER_ERNIE}) {
    p->set_mrope_order(order);
    expect_canonical(settings);
  }
  p->clear_mrope_section();
  p->clear_mrope_order();
  for (double centre : {0, 100}) {
    settings.mutable_xpos()->set_centre(centre);
    expect_canonical(settings);
  }
  settings.mutable_xpos()->set_scale_base(100);
  expect_canonical(settings);
  settings.clear_xpos();
  settings.mutable_axial()->add_axes()->set_dim(4);
  settings.mutable_axial()->add_axes()->set_dim(8);
  expect_canonical(settings);
  settings.mutable_axial()->mutable_axes(1)->set_frequency_start(0.5);
  expect_canonical(settings);
  settings.clear_rotary_dim();
  for (double f : {1.0, 0.5}) settings.mutable_given_frequencies()->add_inv_freq(f);
  expect_canonical(settings);
  for (int64_t axis : {1, 0}) settings.mutable_given_frequencies()->add_axis(axis);
  expect_canonical(settings);
  auto* table = settings.mutable_given_table();
  *table->mutable_cos() = MakeTensor(DType::kFP16, {2, 2}, {1, 2, 2, 1});
  *table->mutable_sin() = MakeTensor(DType::kFP16, {2, 2}, {3, 4, 4, 3});
  table->set_form(v1::TABLE_FORM_HALF_WIDTH);
  expect_canonical(settings);
  *table->mutable_sin() = MakeTensor(DType::kFP16, {2, 2}, {3, 4, 4, 5});
  expect_canonical(settings);
  table->set_form(v1::TABLE_FORM_PER_ELEMENT);
  expect_canonical(settings);
  table->set_per_head(true);
  for (auto* tensor : {table->mutable_cos(), table->mutable_sin()}) {
    *tensor = MakeTensor(DType::kFP16, {1, 2, 2, 2}, {3, 4, 4, 5, 6, 7, 8, 9});
  }
  expect_canonical(settings);
  auto* given = settings.mutable_given_frequencies();
  for (double f : {1.0, 0.5, 0.25, 0.125}) given->add_inv_freq(f);
  given->set_heads(2);
  expect_canonical(settings);
  given->clear_heads();
  given->set_axes(2);
  expect_canonical(settings);
  for (int axis : {1, 0, 0, 1}) given->add_axis(axis);
  given->clear_axes();
  settings.set_table_pairing(v1::PAIRING_INTERLEAVED);
  expect_canonical(settings);
}

TEST(WireMapping, AbsentFieldsStayAbsent) {
  v1::RotarySettings message;
  message.mutable_rope_parameters()->set_rope_type("yarn");
  const auto read = Read(message);
  ASSERT_THAT(read, IsOk());
  EXPECT_EQ(Written(*read), message.DebugString());
}

TEST(WireMapping, AlibiSurvivesTheRoundTrip) {
  v1::Alibi message;
  message.set_num_heads(2);
  message.set_form(v1::ALIBI_FORM_ASYMMETRIC);
  *message.mutable_future_slopes() = MakeTensor(DType::kFP64, {2}, {0.25, 0.125});
  message.set_bias_dtype(v1::DATA_TYPE_BF16);
  *message.mutable_position_mask() = MakeTensor(DType::kBOOL, {2, 3}, std::vector<uint8_t>{0, 1, 1, 1, 1, 0});
  const wire::InMessage payloads;
  const Limits limits;
  const auto expect_same = [&] {
    const auto read = wire::ReadAlibi({payloads, limits}, message);
    ASSERT_THAT(read, IsOk());
    v1::Alibi written;
    wire::WriteAlibi(*read, &written);
    EXPECT_EQ(written.DebugString(), message.DebugString());
  };
  *message.mutable_given() = MakeTensor(DType::kFP64, {3, 2}, {1, 2, 3, 4, 5, 6});
  expect_same();
  *message.mutable_log_slopes() = MakeTensor(DType::kFP64, {2}, {-1, -2});
  expect_same();
  message.set_alibi_bias_max(16);
  for (auto rule : {v1::ALIBI_SLOPE_RULE_POWER_OF_TWO, v1::ALIBI_SLOPE_RULE_GEOMETRIC, v1::ALIBI_SLOPE_RULE_MPT}) {
    message.set_rule(rule);
    expect_same();
  }
}

std::vector<std::string> MethodNames() {
  std::vector<std::string> names;
  const auto* oneof = v1::BiasMethod::descriptor()->FindOneofByName("method");
  for (int n = 0; n < oneof->field_count(); ++n) {
    if (oneof->field(n)->name() != "model") names.emplace_back(oneof->field(n)->name());
  }
  return names;
}

// The plan of every bias method has the request's fields, and gives the same answer when sent back.
TEST(WireMapping, BiasMethodsSurviveTheRoundTrip) {
  for (const std::string& name : MethodNames()) {
    SCOPED_TRACE(name);
    v1::GenerateBiasRequest request;
    *request.mutable_method() = FullMethod(name);
    request.mutable_geometry()->set_query_length(6);
    request.mutable_geometry()->set_key_length(6);
    request.mutable_mask()->set_causal(true);
    request.mutable_mask()->set_fill_value(-1);
    request.mutable_mask()->set_fully_masked_row(v1::FULLY_MASKED_ROW_FILL);
    request.set_form(v1::BIAS_FORM_DENSE);
    request.set_dtype(v1::DATA_TYPE_FP32);
    request.mutable_hints()->set_return_plan(true);
    const auto answer = Call(request);
    ASSERT_THAT(answer, IsOk());
    EXPECT_EQ(answer->info().plan().bias().DebugString(), request.method().DebugString());
    *request.mutable_method() = answer->info().plan().bias();
    const auto again = Call(request);
    ASSERT_THAT(again, IsOk());
    EXPECT_EQ(again->SerializeAsString(), answer->SerializeAsString());

    v1::ExplainRequest explain;
    *explain.mutable_bias() = request.method();
    const auto explained = Call(explain);
    ASSERT_THAT(explained, IsOk());
    EXPECT_EQ(explained->layers(0).info().plan_fingerprint(), answer->info().plan_fingerprint());
  }
}

// The canonical settings of every model and layer, sent back without the file, give the same plan.
class CanonicalSettings : public testing::TestWithParam<std::string> {};

TEST_P(CanonicalSettings, GiveTheSameFrequencies) {
  for (auto preset : {v1::PRECISION_PRESET_EXACT, v1::PRECISION_PRESET_HF_EAGER}) {
    v1::ExplainRequest request;
    request.mutable_model()->set_config_json(golden::ReadText("configs/" + GetParam()));
    request.mutable_model()->set_component(golden::ComponentOf(request.model().config_json()));
    for (int64_t length : {1, 4096, 4097, 300000}) request.add_seq_len(length);
    request.mutable_precision()->set_preset(preset);
    const auto explained = Call(request);
    ASSERT_THAT(explained, IsOk());
    ASSERT_GE(explained->layers_size(), 1);
    for (const v1::LayerExplanation& layer : explained->layers()) {
      SCOPED_TRACE(layer.layer_type());
      v1::ExplainRequest again = request;
      if (layer.info().plan().has_bias()) {
        *again.mutable_bias() = layer.info().plan().bias();
        const auto response = Call(again);
        ASSERT_THAT(response, IsOk());
        EXPECT_EQ(response->layers(0).info().plan_fingerprint(), layer.info().plan_fingerprint());
        EXPECT_EQ(response->layers(0).info().plan().DebugString(), layer.info().plan().DebugString());
        continue;
      }
      if (!layer.info().rotated()) continue;
      *again.mutable_rotary() = layer.info().plan().rotary();
      const auto response = Call(again);
      ASSERT_THAT(response, IsOk());
      const v1::AnswerInfo& info = response->layers(0).info();
      EXPECT_EQ(info.plan_fingerprint(), layer.info().plan_fingerprint());
      EXPECT_EQ(info.plan_fingerprint().size(), 16u);
      EXPECT_EQ(info.plan().rotary().SerializeAsString(), layer.info().plan().rotary().SerializeAsString());
      ASSERT_EQ(info.plan().frequencies_size(), layer.info().plan().frequencies_size());
      for (int n = 0; n < info.plan().frequencies_size(); ++n) {
        EXPECT_EQ(info.plan().frequencies(n).SerializeAsString(),
                  layer.info().plan().frequencies(n).SerializeAsString());
      }
      EXPECT_EQ(info.input_pairing(), layer.info().input_pairing());
      EXPECT_EQ(info.output_pairing(), layer.info().output_pairing());
    }
  }
}

std::vector<std::string> Configs() {
  std::vector<std::string> names = golden::List("configs");
  std::erase(names, "hunyuan-7b-instruct.json");  // refused, see golden_rotary_test
  return names;
}

INSTANTIATE_TEST_SUITE_P(Models, CanonicalSettings, testing::ValuesIn(Configs()), [](const auto& instance) {
  std::string name = instance.param;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
  return name;
});

TEST(ServerInformation, ListsMethodsTargetsAndLimits) {
  v1::GetServerInfoResponse info;
  wire::DescribeLibrary({}, &info);
  ASSERT_EQ(info.methods(0).family(), "rope");
  std::vector<std::string> scalings = {"given_frequencies", "axial", "given_table", "mrope", "xpos", "query_scale"};
  for (const RopeMethod& method : RopeMethods()) scalings.emplace_back(method.rope_type);
  EXPECT_GE(scalings.size(), 7u);
  EXPECT_THAT(info.methods(0).methods(), testing::UnorderedElementsAreArray(scalings));
  std::set<std::string> families;
  for (const auto& family : info.methods()) families.insert(family.family());
  EXPECT_THAT(families,
              testing::ElementsAre("alibi", "beit", "fire", "forget_gate", "fourier", "grid", "kerple", "learned",
                                   "mask", "relative", "rope", "sandwich", "sinusoidal", "swin", "t5", "timestep"));
  EXPECT_THAT(info.cpu_targets(), testing::Contains(info.cpu_target()));
  EXPECT_EQ(info.config_rules(), "transformers 5.24");
  EXPECT_GE(info.numerics_version(), 1u);
  EXPECT_EQ(info.limits().max_config_json_bytes(), 1 << 20);
  EXPECT_GT(info.limits().max_output_bytes(), 0);
}

}  // namespace
}  // namespace posenc::wire_mapping_test
