// Verdicts on single biases: the sentence names the fault, its numbers are right, and it claims no more than was
// proven.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "posenc/base/interruption.h"
#include "posenc/diagnose/bias_candidates.h"
#include "tests/diagnose/diagnose_bias_port.h"

namespace posenc::diagnose::diagnose_bias_faults_test {
namespace {

struct Case {
  BiasPort port;
  BiasMethod expected;
  BiasTreatment given;
  std::optional<int64_t> stated_offset = 0;
  Precision precision = {};
  std::optional<int64_t> head_start = {};
};

Verdict Judge(const Case& one, std::optional<double> tolerance = std::nullopt) {
  const MadeBias made(one.port, [&](int64_t, int64_t, int64_t) -> const BiasTreatment& { return one.given; });
  BiasEvidence evidence = made.evidence;
  evidence.query_offset = one.stated_offset;
  WorkPool pool(1);
  const AskedBias asked{.method = one.expected, .precision = one.precision, .head_start = one.head_start};
  const auto found = DiagnoseBias(evidence, asked, 8, {}, pool, NeverCancelled, tolerance);
  EXPECT_TRUE(found.ok()) << found.status();
  Verdict verdict = found.ok() ? found->verdict : Verdict();
  verdict.sentence = Said(verdict);
  return verdict;
}

std::vector<std::vector<double>> RandomTable(int64_t heads, int64_t buckets) {
  std::mt19937_64 random(1910);
  std::vector<std::vector<double>> table(heads, std::vector<double>(buckets));
  for (auto& row : table) {
    for (double& value : row) value = static_cast<float>(static_cast<double>(random() >> 11) * 0x1p-51 - 2);
  }
  return table;
}

BiasTable TableOf(const std::vector<std::vector<double>>& values) {
  BiasTable table{
      .rows = static_cast<int64_t>(values.size()), .columns = static_cast<int64_t>(values[0].size()), .shared = false};
  for (const auto& row : values) table.values.insert(table.values.end(), row.begin(), row.end());
  return table;
}

// T5 with 32 buckets up to 128 in both directions, whose data have other tables than the expected one.
class TableCase {
 public:
  TableCase(DType dtype, DType values) : port_{.batch = 1, .heads = 3, .queries = 200, .keys = 200, .dtype = dtype} {
    given = RandomTable(port_.heads, 32);
    for (auto& row : given) {
      for (double& value : row) value = Rounded(values, value);
    }
    table_ = TableOf(given);
  }
  std::string Sentence() const {
    return Judge({port_, {T5Settings{32, 128, true}, table_}, BiasTreatment{.table = given}}).sentence;
  }

  std::vector<std::vector<double>> given;

 private:
  BiasPort port_;
  BiasTable table_;
};

TEST(DiagnoseBiasFaults, NamesBucketsThatAreZero) {
  for (const DType dtype : {DType::kFP32, DType::kBF16}) {
    for (const DType values : {DType::kFP32, DType::kBF16}) {
      TableCase padding(dtype, values);  // as with padding_idx = 0
      for (auto& row : padding.given) row[0] = 0;
      EXPECT_EQ(padding.Sentence(), "bucket 0 has the value 0, not the table's");
      TableCase one_head(dtype, values);
      one_head.given[1][5] = 0;
      EXPECT_EQ(one_head.Sentence(), "bucket 5 has the value 0, not the table's, in head 1; the rest matches");
    }
  }
  TableCase several(DType::kFP32, DType::kFP32);
  for (auto& row : several.given) row[0] = row[3] = 0, row[7] = row[6];
  EXPECT_EQ(several.Sentence(), "bucket 0 has the value 0, not the table's; 3 of 31 buckets have another value");
  TableCase other(DType::kFP32, DType::kFP32);
  for (auto& row : other.given) row[0] = 7;
  EXPECT_EQ(other.Sentence(), "the table has other values");
}

// ALiBi's released code with float32 powers, as models compute it.
std::vector<double> Float32Slopes(int64_t heads) {
  const auto of_power = [](int64_t n) {
    const auto base = static_cast<double>(static_cast<float>(std::exp2(-8.0 / static_cast<double>(n))));
    std::vector<double> slopes;
    for (int64_t h = 1; h <= n; ++h) {
      slopes.push_back(static_cast<float>(std::pow(base, static_cast<double>(h))));
    }
    return slopes;
  };
  int64_t below = 1;
  while (2 * below <= heads) below *= 2;
  std::vector<double> slopes = of_power(below);
  const std::vector<double> more = of_power(2 * below);
  for (int64_t n = 0; below + n < heads; ++n) slopes.push_back(more[2 * n]);
  return slopes;
}

BiasMethod Released(int64_t heads) {
  return {AlibiSettings{.num_heads = heads, .slopes = AlibiSlopeRule::kPowerOfTwo, .form = AlibiForm::kSymmetric}};
}

TEST(DiagnoseBiasFaults, NamesSlopesOfFloat32) {
  for (const int64_t heads : {12, 20, 24, 40}) {
    const Case port{{.batch = 1, .heads = heads}, Released(heads), {.slopes = Float32Slopes(heads)}};
    EXPECT_EQ(Judge(port).kind, VerdictKind::kMatches);  // as the released code does
    const Verdict verdict = Judge(port, 0);
    ASSERT_EQ(verdict.faults.size(), 1u) << heads << ": " << verdict.sentence;
    const Fault& fault = verdict.faults[0];
    EXPECT_EQ(fault.departures[0].code, "ROUNDING") << verdict.sentence;
    EXPECT_THAT(fault.sentence, testing::HasSubstr("computed in float32 as in the model's own code"));
    EXPECT_EQ(fault.free_values, 0);
    EXPECT_TRUE(fault.alternatives.empty()) << verdict.sentence;
  }
}

// Float32 powers by logarithms, and one row of a bias by the key, whose slopes other forms give, too.
TEST(DiagnoseBiasFaults, SlopesOfFloat32AreRight) {
  for (const int64_t heads : {16, 32, 64, 128}) {
    std::vector<double> slopes;
    const float base = std::log(std::exp(-8.0F / static_cast<float>(heads) * std::log(2.0F)));
    for (int64_t h = 1; h <= heads; ++h) slopes.push_back(std::exp(static_cast<float>(h) * base));
    EXPECT_EQ(Judge({{.batch = 1, .heads = heads}, Released(heads), {.slopes = slopes}}).kind, VerdictKind::kMatches);
    slopes.back() *= 1.0002;
    EXPECT_EQ(Judge({{.batch = 1, .heads = heads}, Released(heads), {.slopes = slopes}}).kind, VerdictKind::kDiffers);
  }
  Case row{{.batch = 1, .heads = 112, .queries = 1, .keys = 33},
           Released(112),
           {.slopes = Float32Slopes(112), .form = BiasForm::kMpt},
           std::nullopt};
  std::get<AlibiSettings>(row.expected.settings).form = AlibiForm::kMpt;
  EXPECT_EQ(Judge(row).kind, VerdictKind::kMatches);
}

TEST(DiagnoseBiasFaults, NamesWhatWasClipped) {
  Case one{{.batch = 1, .causal = true}, Released(8), {.slopes = ReleasedSlopes(8)}};
  one.given.after = [](int64_t h, int64_t i, int64_t j, double) {
    return -ReleasedSlopes(8)[h] * static_cast<double>(std::min<int64_t>(std::abs(i - j), 16));
  };
  EXPECT_EQ(Judge(one).sentence, "distances were clipped at 16");
  one.given.after = [](int64_t, int64_t, int64_t, double value) { return std::max(value, -2.0); };
  EXPECT_EQ(Judge(one).sentence, "values were clipped at -2, in heads 0-2; the rest matches");
}

TEST(DiagnoseBiasFaults, SaysWhichRowsOfAGivenTableWereRead) {
  Case one{{.batch = 1, .heads = 4, .queries = 200, .keys = 200},
           {T5Settings{32, 128, true}, {}},
           {.table = RandomTable(4, 32)}};
  one.expected.table = TableOf(one.given.table);
  const auto table = one.given.table;
  one.given.after = [table](int64_t h, int64_t i, int64_t j, double value) {
    return i - j == 20 || i - j == 21 ? table[h][3] : value;
  };
  EXPECT_EQ(Judge(one).sentence,
            "distance -21 reads bucket 3 of the table, not 10, in distances -21 to -20; the rest matches");
}

TEST(DiagnoseBiasFaults, TheSlopesOfOtherHeadsAreNoRounding) {
  const std::vector<double> all = ReleasedSlopes(16);
  const Verdict verdict = Judge({.port = {.batch = 1},
                                 .expected = Released(16),
                                 .given = {.slopes = {all.begin() + 8, all.end()}},
                                 .head_start = 0});
  ASSERT_EQ(verdict.faults.size(), 1u);
  EXPECT_NE(verdict.faults[0].departures[0].code, "ROUNDING") << verdict.sentence;
  EXPECT_EQ(verdict.faults[0].free_values, 1);
}

TEST(DiagnoseBiasFaults, PrintsSlopesThatDifferInTheSeventhDigit) {
  std::vector<double> slopes = ReleasedSlopes(8);
  slopes[7] = static_cast<float>(slopes[7] * (1 + 0x1p-20));
  EXPECT_EQ(Judge({{.batch = 1}, Released(8), {.slopes = slopes}}, 2).sentence,
            "head 7 has the slope 0.00390625373, not 0.00390625, in head 7; the rest matches");
}

// Whoever mends what such words say would still have other slopes.
TEST(DiagnoseBiasFaults, ListsSlopesThatAreOnlyNearAFault) {
  const auto fault = [](const std::function<double(int64_t h, double slope)>& change) {
    std::vector<double> slopes = ReleasedSlopes(8);
    for (size_t h = 0; h < slopes.size(); ++h) {
      const double near = slopes[h] * (1 + (h % 2 == 0 ? 0.006 : -0.006));
      slopes[h] = static_cast<float>(change(static_cast<int64_t>(h), near));
    }
    const Verdict verdict = Judge({{.batch = 1}, Released(8), {.slopes = slopes}});
    return verdict.faults.size() == 1 ? verdict.faults[0] : Fault();
  };
  const std::function<double(int64_t, double)> changes[] = {
      [](int64_t, double slope) { return -slope; }, [](int64_t, double slope) { return 3 * slope; },
      [](int64_t, double slope) { return slope * slope; },
      [](int64_t h, double slope) { return slope * std::exp2(2 * h - 7); }};
  for (const auto& change : changes) {
    EXPECT_THAT(fault(change).sentence, testing::StartsWith("other slopes were applied: head 0 has the slope "));
    EXPECT_EQ(fault(change).free_values, 8);
  }
}

TEST(DiagnoseBiasFaults, AScaleDoesNotHideCells) {
  constexpr int64_t kKeys = 16384;
  Case one{{.batch = 1, .heads = 1, .queries = 2, .keys = kKeys}, Released(1), {.slopes = {1}}};
  std::get<AlibiSettings>(one.expected.settings).slopes = GivenSlopes{AsMatrix({1})};
  bool noise = false;
  one.given.after = [&noise](int64_t, int64_t i, int64_t j, double value) {
    if (j < 200) return -10000.0;  // a mask
    const double other = -1300 - 0.03125 * static_cast<double>((j * 7919 + i * 104729) % 16000);
    return noise && j > 10000 && j < 16380 ? other : value / 8;
  };
  EXPECT_EQ(Judge(one).sentence, "the bias was divided by 8");
  noise = true;
  const Verdict verdict = Judge(one);
  ASSERT_EQ(verdict.faults.size(), 1u) << verdict.sentence;
  EXPECT_TRUE(verdict.faults[0].described) << verdict.sentence;
}

TEST(DiagnoseBiasFaults, NamesTheOffsetThatGivesTheBytes) {
  for (const auto& [dtype, stated, given] : {std::tuple<DType, int64_t, int64_t>{DType::kBF16, 300, 312},
                                             {DType::kBF16, 300, 301},
                                             {DType::kFP16, 1100, 1101},
                                             {DType::kFP16, 1100, 1105}}) {
    const BiasPort port{.batch = 1, .queries = 16, .keys = 64, .offset = given, .dtype = dtype};
    const Verdict verdict = Judge({port, Released(8), {.slopes = ReleasedSlopes(8)}, stated});
    EXPECT_EQ(verdict.kind, VerdictKind::kDiffers);
    EXPECT_EQ(verdict.sentence, fmt::format("positions of the queries are {} too large", given - stated));
  }
}

TEST(DiagnoseBiasFaults, WhatIsWithinAStatedToleranceMatches) {
  const Case one{{.batch = 1, .heads = 12}, Released(12), {.slopes = Float32Slopes(12)}};
  EXPECT_EQ(Judge(one, 0).kind, VerdictKind::kDiffers);
  EXPECT_EQ(Judge(one, 16).kind, VerdictKind::kMatches);
}

TEST(DiagnoseBiasFaults, SaysThatBatchRowsShareSlopes) {
  Case one{{.heads = 2}, Released(2), {.slopes = {0.3125, 0.21875}}};
  std::get<AlibiSettings>(one.expected.settings).slopes =
      GivenSlopes{Matrix<double>{.values = {0.5, 0.25, 0.75, 0.125}, .rows = 2, .columns = 2, .shared = false}};
  EXPECT_EQ(Judge(one).sentence, "one list of slopes was applied to all batch rows");
}

// T5 with 32 buckets up to 128, for queries from `first` on; the caller does not say where they stand.
Case SliceOfT5(BiasPort port, int64_t first, bool bidirectional, bool with_table) {
  port.batch = 1;
  port.offset = first;
  Case one{port, {T5Settings{32, 128, bidirectional}, {}}, {.bucket = {.bidirectional = bidirectional}}, std::nullopt};
  one.given.table = RandomTable(port.heads, 32);
  if (with_table) one.expected.table = TableOf(one.given.table);
  return one;
}

TEST(DiagnoseBiasFaults, ASliceOfT5MayBeginAnywhere) {
  for (const int64_t heads : {1, 8}) {
    for (const DType dtype : {DType::kFP32, DType::kBF16}) {
      for (const bool bidirectional : {true, false}) {
        for (const auto& [queries, keys, first] : {std::tuple<int64_t, int64_t, int64_t>{16, 128, 40},
                                                   {16, 128, 100},
                                                   {48, 200, 153},
                                                   {64, 512, 300},
                                                   {1, 256, 200}}) {
          const BiasPort port{.heads = heads, .queries = queries, .keys = keys, .dtype = dtype};
          const std::string all = fmt::format("all {} cells are equal, bit for bit; the first query is at position {}",
                                              heads * queries * keys, first);
          EXPECT_EQ(Judge(SliceOfT5(port, first, bidirectional, true)).sentence, all);
          EXPECT_EQ(Judge(SliceOfT5(port, first, bidirectional, false)).sentence, all);
        }
      }
    }
  }
}

TEST(DiagnoseBiasFaults, SaysThatASliceMayBeginElsewhere) {
  // One border of the buckets shows, but not which one.
  Case one = SliceOfT5({.heads = 1, .queries = 2, .keys = 8}, 100, false, false);
  EXPECT_THAT(Judge(one).sentence, testing::HasSubstr("; the first query is at position "));
  EXPECT_THAT(Judge(one).sentence, testing::EndsWith(" or elsewhere"));
}

TEST(DiagnoseBiasFaults, FaultsOfATableAreNoOffsets) {
  const struct {
    const char* sentence;
    std::function<void(BiasTreatment*)> apply;
  } faults[] = {{"the bias has the wrong sign", [](BiasTreatment* t) { t->factor = -1; }},
                {"the bias was divided by 8", [](BiasTreatment* t) { t->factor = 0.125; }},
                {"values of the heads are in reverse order",
                 [](BiasTreatment* t) { std::reverse(t->table.begin(), t->table.end()); }},
                {"the table has other values", [](BiasTreatment* t) {
                   for (auto& row : t->table) {
                     for (double& value : row) value = static_cast<float>(std::sin(99 * value));
                   }
                 }}};
  for (const auto& [sentence, apply] : faults) {
    for (const bool bidirectional : {true, false}) {
      for (const BiasPort& port : {BiasPort{.heads = 8, .queries = 48, .keys = 200},
                                   {.heads = 32, .queries = 48, .keys = 200, .dtype = DType::kBF16},
                                   {.heads = 12, .queries = 16, .keys = 128, .dtype = DType::kFP16},
                                   {.heads = 12, .queries = 1, .keys = 256, .dtype = DType::kFP16}}) {
        for (const int64_t first : {port.keys - port.queries, port.keys / 2}) {
          Case one = SliceOfT5(port, first, bidirectional, true);
          apply(&one.given);
          EXPECT_EQ(Judge(one).sentence, sentence) << port.heads << " heads from " << first;
        }
      }
    }
  }
}

// The other heads say where the queries stand.
TEST(DiagnoseBiasFaults, NamesOneHeadOfASlice) {
  for (const int64_t first : {152, 103}) {
    for (const int64_t head : {0, 3}) {
      for (const bool with_table : {true, false}) {
        const Case right = SliceOfT5({.heads = 4, .queries = 48, .keys = 200}, first, true, with_table);
        BiasTreatment later = right.given, other = right.given;
        later.shift = 1;
        other.bucket.farthest = 64;
        const auto sentence = [&](const BiasTreatment& wrong) {
          const MadeBias made(right.port, [&](int64_t, int64_t h, int64_t) -> const BiasTreatment& {
            return h == head ? wrong : right.given;
          });
          WorkPool pool(1);
          const auto found =
              DiagnoseBias(made.evidence, AskedBias{.method = right.expected}, 8, {}, pool, NeverCancelled);
          EXPECT_TRUE(found.ok()) << found.status();
          return found.ok() ? Said(found->verdict) : "";
        };
        EXPECT_THAT(sentence(other), testing::HasSubstr(fmt::format(", in head {}, distance", head)));
        EXPECT_THAT(sentence(other), testing::Not(testing::HasSubstr("in heads")));
        if (with_table) {
          EXPECT_EQ(sentence(later),
                    fmt::format("positions of the queries are 1 too large, in head {}; the rest matches", head));
        }
      }
    }
  }
}

TEST(DiagnoseBiasFaults, AnOffsetAndATableAreTwoFaults) {
  Case one = SliceOfT5({.heads = 4, .queries = 48, .keys = 200}, 152, true, true);
  one.stated_offset = 0;
  EXPECT_EQ(Judge(one).sentence, "positions of the queries are 152 too large");
  std::reverse(one.given.table.begin(), one.given.table.end());
  EXPECT_EQ(Judge(one).sentence,
            "values of the heads are in reverse order; positions of the queries are 152 too large");
  const Verdict without_table = Judge([] {
    Case other = SliceOfT5({.heads = 4, .queries = 48, .keys = 200}, 152, true, false);
    other.stated_offset = 0;
    return other;
  }());
  EXPECT_EQ(without_table.sentence, "positions of the queries are 152 too large");
  EXPECT_GE(without_table.faults[0].free_values, 4 * 20) << "the table was taken from the data";
}

TEST(DiagnoseBiasFaults, OneExplanationOfAllIsBetterThanATableOfTheFirstQueries) {
  for (const int64_t heads : {1, 4, 16}) {
    Case one = SliceOfT5({.heads = heads, .queries = 32, .keys = 32}, 0, false, false);
    one.given.bucket.buckets = 16;
    EXPECT_THAT(Judge(one).sentence, testing::StartsWith("T5, 16 buckets up to a distance of 128"));
  }
}

TEST(DiagnoseBiasFaults, AMaskThatIsTooWideIsAnAlternative) {
  Case one{{.batch = 1, .queries = 4, .keys = 64, .offset = 61, .causal = true},
           Released(8),
           {.slopes = ReleasedSlopes(8), .shift = -1},
           std::nullopt};
  EXPECT_EQ(Judge(one).sentence, "positions of the queries are 1 too small, or the mask is 1 too wide");
}

TEST(DiagnoseBiasFaults, AFactorHasTheDigitsThatTheTypeKnows) {
  for (const int64_t heads : {8, 16, 32, 71}) {
    for (const DType dtype : {DType::kFP32, DType::kFP16, DType::kBF16}) {
      for (const double by : {8, 3, 2}) {
        Case one{{.batch = 1, .heads = heads, .dtype = dtype}, Released(heads), {.slopes = ReleasedSlopes(heads)}};
        one.given.factor = 1 / by;
        EXPECT_THAT(Judge(one).sentence, testing::StartsWith(fmt::format("slopes were divided by {}", by)))
            << heads << " heads, " << Name(dtype);
        EXPECT_THAT(Judge(one).sentence, testing::Not(testing::HasSubstr(fmt::format("{}.", by))));
      }
    }
  }
}

TEST(DiagnoseBiasFaults, NamesSlopesWhoseValuesAreSubnormal) {
  for (const AlibiForm form : {AlibiForm::kSymmetric, AlibiForm::kBloom}) {
    Case one{{.batch = 1, .heads = 71, .dtype = DType::kFP16}, Released(71), {.slopes = ReleasedSlopes(71, 16)}};
    std::get<AlibiSettings>(one.expected.settings).form = form;
    one.given.form = form == AlibiForm::kBloom ? BiasForm::kBloom : BiasForm::kSymmetric;
    EXPECT_EQ(Judge(one).sentence,
              "exponents of the slopes were multiplied by 2, as by an alibi_bias_max of 16 instead of 8");
  }
}

// Number of times that a diagnosis asks whether it is cancelled, which it does again after some work.
int Checks(std::vector<int64_t> shape, const std::function<float(int64_t cell)>& value) {
  std::vector<float> values;
  for (int64_t n = 0; n < shape[0] * shape[1] * shape[2] * shape[3]; ++n) values.push_back(value(n));
  const BiasEvidence evidence{.bias = {DType::kFP32, std::move(shape)},
                              .data = reinterpret_cast<const std::byte*>(values.data())};
  int checks = 0;
  const Cancellation count = [&checks] {
    ++checks;
    return absl::OkStatus();
  };
  WorkPool pool(1);
  const auto found = RunInterruptibly(count, [&] { return DiagnoseBias(evidence, std::nullopt, 8, {}, pool, count); });
  EXPECT_TRUE(found.ok()) << found.status();
  return checks;
}

TEST(DiagnoseBiasFaults, TheSearchForT5LooksAtFewDistances) {
  const auto checks = [](int64_t keys) {
    return Checks({1, 1, 1, keys}, [keys](int64_t n) { return n + 1 == keys ? 1.0F : 0.0F; });
  };
  EXPECT_LT(checks(1 << 20), checks(1 << 14) + 500);  // not 15 more for each of a thousand settings
}

TEST(DiagnoseBiasFaults, LargeMatricesAreCancelledInBetween) {
  EXPECT_GT(Checks({1, 1, 1024, 1024}, [](int64_t n) { return static_cast<float>(n % 1021); }), 16);
}

}  // namespace
}  // namespace posenc::diagnose::diagnose_bias_faults_test
