// Scores before softmax, with content, as computed by DeBERTa, XLNet, Transformer-XL, BERT and wav2vec2-bert
// (tests/golden/recorded/relative_scores.json).
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "tests/reference/golden.h"
#include "tests/service/call.h"

namespace posenc::relative_golden_test {
namespace {

using golden::json;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

v1::Tensor TensorOf(const json& rows) {
  std::vector<int64_t> shape;
  for (const json* level = &rows; level->is_array(); level = &(*level)[0]) {
    shape.push_back(static_cast<int64_t>(level->size()));
  }
  return MakeTensor(DType::kFP32, shape, golden::Numbers(rows));
}

// Sets a message's fields from JSON in which a tensor is a nested list.
void Fill(const json& values, Message* message) {
  const auto& reflection = *message->GetReflection();
  for (const auto& [name, value] : values.items()) {
    const FieldDescriptor* field = message->GetDescriptor()->FindFieldByName(name);
    ASSERT_NE(field, nullptr) << name;
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_MESSAGE: {
        Message* inner = reflection.MutableMessage(message, field);
        if (auto* tensor = dynamic_cast<v1::Tensor*>(inner)) {
          *tensor = TensorOf(value);
        } else {
          Fill(value, inner);
        }
        break;
      }
      case FieldDescriptor::CPPTYPE_ENUM: {
        const auto* number = field->enum_type()->FindValueByName(value.get<std::string>());
        ASSERT_NE(number, nullptr) << value;
        reflection.SetEnum(message, field, number);
        break;
      }
      case FieldDescriptor::CPPTYPE_BOOL: reflection.SetBool(message, field, value); break;
      case FieldDescriptor::CPPTYPE_INT64: reflection.SetInt64(message, field, value); break;
      case FieldDescriptor::CPPTYPE_DOUBLE: reflection.SetDouble(message, field, value); break;
      default: FAIL() << name;
    }
  }
}

v1::RelativeScoresRequest RequestOf(const json& record) {
  v1::RelativeScoresRequest request;
  Fill(record["method"], request.mutable_method());
  if (record.contains("mask")) Fill(record["mask"], request.mutable_mask());
  request.mutable_geometry()->set_query_offset(record["past"]);
  request.set_layout(v1::LAYOUT_BHSD);
  request.set_content(true);
  request.set_dtype(v1::DATA_TYPE_FP32);
  request.mutable_precision()->set_preset(v1::PRECISION_PRESET_F32);
  *request.mutable_q() = TensorOf(record["q"]);
  *request.mutable_k() = TensorOf(record["k"]);
  request.mutable_hints()->set_return_plan(true);
  return request;
}

// Clears all settings; keeps the weights and their layouts.
void KeepWeights(Message* message) {
  const auto& reflection = *message->GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(*message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
      if (field->name() != "layout") reflection.ClearField(message, field);
    } else if (field->message_type() != v1::Tensor::descriptor()) {
      KeepWeights(reflection.MutableMessage(message, field));
    }
  }
}

// torch adds float32 products of up to 16 channels in its own order: the tolerance is kWithin ulp of the largest score.
// Hidden cells are equal.
TEST(RelativeGolden, ScoresBeforeSoftmax) {
  constexpr double kWithin = 4;
  const json file = golden::Read("recorded/relative_scores.json");
  ASSERT_EQ(file["records"].size(), 12u);
  for (const json& record : file["records"]) {
    SCOPED_TRACE(record["model"]);
    const auto response = Call(RequestOf(record));
    ASSERT_THAT(response, IsOk());
    const std::vector<double> ours = ValuesOf(response->scores()), recorded = golden::Numbers(record["scores"]);
    ASSERT_EQ(ours.size(), recorded.size());
    const double hidden = std::numeric_limits<float>::lowest();
    double worst = 0, largest = 0;
    for (size_t n = 0; n < ours.size(); ++n) {
      ASSERT_EQ(ours[n] == hidden, recorded[n] == hidden) << n;
      if (recorded[n] == hidden) continue;
      worst = std::max(worst, std::abs(ours[n] - recorded[n]));
      largest = std::max(largest, std::abs(recorded[n]));
    }
    const double place = std::exp2(std::floor(std::log2(largest)) - 23);
    EXPECT_LE(worst, kWithin * place);
    std::printf("%-24s at most %.2f ulp of the largest score, %g\n", record["model"].get<std::string>().c_str(),
                worst / place, largest);
  }
}

// The weights and the model's config.json give the same bytes: the file has every setting.
TEST(RelativeGolden, SettingsFromConfigJson) {
  const json recorded = golden::Read("recorded/relative_scores.json");
  for (const json& record : recorded["records"]) {
    SCOPED_TRACE(record["model"]);
    v1::RelativeScoresRequest request = RequestOf(record);
    const auto expected = Call(request);
    ASSERT_THAT(expected, IsOk());
    v1::RelativeMethod& method = *request.mutable_method();
    const auto* field = method.GetDescriptor()->FindFieldByNumber(method.method_case());
    Message* weights = method.GetReflection()->MutableMessage(&method, field);
    KeepWeights(weights);
    const auto* model = weights->GetDescriptor()->FindFieldByName("model");
    static_cast<v1::ModelConfig*>(weights->GetReflection()->MutableMessage(weights, model))
        ->set_config_json(record["config"].dump());
    const auto response = Call(request);
    ASSERT_THAT(response, IsOk());
    EXPECT_EQ(response->scores().data(), expected->scores().data());
    EXPECT_EQ(response->info().plan().SerializeAsString(), expected->info().plan().SerializeAsString());
    EXPECT_EQ(response->scale(), expected->scale());
  }
}

}  // namespace
}  // namespace posenc::relative_golden_test
