// Faults of frameworks' tables, made by plain loops that share no code with the service; and inconclusive data.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <tuple>
#include <utility>

#include "tests/diagnose/diagnose_case.h"
#include "tests/service/call.h"

namespace posenc::diagnose::diagnose_faults_test {
namespace {

constexpr int64_t kLength = 128, kHeads = 2, kWidth = 64;

float BF16(double value) { return Widen<BFloat16>(Narrow<BFloat16>(value)); }
float FP16(double value) { return Widen<Float16>(Narrow<Float16>(value)); }
float InvFreq(int64_t pair) {
  const float power = static_cast<float>(std::pow(10000.0, static_cast<float>(2 * pair) / 64.0f));
  return 1.0f / power;
}

struct Entry {
  float cos, sin;
};
Entry EntryAt(float angle) {
  return {static_cast<float>(std::cos(static_cast<double>(angle))),
          static_cast<float>(std::sin(static_cast<double>(angle)))};
}

// What a pair (a, b) becomes.
using Turn = std::function<std::pair<float, float>(float a, float b, Entry entry)>;
std::pair<float, float> Rotate(float a, float b, Entry entry) {
  return {a * entry.cos - b * entry.sin, b * entry.cos + a * entry.sin};
}

// Half-split FP32 data [1, kLength, kHeads, kWidth] from position `first` on.
Made ByLoops(double first, const std::function<Entry(double position, int64_t pair)>& table,
             const Turn& turn = Rotate) {
  Made made;
  made.x = RandomElements(DType::kFP32, kLength * kHeads * kWidth, 3);
  made.y.resize(made.x.size());
  const auto* x = reinterpret_cast<const float*>(made.x.data());
  auto* y = reinterpret_cast<float*>(made.y.data());
  for (int64_t row = 0; row < kLength * kHeads; ++row, x += kWidth, y += kWidth) {
    const int64_t token = row / kHeads;
    for (int64_t k = 0; k < kWidth / 2; ++k) {
      const Entry entry = table(first + static_cast<double>(token), k);
      std::tie(y[k], y[k + kWidth / 2]) = turn(x[k], x[k + kWidth / 2], entry);
    }
  }
  Rows rows{.layout = Layout::kBSHD, .length = kLength, .heads = kHeads, .width = kWidth};
  rows.before = std::make_shared<OwnedBytes>(made.x);
  rows.after = std::make_shared<OwnedBytes>(made.y);
  made.evidence = {{rows}, Stretch(first, kLength)};
  return made;
}

RotarySettings Plain() { return Rope({.rope_type = "default"}, kWidth, Pairing::kHalfSplit); }

absl::StatusOr<Diagnosis> Ask(const Made& made, const Asked& asked) {
  WorkPool pool(1);
  return Diagnose(made.evidence, asked, 6, {}, pool, NeverCancelled);
}

void ExpectFirst(const Made& made, const Asked& asked, const std::string& sentence, double share = 0.99) {
  const auto diagnosis = Ask(made, asked);
  ASSERT_THAT(diagnosis, IsOk());
  ASSERT_FALSE(diagnosis->explanations.empty());
  EXPECT_EQ(diagnosis->explanations[0].sentence, sentence);
  EXPECT_GE(diagnosis->explanations[0].proof.comparison.share(), share);
}

// Another system's way to compute frequencies matches, is told, and matches no more if exact phases are asked for.
void ExpectRecipe(const Made& made, const std::string& recipe) {
  Asked asked = AskFor(Plain());
  const auto diagnosis = Ask(made, asked);
  ASSERT_THAT(diagnosis, IsOk());
  EXPECT_EQ(diagnosis->verdict.kind, VerdictKind::kMatches);
  EXPECT_THAT(diagnosis->verdict.sentence, testing::StartsWith("by another recipe: " + recipe));
  asked.precision = kExactPrecision;
  const auto exact = Ask(made, asked);
  ASSERT_THAT(exact, IsOk());
  EXPECT_NE(exact->verdict.kind, VerdictKind::kMatches);
}

bool Says(const Diagnosis& diagnosis, const std::string& code) {
  for (const Undecided& undecided : diagnosis.undecided) {
    if (undecided.code == code) return !undecided.message.empty() && !undecided.remedy.empty();
  }
  return false;
}

TEST(DiagnoseFaults, TablesRoundedBelowTheTensor) {
  const auto rounded = [](auto round) {
    return [round](double p, int64_t k) {
      const Entry entry = EntryAt(static_cast<float>(p) * InvFreq(k));
      return Entry{round(entry.cos), round(entry.sin)};
    };
  };
  ExpectFirst(ByLoops(500, rounded(BF16)), AskFor(Plain()), "tables were rounded to bfloat16");
  ExpectFirst(ByLoops(500, rounded(FP16)), AskFor(Plain()), "tables were rounded to float16");
}

TEST(DiagnoseFaults, FrequenciesRounded) {
  const Made made = ByLoops(500, [](double p, int64_t k) { return EntryAt(static_cast<float>(p) * BF16(InvFreq(k))); });
  ExpectFirst(made, AskFor(Plain()), "frequencies were rounded to bfloat16");
}

TEST(DiagnoseFaults, AnglesInBfloat16) {
  const Made made = ByLoops(20, [](double p, int64_t k) { return EntryAt(BF16(BF16(p) * BF16(InvFreq(k)))); });
  ExpectFirst(made, AskFor(Plain()), "angles were computed in bfloat16");
}

TEST(DiagnoseFaults, PositionsInBfloat16) {
  const Made made = ByLoops(3000, [](double p, int64_t k) { return EntryAt(BF16(p) * InvFreq(k)); });
  ExpectFirst(made, AskFor(Plain()), "positions were rounded to bfloat16, which shows from position 257 on");
}

TEST(DiagnoseFaults, ARecurrence) {
  const Made made = ByLoops(30000, [](double p, int64_t k) {
    const auto scale = static_cast<float>(std::pow(10000.0, -2.0 / 64));
    auto angle = static_cast<float>(p);
    for (int64_t n = 0; n < k; ++n) angle *= scale;
    return EntryAt(angle);
  });
  const std::string recipe = "angles were computed by a float32 recurrence over pairs: the error grows with position";
  ExpectFirst(made, AskFor(Plain()), recipe, 0.9);
  ExpectRecipe(made, recipe);
}

TEST(DiagnoseFaults, OtherProductsOfAPair) {
  const struct {
    Turn turn;
    const char* words;
  } cases[] = {
      {[](float a, float b, Entry e) { return std::pair(a * e.cos + b * e.sin, b * e.cos + a * e.sin); },
       "the first elements of the pairs (a, b) are a cos + b sin, not a cos - b sin, in tokens from 1 on; the rest "
       "matches"},
      {[](float a, float b, Entry e) { return std::pair(a * e.cos - b * e.sin, b * e.cos - a * e.sin); },
       "the second elements of the pairs (a, b) are -a sin + b cos, not a sin + b cos, in tokens from 1 on; the rest "
       "matches"},
      {[](float a, float b, Entry e) { return std::pair(a * e.cos - b * e.sin, a * e.cos - b * e.sin); },
       "the second elements of the pairs (a, b) are a cos - b sin, not a sin + b cos"},
      {[](float a, float b, Entry e) { return std::pair(a * e.cos - a * e.sin, b * e.cos + a * e.sin); },
       "the first elements of the pairs (a, b) are a cos - a sin, not a cos - b sin, in tokens from 1 on"},
      {[](float a, float b, Entry e) { return std::pair(1.5f * a * e.cos - b * e.sin, b * e.cos + a * e.sin); },
       "norms of pairs are not kept: "}};
  for (const auto& one : cases) {
    const auto diagnosis =
        Ask(ByLoops(
                0, [](double p, int64_t k) { return EntryAt(static_cast<float>(p) * InvFreq(k)); }, one.turn),
            AskFor(Plain()));
    ASSERT_THAT(diagnosis, IsOk());
    EXPECT_THAT(diagnosis->verdict.sentence, testing::StartsWith(one.words));
  }
}

TEST(DiagnoseFaults, ExponentsInFloat32) {
  const auto natural = static_cast<float>(-std::log(10000.0) / 64);
  const auto binary = static_cast<float>(-std::log2(10000.0) / 64);
  ExpectRecipe(ByLoops(40000,
                       [&](double p, int64_t k) {
                         return EntryAt(static_cast<float>(p) * std::exp(static_cast<float>(2 * k) * natural));
                       }),
               "frequencies are exp(-2i log(theta) / d) of exponents rounded to float32");
  ExpectRecipe(ByLoops(40000,
                       [&](double p, int64_t k) {
                         return EntryAt(static_cast<float>(p) * std::exp2(static_cast<float>(2 * k) * binary));
                       }),
               "frequencies are exp2(-2i log2(theta) / d) of exponents rounded to float32");
}

TEST(DiagnoseFaults, PositionsAddedUpInFloat32) {
  const Made made = ByLoops(0, [](double p, int64_t k) {
    float angle = 0;
    for (int64_t n = 0; n < static_cast<int64_t>(p); ++n) angle += InvFreq(k);
    return EntryAt(angle);
  });
  const auto diagnosis = Ask(made, AskFor(Plain()));
  ASSERT_THAT(diagnosis, IsOk());
  EXPECT_EQ(
      diagnosis->verdict.sentence,
      "these pairs turn by other angles: pair 2 of token 127 by 2.30221 radians, not 2.30231, in tokens from 29 on, "
      "pairs 1-21; the rest matches");
}

TEST(DiagnoseFaults, Float32PhasesWhereExactOnesWereAskedFor) {
  const Made made = ByLoops(30000, [](double p, int64_t k) { return EntryAt(static_cast<float>(p) * InvFreq(k)); });
  Asked asked = AskFor(Plain());
  ExpectFirst(made, asked, "the model's encoding was applied");
  asked.precision = kExactPrecision;
  ExpectFirst(made, asked, "phases are float32: the error grows with position");
}

// The inverse divides by the attention factor.
TEST(DiagnoseFaults, TheInverseOfAScalingAtWrongPositions) {
  const RotarySettings yarn =
      Rope({.rope_type = "yarn", .factor = 4, .original_max_position_embeddings = 4096}, 64, Pairing::kHalfSplit);
  const Tokens said = Stretch(5, 64), at = Stretch(6, 64);
  const Made made = Make(yarn, kExactPrecision, DType::kFP32, at, said, 2, 64, Direction::kInverse);
  Asked asked = AskFor(yarn);
  asked.direction = Direction::kInverse;
  WorkPool pool(1);
  const auto diagnosis = Diagnose(made.evidence, asked, 3, {}, pool, NeverCancelled);
  ASSERT_TRUE(diagnosis.ok()) << diagnosis.status();
  EXPECT_EQ(diagnosis->explanations.at(0).sentence, "positions start at 6, not 5");
  EXPECT_EQ(diagnosis->explanations.at(0).proof.comparison.share(), 1);
}

TEST(DiagnoseFaults, WithoutSettingsItSaysWhatWasApplied) {
  const Made made = Make(Rope({.rope_type = "linear", .rope_theta = 5e5, .factor = 4}, kWidth, Pairing::kInterleaved),
                         kExactPrecision, DType::kFP32, Stretch(0, kLength), Stretch(0, kLength), kHeads, kWidth);
  ExpectFirst(made, Asked{}, "linear frequencies of rope_theta 500000, factor 4, interleaved, 64 dimensions", 1);
}

TEST(DiagnoseFaults, UnknownFrequenciesAreMeasured) {
  RotarySettings odd;
  GivenFrequencies given;
  for (int k = 0; k < kWidth / 2; ++k) given.inv_freq.push_back(0.9 / (1 + 0.37 * k * k));
  odd.frequencies = given;
  odd.input_pairing = Pairing::kHalfSplit;
  const Made made =
      Make(Completed(odd), kExactPrecision, DType::kFP32, Stretch(0, kLength), Stretch(0, kLength), kHeads, kWidth);
  const auto diagnosis = Ask(made, AskFor(Plain()));
  ASSERT_THAT(diagnosis, IsOk());
  ASSERT_FALSE(diagnosis->explanations.empty());
  const Explanation& best = diagnosis->explanations[0];
  EXPECT_EQ(best.sentence, "the frequencies match no known scaling: they are given as measured");
  EXPECT_LE(best.proof.comparison.median(), 16);
  const auto& measured = std::get<GivenFrequencies>(best.candidate.settings.frequencies).inv_freq;
  for (int k = 0; k < kWidth / 2; ++k) EXPECT_NEAR(measured[k], given.inv_freq[k], 1e-8) << k;
}

TEST(DiagnoseFaults, OtherTypesOnEitherSide) {
  Made made = Make(Plain(), kF32Precision, DType::kFP32, Stretch(0, kLength), Stretch(0, kLength), kHeads, kWidth);
  std::vector<std::byte> narrow(made.y.size() / 2);
  Convert(DType::kFP32, DType::kBF16, made.y.data(), narrow.data(), narrow.size() / 2);
  made.evidence.operands[0].after_dtype = DType::kBF16;
  made.evidence.operands[0].after = std::make_shared<OwnedBytes>(narrow);
  const auto diagnosis = Ask(made, AskFor(Plain()));
  ASSERT_THAT(diagnosis, IsOk());
  EXPECT_EQ(diagnosis->explanations[0].sentence, "the model's encoding was applied");
  EXPECT_EQ(diagnosis->explanations[0].proof.comparison.share(), 1);
  EXPECT_EQ(diagnosis->explanations[0].variant.compute, std::vector{DType::kFP32});
}

TEST(DiagnoseFaults, EachOperandOfATypeOfItsOwn) {
  const auto make = [](DType dtype, uint64_t seed) {
    return Make(Plain(), kHfEagerPrecision, dtype, Stretch(0, kLength), Stretch(0, kLength), kHeads, kWidth,
                Direction::kForward, 0, seed);
  };
  Made made = make(DType::kBF16, 1);
  made.evidence.operands.push_back(make(DType::kFP32, 2).evidence.operands[0]);
  made.evidence.operands[1].which = Operand::kKey;
  Asked asked = AskFor(Plain());
  asked.offsets = {0, 0};
  const auto diagnosis = Ask(made, asked);
  ASSERT_THAT(diagnosis, IsOk());
  EXPECT_EQ(diagnosis->explanations[0].sentence, "the model's encoding was applied");
  EXPECT_EQ(diagnosis->explanations[0].proof.comparison.share(), 1);
}

TEST(DiagnoseHonesty, NothingChangedAtPositionZero) {
  Tokens zero = Stretch(0, 1);
  const Made made = Make(Plain(), kExactPrecision, DType::kFP32, zero, zero, kHeads, kWidth);
  const auto diagnosis = Ask(made, AskFor(Plain()));
  ASSERT_THAT(diagnosis, IsOk());
  EXPECT_TRUE(Says(*diagnosis, "NOTHING_CHANGED"));
  EXPECT_TRUE(Says(*diagnosis, "TOO_FEW_POSITIONS"));
  ASSERT_FALSE(diagnosis->explanations.empty());  // the data at position 0 are as asked
  EXPECT_EQ(diagnosis->explanations[0].proof.comparison.share(), 1);
}

TEST(DiagnoseHonesty, NoRotationAtAll) {
  Made made = Make(Plain(), kExactPrecision, DType::kFP32, Stretch(0, kLength), Stretch(0, kLength), kHeads, kWidth);
  made.evidence.operands[0].after =
      std::make_shared<OwnedBytes>(RandomElements(DType::kFP32, kLength * kHeads * kWidth, 77));
  const auto diagnosis = Ask(made, AskFor(Plain()));
  ASSERT_THAT(diagnosis, IsOk());
  EXPECT_TRUE(Says(*diagnosis, "NOT_A_ROTATION"));
  ASSERT_EQ(diagnosis->explanations.size(), 1);  // no fault is reported
  EXPECT_EQ(diagnosis->explanations[0].sentence, "the model's encoding does not explain the data");
  EXPECT_LT(diagnosis->explanations[0].proof.comparison.share(), 0.01);
}

TEST(DiagnoseHonesty, RowsInAnotherOrder) {
  Tokens shuffled = Stretch(0, kLength);
  std::shuffle(shuffled.positions[0].begin(), shuffled.positions[0].end(), std::mt19937_64(1));
  const Made made = Make(Plain(), kExactPrecision, DType::kFP32, shuffled, Stretch(0, kLength), kHeads, kWidth);
  const auto diagnosis = Ask(made, AskFor(Plain()));
  ASSERT_THAT(diagnosis, IsOk());
  ASSERT_EQ(diagnosis->verdict.faults.size(), 1u) << diagnosis->verdict.sentence;
  const Fault& fault = diagnosis->verdict.faults[0];
  ASSERT_EQ(fault.positions.size(), 1u);
  const MeasuredPositions& found = fault.positions[0];
  for (size_t n = 0; n < found.tokens.size(); ++n) {
    EXPECT_EQ(found.measured[n], shuffled.positions[0][found.tokens[n]]);
    EXPECT_EQ(found.stated[n], static_cast<double>(found.tokens[n]));
    EXPECT_EQ(found.uncertainty[n], 0);
  }
  size_t moved = 0;
  for (int64_t n = 0; n < kLength; ++n) moved += shuffled.positions[0][n] != static_cast<double>(n);
  EXPECT_EQ(found.tokens.size(), moved);
}

// Each head has its own random positions.
TEST(DiagnoseHonesty, HeadsThatDiffer) {
  Tokens tokens;
  std::mt19937_64 random(2);
  const Tokens said = Stretch(0, kLength);
  tokens.bounds = {0, kLength * kHeads};
  tokens.positions.resize(1);
  for (int64_t n = 0; n < kLength * kHeads; ++n) tokens.positions[0].push_back(static_cast<double>(random() % 100000));
  Made made = Make(Plain(), kExactPrecision, DType::kFP32, tokens, tokens, 1, kWidth);
  made.evidence.operands[0].length = kLength;
  made.evidence.operands[0].heads = kHeads;
  made.evidence.tokens = said;
  const auto diagnosis = Ask(made, AskFor(Plain()));
  ASSERT_THAT(diagnosis, IsOk());
  EXPECT_TRUE(Says(*diagnosis, "HEADS_DIFFER"));
  ASSERT_EQ(diagnosis->verdict.faults.size(), static_cast<size_t>(kHeads)) << diagnosis->verdict.sentence;
  for (const Fault& fault : diagnosis->verdict.faults) {
    const MeasuredPositions& found = fault.positions.at(0);
    const int64_t head = fault.parts.at(0).heads.at(0).first;
    for (size_t n = 0; n < found.tokens.size(); ++n) {
      EXPECT_EQ(found.measured[n], tokens.positions[0][found.tokens[n] * kHeads + head]);
    }
  }
}

TEST(DiagnoseHonesty, NothingWasRotated) {
  Made made = Make(Plain(), kExactPrecision, DType::kFP32, Stretch(5, kLength), Stretch(5, kLength), kHeads, kWidth);
  made.evidence.operands[0].after = made.evidence.operands[0].before;
  const auto diagnosis = Ask(made, AskFor(Plain()));
  ASSERT_THAT(diagnosis, IsOk());
  EXPECT_TRUE(Says(*diagnosis, "NOTHING_CHANGED"));
  EXPECT_EQ(diagnosis->verdict.kind, VerdictKind::kDiffers);
  EXPECT_EQ(diagnosis->verdict.sentence, "the rows were not rotated (or are at position 0)");
}

TEST(DiagnoseHonesty, SettingsThatGiveTheSameBytes) {
  RopeParameters yarn{.rope_type = "yarn", .factor = 1, .original_max_position_embeddings = 4096};
  const Made made =
      Make(Plain(), kExactPrecision, DType::kBF16, Stretch(0, kLength), Stretch(0, kLength), kHeads, kWidth);
  ExpectFirst(made, AskFor(Rope(yarn, kWidth, Pairing::kHalfSplit)), "the model's encoding was applied", 1);
  // This yarn factor changes only slow pairs, which bfloat16 at positions 0 .. 3 does not show.
  yarn.factor = 1.0001;
  const Made other = Make(Rope(yarn, kWidth, Pairing::kHalfSplit), kExactPrecision, DType::kBF16, Stretch(0, 4),
                          Stretch(0, 4), kHeads, kWidth);
  const auto diagnosis = Ask(other, AskFor(Rope(yarn, kWidth, Pairing::kHalfSplit)));
  ASSERT_THAT(diagnosis, IsOk());
  EXPECT_EQ(diagnosis->explanations[0].sentence, "the model's encoding was applied");
  EXPECT_TRUE(Says(*diagnosis, "ALIASES"));
  ASSERT_GT(diagnosis->explanations.size(), 1);
  EXPECT_EQ(diagnosis->explanations[1].same_as, 0);
}

TEST(DiagnoseHonesty, ZerosAndNans) {
  Made made = Make(Plain(), kExactPrecision, DType::kFP32, Stretch(0, kLength), Stretch(0, kLength), kHeads, kWidth);
  const auto set = [&](std::vector<std::byte> x, std::vector<std::byte> y) {
    made.evidence.operands[0].before = std::make_shared<OwnedBytes>(std::move(x));
    made.evidence.operands[0].after = std::make_shared<OwnedBytes>(std::move(y));
  };
  const std::vector<std::byte> zeros(made.x.size()), ones(made.x.size(), std::byte{0xff});
  set(zeros, zeros);
  EXPECT_THAT(Ask(made, AskFor(Plain())), IsInvalid("OUT_OF_RANGE", "q.before"));
  set(ones, ones);
  EXPECT_THAT(Ask(made, AskFor(Plain())), IsInvalid("OUT_OF_RANGE", "q.before"));
  std::vector<std::byte> x = made.x;
  for (size_t n = 0; n < 4 * kWidth; ++n) x[n] = std::byte{0xff};  // one row
  set(x, made.y);
  const auto diagnosis = Ask(made, AskFor(Plain()));
  ASSERT_THAT(diagnosis, IsOk());
  EXPECT_TRUE(Says(*diagnosis, "NOT_FINITE"));
  EXPECT_EQ(diagnosis->explanations[0].sentence, "the model's encoding was applied");
}

TEST(DiagnoseHonesty, OnePositionFarFromZero) {
  const Made made = Make(Plain(), kExactPrecision, DType::kFP32, Stretch(777, 1), Stretch(777, 1), kHeads, kWidth);
  const auto diagnosis = Ask(made, AskFor(Plain()));
  ASSERT_THAT(diagnosis, IsOk());
  EXPECT_TRUE(Says(*diagnosis, "TOO_FEW_POSITIONS"));
  EXPECT_EQ(diagnosis->explanations[0].sentence, "the model's encoding was applied");
}

}  // namespace
}  // namespace posenc::diagnose::diagnose_faults_test
