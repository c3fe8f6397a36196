// Masks of biases: those that are expected are compared, and the first line says if none was; constants that softmax
// removes; which cells differ.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "posenc/diagnose/bias_candidates.h"
#include "tests/diagnose/diagnose_bias_port.h"

namespace posenc::diagnose::diagnose_bias_mask_test {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

AskedBias Asked(AlibiForm form = AlibiForm::kSymmetric, int64_t heads = 8) {
  return {.method = {AlibiSettings{.num_heads = heads, .slopes = AlibiSlopeRule::kPowerOfTwo, .form = form}}};
}

// ALiBi with the expected slopes, whose cells `change` may change.
Verdict Judge(const AskedBias& asked, BiasPort port,
              const std::function<double(int64_t h, int64_t i, int64_t j, double value)>& change,
              BiasForm form = BiasForm::kSymmetric, std::optional<int64_t> query_offset = std::nullopt) {
  port.heads = std::get<AlibiSettings>(asked.method.settings).num_heads;
  const BiasTreatment treatment{.slopes = ReleasedSlopes(port.heads), .form = form, .after = change};
  const MadeBias made(port, [&](int64_t, int64_t, int64_t) -> const BiasTreatment& { return treatment; });
  BiasEvidence evidence = made.evidence;
  evidence.query_offset = query_offset;
  WorkPool pool(1);
  const auto found = DiagnoseBias(evidence, asked, 4, {}, pool, NeverCancelled);
  EXPECT_TRUE(found.ok()) << found.status();
  return found.ok() ? found->verdict : Verdict();
}

std::function<double(int64_t, int64_t, int64_t, double)> Showing(
    const std::function<bool(int64_t i, int64_t j)>& shows) {
  return [shows](int64_t, int64_t i, int64_t j, double value) { return shows(i, j) ? value : -kInfinity; };
}

TEST(DiagnoseBiasMask, SaysThatAMaskWasNotGiven) {
  const auto window = Showing([](int64_t i, int64_t j) { return j <= i && j > i - 5; });
  const Verdict matches = Judge(Asked(), {}, window);
  EXPECT_EQ(matches.kind, VerdictKind::kMatches);
  EXPECT_THAT(matches.sentence, EndsWith("; the mask was not checked (a window: query i sees 5 keys up to i+0)"));
  EXPECT_THAT(Judge(Asked(), {}, nullptr).sentence, EndsWith("bit for bit; the mask was not checked"));
  const Verdict differs =
      Judge(Asked(), {}, [&](int64_t h, int64_t i, int64_t j, double v) { return window(h, i, j, -v); });
  EXPECT_EQ(differs.kind, VerdictKind::kDiffers);
  EXPECT_THAT(differs.sentence, HasSubstr("; the mask was not checked (a window"));
}

TEST(DiagnoseBiasMask, ComparesAStatedMask) {
  AskedBias asked = Asked();
  asked.mask = {.causal = true, .window_left = 4};
  const auto judge = [&](const std::function<bool(int64_t i, int64_t j)>& shows) {
    return Judge(asked, {}, Showing(shows)).sentence;
  };
  EXPECT_THAT(judge([](int64_t i, int64_t j) { return j <= i && j > i - 5; }), EndsWith("; the mask is as expected"));
  EXPECT_EQ(judge([](int64_t i, int64_t j) { return j <= i && j > i - 6; }),
            "the mask lets a query see 6 keys, not 5, in distance -5; the rest matches");
  EXPECT_EQ(judge([](int64_t i, int64_t j) { return j <= i + 1 && j > i - 5; }),
            "the mask lets query i see keys up to i+1, not i+0, in distance 1; the rest matches");
  EXPECT_EQ(judge([](int64_t i, int64_t j) { return j <= i && j > i - 5 && (i != 7 || j != 6); }),
            "the mask hides 16 cells that it should show, in query 7, key 6; the rest matches");
}

// What the mask hides is not compared: another system may leave anything there.
TEST(DiagnoseBiasMask, HiddenValuesAreNotCompared) {
  AskedBias asked = Asked(AlibiForm::kCausal);
  EXPECT_EQ(Judge(asked, {}, nullptr).kind, VerdictKind::kDiffers);  // symmetric
  asked.mask = {.causal = true};
  const Verdict verdict = Judge(asked, {}, nullptr);
  ASSERT_EQ(verdict.faults.size(), 1u);
  EXPECT_EQ(verdict.faults[0].departures[0].code, "MASK");
  EXPECT_EQ(verdict.sentence, "no cell is masked, but 4416 should be, in distances 1-23; the rest matches");
}

TEST(DiagnoseBiasMask, AModelThatAttendsToEarlierKeysHidesAllLaterOnes) {
  AskedBias asked = Asked(AlibiForm::kBloom);
  asked.of_model = true;
  const auto judge = [&](const std::function<bool(int64_t i, int64_t j)>& shows) {
    return Judge(asked, {.batch = 1, .queries = 40, .keys = 40}, Showing(shows), BiasForm::kBloom, 0);
  };
  EXPECT_THAT(judge([](int64_t i, int64_t j) { return j <= i; }).sentence, EndsWith("; the mask is as expected"));
  const Verdict next = judge([](int64_t i, int64_t j) { return j <= i + 1; });
  EXPECT_EQ(next.kind, VerdictKind::kDiffers);
  EXPECT_EQ(next.sentence, "the mask lets query i see keys up to i+1, not i+0, in distance 1; the rest matches");
  ASSERT_EQ(next.faults[0].parts.size(), 1u);
  EXPECT_THAT(next.faults[0].parts[0].tokens, ElementsAre(IndexRange{0, 38}));
  EXPECT_THAT(next.faults[0].parts[0].keys, ElementsAre(IndexRange{1, 39}));
  // Padding, and rows of padding that see everything, are no faults.
  EXPECT_EQ(judge([](int64_t i, int64_t j) { return j >= 4 && j <= i; }).kind, VerdictKind::kMatches);
  EXPECT_EQ(judge([](int64_t i, int64_t j) { return i < 4 || (j >= 4 && j <= i); }).kind, VerdictKind::kMatches);
  // The mask may be elsewhere.
  EXPECT_THAT(judge([](int64_t, int64_t) { return true; }).sentence, EndsWith("; the mask was not checked"));
  EXPECT_THAT(judge([](int64_t, int64_t j) { return j >= 4; }).sentence, HasSubstr("; the mask was not checked"));
}

TEST(DiagnoseBiasMask, AConstantInEachRowIsAcceptedIfAsked) {
  AskedBias asked = Asked(AlibiForm::kBloom);
  const auto shift = [](int64_t h, int64_t i, int64_t j, double v) {
    return j > i ? -kInfinity : v + 0.25 * static_cast<double>(h) - 0.5 * static_cast<double>(i * i % 7);
  };
  for (const DType dtype : {DType::kFP32, DType::kFP16, DType::kBF16}) {
    asked.up_to_softmax = false;
    const Verdict verdict = Judge(asked, {.dtype = dtype}, shift, BiasForm::kBloom);
    EXPECT_EQ(verdict.kind, VerdictKind::kDiffers);
    EXPECT_THAT(verdict.sentence, StartsWith("a constant was added to each row"));
    EXPECT_THAT(verdict.sentence, HasSubstr("; softmax removes the difference, a constant in each row: "
                                            "--up-to-softmax accepts it"));
    asked.up_to_softmax = true;
    EXPECT_THAT(Judge(asked, {.dtype = dtype}, shift, BiasForm::kBloom).sentence,
                HasSubstr(" up to a constant in each row, which softmax removes"));
    const auto more = [&](int64_t h, int64_t i, int64_t j, double v) {
      return shift(h, i, j, v) + (i == 20 && j == 3 ? 1 : 0);
    };
    const Verdict other = Judge(asked, {.dtype = dtype}, more, BiasForm::kBloom);
    EXPECT_EQ(other.kind, VerdictKind::kDiffers);
    EXPECT_THAT(other.sentence, HasSubstr("query 20"));
    EXPECT_THAT(other.sentence, testing::Not(HasSubstr("softmax")));
  }
  // A constant so large that nothing of the slopes is left is another bias.
  const auto far = [](int64_t, int64_t, int64_t, double v) { return v + 3000; };
  const Verdict lost = Judge(asked, {.dtype = DType::kBF16}, far, BiasForm::kBloom);
  EXPECT_EQ(lost.kind, VerdictKind::kDiffers);
  EXPECT_THAT(lost.sentence, testing::Not(HasSubstr(" cells of ")));
}

TEST(DiagnoseBiasMask, FormsThatDifferByAConstantSaySo) {
  AskedBias asked = Asked(AlibiForm::kBloom);
  EXPECT_THAT(Judge(asked, {.causal = true}, nullptr).sentence, HasSubstr("; softmax removes the difference"));
  EXPECT_THAT(Judge(asked, {}, nullptr).sentence, testing::Not(HasSubstr("softmax")));
  asked.up_to_softmax = true;
  EXPECT_EQ(Judge(asked, {.causal = true}, nullptr).kind, VerdictKind::kMatches);
  EXPECT_EQ(Judge(asked, {}, nullptr).kind, VerdictKind::kDiffers);
}

TEST(DiagnoseBiasMask, SaysWhichCellsDiffer) {
  const auto judge = [](const std::function<bool(int64_t h, int64_t i, int64_t j)>& differs) {
    return Judge(Asked(), {.batch = 1}, [&](int64_t h, int64_t i, int64_t j, double v) {
      return v - (differs(h, i, j) ? 0.01 * static_cast<double>((i * 24 + j) % 97 + 1) : 0);
    });
  };
  const auto part = [](const Verdict& verdict) {
    const size_t in = verdict.sentence.find(", in ");
    return in == std::string::npos ? verdict.sentence : verdict.sentence.substr(in);
  };
  constexpr char kRest[] = "; the rest matches; the mask was not checked";
  EXPECT_EQ(part(judge([](int64_t, int64_t i, int64_t j) { return i == 13 && j == 5; })),
            std::string(", in query 13, key 5") + kRest);
  EXPECT_EQ(part(judge([](int64_t, int64_t i, int64_t) { return i % 4 == 3; })),
            std::string(", in queries 3, 7, ..., 23") + kRest);
  EXPECT_EQ(part(judge([](int64_t h, int64_t, int64_t j) { return h % 2 == 1 && j < 5; })),
            std::string(", in heads 1, 3, ..., 7, keys 0-4") + kRest);
  EXPECT_EQ(part(judge([](int64_t, int64_t i, int64_t j) { return j - i == 7 || j - i == -2; })),
            std::string(", in distances -2 and 7") + kRest);
  const Verdict some = judge([](int64_t, int64_t i, int64_t j) { return i < 2 && j < 2 && i + j < 2; });
  EXPECT_EQ(part(some), std::string(", in 24 cells of queries 0-1, keys 0-1, distances -1 to 1") + kRest);
  EXPECT_EQ(some.faults[0].parts[0].cells, 24);
}

TEST(DiagnoseBiasMask, ATableThatWasNotGivenIsSaid) {
  const BiasPort port{.batch = 1, .heads = 1, .queries = 200, .keys = 200};
  const AskedBias asked{.method = {T5Settings{32, 128, true}, {}}};
  const auto judge = [&](const std::function<double(double)>& value) {
    BiasTreatment treatment{.table = {std::vector<double>(32)}};
    for (size_t n = 0; n < 32; ++n) treatment.table[0][n] = value(static_cast<double>(n));
    const MadeBias made(port, [&](int64_t, int64_t, int64_t) -> const BiasTreatment& { return treatment; });
    WorkPool pool(1);
    const auto found = DiagnoseBias(made.evidence, asked, 4, {}, pool, NeverCancelled);
    EXPECT_TRUE(found.ok()) << found.status();
    return found.ok() ? found->verdict : Verdict();
  };
  const Verdict matches = judge([](double n) { return std::sin(n + 1); });
  EXPECT_EQ(matches.kind, VerdictKind::kMatches);
  EXPECT_THAT(matches.sentence, HasSubstr("; the table was not checked"));
  EXPECT_EQ(judge([](double) { return 0.0; }).kind, VerdictKind::kUnknown);
  EXPECT_EQ(judge([](double) { return 0.5; }).kind, VerdictKind::kUnknown);
}

}  // namespace
}  // namespace posenc::diagnose::diagnose_bias_mask_test
