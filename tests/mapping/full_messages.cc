#include "tests/mapping/full_messages.h"

#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <utility>

#include "posenc/v1/rotary.pb.h"
#include "tests/service/call.h"

namespace posenc {

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
    const bool is_source = field->message_type() == v1::ModelConfig::descriptor();  // names settings, is none
    EXPECT_TRUE(set || is_source) << field->full_name();
    if (!inner.empty()) ExpectAllFieldsSet(inner);
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
  } else if (name == "forget_gate") {
    v1::ForgetGate& gate = *method.mutable_forget_gate();
    *gate.mutable_log_gates() = SomeWeight({2, 6});
    for (char& byte : *gate.mutable_log_gates()->mutable_data()) byte = 0;
    gate.mutable_cu_seqlens()->set_dtype(v1::DATA_TYPE_INT64);
    gate.mutable_cu_seqlens()->add_shape(2);
    const int64_t bounds[] = {0, 6};
    gate.mutable_cu_seqlens()->set_data(bounds, sizeof(bounds));
  } else {
    method.mutable_nope()->set_num_heads(2);
  }
  return method;
}

}  // namespace posenc
