#include <algorithm>

#include "posenc/diagnose/departures.h"
#include "posenc/diagnose/rotation_call.h"

namespace posenc::diagnose {
namespace {

bool FitsSome(const Explanation& explanation) {
  if (!explanation.proof.misfits) return false;
  int64_t wrong = 0, all = 0;
  for (const std::vector<uint8_t>& rows : explanation.proof.misfits->rows) {
    wrong += std::count(rows.begin(), rows.end(), 1);
    all += static_cast<int64_t>(rows.size());
  }
  return 4 * wrong <= 3 * all;
}

// Adds an explanation, with the index of the first one that gives the same bytes.
void AddExplanation(Explanation explanation, std::vector<Explanation>* explanations) {
  explanation.same_as = explanations->size();
  for (size_t n = 0; n < explanations->size(); ++n) {
    const bool comparable = (*explanations)[n].complete == explanation.complete;
    if (comparable && (*explanations)[n].proof.digest == explanation.proof.digest) {
      explanation.same_as = n;
      break;
    }
  }
  explanations->push_back(std::move(explanation));
}

}  // namespace

std::vector<Explanation> ListExplanations(const RotationCall& call, const SampleFindings& whole,
                                          std::vector<Explanation> parts, size_t most) {
  std::vector<Explanation> explanations;
  const auto add_part = [&](Explanation part) {
    if (explanations.size() == most) return;
    const bool everywhere = part.fits();
    part.candidate.departures = call.AllDepartures(part);
    part.sentence = Sentence(call.asked, part) + (everywhere ? "" : ", in a part of the data");
    AddExplanation(std::move(part), &explanations);
  };
  const auto others =
      std::stable_partition(parts.begin(), parts.end(), [](const Explanation& one) { return one.fits(); });
  for (auto part = parts.begin(); part != others; ++part) add_part(std::move(*part));
  for (Explanation explanation : whole.explanations) {
    const bool asked = call.asked.settings && explanation.candidate.departures.empty();
    // Keep what was asked for, to report how far off it is.
    if (!explanation.fits() && !asked && !(IsAsMeasured(explanation) && explanation.residual <= kWellMatched)) {
      continue;
    }
    const bool again = std::any_of(explanations.begin(), explanations.end(), [&](const Explanation& other) {
      // A fault that changes no byte here is not reported.
      const bool nothing_new = (asked && other.candidate.departures.empty()) ||
                               explanation.candidate.fault != TableFault::kNone ||
                               other.sentence == Sentence(call.asked, explanation);
      return nothing_new && other.proof.digest == explanation.proof.digest;
    });
    if (again || explanations.size() == most) continue;
    if (explanation.fits()) {
      explanation.candidate.departures = call.AllDepartures(explanation);
      explanation.sentence = Sentence(call.asked, explanation);
    } else if (asked) {
      explanation.sentence =
          call.asked.Asks() + (FitsSome(explanation) ? " explains a part of the data" : " does not explain the data");
    } else {
      explanation.sentence = Sentence(call.asked, explanation);
    }
    AddExplanation(std::move(explanation), &explanations);
  }
  for (auto part = others; part != parts.end(); ++part) add_part(std::move(*part));
  return explanations;
}

}  // namespace posenc::diagnose
