// Verdicts on biases made by a grammar: method x type x shape x where x fault, single faults, pairs of faults, faults
// without a name, and correct ports. docs/diagnose.md has figures.
#include <gtest/gtest.h>

#include "posenc/diagnose/comparison.h"
#include "tests/diagnose/diagnose_bias_port.h"
#include "tests/diagnose/diagnose_grammar.h"

namespace posenc::diagnose::diagnose_bias_verdict_test {
namespace {

constexpr size_t kOneIn = 127, kOneInRight = 5;  // primes, so that no fault and no part is left out

struct Method {
  std::string name;
  BiasMethod asked;
  BiasTreatment right;
  int64_t heads;
  bool is_alibi() const { return !right.slopes.empty(); }
  bool is_t5() const { return !right.table.empty(); }
  bool has_distance() const {
    return !is_alibi() || right.form == BiasForm::kSymmetric || right.form == BiasForm::kCausal;
  }
};

Method AlibiOf(const char* name, int64_t heads, AlibiSlopeRule rule, AlibiForm form, BiasForm port_form) {
  AlibiSettings settings{.num_heads = heads, .slopes = rule, .form = form};
  const std::vector<double> slopes = rule == AlibiSlopeRule::kGeometric ? PaperSlopes(heads) : ReleasedSlopes(heads);
  return {name, {settings, {}}, {.slopes = slopes, .form = port_form}, heads};
}

std::vector<std::vector<double>> RandomTable(int64_t heads, int64_t buckets) {
  std::mt19937_64 random(1910);
  std::vector<std::vector<double>> table(heads, std::vector<double>(buckets));
  for (auto& row : table) {
    for (double& value : row) value = static_cast<float>(static_cast<double>(random() >> 11) * 0x1p-51 - 2);
  }
  return table;
}

Method T5Of(const char* name, bool bidirectional, bool with_table) {
  constexpr int64_t kHeads = 4, kBuckets = 32;
  Method method{name, {T5Settings{kBuckets, 128, bidirectional}, {}}, {}, kHeads};
  method.right.table = RandomTable(kHeads, kBuckets);
  method.right.bucket.bidirectional = bidirectional;
  if (!with_table) return method;
  BiasTable table{.rows = kHeads, .columns = kBuckets, .shared = false};
  for (const auto& row : method.right.table) table.values.insert(table.values.end(), row.begin(), row.end());
  method.asked.table = table;
  return method;
}

std::vector<Method> Methods() {
  const KerpleSettings kerple{KerpleKernel::kLog, {0.5, 1.25, 2, 0.75}, {2, 0.5, 1, 0.125}};
  return {AlibiOf("alibi, 8 heads", 8, AlibiSlopeRule::kPowerOfTwo, AlibiForm::kSymmetric, BiasForm::kSymmetric),
          AlibiOf("alibi, 12 heads, causal", 12, AlibiSlopeRule::kPowerOfTwo, AlibiForm::kCausal, BiasForm::kCausal),
          AlibiOf("alibi of the paper, 12 heads", 12, AlibiSlopeRule::kGeometric, AlibiForm::kSymmetric,
                  BiasForm::kSymmetric),
          AlibiOf("bloom, 8 heads", 8, AlibiSlopeRule::kPowerOfTwo, AlibiForm::kBloom, BiasForm::kBloom),
          AlibiOf("mpt, 16 heads", 16, AlibiSlopeRule::kMpt, AlibiForm::kMpt, BiasForm::kMpt),
          T5Of("t5 encoder", true, true),
          T5Of("t5 decoder", false, true),
          T5Of("t5 encoder without its table", true, false),
          {"kerple", {kerple, {}}, {.a = kerple.a, .p = kerple.p}, 4}};
}

struct Shape {
  const char* name;
  int64_t queries, keys, offset;
  bool causal;
};
constexpr Shape kShapes[] = {{"24 tokens", 24, 24, 0, false},
                             {"160 tokens, causal", 160, 160, 0, true},
                             {"160 tokens", 160, 160, 0, false},
                             {"16 of 80 tokens", 16, 80, 64, true}};
constexpr DType kTypes[] = {DType::kFP32, DType::kFP16, DType::kBF16};

struct Where {
  std::string name;
  std::function<bool(int64_t b, int64_t h, int64_t i)> holds;
  bool some_queries;
};
std::vector<Where> Wheres(int64_t queries) {
  return {{"everywhere", [](int64_t, int64_t, int64_t) { return true; }, false},
          {"row 1", [](int64_t b, int64_t, int64_t) { return b == 1; }, false},
          {"head 1", [](int64_t, int64_t h, int64_t) { return h == 1; }, false},
          {"head 2 of row 1", [](int64_t b, int64_t h, int64_t) { return b == 1 && h == 2; }, false},
          {"later queries", [queries](int64_t, int64_t, int64_t i) { return i >= queries / 2; }, true}};
}

struct Fault2 {
  std::string name;
  std::set<std::string> codes;  // any of them names it
  std::function<void(BiasTreatment*)> apply;
};

void AddAlibiFaults(const Method& method, std::vector<Fault2>* faults) {
  using T = BiasTreatment*;
  const int64_t heads = method.heads;
  const std::set<std::string> codes = {"SLOPES", "SCALE"};  // a single head's slope is multiplied
  const auto slopes = [&](const char* name, const std::vector<double>& other) {
    faults->push_back({name, codes, [other](T t) { t->slopes = other; }});
  };
  const auto form = [&](const char* name, BiasForm other) {
    if (method.right.form != other) faults->push_back({name, {"FORM", "SIGN"}, [other](T t) { t->form = other; }});
  };
  slopes("alibi_bias_max 16", ReleasedSlopes(heads, 16));
  slopes("alibi_bias_max 4", ReleasedSlopes(heads, 4));
  slopes("one head early", ReleasedSlopes(heads, 8, 1));
  slopes("slopes of the paper", PaperSlopes(heads));
  std::vector<double> more = ReleasedSlopes(2 * heads);
  slopes("the last heads of twice as many", {more.begin() + heads, more.end()});
  slopes("the first heads of twice as many", {more.begin(), more.begin() + heads});
  slopes("heads reversed", {method.right.slopes.rbegin(), method.right.slopes.rend()});
  slopes("one slope for all", std::vector<double>(heads, method.right.slopes[0]));
  faults->push_back({"slopes in bfloat16", {"ROUNDING", "SLOPES"}, [](T t) { t->round_slopes = DType::kBF16; }});
  faults->push_back({"slopes in float16", {"ROUNDING", "SLOPES"}, [](T t) { t->round_slopes = DType::kFP16; }});
  faults->push_back({"computed in bfloat16", {"ROUNDING"}, [](T t) { t->rounds_steps = true; }});
  form("without later keys", BiasForm::kCausal);
  form("by the key", BiasForm::kBloom);
  form("to the last key", BiasForm::kMpt);
  form("signed distances", BiasForm::kSigned);
}

void AddT5Faults(const Method& method, std::vector<Fault2>* faults) {
  using T = BiasTreatment*;
  faults->push_back({"16 buckets", {"BUCKETS"}, [](T t) { t->bucket.buckets = 16; }});
  faults->push_back({"up to 64", {"BUCKETS"}, [](T t) { t->bucket.farthest = 64; }});
  faults->push_back({"up to 256", {"BUCKETS"}, [](T t) { t->bucket.farthest = 256; }});
  faults->push_back({"the other direction", {"BUCKETS", "TRANSPOSED"}, [](T t) { t->bucket.bidirectional ^= true; }});
  if (!method.asked.table) return;
  faults->push_back({"the table's other order", {"TABLE"}, [](T t) {
                       const auto heads = static_cast<int64_t>(t->table.size());
                       const auto buckets = static_cast<int64_t>(t->table[0].size());
                       const auto table = t->table;
                       for (int64_t n = 0; n < heads * buckets; ++n) {
                         t->table[n / buckets][n % buckets] = table[n % heads][n / heads];
                       }
                     }});
  faults->push_back({"heads reversed", {"TABLE"}, [](T t) { std::reverse(t->table.begin(), t->table.end()); }});
  faults->push_back({"one bucket further", {"TABLE"}, [](T t) {
                       for (auto& row : t->table) std::rotate(row.begin(), row.begin() + 1, row.end());
                     }});
  faults->push_back({"the table in bfloat16", {"ROUNDING"}, [](T t) { t->round_table = DType::kBF16; }});
}

std::vector<Fault2> Faults(const Method& method, const Shape& shape) {
  using T = BiasTreatment*;
  std::vector<Fault2> faults = {{"negated", {"SIGN"}, [](T t) { t->factor = -1; }},
                                {"divided by 8", {"SCALE"}, [](T t) { t->factor = 0.125; }},
                                {"doubled", {"SCALE"}, [](T t) { t->factor = 2; }},
                                {"times log2 e", {"SCALE"}, [](T t) { t->factor = 1.4426950408889634; }}};
  if (method.has_distance()) {
    faults.push_back({"queries one later", {"QUERY_OFFSET"}, [](T t) { t->shift = 1; }});
    faults.push_back({"queries one earlier", {"QUERY_OFFSET"}, [](T t) { t->shift = -1; }});
  }
  if (shape.queries == shape.keys) {
    faults.push_back({"transposed", {"TRANSPOSED", "FORM", "METHOD", "BUCKETS"}, [](T t) { t->transposed = true; }});
  }
  // Of a few distances, another offset or other slopes may give the same.
  faults.push_back({"values clamped", {"CLIPPED", "METHOD", "FORM"}, [](T t) {
                      t->after = [](int64_t, int64_t, int64_t, double v) { return std::clamp(v, -0.75, 0.75); };
                    }});
  if (method.is_alibi()) AddAlibiFaults(method, &faults);
  if (method.is_t5()) AddT5Faults(method, &faults);
  if (method.is_t5() && !method.asked.table) {
    for (Fault2& fault : faults) fault.codes.insert("TABLE");  // row 0 and the first queries are the measure of others
  }
  return faults;
}

// Faults that no departure names.
std::vector<Fault2> Unnamed(const Method& method, const Shape& shape) {
  const auto cells = [](const char* name, const std::function<double(int64_t, int64_t, int64_t, double)>& change) {
    return Fault2{name, {}, [change](BiasTreatment* t) { t->after = change; }};
  };
  const int64_t offset = shape.offset;
  std::vector<Fault2> faults = {
      cells("one cell", [](int64_t, int64_t i, int64_t j, double v) { return i == 13 && j == 5 ? v + 1 : v; }),
      cells("noise",
            [](int64_t h, int64_t i, int64_t j, double v) {
              return v + 0.25 * std::sin(static_cast<double>(h * 7919 + i * 104729 + j * 1299709));
            }),
      // T5's buckets have several distances here.
      cells("one distance", [offset](int64_t, int64_t i, int64_t j, double v) { return i + offset - j == 20 ? 7 : v; }),
      cells("growing with the query",
            [](int64_t, int64_t i, int64_t, double v) { return v * (1 + 0.01 * static_cast<double>(i + 1)); }),
      cells("of distances in blocks of 5",
            [offset](int64_t h, int64_t i, int64_t j, double) {
              const int64_t block = std::abs(i + offset - j) / 5;
              return -0.3 * static_cast<double>(h + 1) * static_cast<double>(block);
            }),
      cells("of the distance's root", [offset](int64_t h, int64_t i, int64_t j, double) {
        return -0.3 * static_cast<double>(h + 1) * std::sqrt(static_cast<double>(std::abs(i + offset - j)));
      })};
  if (method.is_t5()) return faults;  // for T5 this is another table
  faults.push_back(cells("squared", [](int64_t, int64_t, int64_t, double v) { return v * std::fabs(v); }));
  return faults;
}

BiasDiagnosis Ask(const BiasEvidence& evidence, const Method& method, const Shape& shape) {
  WorkPool pool(1);
  BiasEvidence given = evidence;
  given.query_offset = shape.offset;
  auto diagnosis = DiagnoseBias(given, AskedBias{.method = method.asked}, 6, {}, pool, NeverCancelled);
  if (!diagnosis.ok()) throw std::runtime_error(std::string(diagnosis.status().message()));
  return *std::move(diagnosis);
}

// The rows [B, H, Sq] in which two biases differ by more than the bound, and whether an element differs at all.
struct Differences {
  std::vector<int64_t> shape;
  std::vector<uint8_t> rows;
  bool any = false, beyond = false;
};
Differences Compare(const MadeBias& a, const MadeBias& b, double bound) {
  Differences differences{a.evidence.bias.shape};
  const std::vector<int64_t>& shape = differences.shape;
  const DType dtype = a.evidence.bias.dtype;
  differences.rows.resize(shape[0] * shape[1] * shape[2]);
  for (int64_t n = 0; n < static_cast<int64_t>(a.bytes.size() / SizeOf(dtype)); ++n) {
    const uint64_t ulp = UlpDistance(dtype, a.bytes.data() + n * SizeOf(dtype), b.bytes.data() + n * SizeOf(dtype));
    differences.any |= ulp > 0;
    if (static_cast<double>(ulp) <= bound) continue;
    differences.beyond = true;
    differences.rows[n / shape[3]] = 1;
  }
  return differences;
}

class Matrix {
 public:
  template <class Visitor>
  static void Each(const Visitor& visit) {
    for (const Method& method : Methods()) {
      for (const DType dtype : kTypes) {
        for (const Shape& shape : kShapes) {
          const BiasPort port{2, method.heads, shape.queries, shape.keys, shape.offset, dtype, shape.causal};
          visit(method.name + ", " + std::string(Name(dtype)) + ", " + shape.name, method, shape, port);
        }
      }
    }
  }

  // `judge` says whether a verdict other than MATCHES is right, if these are the differences from a correct port.
  void Run(const std::string& name, const std::string& kind, const Method& method, const Shape& shape,
           const BiasPort& port, const std::function<const BiasTreatment&(int64_t, int64_t, int64_t)>& wrong,
           const std::function<Outcome(const Verdict&, const Differences&)>& judge) {
    if (!grammar.Next()) return;
    const MadeBias right(port, [&](int64_t, int64_t, int64_t) -> const BiasTreatment& { return method.right; });
    const MadeBias given(port, wrong);
    const BiasDiagnosis diagnosis = Ask(given.evidence, method, shape);
    const Verdict& verdict = diagnosis.verdict;
    const Differences differences = Compare(right, given, verdict.tolerance.ulp);
    const bool matches = verdict.kind == VerdictKind::kMatches;
    // Without an expected table, a bias that has another one is right.
    const bool same = !differences.any || (matches && diagnosis.explanations[0].comparison.share() == 1);
    Outcome outcome;
    if (same) {
      outcome = matches ? Outcome::kSame : Outcome::kMisleading;
    } else if (matches) {
      outcome = differences.beyond ? Outcome::kMisleading : Outcome::kWithinBound;
    } else {
      outcome = judge(verdict, differences);
    }
    grammar.Add(outcome, name, kind, verdict);
  }

  Grammar grammar{kOneIn};
};

bool IsIn(const std::vector<IndexRange>& ranges, int64_t index) {
  return ranges.empty() || std::any_of(ranges.begin(), ranges.end(), [index](const IndexRange& range) {
           return index >= range.first && index <= range.last && (index - range.first) % range.step == 0;
         });
}

// True if the fault's parts are the rows that differ, or the matrices that have one unless `some_queries`.
bool InPart(const Fault& fault, const Differences& wanted, bool some_queries) {
  const int64_t heads = wanted.shape[1], queries = wanted.shape[2];
  for (int64_t matrix = 0; matrix < wanted.shape[0] * heads; ++matrix) {
    bool differs = false, claimed = false;
    for (int64_t i = 0; i < queries; ++i) {
      const bool in = std::any_of(fault.parts.begin(), fault.parts.end(), [&](const Part& part) {
        return IsIn(part.batch_rows, matrix / heads) && IsIn(part.heads, matrix % heads) && IsIn(part.tokens, i);
      });
      if (some_queries && in != (wanted.rows[matrix * queries + i] != 0)) return false;
      differs |= wanted.rows[matrix * queries + i] != 0;
      claimed |= in;
    }
    if (differs != claimed) return false;
  }
  return true;
}

// True if the earlier queries do not show the fault: it may be everywhere.
bool ShowsLater(const BiasPort& port, const Where& where, const BiasTreatment& right, const BiasTreatment& wrong) {
  const MadeBias some(port, [&](int64_t b, int64_t h, int64_t i) -> const BiasTreatment& {
    return where.holds(b, h, i) ? wrong : right;
  });
  const MadeBias all(port, [&](int64_t, int64_t, int64_t) -> const BiasTreatment& { return wrong; });
  return some.bytes == all.bytes;
}

TEST(DiagnoseBiasVerdict, SingleFaults) {
  Matrix matrix;
  Matrix::Each([&](const std::string& name, const Method& method, const Shape& shape, const BiasPort& port) {
    for (const Fault2& fault : Faults(method, shape)) {
      BiasTreatment wrong = method.right;
      fault.apply(&wrong);
      for (const Where& where : Wheres(shape.queries)) {
        matrix.Run(
            name + ", " + where.name, fault.name, method, shape, port,
            [&](int64_t b, int64_t h, int64_t i) -> const BiasTreatment& {
              return where.holds(b, h, i) ? wrong : method.right;
            },
            [&](const Verdict& verdict, const Differences& differences) {
              if (verdict.faults.empty() || verdict.faults[0].described) return Outcome::kUnknown;
              const bool named = verdict.faults.size() == 1 && Names(verdict.faults[0], fault.codes) &&
                                 InPart(verdict.faults[0], differences,
                                        where.some_queries && !ShowsLater(port, where, method.right, wrong));
              return named || !differences.beyond ? Outcome::kNamed : Outcome::kMisleading;
            });
      }
    }
  });
  matrix.grammar.Print("single faults of biases");
  EXPECT_EQ(matrix.grammar[Outcome::kMisleading], 0);
  EXPECT_GE(matrix.grammar[Outcome::kNamed], 0.95 * matrix.grammar.changed());
}

TEST(DiagnoseBiasVerdict, PairsOfFaults) {
  Matrix matrix;
  Matrix::Each([&](const std::string& name, const Method& method, const Shape& shape, const BiasPort& port) {
    if (method.is_t5() && !method.asked.table) return;  // its row 0 is the measure of row 1
    const std::vector<Fault2> faults = Faults(method, shape);
    for (size_t a = 0; a < faults.size(); a += 3) {
      for (size_t b = 1; b < faults.size(); b += 3) {
        BiasTreatment first = method.right, second = method.right;
        faults[a].apply(&first);
        faults[b].apply(&second);
        // One fault in batch row 1, the other in head 1 of row 0: each must be named in its part.
        matrix.Run(
            name, faults[a].name + " and " + faults[b].name, method, shape, port,
            [&](int64_t row, int64_t h, int64_t) -> const BiasTreatment& {
              return row == 1 ? first : h == 1 ? second : method.right;
            },
            [&](const Verdict& verdict, const Differences&) {
              bool unexplained = false;
              for (const Fault& fault : verdict.faults) {
                const bool is_a = Names(fault, faults[a].codes), is_b = Names(fault, faults[b].codes);
                unexplained |= fault.described;
                const Part& part = fault.parts[0];
                const bool in_a = part.batch_rows == std::vector<IndexRange>{{1, 1}},
                           in_b = part.batch_rows == std::vector<IndexRange>{{0, 0}} &&
                                  part.heads == std::vector<IndexRange>{{1, 1}};
                const bool placed = (is_a && in_a) || (is_b && in_b) || (is_a && is_b);
                if (!placed && !fault.described) return Outcome::kMisleading;
              }
              return unexplained ? Outcome::kUnknown : Outcome::kNamed;
            });
      }
    }
  });
  matrix.grammar.Print("pairs of faults of biases");
  EXPECT_EQ(matrix.grammar[Outcome::kMisleading], 0);
}

TEST(DiagnoseBiasVerdict, FaultsWithoutAName) {
  Matrix matrix;
  Matrix::Each([&](const std::string& name, const Method& method, const Shape& shape, const BiasPort& port) {
    const bool placed = !method.is_t5() || method.asked.table;  // else the first queries are the measure of others
    for (const Fault2& fault : Unnamed(method, shape)) {
      BiasTreatment wrong = method.right;
      fault.apply(&wrong);
      for (const Where& where : Wheres(shape.queries)) {
        matrix.Run(
            name + ", " + where.name, fault.name, method, shape, port,
            [&](int64_t b, int64_t h, int64_t i) -> const BiasTreatment& {
              return where.holds(b, h, i) ? wrong : method.right;
            },
            [&](const Verdict& verdict, const Differences& differences) {
              const bool described =
                  verdict.kind == VerdictKind::kUnknown || (verdict.faults.size() == 1 && verdict.faults[0].described &&
                                                            InPart(verdict.faults[0], differences, placed));
              return described ? Outcome::kNamed : Outcome::kMisleading;
            });
      }
    }
  });
  matrix.grammar.Print("faults of biases without a name (named: described, in the right part)");
  EXPECT_EQ(matrix.grammar[Outcome::kMisleading], 0);
}

TEST(DiagnoseBiasVerdict, CorrectPorts) {
  Grammar grammar(kOneInRight);
  int cases = 0, equal = 0;
  Matrix::Each([&](const std::string& name, const Method& method, const Shape& shape, const BiasPort& port) {
    if (!grammar.Next()) return;
    const MadeBias right(port, [&](int64_t, int64_t, int64_t) -> const BiasTreatment& { return method.right; });
    const BiasDiagnosis diagnosis = Ask(right.evidence, method, shape);
    ++cases;
    equal += diagnosis.explanations[0].comparison.share() == 1;
    EXPECT_EQ(diagnosis.verdict.kind, VerdictKind::kMatches) << name << ": " << diagnosis.verdict.sentence;
  });
  std::printf("%d correct biases, %d of them equal bit for bit\n", cases, equal);
}

}  // namespace
}  // namespace posenc::diagnose::diagnose_bias_verdict_test
