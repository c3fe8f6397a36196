#include "posenc/diagnose/search.h"

namespace posenc::diagnose {
namespace {

// Removes xPos's scale, which multiplies q and divides k. Absent if no operand has one or the asked layout does not
// fit.
std::optional<Scales> RemoveScales(const Evidence& sample, const Asked& asked, Pairing pairing,
                                   std::vector<Numbers>* numbers) {
  const std::vector<double>& positions = sample.tokens.positions[0];
  std::optional<Scales> scales;
  std::vector<int> signs;
  for (size_t n = 0; n < numbers->size(); ++n) {
    PairLayout layout{pairing, pairing, (*numbers)[n].width / 2 * 2, 0};
    std::optional<Xpos> usual;
    if (asked.settings) {
      layout.rotary_dim = *asked.settings->rotary_dim;
      layout.offset = asked.offsets[n];
      layout.half_split_parts = asked.settings->half_split_parts;
      usual = asked.settings->xpos;
    }
    if (layout.offset + layout.rotary_dim > (*numbers)[n].width) return std::nullopt;
    const std::optional<XposScale> scale = MeasureXpos((*numbers)[n], layout, positions, usual);
    signs.push_back(0);
    if (!scale) continue;
    RemoveXpos(*scale, layout, positions, &(*numbers)[n]);
    const bool as_itself = scale->divides == (sample.operands[n].which == Operand::kKey);
    signs.back() = as_itself ? 1 : -1;
    if (!scales) scales = Scales{scale->xpos};
  }
  if (scales) scales->signs = signs;
  return scales;
}

}  // namespace

std::vector<Reading> ReadScaledPairs(const Evidence& sample, const std::vector<Numbers>& numbers,
                                     const std::vector<ElementCensus>& census, const Asked& asked) {
  if (sample.is_table || sample.tokens.axes() > 1) return {};
  std::vector<Reading> best;
  for (Pairing pairing : {Pairing::kHalfSplit, Pairing::kInterleaved}) {
    std::vector<Numbers> rest = numbers;
    const std::optional<Scales> scales = RemoveScales(sample, asked, pairing, &rest);
    if (!scales) continue;
    std::vector<Reading> readings = ReadPairs(sample, rest, census, asked);
    // The scale belongs to this pairing only.
    if (readings.empty() || readings[0].layouts[0].output != pairing || readings[0].norm_residual > kNotARotation ||
        (!best.empty() && best[0].norm_residual <= readings[0].norm_residual)) {
      continue;
    }
    for (Reading& reading : readings) reading.scales = scales;
    best = std::move(readings);
  }
  return best;
}

}  // namespace posenc::diagnose
