#include "posenc/diagnose/bias.h"

#include <algorithm>

#include <fmt/format.h>

#include "posenc/diagnose/bias_candidates.h"
#include "posenc/generate_bias.h"
#include "posenc/status.h"

namespace posenc::diagnose {
namespace {

constexpr size_t kMostExplanations = 8;

// Compares the cells of a row that are not masked; `at` is the first.
void CompareRow(const Cell& at, const std::vector<double>& row, const FoundMask& mask, DType dtype,
                const std::byte* ours, const std::byte* theirs, BiasExplanation* explanation) {
  const auto keys = static_cast<int64_t>(row.size());
  const size_t size = SizeOf(dtype);
  for (int64_t begin = 0, end = 0; begin < keys; begin = end) {
    while (begin < keys && mask.Hides(row[begin])) ++begin;
    for (end = begin; end < keys && !mask.Hides(row[end]);) ++end;
    const size_t cells = end - begin;
    const size_t differs = explanation->comparison.Add(dtype, ours + begin * size, theirs + begin * size, cells);
    if (differs < cells && !explanation->first_differ) {
      explanation->first_differ = Cell{at.b, at.h, at.i, begin + static_cast<int64_t>(differs)};
    }
  }
}

// Computes the method's bias, a tile of queries at a time, and compares it.
absl::Status Prove(const BiasEvidence& e, const FoundMask& mask, const Limits& limits, WorkPool& pool,
                   const Cancellation& cancelled, BiasExplanation* explanation) {
  GenerateBias call{.method = explanation->method, .dtype = e.bias.dtype, .precision = explanation->precision};
  call.geometry.query_length = e.queries();
  call.geometry.key_length = e.keys();
  call.geometry.query = OffsetPositions{explanation->query_offset};
  POSENC_ASSIGN_OR_RETURN(const BiasGeneration bias,
                          BiasGeneration::Create(std::move(call), limits, BiasGeneration::Extent::kTiles));
  const int64_t keys = e.keys();
  const size_t row_bytes = keys * SizeOf(e.bias.dtype);
  constexpr int64_t kTileBytes = 1 << 20;
  const int64_t most = std::max<int64_t>(1, kTileBytes / static_cast<int64_t>(e.heads() * row_bytes));
  std::vector<double> row(keys);
  for (int64_t first = 0; first < e.queries(); first += most) {
    const int64_t count = std::min(most, e.queries() - first);
    std::vector<std::byte> tile(e.heads() * count * row_bytes);
    POSENC_RETURN_IF_ERROR(bias.Run(first, count, nullptr, tile.data(), pool, cancelled));
    for (int64_t b = 0; b < e.batch(); ++b) {
      for (int64_t h = 0; h < e.heads(); ++h) {
        for (int64_t n = 0; n < count; ++n) {
          const int64_t i = first + n;
          e.Load(b, h, i, row.data());
          const std::byte* ours = tile.data() + (h * count + n) * row_bytes;
          const std::byte* theirs = e.data + ((b * e.heads() + h) * e.queries() + i) * row_bytes;
          CompareRow({b, h, i, 0}, row, mask, e.bias.dtype, ours, theirs, explanation);
        }
      }
    }
  }
  return absl::OkStatus();
}

std::string Describe(const FoundMask& mask) {
  std::string text;
  switch (mask.kind) {
    case MaskKind::kNone: return "no mask";
    case MaskKind::kKeys: text = "no mask but hidden keys"; break;
    case MaskKind::kCausal: text = fmt::format("causal: query i sees keys up to i{:+}", mask.offset); break;
    case MaskKind::kWindow:
      text = fmt::format("a window: query i sees {} keys up to i{:+}", mask.window, mask.offset);
      break;
    case MaskKind::kPrefix:
      text = fmt::format("a prefix: all queries see the first {} keys, query i those up to i{:+}", mask.prefix,
                         mask.offset);
      break;
    case MaskKind::kOther: text = "a mask that is neither causal, nor a window, nor a prefix"; break;
  }
  if (mask.padded_keys > 0) text += fmt::format("; {} keys are hidden from all queries", mask.padded_keys);
  return text + fmt::format("; masked cells are {}", mask.fill);
}

std::string Describe(const BiasStructure& structure) {
  const std::string mask = Describe(structure.mask);
  switch (structure.follows) {
    case Follows::kNothing: return mask + "; the other values are 0: no bias";
    case Follows::kDistance: return mask + "; values follow the distance alone (Toeplitz)";
    case Follows::kKey: return mask + "; every query has the same row: values follow the key alone";
    case Follows::kBoth: break;
  }
  const auto& [a, b] = *structure.contradiction;
  return mask + fmt::format(
                    "; values do not follow the distance: [{}, {}, {}, {}] and [{}, {}, {}, {}] are as far apart "
                    "and differ",
                    a.b, a.h, a.i, a.j, b.b, b.h, b.i, b.j);
}

}  // namespace

absl::StatusOr<BiasDiagnosis> DiagnoseBias(const BiasEvidence& e, const std::optional<BiasMethod>& asked,
                                           const Limits& limits, WorkPool& pool, const Cancellation& cancelled) {
  BiasDiagnosis diagnosis;
  POSENC_ASSIGN_OR_RETURN(diagnosis.structure, FindStructure(e, limits, cancelled));
  const BiasStructure& structure = diagnosis.structure;
  diagnosis.sentence = Describe(structure);

  std::vector<BiasCandidate> candidates = AlibiCandidates(e, structure);
  for (BiasCandidate& t5 : T5Candidates(e, structure)) candidates.push_back(std::move(t5));
  if (asked) {
    const int64_t offset = e.query_offset.value_or(e.keys() - e.queries());
    candidates.insert(candidates.begin(), {*asked, offset, "what the model asks for"});
  }
  for (BiasCandidate& candidate : candidates) {
    BiasExplanation explanation{.method = std::move(candidate.method),
                                .query_offset = candidate.query_offset,
                                .sentence = std::move(candidate.sentence)};
    const absl::Status status = Prove(e, structure.mask, limits, pool, cancelled, &explanation);
    if (absl::IsCancelled(status) || absl::IsDeadlineExceeded(status)) return status;
    if (status.ok()) diagnosis.explanations.push_back(std::move(explanation));  // else it cannot be that
  }
  auto& found = diagnosis.explanations;
  std::stable_sort(found.begin(), found.end(), [](const BiasExplanation& a, const BiasExplanation& b) {
    return std::pair(-a.comparison.share(), a.comparison.mean_log()) <
           std::pair(-b.comparison.share(), b.comparison.mean_log());
  });
  if (found.size() > kMostExplanations) found.resize(kMostExplanations);
  return diagnosis;
}

}  // namespace posenc::diagnose
