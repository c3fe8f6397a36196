// Candidate methods for a bias, derived from its structure.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "posenc/diagnose/bias.h"
#include "posenc/diagnose/bias_structure.h"
#include "posenc/settings/settings.h"

namespace posenc::diagnose {

// Detection of the rule that gave ALiBi's slopes.

struct NamedSlopes {
  int64_t num_heads;
  int64_t head_start;
  decltype(AlibiSettings::slopes) slopes;
  std::string name;
  std::optional<double> bias_max;
  bool expected = false;  // they are what was asked for
};

Matrix<double> AsMatrix(const std::vector<double>& slopes);

// Each rule whose slopes for this number of heads are near these; if none, the first slice of a rule for more heads.
std::vector<NamedSlopes> ByRule(const std::vector<double>& slopes);
// The slopes as float32, with a few words on how they differ from a rule's if they resemble one.
NamedSlopes AsTheyAre(const std::vector<double>& slopes, DType dtype);
// True if each slope is within two percent of the wanted one: rounding to narrow types.
bool AreAlike(const std::vector<double>& found, const std::vector<double>& wanted);

// One way to compute a candidate. It is tried only if no earlier variant gives the same bytes.
struct BiasVariant {
  BiasMethod method;
  Precision precision;
  std::string suffix;  // appended to the sentence
};

struct BiasCandidate {
  std::vector<BiasVariant> variants;
  int64_t head_start = 0;  // index of the bias's first head among the method's heads
  int64_t query_offset = 0;
  std::string sentence;
  int64_t free_values = 0;  // numbers that were taken from the data
};

// Likely positions of the first query, from the caller, the mask and common practice (Sk - Sq, 0). No duplicates.
std::vector<int64_t> UsualOffsets(const BiasEvidence& evidence, const BiasStructure& structure);
// True if it is known where the first query stands: it was stated, the mask says it, or there are as many queries as
// keys. If not, the first query of a correct bias may stand anywhere.
bool IsPlaced(const BiasEvidence& evidence, const BiasStructure& structure);
// UsualOffsets() and the positions at which values that fall or rise with the distance begin.
std::vector<int64_t> QueryOffsets(const BiasEvidence& evidence, const BiasStructure& structure);
// Positions of the first query at which head 0 has the expected T5 table's values; without a table, or if there are
// none, positions at which values change only where buckets begin. UsualOffsets() if there are none either; among
// several, only the usual ones.
std::vector<int64_t> T5Offsets(const BiasEvidence& evidence, const BiasStructure& structure, const BiasMethod& method,
                               const Precision& precision, int64_t head_start);
// Words for the first query's position. Empty if the caller gave that position, or if it is 0 in a square bias.
std::string Place(const BiasEvidence& evidence, int64_t offset);

// ALiBi candidates if values are linear in the distance or in the key's position: the expected slopes if the values
// have them, slopes by rule, then as measured. `asked`: what was asked for and computed; null if nothing was.
std::vector<BiasCandidate> AlibiCandidates(const BiasEvidence& evidence, const BiasStructure& structure,
                                           const BiasExplanation* asked);
// T5 candidates if distances share values as the buckets of some settings do: with the expected table, then with the
// table that results. `asked`: what was asked for and computed; null if nothing was. If it is T5, its settings are
// tried beside the usual ones. Tables have at most `most_values`.
absl::StatusOr<std::vector<BiasCandidate>> T5Candidates(const BiasEvidence& evidence, const BiasStructure& structure,
                                                        const BiasExplanation* asked, bool has_table,
                                                        int64_t most_values, const Cancellation& cancelled);
// The table for completed settings: for each bucket the first unmasked value found in it, NaN if there is none.
absl::StatusOr<BiasTable> FirstValues(const BiasEvidence& evidence, const FoundMask& mask, Frequencies arithmetic,
                                      const T5Settings& settings, int64_t query_offset, const Cancellation& cancelled);

// Comparison of a method's bias with the data.

// The arguments that all steps of a diagnosis share. The referenced objects must outlive it.
struct BiasCall {
  const Limits& limits;
  WorkPool& pool;
  const Cancellation& cancelled;
  double tolerance_ulp;          // the distance that counts as rounding
  bool within_is_right = false;  // within the tolerance is right, even if a fault gives every bit
  bool up_to_softmax = false;    // a constant in each row is right
  bool only_fits = false;        // explanations that do not fit need not be compared entirely
};

// Computes the bias by the explanation's method, precision and geometry, and fills in the comparison.
// Cells within the tolerance are no misfits; `on_misfit` is called with the others.
absl::Status Prove(
    const BiasEvidence& evidence, const FoundMask& mask, const BiasCall& call, BiasExplanation* explanation,
    const std::function<void(const BiasDifference&)>& on_misfit = [](const BiasDifference&) {});

// True if a is nearer to the data.
bool IsBetter(const Comparison& a, const Comparison& b);

// Slopes of the heads in the bias; slopes of all batch rows if each row has its own.
std::vector<double> SlopesHere(const BiasExplanation& explanation, const AlibiSettings& alibi);
int64_t OffsetOf(const BiasExplanation& explanation);

// Departures of a bias, in words.

float RoundedTo(DType dtype, double value);
// Says that heads have what other heads should have, by the first that has: order[h] is that head's index.
std::string DescribeOrder(const char* what, const std::vector<size_t>& order, int64_t head);
bool IsIdentity(const std::vector<size_t>& order);

// Departures of one explanation, and the numbers that were fitted to the data for them.
struct FittedFault {
  std::vector<Departure> departures;
  int64_t free_values = 0;
  bool gives_bytes = false;  // of all cells

  static FittedFault Of(std::string code, std::string message, int64_t free_values = 0) {
    return {{{std::move(code), std::move(message)}}, free_values};
  }
  void Add(FittedFault more) {
    std::move(more.departures.begin(), more.departures.end(), std::back_inserter(departures));
    free_values += more.free_values;
  }
  bool Has(std::string_view code) const { return departures.size() == 1 && departures[0].code == code; }
};
// True if slopes differ only by roundings of float32.
bool AreSameSlopes(const std::vector<double>& found, const std::vector<double>& wanted);
// True if they differ by the roundings of powers in float32.
bool AreNearSlopes(const std::vector<double>& found, const std::vector<double>& wanted);
// Returns the fault of slopes that are not the wanted ones. `head`: the index of the first slope; `bias_max`: the
// alibi_bias_max of the wanted ones; `dtype`: the type in which biases are compared.
FittedFault SlopesFault(const std::vector<double>& found, const std::vector<double>& wanted, int64_t head,
                        double bias_max, DType dtype);
// Returns the fault of a T5 bias whose first query has position `offset`: distances have the values of other buckets of
// the expected table, or other values. Absent if neither the buckets' values nor their places are those of the table.
std::optional<FittedFault> TableFault(const BiasStructure& structure, const BiasExplanation& asked, int64_t offset,
                                      DType dtype);
// Says that queries stand `shift` positions too far.
std::string OffsetFault(const BiasEvidence& evidence, int64_t shift);

// Descriptions of a bias: its mask and structure in words, and the questions that the data leave open.

std::string Describe(const BiasEvidence& evidence, const BiasStructure& structure);
std::string Describe(const FoundMask& mask);

// Reasons to doubt the diagnosis. Call it with all explanations, sorted best first.
std::vector<Undecided> Doubts(const BiasEvidence& evidence, const BiasDiagnosis& diagnosis);

// Access to values by distance.

// View of one head's values. `structure` must follow the distance (kDistance) and outlive the view.
class ByDistance {
 public:
  ByDistance(const BiasStructure& structure, size_t head)
      : values_(structure.values[head]), first_(structure.first_distance) {}

  int64_t first() const { return first_; }
  int64_t last() const { return first_ + static_cast<int64_t>(values_.size()) - 1; }
  // The value at a distance; NaN if there is none.
  double At(int64_t distance) const {
    const int64_t n = distance - first_;
    if (n < 0 || n >= static_cast<int64_t>(values_.size())) return std::numeric_limits<double>::quiet_NaN();
    return values_[n];
  }
  // The distance at which sign * value is greatest; the first of equals.
  int64_t Peak(double sign) const {
    int64_t peak = first_;
    for (int64_t d = first_; d <= last(); ++d) {
      if (!std::isnan(At(d)) && !(sign * At(d) <= sign * At(peak))) peak = d;
    }
    return peak;
  }
  // The distance at which the line through the first and the last known value is 0; NaN if it has no slope.
  double Zero() const {
    int64_t low = first_, high = last();
    while (low < high && std::isnan(At(low))) ++low;
    while (low < high && std::isnan(At(high))) --high;
    const double rise = At(high) - At(low);
    return rise == 0 || low == high ? std::numeric_limits<double>::quiet_NaN()
                                    : static_cast<double>(low) - At(low) / rise * static_cast<double>(high - low);
  }

 private:
  const std::vector<double>& values_;
  const int64_t first_;
};

}  // namespace posenc::diagnose
