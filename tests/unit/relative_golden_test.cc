// Scores before softmax as DeBERTa, XLNet, Transformer-XL, BERT and wav2vec2-bert compute them, with content
// (tests/golden/recorded/relative_scores.json).
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "tests/reference/golden.h"
#include "tests/unit/call.h"

namespace posenc {
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

// Sets a message's fields from JSON in which a tensor is nested lists.
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

// torch adds float32 products of up to 16 channels in an order of its own: `within` units in the last place of the
// largest score. Hidden cells are equal.
TEST(RelativeGolden, ScoresBeforeSoftmax) {
  constexpr double kWithin = 4;
  const json file = golden::Read("recorded/relative_scores.json");
  ASSERT_EQ(file["records"].size(), 8u);
  for (const json& record : file["records"]) {
    SCOPED_TRACE(record["model"]);
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
    const auto response = Call(request);
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

}  // namespace
}  // namespace posenc
