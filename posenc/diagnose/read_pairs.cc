#include <algorithm>
#include <utility>

#include "posenc/diagnose/departures.h"
#include "posenc/diagnose/search.h"

namespace posenc::diagnose {
namespace {

std::optional<PairLayout> AskedLayout(const Asked& asked, size_t operand) {
  if (!asked.settings) return std::nullopt;
  return PairLayout{*asked.settings->input_pairing, *asked.settings->output_pairing, *asked.settings->rotary_dim,
                    asked.offsets[operand], asked.settings->half_split_parts};
}

}  // namespace

void SetLayout(const Reading& reading, Candidate* candidate) {
  const PairLayout& layout = reading.layouts[0];
  candidate->settings.rotary_dim = layout.rotary_dim;
  candidate->settings.input_pairing = layout.input;
  candidate->settings.output_pairing = layout.output;
  candidate->settings.half_split_parts = layout.half_split_parts;
  candidate->offsets.clear();
  for (const PairLayout& each : reading.layouts) candidate->offsets.push_back(each.offset);
}

std::vector<Departure> LayoutDepartures(const Asked& asked, const Reading& reading, const Evidence& sample) {
  std::vector<Departure> all;
  for (size_t n = 0; n < reading.layouts.size(); ++n) {
    const bool as_q = n > 0 && asked.settings && asked.offsets[n] == asked.offsets[0] &&
                      reading.layouts[n].offset == reading.layouts[0].offset;
    if (as_q) continue;  // said of q already
    for (Departure& departure : LayoutDepartures(asked, n, reading.layouts[n], sample.operands[n].width)) {
      all.push_back(std::move(departure));
    }
  }
  return all;
}

std::vector<Reading> ReadPairs(const Evidence& sample, const std::vector<Numbers>& numbers,
                               const std::vector<ElementCensus>& census, const Asked& asked) {
  std::vector<Reading> readings;
  std::vector<PairHypothesis> hypotheses;
  if (sample.is_table) {  // a table's pairs are known, its norms arbitrary
    hypotheses = {{{Pairing::kHalfSplit, Pairing::kHalfSplit, numbers[0].width, 0}, 0}};
  } else {
    hypotheses = FindPairs(numbers[0], census[0], AskedLayout(asked, 0), RoundingOf(sample.operands[0]));
  }
  for (const PairHypothesis& q : hypotheses) {
    Reading reading{{q.layout}, q.residual};
    reading.angles.Add(numbers[0], q.layout);
    if (numbers.size() > 1) {
      // k has the same pairs as q, maybe at another offset.
      PairLayout like_q = q.layout;
      if (asked.settings) like_q.offset = asked.offsets[1];
      for (const PairHypothesis& k : FindPairs(numbers[1], census[1], like_q, RoundingOf(sample.operands[1]))) {
        if (k.layout.input != q.layout.input || k.layout.output != q.layout.output ||
            k.layout.rotary_dim != q.layout.rotary_dim || k.layout.half_split_parts != q.layout.half_split_parts) {
          continue;
        }
        reading.layouts.push_back(k.layout);
        reading.norm_residual = std::max(reading.norm_residual, k.residual);
        reading.angles.Add(numbers[1], k.layout);
        break;
      }
      if (reading.layouts.size() == 1) continue;
    }
    reading.angles.Finish();
    reading.frequencies = MeasureFrequencies(reading.angles, sample.tokens);
    readings.push_back(std::move(reading));
  }
  return readings;
}

}  // namespace posenc::diagnose
