// Biases computed here by the papers' formulas, not by posenc: the method, its settings and the mask must be found.
#include "posenc/diagnose/bias.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "posenc/base/status.h"
#include "posenc/kernels/convert.h"
#include "posenc/methods/bias/bias_methods.h"

namespace posenc::diagnose::diagnose_bias_test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

using Value = std::function<double(int64_t h, int64_t i, int64_t j)>;

class Made {
 public:
  Made(DType dtype, std::vector<int64_t> shape, const Value& value) {
    evidence.bias = {dtype, shape};
    std::vector<float> values;
    for (int64_t b = 0; b < shape[0]; ++b) {
      for (int64_t h = 0; h < shape[1]; ++h) {
        for (int64_t i = 0; i < shape[2]; ++i) {
          for (int64_t j = 0; j < shape[3]; ++j) values.push_back(static_cast<float>(value(h, i, j)) + 0.0f);  // no -0
        }
      }
    }
    bytes_.resize(values.size() * SizeOf(dtype));
    Convert(DType::kFP32, dtype, values.data(), bytes_.data(), values.size());
    evidence.data = bytes_.data();
  }

  BiasDiagnosis Diagnose(const std::optional<AskedBias>& asked = std::nullopt) const {
    WorkPool pool(1);
    auto diagnosis = DiagnoseBias(evidence, asked, 8, Limits(), pool, NeverCancelled);
    EXPECT_TRUE(diagnosis.ok()) << diagnosis.status();
    return diagnosis.ok() ? *std::move(diagnosis) : BiasDiagnosis();
  }

  BiasEvidence evidence;

 private:
  std::vector<std::byte> bytes_;
};

double Slope(int64_t h, int64_t heads) {
  return std::exp2(-8.0 * static_cast<double>(h + 1) / static_cast<double>(heads));
}

const AlibiSettings* Alibi(const BiasDiagnosis& diagnosis) {
  return diagnosis.explanations.empty() ? nullptr
                                        : std::get_if<AlibiSettings>(&diagnosis.explanations[0].method.settings);
}
int64_t OffsetOf(const BiasDiagnosis& diagnosis) {
  return std::get<OffsetPositions>(diagnosis.explanations[0].geometry.query).offset;
}
void ExpectExact(const BiasDiagnosis& diagnosis) {
  ASSERT_FALSE(diagnosis.explanations.empty()) << diagnosis.sentence;
  EXPECT_EQ(diagnosis.explanations[0].comparison.share(), 1) << diagnosis.explanations[0].sentence;
}

TEST(DiagnoseBias, NamesAlibiAndItsForm) {
  const struct {
    AlibiForm form;
    Value value;
  } forms[] = {
      {AlibiForm::kSymmetric, [](int64_t h, int64_t i, int64_t j) { return -Slope(h, 8) * std::abs(i + 3 - j); }},
      {AlibiForm::kCausal, [](int64_t h, int64_t i, int64_t j) { return j > i + 3 ? 0 : -Slope(h, 8) * (i + 3 - j); }},
      {AlibiForm::kBloom, [](int64_t h, int64_t, int64_t j) { return Slope(h, 8) * j; }},
      {AlibiForm::kMpt, [](int64_t h, int64_t, int64_t j) { return Slope(h, 8) * (j - 39); }},
  };
  for (const auto& [form, value] : forms) {
    for (const DType dtype : {DType::kFP32, DType::kBF16, DType::kFP16}) {
      const BiasDiagnosis found = Made(dtype, {1, 8, 20, 40}, value).Diagnose();
      ExpectExact(found);
      ASSERT_NE(Alibi(found), nullptr);
      EXPECT_EQ(Alibi(found)->form, form) << found.explanations[0].sentence;
      EXPECT_TRUE(std::holds_alternative<AlibiSlopeRule>(Alibi(found)->slopes)) << found.explanations[0].sentence;
      if (!IsKeyOnly(form)) {
        EXPECT_EQ(OffsetOf(found), 3);
      }
    }
  }
}

TEST(DiagnoseBias, TellsSlopesOfTheRulesApart) {
  const auto with = [](const Value& slope) {
    return Made(DType::kFP32, {1, 12, 9, 9},
                [&](int64_t h, int64_t i, int64_t j) {
                  return -static_cast<float>(slope(h, 0, 0)) * static_cast<double>(std::abs(i - j));
                })
        .Diagnose();
  };
  const BiasDiagnosis paper = with([](int64_t h, int64_t, int64_t) { return Slope(h, 12); });
  ExpectExact(paper);
  EXPECT_EQ(std::get<AlibiSlopeRule>(Alibi(paper)->slopes), AlibiSlopeRule::kGeometric);
  // The released code's slopes: those of 8 heads, then every other one of 16.
  const BiasDiagnosis code =
      with([](int64_t h, int64_t, int64_t) { return h < 8 ? Slope(h, 8) : Slope(2 * (h - 8), 16); });
  ExpectExact(code);
  EXPECT_EQ(std::get<AlibiSlopeRule>(Alibi(code)->slopes), AlibiSlopeRule::kPowerOfTwo);
  const BiasDiagnosis own = with([](int64_t h, int64_t, int64_t) { return 0.3f + 0.125f * static_cast<float>(h); });
  ExpectExact(own);
  EXPECT_TRUE(std::holds_alternative<GivenSlopes>(Alibi(own)->slopes));
}

TEST(DiagnoseBias, SaysHowSlopesDepartFromTheRules) {
  const auto sentence = [](int64_t heads, const std::function<double(int64_t)>& slope) {
    const BiasDiagnosis found =
        Made(DType::kFP32, {1, heads, 12, 12}, [&](int64_t h, int64_t i, int64_t j) {
          return j > i ? -kInfinity : -static_cast<float>(slope(h)) * static_cast<double>(i - j);
        }).Diagnose();
    ExpectExact(found);
    return found.explanations.empty() ? "" : found.explanations[0].sentence;
  };
  const auto says = [](const char* text) { return testing::HasSubstr(text); };
  EXPECT_THAT(sentence(8, [](int64_t h) { return 2 * Slope(h, 8); }),
              says(": the released code's slopes, but slopes were multiplied by 2"));
  EXPECT_THAT(sentence(8, [](int64_t h) { return -Slope(h, 8); }), says("but slopes have the wrong sign"));
  EXPECT_THAT(sentence(8, [](int64_t h) { return Slope(7 - h, 8); }),
              says("but slopes of the heads are in reverse order"));
  EXPECT_THAT(sentence(4, [](int64_t h) { return Slope(h + 12, 16); }), says("heads 12 .. 15 of 16"));
  EXPECT_THAT(sentence(1, [](int64_t) { return Slope(2, 8); }), says(", as in head 2 of 8 of the released code's"));
}

// If values are rounded to few digits, all of them together give a slope better than any single one.
TEST(DiagnoseBias, SlopesOfNarrowTypesGiveTheSameBytes) {
  for (const DType dtype : {DType::kFP16, DType::kBF16}) {
    ExpectExact(Made(dtype, {1, 5, 100, 100}, [](int64_t h, int64_t i, int64_t j) {
                  return -(0.1F + 0.077F * static_cast<float>(h)) * static_cast<double>(std::abs(i - j));
                }).Diagnose());
    ExpectExact(Made(dtype, {1, 5, 2, 100}, [](int64_t h, int64_t, int64_t j) {
                  return (0.1F + 0.077F * static_cast<float>(h)) * static_cast<double>(j);
                }).Diagnose());
  }
}

TEST(DiagnoseBias, FindsTheFirstQueryOfASliceThatIsFarFromItsKeys) {
  const BiasDiagnosis found = Made(DType::kFP32, {1, 8, 4, 16}, [](int64_t h, int64_t i, int64_t j) {
                                return -Slope(h, 8) * static_cast<double>(i + 5000 - j);
                              }).Diagnose();
  ExpectExact(found);
  EXPECT_EQ(OffsetOf(found), 5000);
}

TEST(DiagnoseBias, ComparesFloat64AsFloat32) {
  std::vector<double> values;
  for (int64_t h = 0; h < 3; ++h) {
    for (int64_t i = 0; i < 5; ++i) {
      for (int64_t j = 0; j < 5; ++j) values.push_back(-Slope(h, 3) * static_cast<double>(std::abs(i - j)));
    }
  }
  BiasEvidence evidence{.bias = {DType::kFP64, {1, 3, 5, 5}},
                        .data = reinterpret_cast<const std::byte*>(values.data())};
  WorkPool pool(1);
  const auto found = DiagnoseBias(evidence, std::nullopt, 8, Limits(), pool, NeverCancelled);
  ASSERT_TRUE(found.ok()) << found.status();
  ExpectExact(*found);  // -0 on the diagonal counts as 0
  EXPECT_EQ(std::get<AlibiSlopeRule>(Alibi(*found)->slopes), AlibiSlopeRule::kGeometric);
}

TEST(DiagnoseBias, TellsAnAddedMaskFromABiasThatReachesAsFar) {
  const BiasStructure added =
      Made(DType::kBF16, {1, 4, 9, 9},
           [](int64_t h, int64_t i, int64_t j) { return (j > i ? -10000 : 0) - 100 * Slope(h, 4) * std::abs(i - j); })
          .Diagnose()
          .structure;
  EXPECT_EQ(added.mask.kind, MaskKind::kCausal);
  EXPECT_LT(added.mask.fill, added.mask.highest_fill);
  EXPECT_EQ(added.mask.cells, 4 * 36);
  const BiasStructure far =
      Made(DType::kFP32, {1, 8, 2, 4},
           [](int64_t h, int64_t i, int64_t j) { return -Slope(h, 8) * static_cast<double>(i + 30000 - j); })
          .Diagnose()
          .structure;
  EXPECT_EQ(far.mask.kind, MaskKind::kNone);
  EXPECT_EQ(far.follows, Follows::kDistance);
}

TEST(DiagnoseBias, SaysWhereTheFirstQueryStands) {
  Made made(DType::kFP32, {1, 4, 6, 16},
            [](int64_t h, int64_t i, int64_t j) { return j > i + 9 ? -kInfinity : -Slope(h, 4) * (i + 9 - j); });
  made.evidence.query_offset = 10;
  const BiasDiagnosis found = made.Diagnose();
  ExpectExact(found);
  EXPECT_EQ(OffsetOf(found), 9);
  EXPECT_NE(found.explanations[0].sentence.find("is at position 9, not 10"), std::string::npos);
  EXPECT_EQ(found.structure.mask.kind, MaskKind::kCausal);
  EXPECT_EQ(found.structure.mask.offset, 9);
}

// Buckets of arXiv:1910.10683 as in its released code, for distances that float64's logarithm decides.
int64_t Bucket(int64_t distance, int64_t buckets, int64_t farthest, bool bidirectional) {
  int64_t n = -distance, base = 0;
  if (bidirectional) {
    buckets /= 2;
    if (n < 0) base = buckets;
    n = std::abs(n);
  } else {
    n = std::max<int64_t>(n, 0);
  }
  const int64_t exact = buckets / 2;
  if (n < exact) return base + n;
  const double m = static_cast<double>(exact);
  const auto shared =
      static_cast<int64_t>(std::log(static_cast<double>(n) / m) / std::log(static_cast<double>(farthest) / m) *
                           static_cast<double>(buckets - exact));
  return base + std::min(buckets - 1, exact + shared);
}

TEST(DiagnoseBias, FindsT5sBucketsAndItsTable) {
  for (const bool bidirectional : {true, false}) {
    for (const auto& [buckets, farthest] : {std::pair<int64_t, int64_t>{32, 128}, {64, 256}}) {
      const auto value = [&, n = buckets, m = farthest](int64_t h, int64_t i, int64_t j) {
        const int64_t bucket = Bucket(j - i, n, m, bidirectional);
        return std::sin(static_cast<double>(7 * bucket + 3 * h + 1));
      };
      const BiasDiagnosis found = Made(DType::kFP32, {1, 3, 200, 200}, value).Diagnose();
      ExpectExact(found);
      const auto* t5 = std::get_if<T5Settings>(&found.explanations[0].method.settings);
      ASSERT_NE(t5, nullptr) << found.explanations[0].sentence;
      EXPECT_EQ(t5->num_buckets, buckets);
      EXPECT_EQ(t5->max_distance, farthest);
      EXPECT_EQ(t5->bidirectional, bidirectional);
      EXPECT_EQ(found.explanations[0].method.table->values[buckets + 1],
                static_cast<float>(std::sin(static_cast<double>(7 + 3 + 1))));
    }
  }
}

TEST(DiagnoseBias, ClassifiesMasks) {
  const auto mask = [](const std::function<bool(int64_t i, int64_t j)>& sees) {
    return Made(DType::kBF16, {2, 2, 12, 15},
                [&](int64_t, int64_t i, int64_t j) { return sees(i, j) ? 0 : std::numeric_limits<float>::lowest(); })
        .Diagnose()
        .structure;
  };
  const BiasStructure causal = mask([](int64_t i, int64_t j) { return j <= i + 3; });
  EXPECT_EQ(causal.mask.kind, MaskKind::kCausal);
  EXPECT_EQ(causal.mask.offset, 3);
  EXPECT_EQ(causal.follows, Follows::kNothing);
  const BiasStructure window = mask([](int64_t i, int64_t j) { return j <= i && j > i - 4; });
  EXPECT_EQ(window.mask.kind, MaskKind::kWindow);
  EXPECT_EQ(window.mask.window, 4);
  EXPECT_EQ(window.mask.offset, 0);
  const BiasStructure prefix = mask([](int64_t i, int64_t j) { return j <= i || j < 5; });
  EXPECT_EQ(prefix.mask.kind, MaskKind::kPrefix);
  EXPECT_EQ(prefix.mask.prefix, 5);
  const BiasStructure padded = mask([](int64_t i, int64_t j) { return j >= 2 && j <= i + 3; });
  EXPECT_EQ(padded.mask.kind, MaskKind::kCausal);
  EXPECT_EQ(padded.mask.padded_keys, 2 * 2);
  EXPECT_EQ(mask([](int64_t, int64_t j) { return j < 11; }).mask.kind, MaskKind::kKeys);
  EXPECT_EQ(mask([](int64_t i, int64_t j) { return i / 6 == j / 6; }).mask.kind, MaskKind::kOther);
  EXPECT_EQ(mask([](int64_t, int64_t) { return true; }).mask.kind, MaskKind::kNone);
}

TEST(DiagnoseBias, SaysWhatIsNoFunctionOfTheDistance) {
  const BiasDiagnosis found = Made(DType::kFP32, {1, 1, 4, 4}, [](int64_t, int64_t i, int64_t j) {
                                return i == 3 && j == 2 ? 5 : j - i;
                              }).Diagnose();
  EXPECT_EQ(found.structure.follows, Follows::kBoth);
  EXPECT_TRUE(found.explanations.empty());
  EXPECT_NE(found.sentence.find("[0, 0, 1, 0] and [0, 0, 3, 2]"), std::string::npos) << found.sentence;
}

TEST(DiagnoseBias, ComparesWithWhatWasAsked) {
  const Made made(DType::kFP32, {1, 8, 16, 16},
                  [](int64_t h, int64_t i, int64_t j) { return -Slope(h, 8) * static_cast<double>(std::abs(i - j)); });
  const BiasMethod asked{
      AlibiSettings{.num_heads = 8, .slopes = AlibiSlopeRule::kPowerOfTwo, .form = AlibiForm::kBloom}};
  const BiasDiagnosis found = made.Diagnose(AskedBias{.method = asked});
  ExpectExact(found);
  EXPECT_EQ(Alibi(found)->form, AlibiForm::kSymmetric);
  const BiasExplanation& last = found.explanations.back();
  EXPECT_EQ(last.sentence, "the settings' bias");
  EXPECT_TRUE(last.asked);
  EXPECT_LT(last.comparison.share(), 0.2);
  EXPECT_TRUE(last.first.has_value());
}

TEST(DiagnoseBias, RefusesWhatSaysNothing) {
  WorkPool pool(1);
  const auto field = [&](const Made& made) {
    const absl::Status status = DiagnoseBias(made.evidence, std::nullopt, 8, Limits(), pool, NeverCancelled).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return DetailsOf(status).field;
  };
  const Made nan(DType::kFP32, {1, 1, 2, 2}, [](int64_t, int64_t i, int64_t j) { return i + j > 1 ? NAN : 0; });
  EXPECT_EQ(field(nan), "bias[0, 0, 1, 1]");
  EXPECT_EQ(field(Made(DType::kFP32, {1, 1, 0, 2}, [](int64_t, int64_t, int64_t) { return 0; })), "bias.shape");
}

}  // namespace
}  // namespace posenc::diagnose::diagnose_bias_test
