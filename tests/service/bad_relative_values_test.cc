// Relative values that a caller may get wrong. Empty tensors are legal.
#include "tests/service/bad_relative.h"

namespace posenc::bad_relative {
namespace {

using V = v1::RelativeValuesRequest;

V OfValues() {
  V request;
  *request.mutable_shaw() = OfShaw().method().shaw();
  request.set_layout(v1::LAYOUT_BSHD);
  request.set_dtype(v1::DATA_TYPE_FP32);
  *request.mutable_probabilities() = Zeros({1, 2, 3, 3});
  return request;
}

class BadRelativeValues : public testing::TestWithParam<Case<V>> {};

TEST_P(BadRelativeValues, AreRefused) {
  V request = GetParam().valid();
  ASSERT_THAT(Call(request), IsOk());
  GetParam().change(request);
  EXPECT_THAT(Call(request), IsInvalid(GetParam().reason, GetParam().field));
}

const Case<V> kValues[] = {
    {"other lengths", OfValues, [](V& v) { v.mutable_geometry()->set_key_length(4); }, "MISMATCH",
     "geometry.key_length"},
    {"fractional position", OfValues,
     [](V& v) {
       *v.mutable_geometry()->mutable_key_positions() = Doubles({3}, {0, 1.5, 2});
     },
     "OUT_OF_RANGE", "geometry.key_positions[1]"},
};
INSTANTIATE_TEST_SUITE_P(Values, BadRelativeValues, testing::ValuesIn(kValues));

TEST(RelativeValues, AboveALimit) {
  Limits limits;
  limits.max_output_bytes = 3 * 2 * 4 * 4 - 1;
  EXPECT_THAT(Call(OfValues(), limits), FailsWith(absl::StatusCode::kResourceExhausted, "TOO_LARGE", "answer"));
  V far = OfValues();
  *far.mutable_geometry()->mutable_key_positions() = Doubles({3}, {0, 1, 1 << 22});
  EXPECT_THAT(Call(far), FailsWith(absl::StatusCode::kResourceExhausted, "TOO_LARGE", "geometry"));
}

// Without keys there is nothing to sum, but each query has an answer.
TEST(RelativeValues, EmptyTensors) {
  struct {
    int64_t batch, queries, keys;
  } const sizes[] = {{0, 3, 3}, {1, 0, 3}, {1, 3, 0}, {1, 0, 0}};
  for (const auto& [batch, queries, keys] : sizes) {
    for (bool added : {false, true}) {
      SCOPED_TRACE(testing::Message() << batch << " " << queries << " " << keys << " " << added);
      V request = OfValues();
      *request.mutable_probabilities() = Zeros({batch, 2, queries, keys});
      request.mutable_geometry()->set_query_offset(0);
      std::vector<double> own(batch * queries * 2 * 4, 3.0);
      if (added) *request.mutable_add_to() = MakeTensor(DType::kFP32, {batch, queries, 2, 4}, own);
      const auto answer = Call(request);
      ASSERT_THAT(answer, IsOk());
      EXPECT_THAT(ShapeOf(answer->values()), testing::ElementsAre(batch, queries, 2, 4));
      if (!added) std::fill(own.begin(), own.end(), 0.0);
      EXPECT_EQ(answer->values().data(), Pack(DType::kFP32, own));
    }
  }
}

}  // namespace
}  // namespace posenc::bad_relative
