// Where a diagnosis must not say too much: NaN, bits beyond the tolerance, samples; and how long its steps are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "posenc/base/interruption.h"
#include "posenc/diagnose/blocks.h"
#include "posenc/diagnose/explain_sample.h"
#include "tests/diagnose/diagnose_case.h"
#include "tests/service/call.h"

namespace posenc::diagnose::diagnose_limits_test {
namespace {

using ::testing::HasSubstr;

Diagnosis Ask(const Made& made, const Asked& asked) {
  WorkPool pool(2);
  auto diagnosis = Diagnose(made.evidence, asked, 6, {}, pool, NeverCancelled);
  if (!diagnosis.ok()) throw std::runtime_error(std::string(diagnosis.status().message()));
  return *std::move(diagnosis);
}

RotarySettings Plain(int64_t width) { return Rope({.rope_type = "default"}, width, Pairing::kHalfSplit); }

Made Right(DType dtype, const Precision& precision, int64_t tokens, int64_t heads, int64_t width) {
  return Make(Plain(width), precision, dtype, Stretch(5, tokens), Stretch(5, tokens), heads, width);
}

void SetTensors(Made* made) {
  made->evidence.operands[0].before = std::make_shared<OwnedBytes>(made->x);
  made->evidence.operands[0].after = std::make_shared<OwnedBytes>(made->y);
}

void SetRow(std::vector<std::byte>* x, int64_t row, int64_t width, float value) {
  const std::vector<float> values(width, value);
  std::memcpy(x->data() + row * width * 4, values.data(), width * 4);
}

// Sets FP32 head rows: NaN before, ones after.
void LoseRow(Made* made, int64_t row, int64_t width) {
  SetRow(&made->x, row, width, NAN);
  SetRow(&made->y, row, width, 1);
}

TEST(DiagnoseLimits, NobodyKnowsWhatFollowsFromNan) {
  Made made = Right(DType::kFP32, kExactPrecision, 96, 2, 64);
  for (int64_t row = 40; row < 192; ++row) LoseRow(&made, row, 64);
  SetTensors(&made);
  const Verdict verdict = Ask(made, AskFor(Plain(64))).verdict;
  EXPECT_EQ(verdict.kind, VerdictKind::kUnknown);
  EXPECT_EQ(verdict.sentence, "after has numbers where NaN is expected, in tokens from 20 on; the rest matches");
  const Asked nothing;
  EXPECT_EQ(Ask(made, nothing).verdict.sentence, "after has numbers where NaN is expected, in tokens from 20 on");
}

TEST(DiagnoseLimits, NanOutsideTheSample) {
  Made made = Right(DType::kFP32, kExactPrecision, 3000, 9, 64);
  for (const int64_t token : {700, 701}) LoseRow(&made, token * 9 + 1, 64);
  SetTensors(&made);
  const Diagnosis diagnosis = Ask(made, AskFor(Plain(64)));
  EXPECT_EQ(diagnosis.verdict.sentence,
            "after has numbers where NaN is expected, in head 1, tokens 700-701; the rest matches");
  ASSERT_EQ(diagnosis.undecided.size(), 1u);
  EXPECT_EQ(diagnosis.undecided[0].message, "2 rows have elements that are not finite");
}

TEST(DiagnoseLimits, NothingIsNamedFromRowsThatAreNotFinite) {
  for (const bool of_before : {true, false}) {
    for (const float value : {INFINITY, NAN}) {
      if (of_before && std::isnan(value)) continue;  // see above
      Made made = Right(DType::kFP32, kExactPrecision, 96, 2, 64);
      for (int64_t row = 140; row < 192; ++row) {
        SetRow(&made.x, row, 64, of_before ? value : 1);
        SetRow(&made.y, row, 64, of_before ? 1 : value);
      }
      SetTensors(&made);
      const Verdict verdict = Ask(made, AskFor(Plain(64))).verdict;
      EXPECT_EQ(verdict.kind, VerdictKind::kDiffers);
      EXPECT_EQ(verdict.sentence,
                of_before ? "before has elements that are not finite, in tokens from 70 on; the rest matches"
                          : "after has elements that are not finite, in tokens from 70 on; the rest matches");
    }
  }
}

TEST(DiagnoseLimits, AFaultAndNan) {
  const RotarySettings other = Rope({.rope_type = "default", .rope_theta = 5e5}, 64, Pairing::kHalfSplit);
  Made made = Make(other, kExactPrecision, DType::kFP32, Stretch(5, 96), Stretch(5, 96), 2, 64);
  for (int64_t token = 3; token < 96; token += 8) LoseRow(&made, token * 2, 64);
  SetTensors(&made);
  const Verdict verdict = Ask(made, AskFor(Plain(64))).verdict;
  EXPECT_EQ(verdict.kind, VerdictKind::kSeveralFaults);
  EXPECT_THAT(verdict.sentence, HasSubstr("rope_theta 500000 was applied, but the model specifies 10000"));
  EXPECT_THAT(verdict.sentence, HasSubstr("unexplained: after has numbers where NaN is expected, in head 0"));
}

TEST(DiagnoseLimits, AFewRowsAreCountedAlone) {
  const RotarySettings other = Rope({.rope_type = "default", .rope_theta = 5e5}, 64, Pairing::kHalfSplit);
  Made made = Make(other, kExactPrecision, DType::kFP32, Stretch(5, 96), Stretch(5, 96), 2, 64);
  SetRow(&made.y, 2 * 35 + 1, 64, 1);
  SetTensors(&made);
  EXPECT_THAT(Ask(made, AskFor(Plain(64))).verdict.sentence,
              HasSubstr("; norms of pairs are not kept: 0.4162 to 3.809 times the expected ones, in head 1, token 35"));
}

// One position does not tell a shift from a rounding.
TEST(DiagnoseLimits, AShiftOfOnePositionMayBeARounding) {
  const Made made = Make(Plain(64), kExactPrecision, DType::kFP32, Stretch(776, 1), Stretch(777, 1), 4, 64);
  EXPECT_EQ(
      Ask(made, AskFor(Plain(64))).verdict.sentence,
      "positions start at 776, not 777 (or, with the same bytes on this data: positions were rounded to bfloat16, "
      "which shows from position 257 on)");
}

// Raises the first elements of each row by some units in the last place.
Made Raised(DType dtype, const Precision& precision, int64_t elements, uint16_t bits) {
  Made made = Right(dtype, precision, 96, 2, 64);
  auto* y = reinterpret_cast<uint16_t*>(made.y.data());
  for (int64_t row = 0; row < 192; ++row) {
    for (int64_t e = 0; e < elements; ++e) y[row * 64 + e] += bits;
  }
  SetTensors(&made);
  return made;
}

TEST(DiagnoseLimits, AToleranceOfZeroAcceptsEqualBitsOnly) {
  for (const DType dtype : {DType::kBF16, DType::kFP16}) {
    for (const Precision& precision : {kHfEagerPrecision, kVllmPrecision}) {
      Asked asked = AskFor(Plain(64));
      asked.precision = precision;
      asked.tolerance_ulp = 0;
      EXPECT_EQ(Ask(Raised(dtype, precision, 0, 0), asked).verdict.kind, VerdictKind::kMatches);
      EXPECT_NE(Ask(Raised(dtype, precision, 1, 1), asked).verdict.kind, VerdictKind::kMatches);
    }
  }
}

TEST(DiagnoseLimits, TheBoundNamesRoundingsOfTheTable) {
  Asked asked = AskFor(Plain(64));
  asked.precision = kHfEagerPrecision;
  const Verdict verdict = Ask(Raised(DType::kFP16, kHfEagerPrecision, 2, 3), asked).verdict;
  EXPECT_EQ(verdict.kind, VerdictKind::kMatches);
  EXPECT_THAT(verdict.sentence, HasSubstr("one rounding of a table's entry more in "));
}

TEST(DiagnoseLimits, WhatIsComparedWithTheSampleOnlyRanksBelow) {
  std::vector<Explanation> explanations(2);
  for (Explanation& one : explanations) one.proof.misfits.emplace();
  explanations[1].complete = true;
  explanations[1].proof.misfits->elements = 1;
  Rank(&explanations);
  EXPECT_TRUE(explanations[0].complete);
}

TEST(DiagnoseLimits, OnePairHasOnePairing) {
  Made made = Right(DType::kFP32, kExactPrecision, 3000, 9, 2);
  for (int64_t e = 0; e < 8; ++e) made.y[(1400 * 9 + 1) * 8 + e] ^= std::byte{0x5a};
  SetTensors(&made);
  for (const Explanation& one : Ask(made, AskFor(Plain(2))).explanations) {
    EXPECT_THAT(one.sentence, Not(HasSubstr("interleaved")));
  }
}

TEST(DiagnoseLimits, FarShiftsOfWideRows) {
  const Made made = Make(Plain(2048), kExactPrecision, DType::kFP32, Stretch(3005, 24), Stretch(5, 24), 1, 2048);
  EXPECT_EQ(Ask(made, AskFor(Plain(2048))).verdict.sentence, "positions start at 3005, not 5");
}

TEST(DiagnoseLimits, HeaviestPairs) {
  Angles angles{.tokens = 2, .pairs = 4};
  angles.weight = {1, 0, 2, 5, 1, 0, 3, 0};
  EXPECT_EQ(angles.HeaviestPairs(2), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(angles.HeaviestPairs(9).size(), 4u);
}

TEST(DiagnoseLimits, ATokenOfManyHeadsIsSeveralBlocks) {
  Made made = Right(DType::kFP16, kExactPrecision, 2, 3000, 128);
  made.y[2 * ((3000 + 2900) * 128 + 7)] ^= std::byte{1};
  SetTensors(&made);
  const Rows& rows = made.evidence.operands[0];
  WorkPool pool(1);
  std::vector<int> seen(6000);
  const auto visit = [&](const Block& block, int64_t first) {
    EXPECT_LE(block.tokens * block.heads * rows.width, 1 << 17);
    EXPECT_EQ(first, block.token * 3000 + block.head);
    for (int64_t n = 0; n < block.tokens * block.heads; ++n) ++seen[first + n];
  };
  EXPECT_TRUE(ForEachBlock(rows, pool, NeverCancelled, 8, visit).ok());
  EXPECT_THAT(seen, ::testing::Each(1));
  const Proof proof = Ask(made, AskFor(Plain(128))).explanations[0].proof;
  EXPECT_EQ(proof.comparison.elements() - proof.comparison.equal(), 1u);
  ASSERT_TRUE(proof.first);
  EXPECT_EQ(proof.first->index, (std::vector<int64_t>{0, 1, 2900, 7}));
}

TEST(DiagnoseLimits, ReadingATableCanBeInterrupted) {
  const TensorShape shape{DType::kFP16, {2048, 128}};
  const auto bytes = std::make_shared<OwnedBytes>(std::vector<std::byte>(2048 * 128 * 2));
  for (const std::optional<TableForm> form : {std::optional<TableForm>(), std::optional(TableForm::kHalfWidth)}) {
    int calls = 0;
    const Cancellation count = [&calls] { return ++calls, absl::OkStatus(); };
    const auto rows = RunInterruptibly(count, [&] { return MakeTable({shape, shape, bytes, bytes, form}, {}); });
    ASSERT_THAT(rows, IsOk());
    EXPECT_GE(calls, 4);  // 65,536 elements apart
  }
}

}  // namespace
}  // namespace posenc::diagnose::diagnose_limits_test
