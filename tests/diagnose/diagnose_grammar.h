// Grammars of right and wrong ports: which of their cases run, and what came of them. POSENC_DIAGNOSE_ONE_IN=1 runs all
// cases, POSENC_DIAGNOSE_FIRST=N those from the Nth on, and POSENC_DIAGNOSE_PRINT=1 prints those that are not named,
// with the N that runs a case alone (POSENC_DIAGNOSE_ONE_IN=1000000).
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "posenc/diagnose/verdict.h"

namespace posenc::diagnose {

enum class Outcome { kNamed, kUnknown, kWithinBound, kSame, kMisleading };

class Grammar {
 public:
  // Every `one_in`th case runs by default.
  explicit Grammar(size_t one_in)
      : one_in_(FromEnvironment("POSENC_DIAGNOSE_ONE_IN", one_in)),
        first_(FromEnvironment("POSENC_DIAGNOSE_FIRST", 0) % one_in_) {}

  // True if the next case runs.
  bool Next() { return n_++ % one_in_ == first_; }
  uint64_t seed() const { return n_; }

  void Add(Outcome outcome, const std::string& name, const std::string& kind, const Verdict& verdict) {
    ++of_[outcome];
    if (outcome == Outcome::kNamed || outcome == Outcome::kSame) return;
    static const char* const kNames[] = {"named", "unknown", "within the bound", "same", "misleading"};
    const char* said = kNames[static_cast<int>(outcome)];
    ++failing_[kind + ": " + said];
    if (std::getenv("POSENC_DIAGNOSE_PRINT") == nullptr) return;
    std::printf("%s | %s | %s | case %zu | %s\n", said, name.c_str(), kind.c_str(), n_ - 1, verdict.sentence.c_str());
  }

  int operator[](Outcome outcome) const { return of_.count(outcome) == 0 ? 0 : of_.at(outcome); }
  int all() const {
    int sum = 0;
    for (const auto& [outcome, count] : of_) sum += count;
    return sum;
  }
  // Cases with elements that no correct port gives.
  int changed() const { return all() - (*this)[Outcome::kSame]; }

  void Print(const char* title) const {
    std::printf(
        "%s: %d of %zu cases; %d the same bytes as a correct port; named %d, unknown %d, within the bound %d, "
        "misleading %d\n",
        title, all(), n_, (*this)[Outcome::kSame], (*this)[Outcome::kNamed], (*this)[Outcome::kUnknown],
        (*this)[Outcome::kWithinBound], (*this)[Outcome::kMisleading]);
    for (const auto& [name, count] : failing_) std::printf("   %4d %s\n", count, name.c_str());
  }

 private:
  static size_t FromEnvironment(const char* name, size_t otherwise) {
    const char* text = std::getenv(name);
    return text == nullptr ? otherwise : std::strtoul(text, nullptr, 10);
  }

  const size_t one_in_, first_;
  size_t n_ = 0;
  std::map<Outcome, int> of_;
  std::map<std::string, int> failing_;
};

inline bool HasCode(const std::vector<Departure>& departures, const std::set<std::string>& codes) {
  return departures.size() == 1 && codes.count(departures[0].code) != 0;
}

// True if the fault, or another one with the same bytes, has one of the codes.
inline bool Names(const Fault& fault, const std::set<std::string>& codes) {
  return HasCode(fault.departures, codes) ||
         std::any_of(fault.alternatives.begin(), fault.alternatives.end(),
                     [&](const auto& departures) { return HasCode(departures, codes); });
}

}  // namespace posenc::diagnose
