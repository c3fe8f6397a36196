// Diagnoses of correct data, and of single mistakes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/diagnose/diagnose_case.h"

namespace posenc::diagnose::diagnose_test {
namespace {

Diagnosis DiagnoseOrDie(const Made& made, const Asked& asked) {
  WorkPool pool(1);
  auto diagnosis = Diagnose(made.evidence, asked, 8, {}, pool, NeverCancelled);
  if (!diagnosis.ok()) throw std::runtime_error(std::string(diagnosis.status().message()));
  return *std::move(diagnosis);
}

TEST(Diagnose, WhatWasAskedFor) {
  const RotarySettings settings = Rope({.rope_type = "default"}, 64, Pairing::kHalfSplit);
  for (DType dtype : {DType::kFP32, DType::kBF16, DType::kFP16}) {
    const Made made = Make(settings, kExactPrecision, dtype, Stretch(0, 128), Stretch(0, 128), 2, 64);
    const Diagnosis diagnosis = DiagnoseOrDie(made, AskFor(settings));
    ASSERT_FALSE(diagnosis.explanations.empty());
    const Explanation& best = diagnosis.explanations[0];
    EXPECT_EQ(best.sentence, "the model's encoding was applied");
    EXPECT_EQ(best.proof.comparison.share(), 1);
    EXPECT_TRUE(best.complete);
    EXPECT_FALSE(best.proof.first);
    EXPECT_TRUE(diagnosis.undecided.empty()) << diagnosis.undecided[0].message;
    ASSERT_TRUE(diagnosis.measured);
    EXPECT_EQ(diagnosis.measured->layout, (PairLayout{Pairing::kHalfSplit, Pairing::kHalfSplit, 64, 0}));
    EXPECT_NEAR(diagnosis.measured->attention_scaling, 1, 1e-3);
    for (size_t k = 0; k < 32; ++k) {
      const MeasuredFrequency& f = diagnosis.measured->frequencies[k];
      EXPECT_NEAR(f.inv_freq, std::pow(10000.0, -static_cast<double>(k) / 32), 6 * f.uncertainty + 1e-12) << k;
      EXPECT_LT(f.uncertainty, 1e-3);
    }
  }
}

TEST(Diagnose, OtherPairingAndPositionsFromOne) {
  const RotarySettings applied = Rope({.rope_type = "default"}, 64, Pairing::kHalfSplit);
  const RotarySettings wanted = Rope({.rope_type = "default"}, 64, Pairing::kInterleaved);
  const Made made = Make(applied, kHfEagerPrecision, DType::kBF16, Stretch(1, 200), Stretch(0, 200), 3, 64);
  const Diagnosis diagnosis = DiagnoseOrDie(made, AskFor(wanted));
  ASSERT_FALSE(diagnosis.explanations.empty());
  EXPECT_EQ(diagnosis.explanations[0].sentence,
            "half-split was applied, but the model specifies interleaved; positions start at 1, not 0");
  EXPECT_EQ(diagnosis.explanations[0].proof.comparison.share(), 1);
}

}  // namespace
}  // namespace posenc::diagnose::diagnose_test
