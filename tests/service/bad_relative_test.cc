// Relative scores that a caller may get wrong, with any method: each is refused with its reason and its field. Empty
// tensors are legal.
#include "tests/service/bad_relative.h"

namespace posenc::bad_relative {
namespace {

TEST_P(BadRelativeScores, AreRefused) {
  R request = GetParam().valid();
  ASSERT_THAT(Call(request), IsOk());
  GetParam().change(request);
  EXPECT_THAT(Call(request), IsInvalid(GetParam().reason, GetParam().field));
}

const Case<R> kRequests[] = {
    {"positions of another batch", OfShaw,
     [](R& r) {
       *G(r).mutable_key_positions() = Doubles({2, 3}, {0, 1, 2, 0, 1, 2});
     },
     "MISMATCH", "geometry.key_positions"},
    {"NaN position", OfCope,
     [](R& r) {
       *G(r).mutable_key_positions() = Doubles({3}, {0, NAN, 2});
     },
     "OUT_OF_RANGE", "geometry.key_positions[1]"},
    {"fractional position", OfShaw,
     [](R& r) {
       *G(r).mutable_query_positions() = Doubles({3}, {0, 1, 2.5});
     },
     "OUT_OF_RANGE", "geometry.query_positions[2]"},
    {"fractional key", OfWpr,
     [](R& r) {
       *G(r).mutable_key_positions() = Doubles({3}, {0.5, 1, 2});
     },
     "OUT_OF_RANGE", "geometry.key_positions[0]"},
    {"mask of another batch", OfShaw,
     [](R& r) {
       *M(r).mutable_key_valid() = MakeTensor(DType::kBOOL, {2, 3}, std::vector<uint8_t>(6, 1));
     },
     "MISMATCH", "mask.key_valid"},
};
INSTANTIATE_TEST_SUITE_P(Requests, BadRelativeScores, testing::ValuesIn(kRequests));

// CoPE only compares positions, so fractions are legal.
TEST(RelativeScores, CopeTakesFractions) {
  R request = OfCope();
  *G(request).mutable_key_positions() = Doubles({3}, {0, 0.5, 2e9});
  EXPECT_THAT(Call(request), IsOk());
}

struct Limit {
  const char* what;
  R (*valid)();
  std::function<void(R&, Limits&)> change;
  const char* field;
};

TEST(RelativeScores, AboveALimit) {
  const Limit limits[] = {
      {"answer", OfShaw, [](R&, Limits& l) { l.max_output_bytes = 2 * 3 * 3 * 4 - 1; }, "answer"},
      {"distances", OfShaw,
       [](R& r, Limits&) {
         *G(r).mutable_key_positions() = Doubles({3}, {0, 1, 1 << 22});
       },
       "geometry"},
      {"encodings", OfTransformerXl,
       [](R& r, Limits& l) {
         G(r).set_query_offset(10000);
         *G(r).mutable_key_positions() = Doubles({3}, {0, 10000, 20000});
         l.max_output_bytes = 20000 * 14 * 4;
       },
       XL "position.weight"},
      {"rows of TUPE", OfTupe, [](R&, Limits& l) { l.max_output_bytes = 4 * 8 * 4 - 1; }, TUPE "position_embeddings"},
      {"rows of DeBERTa", OfDeberta, [](R&, Limits& l) { l.max_output_bytes = 16 * 8 * 4 - 1; },
       DEBERTA "relative_embeddings"},
      {"wavelets", OfWpr,
       [](R& r, Limits& l) {
         *G(r).mutable_key_positions() = Doubles({3}, {0, 1, 1000});
         l.max_bias_values = 1500;
       },
       WPR "scales"},
      {"rows of wavelets", OfWpr,
       [](R& r, Limits& l) {
         *G(r).mutable_key_positions() = Doubles({3}, {0, 1, 1000});
         l.max_output_bytes = 1000 * 4 * 4;
       },
       WPR "scales"},
  };
  for (const Limit& limit : limits) {
    SCOPED_TRACE(limit.what);
    R request = limit.valid();
    Limits narrow;
    ASSERT_THAT(Call(request), IsOk());
    limit.change(request, narrow);
    EXPECT_THAT(Call(request, narrow), FailsWith(absl::StatusCode::kResourceExhausted, "TOO_LARGE", limit.field));
  }
}

// A batch without rows, queries or keys has an empty answer.
TEST(RelativeScores, EmptyTensors) {
  for (R (*valid)() : {OfShaw, OfContent, OfTransformerXl, OfTupe, OfDeberta, OfWpr, OfCope, OfInkling}) {
    struct {
      int64_t batch, queries, keys;
    } const sizes[] = {{0, 3, 3}, {1, 0, 3}, {1, 3, 0}, {1, 0, 0}, {0, 0, 0}};
    for (const auto& [batch, queries, keys] : sizes) {
      SCOPED_TRACE(testing::Message() << valid().method().ShortDebugString().substr(0, 16) << " " << batch << " "
                                      << queries << " " << keys);
      R request = valid();
      *request.mutable_q() = Zeros({batch, 2, queries, 4});
      if (request.has_k()) *request.mutable_k() = Zeros({batch, 1, keys, 4});
      G(request).set_key_length(keys);
      G(request).set_query_offset(0);
      M(request).set_causal(true);
      const auto answer = Call(request);
      ASSERT_THAT(answer, IsOk());
      EXPECT_THAT(ShapeOf(answer->scores()), testing::ElementsAre(batch, 2, queries, keys));
      EXPECT_EQ(answer->scores().data(), "");
    }
  }
}

}  // namespace
}  // namespace posenc::bad_relative
