// Roundings that no setting describes, under every scaling, made by plain loops from the scaling's frequencies.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "tests/diagnose/diagnose_scalings.h"
#include "tests/kernels/one_in.h"

namespace posenc::diagnose::diagnose_rounding_test {
namespace {

constexpr int64_t kHeads = 2;

double BF16(double value) { return Widen<BFloat16>(Narrow<BFloat16>(value)); }
double FP16(double value) { return Widen<Float16>(Narrow<Float16>(value)); }

struct Fault {
  const char* name;
  std::function<double(double)> of_frequency, of_position, of_entry;
};

std::vector<Fault> Faults() {
  const auto same = [](double value) { return value; };
  return {{"tables were rounded to bfloat16", same, same, BF16},
          {"tables were rounded to float16", same, same, FP16},
          {"frequencies were rounded to bfloat16", BF16, same, same},
          {"positions were rounded to bfloat16, which shows from position 257 on", same, BF16, same}};
}

// Makes a table of these tokens with the fault, row by row.
RotarySettings Faulty(const Fault& fault, const RotarySettings& settings, const Tokens& tokens) {
  const auto rotary = Rotary::Create(settings, Frequencies::kFloat32, {});
  const auto plan = *rotary->Plan(tokens.seq_len.empty() ? 0 : tokens.seq_len[0]);
  std::vector<float> cos, sin;
  for (double p : tokens.positions[0]) {
    const auto position = static_cast<float>(fault.of_position(p) / plan->position_divisor);
    for (double f : plan->inv_freq) {
      const auto angle = static_cast<double>(position * static_cast<float>(fault.of_frequency(f)));
      const auto entry = [&](double value) {
        const float scaled = static_cast<float>(value) * static_cast<float>(plan->attention_scaling);
        return static_cast<float>(fault.of_entry(scaled));
      };
      cos.push_back(entry(std::cos(angle)));
      sin.push_back(entry(std::sin(angle)));
    }
  }
  const auto shared = [](const std::vector<float>& values) {
    const auto* bytes = reinterpret_cast<const std::byte*>(values.data());
    return std::make_shared<const std::vector<std::byte>>(bytes, bytes + values.size() * sizeof(float));
  };
  RotarySettings applied;
  applied.frequencies = GivenTable{DType::kFP32,          tokens.count(), static_cast<int64_t>(plan->inv_freq.size()),
                                   TableForm::kHalfWidth, shared(cos),    shared(sin)};
  applied.rotary_dim = settings.rotary_dim;
  applied.input_pairing = settings.input_pairing;
  return Completed(applied);
}

// Returns true if the fault changes less than 1 % of the elements, which nobody can detect.
bool ChangesNothing(const RotarySettings& wanted, const Made& made) {
  WorkPool pool(1);
  const Candidate candidate{.settings = wanted, .offsets = {0}};
  const auto proof = Prove(candidate, {kF32Precision, {DType::kFP32}}, made.evidence, {}, pool, NeverCancelled);
  return proof.ok() && proof->comparison.share() > 0.99;
}

std::string Name(const RopeParameters& p, Pairing pairing, const Fault& fault) {
  return p.rope_type + (pairing == Pairing::kInterleaved ? " interleaved, " : ", ") + fault.name;
}

TEST(DiagnoseRounding, UnderEveryScaling) {
  WorkPool pool(1);
  size_t told = 0, same = 0, n = 0;
  for (const RopeParameters& p : Scalings()) {
    for (Pairing pairing : {Pairing::kHalfSplit, Pairing::kInterleaved}) {
      for (const Fault& fault : Faults()) {
        if (n++ % OneIn() != 0) continue;
        const RotarySettings wanted = Settings(p, pairing);
        const Tokens tokens = TokensOf(p, 3000);
        const Made made = Make(Faulty(fault, wanted, tokens), kF32Precision, DType::kFP32, Stretch(0, tokens.count()),
                               tokens, kHeads, kScaledWidth);
        if (ChangesNothing(wanted, made)) {
          ++same;
          continue;
        }
        const auto diagnosis = Diagnose(made.evidence, AskFor(wanted), 6, {}, pool, NeverCancelled);
        ASSERT_TRUE(diagnosis.ok()) << diagnosis.status();
        ASSERT_FALSE(diagnosis->explanations.empty()) << Name(p, pairing, fault);
        const Explanation& best = diagnosis->explanations[0];
        // If all frequencies are 1, an angle is a position.
        const bool same_thing = p.rope_type == "constant" && best.sentence == "angles were computed in bfloat16";
        EXPECT_TRUE(best.sentence == fault.name || same_thing) << Name(p, pairing, fault) << ": " << best.sentence;
        EXPECT_GT(best.proof.comparison.share(), 0.99) << Name(p, pairing, fault);
        ++told;
      }
    }
  }
  EXPECT_GE(told, 10 * same);
}

TEST(DiagnoseRounding, Float32PhasesUnderEveryScaling) {
  WorkPool pool(1);
  for (const RopeParameters& p : Scalings()) {
    if (p.rope_type == "constant") continue;  // angles are positions
    for (Pairing pairing : {Pairing::kHalfSplit, Pairing::kInterleaved}) {
      const RotarySettings wanted = Settings(p, pairing);
      const Tokens tokens = TokensOf(p, 30000);
      const Made made = Make(wanted, kF32Precision, DType::kFP32, tokens, tokens, kHeads, kScaledWidth);
      Asked asked = AskFor(wanted);
      asked.precision = kExactPrecision;
      const auto diagnosis = Diagnose(made.evidence, asked, 6, {}, pool, NeverCancelled);
      ASSERT_TRUE(diagnosis.ok()) << diagnosis.status();
      const Explanation& best = diagnosis->explanations.at(0);
      EXPECT_EQ(best.proof.comparison.share(), 1) << p.rope_type;
      EXPECT_EQ(best.sentence, "phases are float32: the error grows with position") << p.rope_type;
    }
  }
}

}  // namespace
}  // namespace posenc::diagnose::diagnose_rounding_test
