// The verdict of a diagnosis: one answer, the parts to which it applies, and the words for both.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "posenc/diagnose/candidate.h"
#include "posenc/diagnose/evidence.h"
#include "posenc/diagnose/parts.h"
#include "posenc/diagnose/prove.h"

namespace posenc::diagnose {

enum class VerdictKind { kMatches, kDiffers, kSeveralFaults, kUnknown };

// first, first + step, ..., last.
struct IndexRange {
  int64_t first, last, step = 1;
  bool operator==(const IndexRange&) const = default;
};

// A part of the evidence: these heads of these batch rows, in these tokens. An empty list means everything along that
// axis.
struct Part {
  std::vector<Operand> operands;
  std::vector<IndexRange> batch_rows, heads, tokens, keys, pairs, distances;
  // The other tokens are equal only because the fault does not show there, as at position 0: not said.
  bool all_that_show = false;
  int64_t cells = 0;  // of a bias: how many differ, if others of the part match; 0: all do

  bool has_tokens() const { return !tokens.empty() && !all_that_show; }
  bool is_everything() const {
    return operands.empty() && batch_rows.empty() && heads.empty() && !has_tokens() && keys.empty() && pairs.empty() &&
           distances.empty() && cells == 0;
  }
  bool operator==(const Part&) const = default;
};

// Positions of some tokens on one axis, measured.
struct MeasuredPositions {
  int64_t axis = 0;
  std::vector<int64_t> batch_rows, tokens;
  std::vector<double> stated, measured, uncertainty;
};

struct Fault {
  std::string sentence;                              // what happened; for an unexplained part what was measured
  std::vector<Departure> departures;                 // empty: the data do not tell
  bool described = false;                            // they say what was measured: no cause is proven
  std::vector<std::vector<Departure>> alternatives;  // other explanations with the same bytes here
  std::vector<Part> parts;
  std::vector<Part> said;                    // the same in fewer words; empty: they are said as they are
  std::vector<MeasuredPositions> positions;  // by axis, if they are the fault
  int64_t free_values = 0;                   // numbers that were fitted to the data
  int64_t values = 0;                        // independent values of the data that differ from the expected ones
};

struct Verdict {
  VerdictKind kind = VerdictKind::kUnknown;
  std::string sentence;  // one line
  std::vector<Fault> faults;
  Tolerance tolerance;
  std::string bound;  // the tolerance in words
};

// Indices as ranges; empty if they are all of 0 .. count - 1.
std::vector<IndexRange> Ranges(const std::vector<uint8_t>& in_set);

// The smallest parts that contain the rows: one for all operands if they agree, else one for each. `fitting`: rows
// that the explanation of these rows explains, too; tokens extend over them. Pairs are left empty.
std::vector<Part> PartsOf(const Evidence& evidence, const RowSet& rows, const RowSet& fitting);

// Words for the axis of tokens, and its length.
struct TokenAxis {
  const char *one, *several;
  int64_t count;
  bool is_table = false;  // heads are the first and the second elements of pairs
};

// "k, batch row 1, heads 3 and 5, tokens 40-63"; empty for everything. Ranges up to the last token are "from 40 on".
std::string Describe(const Part& part, const TokenAxis& axis);

// True for the code of another system's way to compute the same frequencies, whose errors are larger than the bound. If
// it alone departs, the verdict is that the data match.
bool IsRecipe(std::string_view code);

// Sets kind and sentence from the faults, of which there is at least one. `rest_matches`: all rows outside their parts
// are as expected.
void Conclude(const TokenAxis& axis, bool rest_matches, Verdict* verdict);
void Conclude(const Evidence& evidence, bool rest_matches, Verdict* verdict);

// The messages, separated by semicolons.
std::string Sentence(const std::vector<Departure>& departures);

std::string Describe(const Tolerance& tolerance, DType after);

}  // namespace posenc::diagnose
