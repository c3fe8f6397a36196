#include "posenc/wire/answer.h"

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "posenc/base/status.h"
#include "posenc/v1/service.pb.h"

namespace posenc::wire::answer_test {
namespace {

v1::Tensor* SetTensor(v1::Tensor* tensor, std::vector<int64_t> shape) {
  tensor->set_dtype(v1::DATA_TYPE_BF16);
  tensor->mutable_shape()->Assign(shape.begin(), shape.end());
  return tensor;
}

// Writes the answer, with each output filled with a letter of its own.
std::string Write(google::protobuf::Message* response, const std::vector<Output>& outputs) {
  const auto answer = Answer::LayOut(response, outputs);
  EXPECT_TRUE(answer.ok()) << answer.status();
  std::string buffer(answer->size(), '?');
  for (size_t n = 0; n < outputs.size(); ++n) {
    std::memset(buffer.data() + answer->data_offset(n), static_cast<char>('a' + n), outputs[n].bytes);
  }
  answer->WriteHeaders(reinterpret_cast<std::byte*>(buffer.data()));
  return buffer;
}

class AnswerOfSizes : public testing::TestWithParam<std::vector<size_t>> {};

TEST_P(AnswerOfSizes, ParsesToTheResponseWithItsData) {
  v1::ApplyRotaryResponse response;
  response.mutable_info()->set_device("cpu");
  std::vector<Output> outputs = {{SetTensor(response.mutable_q(), {2, 3}), GetParam()[0]}};
  if (GetParam().size() > 1) outputs.push_back({SetTensor(response.mutable_k(), {1, 0, 5}), GetParam()[1]});
  v1::ApplyRotaryResponse expected = response;
  expected.mutable_q()->set_data(std::string(GetParam()[0], 'a'));
  if (GetParam().size() > 1) expected.mutable_k()->set_data(std::string(GetParam()[1], 'b'));

  const std::string bytes = Write(&response, outputs);
  // The fields are in order and minimal, so the bytes are those that protobuf writes.
  EXPECT_EQ(bytes, expected.SerializeAsString());
  v1::ApplyRotaryResponse parsed;
  ASSERT_TRUE(parsed.ParseFromString(bytes));
  EXPECT_EQ(parsed.DebugString(), expected.DebugString());
  EXPECT_EQ(outputs[0].tensor, &response.q()) << "the response is left as it was";
  EXPECT_TRUE(response.q().data().empty());
  EXPECT_EQ(response.q().shape_size(), 2);
}

INSTANTIATE_TEST_SUITE_P(Sizes, AnswerOfSizes,
                         testing::Values(std::vector<size_t>{0}, std::vector<size_t>{1}, std::vector<size_t>{127},
                                         std::vector<size_t>{128, 0}, std::vector<size_t>{0, 16384},
                                         std::vector<size_t>{1 << 21, 3}));

TEST(Answer, KeepsAnOutputThatIsAllDefaults) {
  v1::AddBiasResponse response;
  const std::string bytes = Write(&response, {{response.mutable_scores(), 0}});
  v1::AddBiasResponse parsed;
  ASSERT_TRUE(parsed.ParseFromString(bytes));
  EXPECT_TRUE(parsed.has_scores());
}

TEST(Answer, WithoutOutputsIsTheMessage) {
  v1::ExplainResponse response;
  response.add_layers()->set_layer_type("full_attention");
  EXPECT_EQ(Write(&response, {}), response.SerializeAsString());
  v1::ExplainResponse empty;
  EXPECT_EQ(Write(&empty, {}), "");
}

TEST(Answer, PutsOtherFieldsBeforeTheOutputs) {
  v1::StreamTableResponse response;
  response.set_row_begin(7);
  SetTensor(response.mutable_sin(), {4});
  const std::string bytes = Write(&response, {{SetTensor(response.mutable_cos(), {8}), 16}});
  v1::StreamTableResponse expected = response;
  expected.mutable_cos()->set_data(std::string(16, 'a'));
  v1::StreamTableResponse parsed;
  ASSERT_TRUE(parsed.ParseFromString(bytes));
  EXPECT_EQ(parsed.SerializeAsString(), expected.SerializeAsString());
  EXPECT_EQ(bytes.substr(bytes.size() - 16), std::string(16, 'a'));
}

TEST(Answer, OfPiecesHasThemInOrderAndTheOtherOutputsBehind) {
  v1::ApplyRotaryResponse response;
  const std::vector<Output> outputs = {{response.mutable_q(), 3}, {response.mutable_k(), 2}, {nullptr, 4}};
  std::vector<Answer::Piece> pieces = {{"k:", &outputs[1]}, {" q:", &outputs[0]}, {" end", nullptr}};
  const auto answer = Answer::OfPieces(std::move(pieces), outputs);
  ASSERT_TRUE(answer.ok()) << answer.status();
  const Answer longer = answer->Behind("id ");
  EXPECT_EQ(longer.size(), std::string("id k:bb q:aaa end").size());
  EXPECT_EQ(longer.buffer_size(), longer.size() + 4);
  std::string buffer(longer.buffer_size(), '?');
  for (size_t n = 0; n < outputs.size(); ++n) {
    std::memset(buffer.data() + longer.data_offset(n), static_cast<char>('a' + n), outputs[n].bytes);
  }
  longer.WriteHeaders(reinterpret_cast<std::byte*>(buffer.data()));
  EXPECT_EQ(buffer, "id k:bb q:aaa endcccc");
  const std::vector<Output> large = {{response.mutable_q(), size_t{1} << 31}};
  EXPECT_EQ(Answer::OfPieces({{"q:", large.data()}}, large).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(Answer, RefusesWhatGrpcCannotSend) {
  v1::ApplyRotaryResponse response;
  v1::Tensor* q = response.mutable_q();
  v1::Tensor* k = response.mutable_k();
  EXPECT_TRUE(Answer::LayOut(&response, {{q, size_t{1} << 30}, {k, 1000}}).ok());
  for (const size_t bytes : {size_t{1} << 30, size_t{1} << 31, ~size_t{0}}) {
    const auto answer = Answer::LayOut(&response, {{q, size_t{1} << 30}, {k, bytes}});
    EXPECT_EQ(answer.status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(DetailsOf(answer.status()).reason, "TOO_LARGE");
  }
}

}  // namespace
}  // namespace posenc::wire::answer_test
