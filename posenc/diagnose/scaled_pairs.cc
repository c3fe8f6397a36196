#include "posenc/diagnose/search.h"

namespace posenc::diagnose {
namespace {

// What is left of the numbers once the scale is taken out of them; k is divided where q is multiplied.
std::optional<XposScale> RemoveScale(const Evidence& sample, const Asked& asked, Pairing pairing,
                                     std::vector<Numbers>* numbers) {
  const std::vector<double>& positions = sample.tokens.positions[0];
  std::optional<XposScale> of_q;
  for (size_t n = 0; n < numbers->size(); ++n) {
    PairLayout layout{pairing, pairing, (*numbers)[n].width / 2 * 2, 0};
    std::optional<Xpos> usual;
    if (asked.settings) {
      layout.rotary_dim = *asked.settings->rotary_dim;
      layout.offset = asked.offsets[n];
      usual = asked.settings->xpos;
    }
    if (layout.offset + layout.rotary_dim > (*numbers)[n].width) return std::nullopt;
    std::optional<XposScale> scale = MeasureXpos((*numbers)[n], layout, positions, usual);
    if (!scale) return std::nullopt;
    RemoveXpos(*scale, layout, positions, &(*numbers)[n]);
    if (sample.operands[n].which == Operand::kKey) scale->divides = !scale->divides;
    if (!of_q) of_q = scale;
  }
  return of_q;
}

}  // namespace

std::vector<Reading> ReadScaledPairs(const Evidence& sample, const std::vector<Numbers>& numbers,
                                     const std::vector<ElementCensus>& census, const Asked& asked) {
  if (sample.is_table || sample.tokens.axes() > 1) return {};
  std::vector<Reading> best;
  for (Pairing pairing : {Pairing::kHalfSplit, Pairing::kInterleaved}) {
    std::vector<Numbers> rest = numbers;
    const std::optional<XposScale> scale = RemoveScale(sample, asked, pairing, &rest);
    if (!scale) continue;
    std::vector<Reading> readings = ReadPairs(sample, rest, census, asked);
    // The scale is of these pairs and no others.
    if (readings.empty() || readings[0].layouts[0].output != pairing || readings[0].norm_residual > kNotARotation ||
        (!best.empty() && best[0].norm_residual <= readings[0].norm_residual)) {
      continue;
    }
    for (Reading& reading : readings) reading.xpos = scale;
    best = std::move(readings);
  }
  return best;
}

}  // namespace posenc::diagnose
