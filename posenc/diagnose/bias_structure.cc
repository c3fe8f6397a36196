#include "posenc/diagnose/bias_structure.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include <fmt/format.h>

#include "posenc/base/interruption.h"
#include "posenc/base/status.h"
#include "posenc/kernels/convert.h"

namespace posenc::diagnose {
namespace {

// The keys that a query sees. Ignores keys that are hidden from all queries.
struct Seen {
  int64_t first = 0, last = -1;  // empty: last < first
  bool whole = true;             // no hidden key between first and last
};

// Cells between two questions whether the call goes on.
constexpr int64_t kCellsAtOnce = 65536;

// No method gives values below this, so they are fill. Frameworks fill with minus infinity, a type's lowest value or
// -1e9.
double SurelyFill(DType dtype) { return dtype == DType::kFP16 ? -60000 : -1e8; }
// Weaker fill is not looked for. BERT's fill of -1e4 stays below this when a bias is added.
constexpr double kWeakest = -5000;

absl::StatusOr<double> Lowest(const BiasEvidence& e, const Cancellation& cancelled) {
  double lowest = std::numeric_limits<double>::infinity();
  POSENC_RETURN_IF_ERROR(
      VisitRows(e, cancelled, [&lowest](int64_t b, int64_t h, int64_t i, const std::vector<double>& row) {
        for (size_t j = 0; j < row.size(); ++j) {
          if (std::isnan(row[j]) || row[j] == std::numeric_limits<double>::infinity()) {
            return InvalidArgument("OUT_OF_RANGE", fmt::format("bias[{}, {}, {}, {}]", b, h, i, j),
                                   std::isnan(row[j]) ? "NaN" : "inf", "must be a number or minus infinity");
          }
          lowest = std::min(lowest, row[j]);
        }
        return absl::OkStatus();
      }));
  return lowest;
}

// Finds the mask's fill values, to which a bias may have been added.
absl::StatusOr<FoundMask> FindFill(const BiasEvidence& e, const Cancellation& cancelled) {
  POSENC_ASSIGN_OR_RETURN(const double lowest, Lowest(e, cancelled));
  if (lowest > kWeakest) return FoundMask();
  const bool surely = lowest <= SurelyFill(e.bias.dtype);
  const double cut = surely ? SurelyFill(e.bias.dtype) : 0.55 * lowest;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  double highest = -kInfinity, least_shown = kInfinity;
  std::vector<int64_t> cells(e.batch() * e.heads());
  POSENC_RETURN_IF_ERROR(VisitRows(e, cancelled, [&](int64_t b, int64_t h, int64_t, const std::vector<double>& row) {
    for (const double value : row) {
      if (value > cut) {
        least_shown = std::min(least_shown, value);
      } else {
        highest = std::max(highest, value);
        ++cells[b * e.heads() + h];
      }
    }
    return absl::OkStatus();
  }));
  // If a large bias could reach the fill, require a gap to all other values and equally many fill cells in each head.
  bool apart = least_shown == kInfinity ? highest == lowest : least_shown - highest >= -0.25 * lowest;
  FoundMask mask{.kind = MaskKind::kOther, .fill = lowest, .highest_fill = highest};
  for (size_t n = 0; n < cells.size(); ++n) {
    apart &= cells[n] == cells[n / e.heads() * e.heads()];
    mask.cells += cells[n];
  }
  return surely || apart ? mask : FoundMask();
}

// Sets the mask's kind from the rows of one batch row and head.
void Classify(const std::vector<Seen>& rows, int64_t first_key, int64_t last_key, FoundMask* mask) {
  using Key = std::function<int64_t(int64_t i)>;  // that query i sees
  const auto sees = [&](const Key& first, const Key& last) {
    for (size_t n = 0; n < rows.size(); ++n) {
      const auto i = static_cast<int64_t>(n);
      if (rows[n].last < rows[n].first) continue;
      if (!rows[n].whole || rows[n].first != first(i) || rows[n].last != last(i)) return false;
    }
    return true;
  };
  const Key from_first = [&](int64_t) { return first_key; };
  const Key up_to = [&](int64_t i) { return std::min(i + mask->offset, last_key); };
  if (sees(from_first, [&](int64_t) { return last_key; })) {
    mask->kind = MaskKind::kKeys;
    return;
  }
  // The last row that does not see the last key gives the offset: neither a prefix nor the last key limits it.
  bool bounded = false;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].last < rows[i].first || rows[i].last >= last_key) continue;
    mask->offset = rows[i].last - static_cast<int64_t>(i);
    bounded = true;
  }
  if (!bounded) mask->offset = last_key - (static_cast<int64_t>(rows.size()) - 1);  // only a window's start shows
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].first > first_key) mask->window = static_cast<int64_t>(i) + mask->offset - rows[i].first + 1;
  }
  mask->prefix = rows[0].last + 1;
  if (sees(from_first, up_to)) {
    mask->kind = MaskKind::kCausal;
    mask->window = mask->prefix = 0;
  } else if (sees([&](int64_t i) { return std::max(first_key, i + mask->offset - mask->window + 1); }, up_to)) {
    mask->kind = MaskKind::kWindow;
    mask->prefix = 0;
  } else if (sees(from_first, [&](int64_t i) { return std::max(up_to(i), mask->prefix - 1); })) {
    mask->kind = MaskKind::kPrefix;
    mask->window = 0;
  } else {
    mask->kind = MaskKind::kOther;
    mask->window = mask->prefix = mask->offset = 0;
  }
}

// Sets the mask's kind; kOther if batch rows or heads differ in more than hidden keys.
absl::Status FindKind(const BiasEvidence& e, const Cancellation& cancelled, FoundMask* mask) {
  std::vector<uint8_t> shown(e.batch() * e.keys());  // key is visible to some query
  POSENC_RETURN_IF_ERROR(VisitRows(e, cancelled, [&](int64_t b, int64_t, int64_t, const std::vector<double>& row) {
    for (int64_t j = 0; j < e.keys(); ++j) shown[b * e.keys() + j] |= !mask->Hides(row[j]);
    return absl::OkStatus();
  }));
  mask->padded_keys = std::count(shown.begin(), shown.end(), 0);
  std::vector<Seen> rows(e.queries());
  bool first = true, differ = false;
  FoundMask found = *mask;
  POSENC_RETURN_IF_ERROR(VisitRows(e, cancelled, [&](int64_t b, int64_t, int64_t i, const std::vector<double>& row) {
    const uint8_t* keys = shown.data() + b * e.keys();
    Seen seen{.first = e.keys(), .last = -1};
    for (int64_t j = 0; j < e.keys(); ++j) {
      if (!keys[j] || mask->Hides(row[j])) continue;
      seen.first = std::min(seen.first, j);
      seen.last = j;
    }
    for (int64_t j = seen.first; j < seen.last; ++j) seen.whole &= !keys[j] || !mask->Hides(row[j]);
    rows[i] = seen;
    if (i + 1 < e.queries()) return absl::OkStatus();
    const auto* begin = std::find(keys, keys + e.keys(), 1);
    int64_t last = e.keys() - 1;
    while (last > 0 && !keys[last]) --last;
    FoundMask here = *mask;
    Classify(rows, begin - keys, last, &here);
    differ |= !first && (here.kind != found.kind || here.offset != found.offset || here.window != found.window ||
                         here.prefix != found.prefix);
    found = here;
    first = false;
    return absl::OkStatus();
  }));
  if (differ) {
    found.kind = MaskKind::kOther;
    found.offset = found.window = found.prefix = 0;
  }
  *mask = found;
  return absl::OkStatus();
}

// Returns a vector of NaN for each head. Blocks of short ones are not refused one by one, so it has interruption
// points.
std::vector<std::vector<double>> UnknownValues(int64_t heads, int64_t columns) {
  std::vector<std::vector<double>> values(heads);
  int64_t unchecked = 0;  // values since the last interruption point
  for (std::vector<double>& head : values) {
    head.assign(columns, kNan);
    unchecked += columns;
    if (unchecked < kCellsAtOnce) continue;
    InterruptionPoint();
    unchecked = 0;
  }
  return values;
}

}  // namespace

const std::byte* BiasEvidence::Row(int64_t b, int64_t h, int64_t i) const {
  const int64_t by_head = head_stride == 0 ? queries() : head_stride;
  const int64_t by_batch = batch_stride == 0 ? heads() * by_head : batch_stride;
  return data + (b * by_batch + h * by_head + i) * keys() * SizeOf(bias.dtype);
}

void BiasEvidence::Load(int64_t b, int64_t h, int64_t i, double* out) const {
  const size_t size = SizeOf(bias.dtype);
  if (transposed) {
    for (int64_t j = 0; j < keys(); ++j) Convert(bias.dtype, DType::kFP64, Row(b, h, j) + i * size, out + j, 1);
  } else if (bias.dtype == DType::kFP64) {
    std::memcpy(out, Row(b, h, i), keys() * size);
  } else {
    std::vector<float> wide(keys());
    Convert(bias.dtype, DType::kFP32, Row(b, h, i), wide.data(), wide.size());
    std::copy(wide.begin(), wide.end(), out);
  }
  for (int64_t j = 0; shown != nullptr && j < keys(); ++j) {
    if (!(transposed ? Shows(b, j, i) : Shows(b, i, j))) out[j] = fill;
  }
}

absl::Status VisitRows(
    const BiasEvidence& e, const Cancellation& cancelled,
    const std::function<absl::Status(int64_t b, int64_t h, int64_t i, const std::vector<double>& row)>& visit) {
  std::vector<double> row(e.keys());
  int64_t unchecked = kCellsAtOnce;  // cells since the last check
  for (int64_t b = 0; b < e.batch(); ++b) {
    for (int64_t h = 0; h < e.heads(); ++h) {
      for (int64_t i = 0; i < e.queries(); ++i) {
        if (unchecked >= kCellsAtOnce) {
          POSENC_RETURN_IF_ERROR(cancelled());
          unchecked = 0;
        }
        unchecked += e.keys();
        e.Load(b, h, i, row.data());
        POSENC_RETURN_IF_ERROR(visit(b, h, i, row));
      }
    }
  }
  return absl::OkStatus();
}

bool IsConstant(const BiasStructure& structure) {
  return std::all_of(structure.values.begin(), structure.values.end(), [](const std::vector<double>& head) {
    double first = kNan;
    for (const double value : head) {
      if (std::isnan(first)) first = value;
      if (!std::isnan(value) && value != first) return false;
    }
    return true;
  });
}

absl::StatusOr<FoundMask> FindMask(const BiasEvidence& e, const Limits& limits, const Cancellation& cancelled) {
  POSENC_RETURN_IF_ERROR(ByteSize("bias", e.bias, limits).status());
  if (e.bias.rank() != 4) {
    return InvalidArgument("OUT_OF_RANGE", "bias.shape", ToString(e.bias.shape), "must be [B, H, Sq, Sk]");
  }
  if (e.bias.empty()) return InvalidArgument("OUT_OF_RANGE", "bias.shape", ToString(e.bias.shape), "must not be empty");
  if (e.heads() > limits.max_heads) {
    return InvalidArgument("OUT_OF_RANGE", "bias.shape", fmt::format("{} heads", e.heads()),
                           fmt::format("must be at most {} (max_heads)", limits.max_heads));
  }
  if (e.heads() > limits.max_bias_values / (e.queries() + e.keys() - 1)) {
    return TooLarge("bias.shape", fmt::format("{} heads of {} distances", e.heads(), e.queries() + e.keys() - 1),
                    fmt::format("must be at most {} values (max_bias_values)", limits.max_bias_values));
  }
  POSENC_ASSIGN_OR_RETURN(FoundMask mask, FindFill(e, cancelled));
  if (mask.kind != MaskKind::kNone) POSENC_RETURN_IF_ERROR(FindKind(e, cancelled, &mask));
  return mask;
}

absl::StatusOr<BiasStructure> FindStructure(const BiasEvidence& e, const Limits& limits,
                                            const Cancellation& cancelled) {
  BiasStructure structure{.first_distance = 1 - e.queries()};
  POSENC_ASSIGN_OR_RETURN(structure.mask, FindMask(e, limits, cancelled));
  const int64_t distances = e.queries() + e.keys() - 1;
  std::vector<std::vector<double>> by_distance = UnknownValues(e.heads(), distances);
  std::vector<std::vector<double>> by_key = UnknownValues(e.heads(), e.keys());
  // Batch row and query of the first cell of each head with this distance.
  std::vector<std::pair<int32_t, int32_t>> seen(e.heads() * distances);
  bool zero = true, follows_key = true;
  POSENC_RETURN_IF_ERROR(VisitRows(e, cancelled, [&](int64_t b, int64_t h, int64_t i, const std::vector<double>& row) {
    for (int64_t j = 0; j < e.keys(); ++j) {
      if (structure.mask.Hides(row[j])) continue;
      zero &= row[j] == 0;
      const int64_t n = j - i - structure.first_distance;
      if (std::isnan(by_distance[h][n])) {
        by_distance[h][n] = row[j];
        seen[h * distances + n] = {static_cast<int32_t>(b), static_cast<int32_t>(i)};
      } else if (by_distance[h][n] != row[j] && !structure.contradiction) {
        const auto [batch, query] = seen[h * distances + n];
        structure.contradiction = {{batch, h, query, query + n + structure.first_distance}, {b, h, i, j}};
      }
      if (std::isnan(by_key[h][j])) by_key[h][j] = row[j];
      follows_key &= by_key[h][j] == row[j];
    }
    return absl::OkStatus();
  }));
  if (zero) {
    structure.follows = Follows::kNothing;
  } else if (!structure.contradiction) {
    structure.follows = Follows::kDistance;
    structure.values = std::move(by_distance);
  } else if (follows_key) {
    structure.follows = Follows::kKey;
    structure.contradiction.reset();
    structure.values = std::move(by_key);
  } else {
    structure.follows = Follows::kBoth;
  }
  return structure;
}

}  // namespace posenc::diagnose
