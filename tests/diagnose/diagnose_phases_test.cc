// Positions at which float32 phases are off by radians: what shows nothing there does not match, and names nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/diagnose/diagnose_port.h"

namespace posenc::diagnose::diagnose_phases_test {
namespace {

constexpr int64_t kWidth = 64;
constexpr char kTooLarge[] = "positions are too large for float32 phases, and nothing gives the same bits";

std::vector<double> OfBase(double base) {
  return PaperFrequencies({.rope_type = "default", .rope_theta = base}, kWidth);
}

Port At(double first) {
  Port port{.batch = 1, .length = 16};
  port.position = [first](int64_t, int64_t s) { return first + static_cast<double>(s); };
  return port;
}

Verdict Ask(const Evidence& evidence) {
  Asked asked = AskFor(Rope({.rope_type = "default"}, kWidth, Pairing::kHalfSplit));
  asked.offsets = std::vector<int64_t>(evidence.operands.size());
  WorkPool pool(1);
  auto diagnosis = Diagnose(evidence, asked, 6, {}, pool, NeverCancelled);
  if (!diagnosis.ok()) throw std::runtime_error(std::string(diagnosis.status().message()));
  return diagnosis->verdict;
}

Evidence RightAt(double first) {
  const Port port = At(first);
  return Rotated(port, 1, [&](const PortCell& cell) {
    return Treatment{.inv_freq = OfBase(1e4), .position = port.position(cell.b, cell.s)};
  });
}

TEST(DiagnosePhases, NothingMatchesWithoutEvidence) {
  for (const double first : {0x1p36, 0x1p40, 0x1p52}) {
    const Port port = At(first);
    const auto random = [&](const PortCell& cell) {
      std::mt19937_64 numbers(cell.s);
      return Treatment{.inv_freq = OfBase(777), .position = static_cast<double>(numbers() % 1000)};
    };
    const auto garbage = [&](const PortCell& cell) {
      std::mt19937_64 numbers(1000 * cell.operand + 100 * cell.h + cell.s);
      return Treatment{.turns = 0, .after = [numbers](std::vector<double>* y) mutable {
                         for (double& each : *y) each = static_cast<double>(numbers() % 1000) / 500 - 1;
                       }};
    };
    for (const Verdict& verdict : {Ask(Rotated(port, 1, random)), Ask(Rotated(port, 1, garbage))}) {
      EXPECT_EQ(verdict.kind, VerdictKind::kUnknown) << verdict.sentence;
      EXPECT_EQ(verdict.sentence, kTooLarge);
    }
  }
}

TEST(DiagnosePhases, NothingIsNamedWithoutEvidence) {
  for (const double first : {1e8, 1e10}) {
    const Verdict verdict = Ask(Rotated(At(first), 1, [&](const PortCell& cell) {
      std::mt19937_64 numbers(cell.s);
      return Treatment{.inv_freq = OfBase(777), .position = static_cast<double>(numbers() % 1000)};
    }));
    EXPECT_THAT(verdict.sentence, testing::StartsWith("these pairs turn by other angles"));
  }
}

TEST(DiagnosePhases, EqualBitsMatchAnywhere) {
  const Made made = Make(Rope({.rope_type = "default"}, kWidth, Pairing::kHalfSplit), kExactPrecision, DType::kFP32,
                         Stretch(0x1p40, 16), Stretch(0x1p40, 16), 2, kWidth);
  const Verdict verdict = Ask(made.evidence);
  EXPECT_EQ(verdict.kind, VerdictKind::kMatches) << verdict.sentence;
  EXPECT_THAT(verdict.sentence, ::testing::EndsWith("elements are equal, bit for bit"));
}

// At 10^8 half of the pairs are off by less than half a radian, and at 10^7 all but six.
TEST(DiagnosePhases, SlowPairsAreEvidence) {
  for (const double first : {1e7, 1e8, 1e9}) {
    const Verdict verdict = Ask(RightAt(first));
    EXPECT_EQ(verdict.kind, VerdictKind::kMatches) << verdict.sentence;
  }
  const Port port = At(1e7);
  const Verdict verdict = Ask(Rotated(port, 1, [&](const PortCell& cell) {
    return Treatment{.inv_freq = OfBase(5e5), .position = port.position(cell.b, cell.s)};
  }));
  EXPECT_EQ(verdict.faults.at(0).sentence, "rope_theta 500000 was applied, but the model specifies 10000");
}

// Only the tokens at large positions are unclear.
TEST(DiagnosePhases, SomePositionsAreTooLarge) {
  Port port = At(100);
  port.position = [](int64_t, int64_t s) { return s < 8 ? 100 + static_cast<double>(s) : 0x1p40; };
  const Verdict verdict = Ask(Rotated(port, 1, [&](const PortCell& cell) {
    return Treatment{.inv_freq = OfBase(1e4), .position = 100 + static_cast<double>(cell.s)};
  }));
  EXPECT_EQ(verdict.kind, VerdictKind::kUnknown);
  EXPECT_EQ(verdict.sentence, std::string(kTooLarge) + ", in tokens from 8 on; the rest matches");
}

}  // namespace
}  // namespace posenc::diagnose::diagnose_phases_test
