// Evidence of every shape: layouts, operands, sequences, tables, and tensors larger than the sample.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "posenc/rotary/generate_table.h"
#include "tests/diagnose/diagnose_case.h"
#include "tests/service/call.h"

namespace posenc::diagnose::diagnose_evidence_test {
namespace {

Diagnosis Ask(const Evidence& evidence, const Asked& asked) {
  WorkPool pool(2);
  auto diagnosis = Diagnose(evidence, asked, 6, {}, pool, NeverCancelled);
  if (!diagnosis.ok()) throw std::runtime_error(std::string(diagnosis.status().message()));
  return *std::move(diagnosis);
}

constexpr char kAsAsked[] = "the model's encoding was applied";

RotarySettings Plain(int64_t width, Pairing pairing = Pairing::kHalfSplit) {
  return Rope({.rope_type = "default"}, width, pairing);
}

TEST(DiagnoseEvidence, QueryAndKeyAtOffsetsOfTheirOwn) {
  const RotarySettings settings = Plain(64, Pairing::kInterleaved);
  const Tokens tokens = Stretch(90, 64);
  Made q = Make(settings, kF32Precision, DType::kBF16, tokens, tokens, 2, 192, Direction::kForward, 128, 1);
  const Made k = Make(settings, kF32Precision, DType::kBF16, tokens, tokens, 1, 64, Direction::kForward, 0, 2);
  q.evidence.operands.push_back(k.evidence.operands[0]);
  q.evidence.operands[1].which = Operand::kKey;
  Asked asked = AskFor(settings);
  asked.offsets = {128, 0};
  Diagnosis diagnosis = Ask(q.evidence, asked);
  EXPECT_EQ(diagnosis.explanations[0].sentence, kAsAsked);
  EXPECT_EQ(diagnosis.explanations[0].proof.comparison.elements(), 64u * (2 * 192 + 64));
  EXPECT_EQ(diagnosis.explanations[0].proof.comparison.share(), 1);
  asked.offsets = {0, 0};
  diagnosis = Ask(q.evidence, asked);
  EXPECT_EQ(diagnosis.explanations[0].sentence,
            "dimensions from 128 on rotate, but the model specifies an offset of 0");
}

TEST(DiagnoseEvidence, HeadsBeforeTokens) {
  const Tokens tokens = Stretch(0, 48);
  Made made = Make(Plain(32), kExactPrecision, DType::kFP32, tokens, tokens, 3, 32);
  const auto turned = [](const std::vector<std::byte>& from) {
    std::vector<std::byte> to(from.size());
    for (size_t s = 0; s < 48; ++s) {
      for (size_t h = 0; h < 3; ++h) std::memcpy(to.data() + (h * 48 + s) * 128, from.data() + (s * 3 + h) * 128, 128);
    }
    return std::make_shared<OwnedBytes>(std::move(to));
  };
  Rows& rows = made.evidence.operands[0];
  rows.layout = Layout::kBHSD;
  rows.before = turned(made.x);
  rows.after = turned(made.y);
  EXPECT_EQ(Ask(made.evidence, AskFor(Plain(32))).explanations[0].sentence, kAsAsked);
  EXPECT_EQ(rows.Index(5, 2, 7), (std::vector<int64_t>{0, 2, 5, 7}));
  // An index within a sample refers to the whole tensor.
  const Evidence sample = Sample(made.evidence, Whole(made.evidence));
  EXPECT_EQ(sample.operands[0].Index(5, 2, 7), (std::vector<int64_t>{0, 2, 5, 7}));
}

TEST(DiagnoseEvidence, OneElementOfManyIsFound) {
  const Tokens tokens = Stretch(0, 3000);
  Made made = Make(Plain(32), kExactPrecision, DType::kFP16, tokens, tokens, 2, 32);
  const size_t element = (size_t{2900} * 2 + 1) * 32 + 9;
  made.y[2 * element] ^= std::byte{1};
  made.evidence.operands[0].after = std::make_shared<OwnedBytes>(made.y);
  const Diagnosis diagnosis = Ask(made.evidence, AskFor(Plain(32)));
  const Explanation& best = diagnosis.explanations[0];
  EXPECT_EQ(best.sentence, kAsAsked);
  EXPECT_TRUE(best.complete);
  EXPECT_EQ(best.proof.comparison.elements(), 3000u * 64);
  EXPECT_EQ(best.proof.comparison.equal(), 3000u * 64 - 1);
  EXPECT_EQ(best.proof.comparison.worst(), 1u);
  ASSERT_TRUE(best.proof.first);
  EXPECT_EQ(best.proof.first->index, (std::vector<int64_t>{0, 2900, 1, 9}));
}

TEST(DiagnoseEvidence, AllHeadsOfKCountWhereQHasFewer) {
  const Tokens tokens = Stretch(5, 48);
  Made q = Make(Plain(32), kExactPrecision, DType::kFP32, tokens, tokens, 4, 32);
  Made k = Make(Plain(32), kExactPrecision, DType::kFP32, tokens, tokens, 16, 32, Direction::kForward, 0, 2);
  for (size_t row = 1; row < size_t{48} * 16; row += 2) {  // odd heads are left unrotated
    std::memcpy(k.y.data() + row * 128, k.x.data() + row * 128, 128);
  }
  Rows& rows = q.evidence.operands.emplace_back(k.evidence.operands[0]);
  rows.which = Operand::kKey;
  rows.after = std::make_shared<OwnedBytes>(k.y);
  Asked asked = AskFor(Plain(32));
  asked.offsets = {0, 0};
  const Explanation best = Ask(q.evidence, asked).explanations[0];
  EXPECT_TRUE(best.complete);
  EXPECT_EQ(best.proof.comparison.elements(), 48u * 20 * 32);
  EXPECT_LT(best.proof.comparison.share(), 0.7);
}

// Positions shifted by one leave this table, although a sample's do not: the hypothesis fails, not the call.
TEST(DiagnoseEvidence, ATableWithoutRowsToSpare) {
  const int64_t length = 3000;
  const auto values = [&](double phase) {
    std::vector<std::byte> bytes(length * 16 * sizeof(float));
    for (int64_t n = 0; n < length * 16; ++n) {
      const auto value = static_cast<float>(std::cos(0.37 * static_cast<double>(n % 4099) + phase));
      std::memcpy(bytes.data() + n * sizeof(float), &value, sizeof(float));
    }
    return std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  };
  RotarySettings table;
  table.frequencies =
      GivenTable{DType::kFP32, length, 16, TableForm::kHalfWidth, values(0), values(-1.5707963267948966)};
  table.rotary_dim = 32;
  table.input_pairing = Pairing::kHalfSplit;
  table = Completed(table);
  const Tokens tokens = Stretch(0, length);
  Made made = Make(table, kExactPrecision, DType::kFP32, tokens, tokens, 2, 32);
  made.y[2 * 100 * 128] ^= std::byte{1};  // a mismatch; otherwise only one hypothesis is compared with all data
  made.evidence.operands[0].after = std::make_shared<OwnedBytes>(made.y);
  const Explanation best = Ask(made.evidence, AskFor(table)).explanations[0];
  EXPECT_EQ(best.sentence, kAsAsked);
  EXPECT_EQ(best.proof.comparison.equal(), static_cast<uint64_t>(length) * 64 - 1);
}

TEST(DiagnoseEvidence, ManyAxesAreNotExchangedByPairs) {
  GivenFrequencies given;
  for (int64_t n = 0; n < 512; ++n) {
    given.inv_freq.push_back(1 / static_cast<double>(n + 1));
    given.axis.push_back(n % 64);
  }
  RotarySettings settings;
  settings.frequencies = given;
  settings.input_pairing = Pairing::kHalfSplit;
  EXPECT_LT(OptionsOf(AskFor(Completed(settings)), 1024, Stretch(0, 4)).size(), 100u);
}

TEST(DiagnoseEvidence, SequencesWithFrequenciesOfTheirOwn) {
  RotarySettings settings;
  settings.frequencies = RopeParameters{.rope_type = "dynamic", .factor = 2};
  settings.rotary_dim = 32;
  settings.input_pairing = Pairing::kHalfSplit;
  settings.max_position_embeddings = 40;
  settings = Completed(settings);
  const Made one = Make(settings, kF32Precision, DType::kFP32, Stretch(0, 100, {100}), Stretch(0, 100), 2, 32);
  const Made two = Make(settings, kF32Precision, DType::kFP32, Stretch(0, 60, {60}), Stretch(0, 60), 2, 32,
                        Direction::kForward, 0, 5);
  std::vector<std::byte> x = one.x, y = one.y;
  x.insert(x.end(), two.x.begin(), two.x.end());
  y.insert(y.end(), two.y.begin(), two.y.end());
  Rows rows{.layout = Layout::kTHD, .length = 160, .heads = 2, .width = 32};
  rows.before = std::make_shared<OwnedBytes>(x);
  rows.after = std::make_shared<OwnedBytes>(y);
  Tokens tokens = Stretch(0, 160, {100, 60});
  for (int n = 100; n < 160; ++n) tokens.positions[0][n] = n - 100;
  tokens.bounds = {0, 100, 160};
  EXPECT_EQ(Ask({{rows}, tokens}, AskFor(settings)).explanations[0].sentence, kAsAsked);
  // Wrong lengths, as if one scaling had served the whole batch.
  tokens.seq_len = {100, 100};
  const Diagnosis diagnosis = Ask({{rows}, tokens}, AskFor(settings));
  EXPECT_LT(diagnosis.explanations[0].proof.comparison.share(), 1);
}

TEST(DiagnoseEvidence, ATable) {
  const auto make = [](const RotarySettings& settings, Frequencies arithmetic, DType dtype) {
    const auto rotary = Rotary::Create(settings, arithmetic, {});
    GenerateTable call{.positions = AsPositions(Stretch(5, 100), false),
                       .rows = 100,
                       .dtype = dtype,
                       .form = TableForm::kRepeatInterleaved};
    const auto table = TableGeneration::Create(*rotary, call, {});
    std::vector<std::byte> cos(100 * 32 * SizeOf(dtype)), sin(cos.size());
    WorkPool pool(1);
    EXPECT_TRUE(table->WriteRows(0, 100, cos.data(), sin.data(), pool, NeverCancelled).ok());
    const TensorShape shape{dtype, {100, 32}};
    auto rows = MakeTable({shape, shape, std::make_shared<OwnedBytes>(cos), std::make_shared<OwnedBytes>(sin),
                           TableForm::kRepeatInterleaved},
                          {});
    return Evidence{{*std::move(rows)}, Stretch(5, 100), true};
  };
  for (DType dtype : {DType::kFP64, DType::kFP32, DType::kFP16, DType::kBF16}) {
    for (Frequencies arithmetic : {Frequencies::kExact, Frequencies::kFloat32}) {
      const Diagnosis diagnosis = Ask(make(Plain(32), arithmetic, dtype), AskFor(Plain(32)));
      ASSERT_FALSE(diagnosis.explanations.empty());
      EXPECT_EQ(diagnosis.explanations[0].sentence, kAsAsked);
      EXPECT_EQ(diagnosis.explanations[0].proof.comparison.share(), 1) << Name(dtype) << static_cast<int>(arithmetic);
    }
  }
  const RotarySettings other = Rope({.rope_type = "default", .rope_theta = 5e5}, 32, Pairing::kHalfSplit);
  EXPECT_EQ(Ask(make(other, Frequencies::kExact, DType::kFP32), AskFor(Plain(32))).explanations[0].sentence,
            "rope_theta 500000 was applied, but the model specifies 10000");
}

TEST(DiagnoseEvidence, FrequenciesAlone) {
  const RotarySettings wanted = Rope({.rope_type = "llama3",
                                      .rope_theta = 5e5,
                                      .factor = 8,
                                      .original_max_position_embeddings = 8192,
                                      .low_freq_factor = 1,
                                      .high_freq_factor = 4},
                                     64, Pairing::kHalfSplit);
  const auto of = [](const RotarySettings& settings, Frequencies arithmetic) {
    return (*Rotary::Create(settings, arithmetic, {})->Plan(0))->inv_freq;
  };
  auto diagnosis = DiagnoseFrequencies(DType::kFP32, of(wanted, Frequencies::kFloat32), AskFor(wanted), 4, {});
  ASSERT_THAT(diagnosis, IsOk());
  EXPECT_EQ(diagnosis->explanations[0].sentence, kAsAsked);
  EXPECT_EQ(diagnosis->explanations[0].proof.comparison.share(), 1);
  diagnosis = DiagnoseFrequencies(
      DType::kFP64, of(Rope({.rope_type = "default", .rope_theta = 5e5}, 64, Pairing::kHalfSplit), Frequencies::kExact),
      AskFor(wanted), 4, {});
  ASSERT_THAT(diagnosis, IsOk());
  EXPECT_EQ(diagnosis->explanations[0].candidate.departures[0].code, "SCALING_MISSING");
  EXPECT_THAT(DiagnoseFrequencies(DType::kFP64, {1, NAN}, Asked{}, 4, {}), IsInvalid("OUT_OF_RANGE", "inv_freq[1]"));
}

TEST(DiagnoseEvidence, XposIsProvenWhereItWasAskedFor) {
  RotarySettings settings = Plain(32);
  settings.xpos = Xpos{.centre = 40};
  settings = Completed(settings);
  const Tokens tokens = Stretch(0, 128);
  const Made made = Make(settings, kExactPrecision, DType::kFP32, tokens, tokens, 2, 32);
  const Diagnosis diagnosis = Ask(made.evidence, AskFor(settings));
  EXPECT_EQ(diagnosis.explanations[0].sentence, kAsAsked);
  EXPECT_EQ(diagnosis.explanations[0].proof.comparison.share(), 1);
}

}  // namespace
}  // namespace posenc::diagnose::diagnose_evidence_test
