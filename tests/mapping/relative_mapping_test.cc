// Tests like those of wire_mapping_test.cc, for relative terms.
#include <gtest/gtest.h>

#include "posenc/mapping/read.h"
#include "tests/mapping/full_messages.h"
#include "tests/service/call.h"

namespace posenc::relative_mapping_test {
namespace {

// A full method message for two heads of four channels.
v1::RelativeMethod FullRelativeMethod(std::string_view name) {
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
  } else if (name == "inkling") {
    *method.mutable_inkling()->mutable_projection() = SomeWeight({4, 3});
    method.mutable_inkling()->set_log_scaling_alpha(0.5);
    method.mutable_inkling()->set_log_scaling_n_floor(1.5);
    method.mutable_inkling()->set_scaled(v1::INKLING_SCALED_STATES);
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
    request.set_content(!request.method().has_inkling());
    request.set_dtype(v1::DATA_TYPE_FP32);
    *request.mutable_q() = SomeWeight({1, 6, 2, 4});
    if (request.content()) *request.mutable_k() = SomeWeight({1, 6, 1, 4});
    request.mutable_hints()->set_return_plan(true);
    const auto answer = Call(request);
    ASSERT_THAT(answer, IsOk());
    EXPECT_EQ(answer->info().plan().relative().DebugString(), request.method().DebugString());
    *request.mutable_method() = answer->info().plan().relative();
    const auto again = Call(request);
    ASSERT_THAT(again, IsOk());
    EXPECT_EQ(again->SerializeAsString(), answer->SerializeAsString());
  }
  // A refused field: W_kR has no bias.
  *methods.emplace_back().mutable_transformer_xl()->mutable_position()->mutable_bias() = SomeWeight({8});
  std::vector<const google::protobuf::Message*> all;
  for (const auto& method : methods) all.push_back(&method);
  ExpectAllFieldsSet(all);
}

// Other storage layouts, and explicit defaults, give the same plan.
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

}  // namespace
}  // namespace posenc::relative_mapping_test
