// The messages and the library's types say the same, in both directions, and no field is forgotten.
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <set>

#include "posenc/methods/methods.h"
#include "tests/reference/golden.h"
#include "tests/unit/call.h"
#include "wire/alibi.h"
#include "wire/read.h"

namespace posenc {
namespace {

TEST(WireMapping, EveryRopeParameterIsVisited) {
  std::set<std::string> of_message, of_library = {"rope_type"};
  const auto* descriptor = v1::RopeParameters::descriptor();
  for (int n = 0; n < descriptor->field_count(); ++n) of_message.insert(descriptor->field(n)->name());
  const RopeParameters parameters;
  VisitFields(parameters, [&](std::string_view name, const auto&) { of_library.emplace(name); });
  EXPECT_EQ(of_message, of_library);
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

// Whether two settings print the same message: every field of theirs is in it.
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

// Whether every field of the message, and of those within but Tensor, is set in one of the messages.
void ExpectAllFieldsSet(const std::vector<const google::protobuf::Message*>& messages) {
  const auto* descriptor = messages[0]->GetDescriptor();
  for (int n = 0; n < descriptor->field_count(); ++n) {
    const auto* field = descriptor->field(n);
    std::vector<const google::protobuf::Message*> inner;
    bool set = false;
    for (const auto* message : messages) {
      const auto* reflection = message->GetReflection();
      const bool here =
          field->is_repeated() ? reflection->FieldSize(*message, field) > 0 : reflection->HasField(*message, field);
      set = set || here;
      if (!here || field->message_type() == nullptr || field->message_type() == v1::Tensor::descriptor()) continue;
      inner.push_back(field->is_repeated() ? &reflection->GetRepeatedMessage(*message, field, 0)
                                           : &reflection->GetMessage(*message, field));
    }
    const bool is_source = field->message_type() == v1::ModelConfig::descriptor();  // of settings, not one itself
    EXPECT_TRUE(set || is_source) << field->full_name();
    if (!inner.empty()) ExpectAllFieldsSet(inner);
  }
}

TEST(WireMapping, EveryKindOfSettingsSurvivesTheRoundTrip) {
  RopeParameters parameters{.rope_type = "longrope"};
  VisitFields(parameters, SetAll{});
  const auto bytes = std::make_shared<const std::vector<std::byte>>(2 * 4 * 2, std::byte{7});
  RotarySettings settings{.rotary_dim = 64,
                          .head_dim = 128,
                          .max_position_embeddings = 4096.0,
                          .input_pairing = Pairing::kInterleaved,
                          .output_pairing = Pairing::kHalfSplit};
  settings.xpos = Xpos{256, -3};
  std::vector<v1::RotarySettings> messages;
  for (const decltype(settings.frequencies)& frequencies :
       {decltype(settings.frequencies)(parameters),
        {GivenFrequencies{{1.0, 0.25}, 1.25, {1, 0}}},
        {AxialRope{{{8, 256.0, 0.5}, {16, {}, 1}}}},
        {GivenTable{DType::kBF16, 2, 4, TableForm::kDuplicated, bytes, bytes}}}) {
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

// What Explain makes of settings, sent back, is the same plan, and any change another.
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

std::vector<double> Counted(int64_t count) {
  std::vector<double> values(count);
  for (size_t n = 0; n < values.size(); ++n) values[n] = static_cast<double>(n % 7) / 8 - 0.25;
  return values;
}
v1::Tensor SomeWeight(std::vector<int64_t> shape) {
  int64_t count = 1;
  for (int64_t size : shape) count *= size;
  return MakeTensor(DType::kFP32, std::move(shape), Counted(count));
}

// A method message in which every field is set, some of them to what is not their default.
v1::BiasMethod FullMethod(const std::string& name) {
  v1::BiasMethod method;
  const auto set_table = [&](int64_t rows) {
    *method.mutable_table() = SomeWeight({2, rows});
    method.set_table_layout(v1::BIAS_TABLE_LAYOUT_HEADS_BY_BUCKETS);
  };
  if (name == "alibi") {
    method.mutable_alibi()->set_num_heads(2);
    method.mutable_alibi()->set_rule(v1::ALIBI_SLOPE_RULE_GEOMETRIC);
    method.mutable_alibi()->set_form(v1::ALIBI_FORM_BLOOM);
    method.mutable_alibi()->set_alibi_bias_max(7);
    *method.mutable_alibi()->mutable_position_mask() =
        MakeTensor(DType::kBOOL, {1, 6}, std::vector<uint8_t>{0, 1, 1, 1, 1, 1});
  } else if (name == "t5") {
    method.mutable_t5()->set_num_buckets(8);
    method.mutable_t5()->set_max_distance(5);
    method.mutable_t5()->set_bidirectional(true);
    set_table(8);
  } else if (name == "kerple") {
    method.mutable_kerple()->set_kernel(v1::KERPLE_KERNEL_POWER);
    for (double x : {0.3, 0.7}) method.mutable_kerple()->add_a(x), method.mutable_kerple()->add_p(2 * x);
  } else if (name == "sandwich") {
    method.mutable_sandwich()->set_convention(v1::SANDWICH_CONVENTION_SNIPPET);
    method.mutable_sandwich()->set_num_heads(2);
    method.mutable_sandwich()->set_dim(6);
    method.mutable_sandwich()->set_base(100);
  } else if (name == "swin") {
    method.mutable_swin()->set_window_height(2);
    method.mutable_swin()->set_window_width(3);
    set_table(15);
  } else if (name == "beit") {
    method.mutable_beit()->set_window_height(1);
    method.mutable_beit()->set_window_width(5);
    method.mutable_beit()->set_table(v1::BEIT_TABLE_TRANSFORMERS);
    set_table(12);
  } else if (name == "swin_v2") {
    method.mutable_swin_v2()->set_window_height(2);
    method.mutable_swin_v2()->set_window_width(3);
    method.mutable_swin_v2()->set_pretrained_window_height(4);
    method.mutable_swin_v2()->set_pretrained_window_width(5);
    *method.mutable_swin_v2()->mutable_hidden_weight() = SomeWeight({3, 2});
    *method.mutable_swin_v2()->mutable_hidden_bias() = SomeWeight({3});
    *method.mutable_swin_v2()->mutable_output_weight() = SomeWeight({2, 3});
  } else if (name == "fire") {
    method.mutable_fire()->set_c(0.2);
    method.mutable_fire()->set_threshold(3);
    method.mutable_fire()->set_epsilon(0.5);
    *method.mutable_fire()->mutable_hidden_weight() = SomeWeight({3});
    *method.mutable_fire()->mutable_hidden_bias() = SomeWeight({3});
    *method.mutable_fire()->mutable_output_weight() = SomeWeight({2, 3});
    *method.mutable_fire()->mutable_output_bias() = SomeWeight({2});
  } else {
    method.mutable_nope()->set_num_heads(2);
  }
  return method;
}

std::vector<std::string> MethodNames() {
  std::vector<std::string> names;
  const auto* oneof = v1::BiasMethod::descriptor()->FindOneofByName("method");
  for (int n = 0; n < oneof->field_count(); ++n) {
    if (oneof->field(n)->name() != "model") names.push_back(oneof->field(n)->name());
  }
  return names;
}

// Of every bias method: the plan says what was asked, field by field, and sent back gives the same answer.
TEST(WireMapping, BiasMethodsSurviveTheRoundTrip) {
  for (const std::string& name : MethodNames()) {
    SCOPED_TRACE(name);
    v1::GenerateBiasRequest request;
    *request.mutable_method() = FullMethod(name);
    request.mutable_geometry()->set_query_length(6);
    request.mutable_geometry()->set_key_length(6);
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

// The same of relative terms, for two heads of four channels.
v1::RelativeMethod FullRelativeMethod(const std::string& name) {
  v1::RelativeMethod method;
  const auto project = [](v1::Projection* projection) {
    *projection->mutable_weight() = SomeWeight({8, 6});
    projection->set_layout(v1::WEIGHT_LAYOUT_OUTPUT_BY_INPUT);
    *projection->mutable_bias() = SomeWeight({8});
  };
  const auto normalise = [](v1::LayerNorm* norm) {
    *norm->mutable_weight() = SomeWeight({6});
    *norm->mutable_bias() = SomeWeight({6});
    norm->set_epsilon(1e-7);
  };
  if (name == "shaw") {
    *method.mutable_shaw()->mutable_table() = SomeWeight({5, 4});
    method.mutable_shaw()->set_order(v1::SHAW_ORDER_QUERY_MINUS_KEY);
    method.mutable_shaw()->set_clip(true);
    method.mutable_shaw()->set_key_term(true);
    method.mutable_shaw()->set_before(1);
  } else if (name == "transformer_xl") {
    auto& xl = *method.mutable_transformer_xl();
    project(xl.mutable_position());
    xl.mutable_position()->clear_bias();
    *xl.mutable_position_bias() = SomeWeight({2, 4});
    *xl.mutable_content_bias() = SomeWeight({3, 4});
    xl.set_clamp_len(2);
    xl.set_encoding(v1::TRANSFORMER_XL_ENCODING_INTERLEAVED);
  } else if (name == "tupe") {
    auto& tupe = *method.mutable_tupe();
    *tupe.mutable_position_embeddings() = SomeWeight({7, 6});
    normalise(tupe.mutable_layer_norm());
    project(tupe.mutable_query());
    project(tupe.mutable_key());
    *tupe.mutable_relative_bias() = FullMethod("t5").t5();
    *tupe.mutable_relative_bias_table() = SomeWeight({2, 8});
    tupe.set_relative_bias_table_layout(v1::BIAS_TABLE_LAYOUT_HEADS_BY_BUCKETS);
    tupe.set_cls(v1::TUPE_CLS_UNTIED_WITHOUT_BIAS);
  } else if (name == "deberta") {
    auto& deberta = *method.mutable_deberta();
    *deberta.mutable_relative_embeddings() = SomeWeight({9, 6});
    normalise(deberta.mutable_layer_norm());
    project(deberta.mutable_key());
    project(deberta.mutable_query());
    deberta.set_position_buckets(4);
    deberta.set_max_relative_positions(5);
    deberta.set_distance(v1::DEBERTA_DISTANCE_CLAMPED);
  } else if (name == "wpr") {
    method.mutable_wpr()->set_wavelet(v1::WAVELET_MORLET);
    method.mutable_wpr()->set_scales(4);
    method.mutable_wpr()->set_first_exponent(-1);
    method.mutable_wpr()->set_channels(v1::WPR_CHANNELS_SCALE_FASTEST);
    method.mutable_wpr()->set_distance(v1::WPR_DISTANCE_KEY_MINUS_QUERY);
    method.mutable_wpr()->set_morlet_frequency(1.25);
  } else {
    *method.mutable_cope()->mutable_position_embeddings() = SomeWeight({3, 4});
  }
  return method;
}

TEST(WireMapping, RelativeMethodsSurviveTheRoundTrip) {
  const auto* oneof = v1::RelativeMethod::descriptor()->FindOneofByName("method");
  std::vector<v1::RelativeMethod> methods;
  for (int n = 0; n < oneof->field_count(); ++n) {
    SCOPED_TRACE(oneof->field(n)->name());
    methods.push_back(FullRelativeMethod(oneof->field(n)->name()));
    v1::RelativeScoresRequest request;
    *request.mutable_method() = methods.back();
    request.set_layout(v1::LAYOUT_BSHD);
    request.set_content(true);
    request.set_dtype(v1::DATA_TYPE_FP32);
    *request.mutable_q() = SomeWeight({1, 6, 2, 4});
    *request.mutable_k() = SomeWeight({1, 6, 1, 4});
    request.mutable_hints()->set_return_plan(true);
    const auto answer = Call(request);
    ASSERT_THAT(answer, IsOk());
    EXPECT_EQ(answer->info().plan().relative().DebugString(), request.method().DebugString());
    *request.mutable_method() = answer->info().plan().relative();
    const auto again = Call(request);
    ASSERT_THAT(again, IsOk());
    EXPECT_EQ(again->SerializeAsString(), answer->SerializeAsString());
  }
  // What is refused: W_kR has no bias.
  *methods.emplace_back().mutable_transformer_xl()->mutable_position()->mutable_bias() = SomeWeight({8});
  std::vector<const google::protobuf::Message*> all;
  for (const auto& method : methods) all.push_back(&method);
  ExpectAllFieldsSet(all);
}

// What is stored otherwise, or is a default, is the same plan.
TEST(WireMapping, RelativeMethodsHaveOneCanonicalForm) {
  const auto plan = [](const v1::RelativeMethod& method) {
    v1::RelativeScoresRequest request;
    *request.mutable_method() = method;
    request.set_layout(v1::LAYOUT_BSHD);
    request.set_content(false);
    request.set_dtype(v1::DATA_TYPE_FP32);
    *request.mutable_q() = SomeWeight({1, 6, 2, 8});
    const auto answer = Call(request);
    EXPECT_THAT(answer, IsOk());
    return answer.ok() ? answer->info().plan_fingerprint() : "";
  };
  v1::RelativeMethod wpr = FullRelativeMethod("wpr"), defaults = wpr;
  wpr.mutable_wpr()->set_scales(8);
  wpr.mutable_wpr()->set_first_exponent(0);
  defaults.mutable_wpr()->clear_scales();
  defaults.mutable_wpr()->clear_first_exponent();
  EXPECT_EQ(plan(wpr), plan(defaults));
  wpr.mutable_wpr()->set_first_exponent(1);
  EXPECT_NE(plan(wpr), plan(defaults));

  v1::RelativeMethod xl, turned;
  auto& weight = *xl.mutable_transformer_xl()->mutable_position();
  *weight.mutable_weight() = MakeTensor(DType::kFP32, {16, 2}, Counted(32));
  weight.set_layout(v1::WEIGHT_LAYOUT_OUTPUT_BY_INPUT);
  std::vector<double> columns(32);
  for (size_t n = 0; n < 32; ++n) columns[n % 2 * 16 + n / 2] = Counted(32)[n];
  auto& other = *turned.mutable_transformer_xl()->mutable_position();
  *other.mutable_weight() = MakeTensor(DType::kBF16, {2, 16}, columns);
  other.set_layout(v1::WEIGHT_LAYOUT_INPUT_BY_OUTPUT);
  EXPECT_EQ(plan(xl), plan(turned));
  turned.mutable_transformer_xl()->set_encoding(v1::TRANSFORMER_XL_ENCODING_HALVES);
  EXPECT_EQ(plan(xl), plan(turned));
  turned.mutable_transformer_xl()->set_encoding(v1::TRANSFORMER_XL_ENCODING_INTERLEAVED);
  EXPECT_NE(plan(xl), plan(turned));

  v1::RelativeMethod shaw;
  *shaw.mutable_shaw()->mutable_table() = SomeWeight({5, 8});
  shaw.mutable_shaw()->set_order(v1::SHAW_ORDER_KEY_MINUS_QUERY);
  shaw.mutable_shaw()->set_clip(true);
  v1::RelativeMethod middle = shaw;
  middle.mutable_shaw()->set_before(2);
  EXPECT_EQ(plan(shaw), plan(middle));
  middle.mutable_shaw()->set_before(3);
  EXPECT_NE(plan(shaw), plan(middle));
}

// The canonical settings of every model and layer, sent back without the file, are the same plan.
class CanonicalSettings : public testing::TestWithParam<std::string> {};

TEST_P(CanonicalSettings, GiveTheSameFrequencies) {
  for (auto preset : {v1::PRECISION_PRESET_EXACT, v1::PRECISION_PRESET_HF_EAGER}) {
    v1::ExplainRequest request;
    request.mutable_model()->set_config_json(golden::ReadText("configs/" + GetParam()));
    request.mutable_model()->set_component(golden::ComponentOf(request.model().config_json()));
    if (GetParam() == "internlm2_5-7b-chat.json") request.mutable_model()->set_input_pairing(v1::PAIRING_HALF_SPLIT);
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
  std::erase(names, "hunyuan-7b-instruct.json");  // refused: golden_rotary_test
  return names;
}

INSTANTIATE_TEST_SUITE_P(Models, CanonicalSettings, testing::ValuesIn(Configs()), [](const auto& instance) {
  std::string name = instance.param;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
  return name;
});

// The fingerprint moves with everything that moves a table.
TEST(Fingerprint, DiffersWithEverySetting) {
  const auto fingerprint = [](const auto& change) {
    v1::ExplainRequest request;
    auto* p = request.mutable_rotary()->mutable_rope_parameters();
    p->set_rope_type("yarn");
    p->set_factor(4);
    p->set_original_max_position_embeddings(4096);
    request.mutable_rotary()->set_rotary_dim(64);
    request.mutable_rotary()->set_input_pairing(v1::PAIRING_HALF_SPLIT);
    change(request, *p);
    const auto response = Call(request);
    EXPECT_THAT(response, IsOk());
    return response->layers(0).info().plan_fingerprint();
  };
  std::set<std::string> seen;
  seen.insert(fingerprint([](auto&, auto&) {}));
  seen.insert(fingerprint([](auto&, auto& p) { p.set_rope_theta(10001); }));
  seen.insert(fingerprint([](auto&, auto& p) { p.set_factor(5); }));
  seen.insert(fingerprint([](auto&, auto& p) { p.set_attention_factor(1); }));
  seen.insert(fingerprint([](auto&, auto& p) { p.set_truncate(false); }));
  seen.insert(fingerprint([](auto& r, auto&) { r.mutable_rotary()->set_rotary_dim(32); }));
  seen.insert(fingerprint([](auto& r, auto&) { r.mutable_rotary()->set_input_pairing(v1::PAIRING_INTERLEAVED); }));
  seen.insert(fingerprint([](auto& r, auto&) { r.mutable_rotary()->set_output_pairing(v1::PAIRING_INTERLEAVED); }));
  for (auto preset : {v1::PRECISION_PRESET_F32, v1::PRECISION_PRESET_HF_EAGER, v1::PRECISION_PRESET_VLLM,
                      v1::PRECISION_PRESET_FLUX}) {
    seen.insert(fingerprint([preset](auto& r, auto&) { r.mutable_precision()->set_preset(preset); }));
  }
  EXPECT_EQ(seen.size(), 12u);
}

// Of a bias added to scores, with all that rounds it; a bias alone is rounded once whatever these say.
TEST(Fingerprint, OfAnAddedBiasDiffersWithItsRounding) {
  const auto fingerprint = [](v1::PrecisionPreset preset, bool added) {
    v1::AddBiasRequest add;
    *add.mutable_method() = FullMethod("kerple");
    add.mutable_precision()->set_preset(preset);
    *add.mutable_scores() = MakeTensor(DType::kFP32, {1, 2, 1, 1}, {0, 0});
    v1::GenerateBiasRequest generate;
    *generate.mutable_method() = add.method();
    *generate.mutable_precision() = add.precision();
    generate.mutable_geometry()->set_query_length(1);
    generate.mutable_geometry()->set_key_length(1);
    generate.set_form(v1::BIAS_FORM_DENSE);
    generate.set_dtype(v1::DATA_TYPE_FP32);
    return added ? Call(add)->info().plan_fingerprint() : Call(generate)->info().plan_fingerprint();
  };
  std::set<std::string> added, alone;
  for (auto preset : {v1::PRECISION_PRESET_EXACT, v1::PRECISION_PRESET_F32, v1::PRECISION_PRESET_HF_EAGER,
                      v1::PRECISION_PRESET_VLLM, v1::PRECISION_PRESET_FLUX}) {
    added.insert(fingerprint(preset, true));
    alone.insert(fingerprint(preset, false));
  }
  EXPECT_EQ(added.size(), 5u);
  EXPECT_EQ(alone.size(), 3u);
}

TEST(ServerInformation, ListsMethodsTargetsAndLimits) {
  v1::GetServerInfoResponse info;
  wire::DescribeLibrary({}, &info);
  ASSERT_EQ(info.methods(0).family(), "rope");
  std::vector<std::string> scalings = {"given_frequencies", "axial", "given_table", "mrope", "xpos"};
  for (const RopeMethod& method : RopeMethods()) scalings.emplace_back(method.rope_type);
  EXPECT_GE(scalings.size(), 7u);
  EXPECT_THAT(info.methods(0).methods(), testing::UnorderedElementsAreArray(scalings));
  std::set<std::string> families;
  for (const auto& family : info.methods()) families.insert(family.family());
  EXPECT_THAT(families, testing::ElementsAre("alibi", "beit", "fire", "fourier", "grid", "kerple", "learned", "mask",
                                             "relative", "rope", "sandwich", "sinusoidal", "swin", "t5", "timestep"));
  EXPECT_THAT(info.cpu_targets(), testing::Contains(info.cpu_target()));
  EXPECT_EQ(info.config_rules(), "transformers 5.23");
  EXPECT_GE(info.numerics_version(), 1u);
  EXPECT_EQ(info.limits().max_config_json_bytes(), 1 << 20);
  EXPECT_GT(info.limits().max_output_bytes(), 0);
}

}  // namespace
}  // namespace posenc
