// Diagnoses of xPos: its scale is measured before anything else.
#include <gtest/gtest.h>

#include "tests/diagnose/diagnose_case.h"

namespace posenc::diagnose::diagnose_xpos_test {
namespace {

RotarySettings With(double base, double centre, Pairing pairing = Pairing::kHalfSplit, int64_t width = 64) {
  RotarySettings settings = Rope({.rope_type = "default"}, width, pairing);
  settings.xpos = Xpos{base, centre};
  return Completed(settings);
}

Explanation First(const Made& made, const Asked& asked) {
  WorkPool pool(1);
  const auto diagnosis = Diagnose(made.evidence, asked, 3, {}, pool, NeverCancelled);
  EXPECT_TRUE(diagnosis.ok()) << diagnosis.status();
  return diagnosis->explanations.at(0);
}

// Returns the first explanation of data made with `applied`. It must explain every element.
std::string Sentence(const RotarySettings& wanted, const RotarySettings& applied, const Tokens& at, const Tokens& said,
                     Direction asked_direction = Direction::kForward, Direction direction = Direction::kForward) {
  const int64_t width = *wanted.rotary_dim;
  const Made made = Make(applied, kExactPrecision, DType::kFP32, at, said, 2, width, direction);
  Asked asked = AskFor(wanted);
  asked.direction = asked_direction;
  const Explanation best = First(made, asked);
  EXPECT_EQ(best.proof.comparison.share(), 1) << best.sentence;
  return best.sentence;
}

constexpr char kAsAsked[] = "the model's encoding was applied";

TEST(DiagnoseXpos, AFewTokensAroundTheCentre) {
  for (int64_t length : {40, 64, 72, 80, 96}) {
    const Tokens tokens = Stretch(1000 - static_cast<double>(length) / 2, length);
    for (Pairing pairing : {Pairing::kHalfSplit, Pairing::kInterleaved}) {
      const RotarySettings applied = With(512, 1000, pairing, 32);
      EXPECT_EQ(Sentence(applied, applied, tokens, tokens), kAsAsked);
      RotarySettings none = applied;
      none.xpos.reset();
      EXPECT_EQ(Sentence(none, applied, tokens, tokens),
                "xPos's scale of base 512 around position 1000 was applied, but the model specifies none");
    }
  }
}

TEST(DiagnoseXpos, NumbersNearTheUsualOnes) {
  const Tokens tokens = Stretch(500, 64), later = Stretch(501, 64);
  EXPECT_EQ(Sentence(With(512, 100), With(520, 100), tokens, tokens),
            "xPos's scale of base 520 around position 100 was applied, but the model specifies xPos's scale of base "
            "512 around position 100");
  EXPECT_EQ(Sentence(With(512, 100.3), With(512, 100.3), later, tokens), "positions start at 501, not 500");
}

TEST(DiagnoseXpos, FarFromZero) {
  const Tokens tokens = Stretch(1000100, 64), later = Stretch(1000101, 64);
  EXPECT_EQ(Sentence(With(512, 1e6), With(512, 1e6), later, tokens), "positions start at 1000101, not 1000100");
}

TEST(DiagnoseXpos, TheTransposeIsNotTheInverse) {
  const Tokens tokens = Stretch(1200, 64);
  const RotarySettings xpos = With(512, 1000);
  const auto sentence = [&](Direction asked, Direction applied) {
    return Sentence(xpos, xpos, tokens, tokens, asked, applied);
  };
  EXPECT_EQ(sentence(Direction::kTranspose, Direction::kInverse),
            "the inverse was applied, but the transpose was requested");
  EXPECT_EQ(sentence(Direction::kInverse, Direction::kTranspose),
            "the transpose was applied, but the inverse was requested");
  EXPECT_EQ(sentence(Direction::kInverse, Direction::kInverse), kAsAsked);
}

// Returns the first explanation of q and k, each made with its own settings.
std::string SentenceOfBoth(const RotarySettings& q_applied, const RotarySettings& k_applied) {
  const Tokens tokens = Stretch(1100, 64);
  const auto make = [&](const RotarySettings& applied, uint64_t seed) {
    return Make(applied, kExactPrecision, DType::kFP32, tokens, tokens, 2, 64, Direction::kForward, 0, seed);
  };
  Made made = make(q_applied, 1);
  made.evidence.operands.push_back(make(k_applied, 2).evidence.operands[0]);
  made.evidence.operands[1].which = Operand::kKey;
  Asked asked = AskFor(With(512, 1000));
  asked.offsets = {0, 0};
  const Explanation best = First(made, asked);
  EXPECT_EQ(best.proof.comparison.share(), 1) << best.sentence;
  return best.sentence;
}

TEST(DiagnoseXpos, OneOperandWithoutItsScale) {
  const RotarySettings scaled = With(512, 1000);
  RotarySettings bare = scaled;
  bare.xpos.reset();
  EXPECT_EQ(SentenceOfBoth(scaled, bare), "k lacks the scale that q has");
  EXPECT_EQ(SentenceOfBoth(scaled, scaled), "k has the scale of q");
  EXPECT_EQ(SentenceOfBoth(bare, scaled), "q lacks the scale that k has; k has the scale of q");
  EXPECT_EQ(SentenceOfBoth(bare, bare), "xPos's scale is missing");
}

}  // namespace
}  // namespace posenc::diagnose::diagnose_xpos_test
