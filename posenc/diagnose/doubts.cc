#include "posenc/diagnose/doubts.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace posenc::diagnose {
namespace {

class Doubter {
 public:
  explicit Doubter(const Findings& findings) : f_(findings) {
    proven_ = !f_.explanations.empty() && f_.explanations[0].proof.comparison.share() == 1;
  }

  std::vector<Undecided> All() {
    Contents();
    Positions();
    Aliases();
    return std::move(doubts_);
  }

 private:
  void Say(std::string code, std::string message, std::string remedy) {
    doubts_.push_back({std::move(code), std::move(message), std::move(remedy)});
  }

  void Contents() {
    bool changed = false, constant = false;
    for (const ElementCensus& c : f_.census) {
      changed = changed || c.first_changed >= 0;
      constant = constant || c.constant;
    }
    if (f_.not_finite > 0) {
      Say("NOT_FINITE", fmt::format("{} rows have elements that are not finite", f_.not_finite), "send finite numbers");
    }
    if (!changed) {
      Say("NOTHING_CHANGED", "after is equal to before: nothing was rotated, or all tokens are at position 0",
          "rows at positions other than 0; a layer that rotates");
    } else if (!proven_ && (f_.readings.empty() || f_.readings[0].norm_residual > kNotARotation)) {
      Say("NOT_A_ROTATION",
          fmt::format("no pairing keeps the norms of pairs: {} of the squared norms is unexplained",
                      f_.readings.empty() ? "most" : Short(f_.readings[0].norm_residual)),
          "before and after of the rotation alone: the same tensor, in this layout, without norm, bias or projection "
          "between them");
    } else if (!proven_ && f_.readings[0].angles.scatter > kNotARotation) {
      Say("HEADS_DIFFER",
          fmt::format("heads of one token rotate by different angles: {} of the energy is unexplained",
                      Short(f_.readings[0].angles.scatter)),
          "the layout of the tensors; the positions of these rows");
    } else if (!proven_ && !f_.explained) {
      Say("NOTHING_FITS", "pairs rotate, but no frequencies give these angles at these positions",
          "the positions of the rows, in the rows' order");
    }
    if (constant) {
      Say("CONSTANT_INPUT", "all elements of before are equal: permutations of elements cannot be distinguished",
          "random numbers");
    }
  }

  void Positions() {
    std::set<std::vector<double>> distinct;
    for (int64_t n = 0; n < f_.sample.tokens.count() && distinct.size() < 2; ++n) {
      std::vector<double> position;
      for (const auto& axis : f_.sample.tokens.positions) position.push_back(axis[n]);
      distinct.insert(position);
    }
    const double step = f_.reading == nullptr ? 0 : f_.reading->frequencies.smallest_step;
    if (distinct.size() < 2) {
      Say("TOO_FEW_POSITIONS", "all tokens are at one position: frequencies and positions cannot be distinguished",
          "a run of adjacent positions, for example 64, far from 0");
    } else if (!proven_ && step > 1) {
      Say("STEP_TOO_LARGE",
          fmt::format("positions are at least {} apart: frequencies are known only modulo 2 pi / {}", Short(step),
                      Short(step)),
          "rows at adjacent positions");
    }
  }

  void Aliases() {
    std::string others;
    for (size_t n = 1; n < f_.explanations.size(); ++n) {
      if (f_.explanations[n].same_as == 0) others += (others.empty() ? "" : "; ") + f_.explanations[n].sentence;
    }
    if (others.empty()) return;
    Say("ALIASES", "these give the same bytes on this data as the first: " + others,
        "rows at larger positions, or of a wider type");
  }

  const Findings& f_;
  bool proven_ = false;
  std::vector<Undecided> doubts_;
};

}  // namespace

std::vector<Undecided> Doubts(const Findings& findings) { return Doubter(findings).All(); }

}  // namespace posenc::diagnose
