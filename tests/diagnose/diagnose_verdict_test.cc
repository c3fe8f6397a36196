// Verdicts on ports made by a grammar: method x type x stretch x where x fault, single faults, pairs of faults, faults
// without a name, and correct ports. docs/diagnose.md has figures.
#include <gtest/gtest.h>

#include <set>

#include "tests/diagnose/diagnose_grammar.h"
#include "tests/diagnose/diagnose_port.h"
#include "tests/kernels/one_in.h"

namespace posenc::diagnose::diagnose_verdict_test {
namespace {

// Primes, so that no fault and no part is left out.
const size_t kOneIn = OneIn() == 1 ? 127 : 251;
constexpr size_t kOneInRight = 11;

struct Method {
  std::string name;
  RopeParameters parameters;
  double attention = 1;
};

std::vector<Method> Methods() {
  return {{"default", {.rope_type = "default", .rope_theta = 1e4}},
          {"theta 5e5", {.rope_type = "default", .rope_theta = 5e5}},
          {"linear", {.rope_type = "linear", .rope_theta = 1e4, .factor = 4}},
          {"llama3",
           {.rope_type = "llama3",
            .rope_theta = 5e5,
            .factor = 8,
            .original_max_position_embeddings = 8192,
            .low_freq_factor = 1,
            .high_freq_factor = 4}},
          {"yarn",
           {.rope_type = "yarn", .rope_theta = 1e6, .factor = 4, .original_max_position_embeddings = 4096},
           0.1 * std::log(4.0) + 1}};
}

struct Stretch2 {
  std::string name;
  double first;
  int64_t length;
};
const std::vector<Stretch2> kStretches = {{"near", 0, 64}, {"far", 8200, 64}};
const std::pair<DType, Style> kTypes[] = {{DType::kFP32, Style::kFloat32},
                                          {DType::kFP16, Style::kEager},
                                          {DType::kBF16, Style::kEager},
                                          {DType::kBF16, Style::kExact}};

// A part of the data, as a verdict names it.
struct Where {
  std::string name;
  std::function<bool(const PortCell&)> holds;
  Part part;
};
constexpr int64_t kFrom = 40;
std::vector<Where> Wheres() {
  return {{"everywhere", [](const PortCell&) { return true; }, {}},
          {"k", [](const PortCell& c) { return c.operand == 1; }, {.operands = {Operand::kKey}}},
          {"row 1", [](const PortCell& c) { return c.b == 1; }, {.batch_rows = {{1, 1}}}},
          {"head 1 of q",
           [](const PortCell& c) { return c.operand == 0 && c.h == 1; },
           {.operands = {Operand::kQuery}, .heads = {{1, 1}}}},
          {"head 0 of k, row 0",
           [](const PortCell& c) { return c.operand == 1 && c.h == 0 && c.b == 0; },
           {.operands = {Operand::kKey}, .batch_rows = {{0, 0}}, .heads = {{0, 0}}}},
          {"tokens from 40 on", [](const PortCell& c) { return c.s >= kFrom; }, {.tokens = {{kFrom, 63}}}}};
}

struct Fault2 {
  std::string name;
  std::set<std::string> codes;  // any of them names it
  std::function<void(const Method&, Treatment*)> apply;
};

void SetFrequencies(const RopeParameters& p, Treatment* t) { t->inv_freq = PaperFrequencies(p, 64); }

std::vector<Fault2> Faults(const Method& method, const Stretch2& stretch) {
  using T = Treatment*;
  const double first = stretch.first;
  std::vector<Fault2> faults = {
      {"positions + 1", {"POSITIONS"}, [](const Method&, T t) { t->position += 1; }},
      {"positions - 1", {"POSITIONS"}, [](const Method&, T t) { t->position -= 1; }},
      {"positions + 7", {"POSITIONS"}, [](const Method&, T t) { t->position += 7; }},
      {"positions of a page of 16",
       {"POSITIONS"},
       [](const Method&, T t) { t->position = std::fmod(t->position, 16); }},
      {"positions of pages of 16",
       {"POSITIONS"},
       [](const Method&, T t) { t->position = 16 * std::floor(t->position / 16); }},
      {"one position", {"POSITIONS"}, [first](const Method&, T t) { t->position = first + 5; }},
      {"positions backwards",
       {"POSITIONS"},
       [first](const Method&, T t) { t->position = 2 * first + 63 - t->position; }},
      {"positions clamped",
       {"POSITIONS"},
       [first](const Method&, T t) { t->position = std::min(t->position, first + 20); }},
      {"direction", {"DIRECTION"}, [](const Method&, T t) { t->sign = -1; }},
      {"pairing", {"PAIRING"}, [](const Method&, T t) { t->interleaved = true; }},
      {"not rotated", {"NOT_ROTATED"}, [](const Method&, T t) { t->turns = 0; }},
      {"rotated twice", {"ROTATED_TWICE"}, [](const Method&, T t) { t->turns = 2; }},
      {"cos and sin exchanged", {"COS_SIN_EXCHANGED"}, [](const Method&, T t) { t->exchanged = true; }},
      {"scaled", {"ATTENTION_FACTOR"}, [](const Method&, T t) { t->scale *= 0.125; }},
      {"theta 77777",
       {"ROPE_THETA"},
       [](const Method& m, T t) {
         RopeParameters p = m.parameters;
         p.rope_theta = 77777;
         SetFrequencies(p, t);
       }},
      {"theta 1e5",
       {"ROPE_THETA"},
       [](const Method& m, T t) {
         RopeParameters p = m.parameters;
         p.rope_theta = 1e5;
         SetFrequencies(p, t);
       }},
      {"exponents of twice the width",
       {"FREQUENCY_DIM", "ROPE_THETA"},
       [](const Method& m, T t) {
         RopeParameters p = m.parameters;
         p.frequency_dim = 128;
         SetFrequencies(p, t);
       }},
      {"half the width",
       {"ROTARY_WIDTH", "FREQUENCY_DIM"},
       [](const Method& m, T t) { t->inv_freq = PaperFrequencies(m.parameters, 32); }},
      {"frequencies in bfloat16", {"INV_FREQ_ROUNDED"}, [](const Method&, T t) { t->round_frequency = DType::kBF16; }},
      {"frequencies in float16", {"INV_FREQ_ROUNDED"}, [](const Method&, T t) { t->round_frequency = DType::kFP16; }},
      {"positions in bfloat16",
       {"POSITIONS_ROUNDED", "ANGLES_ROUNDED"},
       [](const Method&, T t) { t->round_position = DType::kBF16; }},
      {"positions in float16", {"POSITIONS_ROUNDED"}, [](const Method&, T t) { t->round_position = DType::kFP16; }},
      {"positions of no rule",
       {"POSITIONS"},
       [](const Method&, T t) { t->position += std::fmod(t->position * 7919, 13); }},
      {"angles in bfloat16",
       {"ANGLES_ROUNDED"},
       [](const Method&, T t) { t->round_frequency = t->round_position = t->round_angle = DType::kBF16; }},
      {"angles in float16",
       {"ANGLES_ROUNDED"},
       [](const Method&, T t) { t->round_frequency = t->round_position = t->round_angle = DType::kFP16; }},
      {"tables in bfloat16", {"TABLES_ROUNDED"}, [](const Method&, T t) { t->round_table = DType::kBF16; }},
      {"tables in float16", {"TABLES_ROUNDED"}, [](const Method&, T t) { t->round_table = DType::kFP16; }}};
  const auto with = [&faults](const char* name, std::set<std::string> codes, const auto& change) {
    faults.push_back({name, std::move(codes), [change](const Method& m, T t) {
                        RopeParameters p = m.parameters;
                        change(p);
                        SetFrequencies(p, t);
                      }});
  };
  if (method.parameters.rope_type != "default") {
    with("no scaling", {"SCALING_MISSING"}, [](RopeParameters& p) { p.rope_type = "default"; });
    faults.push_back({"twice the factor", {"FACTOR", "SCALING_TYPE"}, [](const Method& m, T t) {
                        RopeParameters p = m.parameters;
                        p.factor = 2 * *p.factor;
                        SetFrequencies(p, t);
                        if (p.rope_type == "yarn") t->scale = 0.1 * std::log(*p.factor) + 1;
                      }});
  }
  if (method.parameters.rope_type == "llama3") {
    with("low and high exchanged", {"LOW_HIGH_EXCHANGED"},
         [](RopeParameters& p) { std::swap(p.low_freq_factor, p.high_freq_factor); });
    with("high 8", {"HIGH_FREQ_FACTOR"}, [](RopeParameters& p) { p.high_freq_factor = 8; });
    with("length 4096", {"ORIGINAL_LENGTH"}, [](RopeParameters& p) { p.original_max_position_embeddings = 4096; });
  }
  if (method.parameters.rope_type == "yarn") {
    with("length 8192", {"ORIGINAL_LENGTH"}, [](RopeParameters& p) { p.original_max_position_embeddings = 8192; });
    with("beta_fast 16", {"BETA_FAST"}, [](RopeParameters& p) { p.beta_fast = 16; });
    with("not truncated", {"TRUNCATE"}, [](RopeParameters& p) { p.truncate = false; });
    faults.push_back({"no attention factor", {"ATTENTION_FACTOR"}, [](const Method&, T t) { t->scale = 1; }});
  }
  return faults;
}

// Faults that no departure names.
std::vector<Fault2> Unnamed() {
  using T = Treatment*;
  const auto row = [](const char* name, const std::function<void(std::vector<double>*)>& change) {
    return Fault2{name, {}, [change](const Method&, T t) { t->after = change; }};
  };
  const auto frequencies = [](const char* name, const std::function<void(std::vector<double>*)>& change) {
    return Fault2{name, {}, [change](const Method&, T t) { change(&t->inv_freq); }};
  };
  return {row("the first element negated", [](auto* y) { (*y)[0] = -(*y)[0]; }),
          row("the halves exchanged", [](auto* y) { std::rotate(y->begin(), y->begin() + 32, y->end()); }),
          row("a bias was added",
              [](auto* y) {
                for (double& v : *y) v += 0.25;
              }),
          row("one element is 0", [](auto* y) { (*y)[17] = 0; }),
          row("elements reversed", [](auto* y) { std::reverse(y->begin(), y->end()); }),
          row("clamped to 1",
              [](auto* y) {
                for (double& v : *y) v = std::clamp(v, -1.0, 1.0);
              }),
          row("the second half scaled",
              [](auto* y) {
                for (size_t n = 32; n < 64; ++n) (*y)[n] *= 1.5;
              }),
          row("normalized",
              [](auto* y) {
                double sum = 0;
                for (double v : *y) sum += v * v;
                for (double& v : *y) v /= std::sqrt(sum / 64);
              }),
          frequencies("pair 5 stands", [](auto* f) { (*f)[5] = 0; }),
          frequencies("one pair later", [](auto* f) { std::rotate(f->begin(), f->begin() + 1, f->end()); }),
          frequencies("pairs 4 .. 11 at 1.3 times",
                      [](auto* f) {
                        for (int k = 4; k < 12; ++k) (*f)[k] *= 1.3;
                      }),
          frequencies("odd pairs backwards",
                      [](auto* f) {
                        for (size_t k = 1; k < f->size(); k += 2) (*f)[k] *= -1;
                      }),
          frequencies("harmonic",
                      [](auto* f) {
                        for (size_t k = 0; k < f->size(); ++k) (*f)[k] = 1.0 / (1.0 + static_cast<double>(k * k));
                      }),
          {"positions squared", {}, [](const Method&, T t) { t->position = t->position * t->position / 64; }},
          {"a random phase", {}, [](const Method&, T t) { t->position += std::fmod(t->position * 7919, 13) / 16; }}};
}

Asked AskedOf(const Method& method) {
  RotarySettings settings;
  settings.frequencies = method.parameters;
  settings.rotary_dim = 64;
  settings.input_pairing = Pairing::kHalfSplit;
  Asked asked = AskFor(Completed(settings));
  asked.offsets = {0, 0};
  return asked;
}

std::function<Treatment(const PortCell&)> Right(const Port& port, const Method& method) {
  return [port, f = PaperFrequencies(method.parameters, 64), method](const PortCell& cell) {
    return Treatment{.inv_freq = f, .position = port.position(cell.b, cell.s), .scale = method.attention};
  };
}

bool SameBytes(const Evidence& a, const Evidence& b) {
  for (size_t n = 0; n < a.operands.size(); ++n) {
    const auto x = a.operands[n].after->From(0), y = b.operands[n].after->From(0);
    if (x != y) return false;
  }
  return true;
}

// The largest difference between right and wrong in units of the tolerance at the norm of a pair.
bool WithinBound(const Evidence& a, const Evidence& b, const Asked& asked) {
  const Candidate candidate{.settings = *asked.settings, .offsets = {0, 0}};
  WorkPool pool(1);
  for (const Precision& precision : {kF32Precision, kHfEagerPrecision, kExactPrecision, kVllmPrecision}) {
    const auto proof = Prove(candidate, {precision, {a.operands[0].after_dtype, a.operands[0].after_dtype}}, b, {},
                             pool, NeverCancelled, std::make_unique<Tolerance>().get());
    if (proof.ok() && proof->misfits->none()) return true;
  }
  return false;
}

bool InPart(const Fault& fault, const Part& wanted) {
  if (fault.parts.size() != 1) return false;
  const Part& part = fault.parts[0];
  if (part.operands != wanted.operands || part.batch_rows != wanted.batch_rows || part.heads != wanted.heads)
    return false;
  // A fault may not show in the first and the last tokens.
  if (wanted.tokens.empty()) return true;
  return !part.tokens.empty() && part.tokens[0].first >= wanted.tokens[0].first &&
         part.tokens[0].first <= wanted.tokens[0].first + 8;
}

bool IsWithin(const std::vector<IndexRange>& ranges, const std::vector<IndexRange>& wanted) {
  const auto fits = [&](const IndexRange& one) { return one.first >= wanted[0].first && one.last <= wanted[0].last; };
  return wanted.empty() || (!ranges.empty() && std::all_of(ranges.begin(), ranges.end(), fits));
}

// True if no part has rows outside the wanted one. In single rows an unnamed fault may not show.
bool IsWithin(const Fault& fault, const Part& wanted) {
  return std::all_of(fault.parts.begin(), fault.parts.end(), [&](const Part& part) {
    return (wanted.operands.empty() || part.operands == wanted.operands) &&
           IsWithin(part.batch_rows, wanted.batch_rows) && IsWithin(part.heads, wanted.heads) &&
           IsWithin(part.tokens, wanted.tokens);
  });
}

Diagnosis Ask(const Evidence& evidence, const Asked& asked) {
  WorkPool pool(1);
  auto diagnosis = Diagnose(evidence, asked, 6, {}, pool, NeverCancelled);
  if (!diagnosis.ok()) throw std::runtime_error(std::string(diagnosis.status().message()));
  return *std::move(diagnosis);
}

class Matrix {
 public:
  // Calls visit(name, method, stretch, port) for every method, type and stretch.
  template <class Visitor>
  static void Each(const Visitor& visit) {
    for (const Method& method : Methods()) {
      for (const auto& [dtype, style] : kTypes) {
        for (const Stretch2& stretch : kStretches) {
          Port port{.length = stretch.length, .dtype = dtype, .style = style};
          port.position = [first = stretch.first](int64_t, int64_t s) { return first + static_cast<double>(s); };
          const std::string name = method.name + ", " + std::string(Name(dtype)) +
                                   (style == Style::kExact ? " exact" : "") + ", " + stretch.name;
          visit(name, method, stretch, port);
        }
      }
    }
  }

  // `judge` says whether a verdict other than MATCHES is right.
  void Run(const std::string& name, const std::string& kind, const Port& port, const Method& method,
           const std::function<Treatment(const PortCell&)>& wrong,
           const std::function<Outcome(const Verdict&)>& judge) {
    if (!grammar.Next()) return;
    const Asked asked = AskedOf(method);
    const uint64_t seed = grammar.seed();
    const Evidence right = Rotated(port, seed, Right(port, method)), given = Rotated(port, seed, wrong);
    const Diagnosis diagnosis = Ask(given, asked);
    const Verdict& verdict = diagnosis.verdict;
    // Tables in the tensor's type, for example, are a correct port of another precision.
    const bool equal = verdict.kind == VerdictKind::kMatches && diagnosis.explanations[0].proof.comparison.share() == 1;
    const bool same = SameBytes(right, given) || equal;
    Outcome outcome;
    if (same) {
      outcome = verdict.kind == VerdictKind::kMatches ? Outcome::kSame : Outcome::kMisleading;
    } else if (verdict.kind == VerdictKind::kMatches) {
      outcome = WithinBound(right, given, asked) ? Outcome::kWithinBound : Outcome::kMisleading;
    } else {
      outcome = judge(verdict);
    }
    grammar.Add(outcome, name, kind, verdict);
  }

  Grammar grammar{kOneIn};
};

TEST(DiagnoseVerdict, SingleFaults) {
  Matrix matrix;
  Matrix::Each([&](const std::string& name, const Method& method, const Stretch2& stretch, const Port& port) {
    const auto right = Right(port, method);
    for (const Fault2& fault : Faults(method, stretch)) {
      for (const Where& where : Wheres()) {
        matrix.Run(
            name + ", " + where.name, fault.name, port, method,
            [&](const PortCell& cell) {
              Treatment t = right(cell);
              if (where.holds(cell)) fault.apply(method, &t);
              return t;
            },
            [&](const Verdict& verdict) {
              if (verdict.faults.empty() || verdict.faults[0].described) return Outcome::kUnknown;
              const bool named = verdict.faults.size() == 1 && Names(verdict.faults[0], fault.codes) &&
                                 InPart(verdict.faults[0], where.part);
              return named ? Outcome::kNamed : Outcome::kMisleading;
            });
      }
    }
  });
  matrix.grammar.Print("single faults");
  EXPECT_EQ(matrix.grammar[Outcome::kMisleading], 0);
  EXPECT_GE(matrix.grammar[Outcome::kNamed], 0.95 * matrix.grammar.changed());
}

TEST(DiagnoseVerdict, PairsOfFaults) {
  Matrix matrix;
  Matrix::Each([&](const std::string& name, const Method& method, const Stretch2& stretch, const Port& port) {
    const auto right = Right(port, method);
    const std::vector<Fault2> faults = Faults(method, stretch);
    const std::vector<Where> wheres = Wheres();
    for (size_t a = 0; a < faults.size(); a += 3) {
      for (size_t b = 1; b < faults.size(); b += 4) {
        // One fault in k, the other in a head of q: each must be named in its part.
        matrix.Run(
            name, faults[a].name + " and " + faults[b].name, port, method,
            [&](const PortCell& cell) {
              Treatment t = right(cell);
              if (wheres[1].holds(cell)) faults[a].apply(method, &t);
              if (wheres[3].holds(cell)) faults[b].apply(method, &t);
              return t;
            },
            [&](const Verdict& verdict) {
              // Every fault that is named must be right. One that does not show need not be named.
              bool unexplained = false;
              for (const Fault& fault : verdict.faults) {
                const bool is_a = Names(fault, faults[a].codes), is_b = Names(fault, faults[b].codes);
                const bool placed = (is_a && InPart(fault, wheres[1].part)) || (is_b && InPart(fault, wheres[3].part));
                unexplained |= fault.described;
                if (!placed && !(is_a && is_b) && !fault.described) return Outcome::kMisleading;
              }
              return unexplained ? Outcome::kUnknown : Outcome::kNamed;
            });
      }
    }
  });
  matrix.grammar.Print("pairs of faults");
  EXPECT_EQ(matrix.grammar[Outcome::kMisleading], 0);
}

TEST(DiagnoseVerdict, FaultsWithoutAName) {
  Matrix matrix;
  Matrix::Each([&](const std::string& name, const Method& method, const Stretch2&, const Port& port) {
    const auto right = Right(port, method);
    for (const Fault2& fault : Unnamed()) {
      for (size_t w = 0; w < 4; ++w) {
        const Where where = Wheres()[w];
        matrix.Run(
            name + ", " + where.name, fault.name, port, method,
            [&](const PortCell& cell) {
              Treatment t = right(cell);
              if (where.holds(cell)) fault.apply(method, &t);
              return t;
            },
            [&](const Verdict& verdict) {
              const bool described = std::all_of(verdict.faults.begin(), verdict.faults.end(), [&](const Fault& one) {
                return one.described && IsWithin(one, where.part);
              });
              return described ? Outcome::kNamed : Outcome::kMisleading;
            });
      }
    }
  });
  matrix.grammar.Print("faults without a name (named: described, in the right part)");
  EXPECT_EQ(matrix.grammar[Outcome::kMisleading], 0);
}

TEST(DiagnoseVerdict, CorrectPorts) {
  Grammar grammar(kOneInRight);
  int cases = 0, equal = 0;
  Matrix::Each([&](const std::string& name, const Method& method, const Stretch2&, const Port& port) {
    const auto asked = AskedOf(method);
    for (uint64_t seed = 1; seed <= 4; ++seed) {
      if (!grammar.Next()) continue;
      const Diagnosis diagnosis = Ask(Rotated(port, seed, Right(port, method)), asked);
      ++cases;
      equal += diagnosis.explanations[0].proof.comparison.share() == 1;
      EXPECT_EQ(diagnosis.verdict.kind, VerdictKind::kMatches) << name << ": " << diagnosis.verdict.sentence;
    }
  });
  std::printf("%d correct ports, %d of them equal bit for bit\n", cases, equal);
}

}  // namespace
}  // namespace posenc::diagnose::diagnose_verdict_test
