#include "posenc/diagnose/bias_structure.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include <fmt/format.h>

#include "posenc/kernels/convert.h"
#include "posenc/status.h"

namespace posenc::diagnose {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
// No method's values come near; what frameworks fill with does: minus infinity, a type's lowest, -1e9 and the like.
constexpr double kFill = -1e8;
constexpr double kNarrowFills[] = {-65504, -10000};  // FP16's lowest, and BERT's

bool IsFill(double lowest) {
  return lowest <= kFill ||
         std::find(std::begin(kNarrowFills), std::end(kNarrowFills), lowest) != std::end(kNarrowFills);
}

// Which keys a query sees, without those that are hidden from all.
struct Seen {
  int64_t first = 0, last = -1;  // none: last < first
  bool whole = true;             // all from first to last
};

// Calls visit(b, h, i, row) with each row.
template <typename Visit>
absl::Status VisitRows(const BiasEvidence& e, const Cancellation& cancelled, const Visit& visit) {
  std::vector<double> row(e.keys());
  for (int64_t b = 0; b < e.batch(); ++b) {
    for (int64_t h = 0; h < e.heads(); ++h) {
      POSENC_RETURN_IF_ERROR(cancelled());
      for (int64_t i = 0; i < e.queries(); ++i) {
        e.Load(b, h, i, row.data());
        POSENC_RETURN_IF_ERROR(visit(b, h, i, row));
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<FoundMask> FindFill(const BiasEvidence& e, const Cancellation& cancelled) {
  FoundMask mask;
  double lowest = std::numeric_limits<double>::infinity();
  POSENC_RETURN_IF_ERROR(VisitRows(e, cancelled, [&](int64_t b, int64_t h, int64_t i, const std::vector<double>& row) {
    for (size_t j = 0; j < row.size(); ++j) {
      if (std::isnan(row[j])) {
        return InvalidArgument("OUT_OF_RANGE", fmt::format("bias[{}, {}, {}, {}]", b, h, i, j), "NaN",
                               "must be a number or an infinity");
      }
      if (row[j] > lowest) continue;
      mask.cells = row[j] < lowest ? 1 : mask.cells + 1;
      lowest = row[j];
    }
    return absl::OkStatus();
  }));
  if (mask.cells == 0 || !IsFill(lowest)) return FoundMask();
  mask.kind = MaskKind::kOther;
  mask.fill = lowest;
  return mask;
}

// Of the mask's kind, for rows of one batch row and head.
void Classify(const std::vector<Seen>& rows, int64_t first_key, int64_t last_key, FoundMask* mask) {
  const auto all = [&](const auto& holds) {
    for (size_t i = 0; i < rows.size(); ++i) {
      if (rows[i].last >= rows[i].first && !holds(static_cast<int64_t>(i), rows[i])) return false;
    }
    return true;
  };
  const auto visible = [&](int64_t i) { return std::min(i + mask->offset, last_key); };
  if (all([&](int64_t, const Seen& s) { return s.whole && s.first == first_key && s.last == last_key; })) {
    mask->kind = MaskKind::kKeys;
    return;
  }
  // The last row that does not see the last key: there neither a prefix nor the end stands in the way.
  bool bounded = false;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].last < rows[i].first || rows[i].last >= last_key) continue;
    mask->offset = rows[i].last - static_cast<int64_t>(i);
    bounded = true;
  }
  if (!bounded) mask->offset = last_key - (static_cast<int64_t>(rows.size()) - 1);  // a window alone
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].first > first_key) mask->window = static_cast<int64_t>(i) + mask->offset - rows[i].first + 1;
  }
  mask->prefix = rows[0].last + 1;
  if (all([&](int64_t i, const Seen& s) { return s.whole && s.first == first_key && s.last == visible(i); })) {
    mask->kind = MaskKind::kCausal;
    mask->window = mask->prefix = 0;
  } else if (all([&](int64_t i, const Seen& s) {
               return s.whole && s.last == visible(i) &&
                      s.first == std::max(first_key, i + mask->offset - mask->window + 1);
             })) {
    mask->kind = MaskKind::kWindow;
    mask->prefix = 0;
  } else if (all([&](int64_t i, const Seen& s) {
               return s.whole && s.first == first_key && s.last == std::max(visible(i), mask->prefix - 1);
             })) {
    mask->kind = MaskKind::kPrefix;
    mask->window = 0;
  } else {
    mask->kind = MaskKind::kOther;
    mask->window = mask->prefix = mask->offset = 0;
  }
}

// The kind; kOther where batch rows or heads differ in more than hidden keys.
absl::Status FindMask(const BiasEvidence& e, const Cancellation& cancelled, FoundMask* mask) {
  std::vector<uint8_t> shown(e.batch() * e.keys());  // to any query
  POSENC_RETURN_IF_ERROR(VisitRows(e, cancelled, [&](int64_t b, int64_t, int64_t, const std::vector<double>& row) {
    for (int64_t j = 0; j < e.keys(); ++j) shown[b * e.keys() + j] |= row[j] != mask->fill;
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
      if (!keys[j] || row[j] == mask->fill) continue;
      seen.first = std::min(seen.first, j);
      seen.last = j;
    }
    for (int64_t j = seen.first; j < seen.last; ++j) seen.whole &= !keys[j] || row[j] != mask->fill;
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

}  // namespace

void BiasEvidence::Load(int64_t b, int64_t h, int64_t i, double* out) const {
  const size_t size = SizeOf(bias.dtype);
  const std::byte* from = data + ((b * heads() + h) * queries() + i) * keys() * size;
  if (bias.dtype == DType::kFP64) {
    std::memcpy(out, from, keys() * size);
    return;
  }
  std::vector<float> wide(keys());
  Convert(bias.dtype, DType::kFP32, from, wide.data(), wide.size());
  std::copy(wide.begin(), wide.end(), out);
}

absl::StatusOr<BiasStructure> FindStructure(const BiasEvidence& e, const Limits& limits,
                                            const Cancellation& cancelled) {
  POSENC_RETURN_IF_ERROR(ByteSize("bias", e.bias, limits).status());
  if (e.bias.rank() != 4) {
    return InvalidArgument("OUT_OF_RANGE", "bias.shape", ToString(e.bias.shape), "must be [B, H, Sq, Sk]");
  }
  if (e.bias.empty()) return InvalidArgument("OUT_OF_RANGE", "bias.shape", ToString(e.bias.shape), "has no elements");
  BiasStructure structure{.first_distance = 1 - e.queries()};
  POSENC_ASSIGN_OR_RETURN(structure.mask, FindFill(e, cancelled));
  if (structure.mask.kind != MaskKind::kNone) POSENC_RETURN_IF_ERROR(FindMask(e, cancelled, &structure.mask));

  const int64_t distances = e.queries() + e.keys() - 1;
  std::vector<std::vector<double>> by_distance(e.heads(), std::vector(distances, kNan));
  std::vector<std::vector<double>> by_key(e.heads(), std::vector(e.keys(), kNan));
  std::vector<std::vector<Cell>> seen(e.heads(), std::vector<Cell>(distances));
  bool zero = true, follows_key = true;
  POSENC_RETURN_IF_ERROR(VisitRows(e, cancelled, [&](int64_t b, int64_t h, int64_t i, const std::vector<double>& row) {
    for (int64_t j = 0; j < e.keys(); ++j) {
      if (structure.mask.Hides(row[j])) continue;
      zero &= row[j] == 0;
      const int64_t n = j - i - structure.first_distance;
      if (std::isnan(by_distance[h][n])) {
        by_distance[h][n] = row[j];
        seen[h][n] = {b, h, i, j};
      } else if (by_distance[h][n] != row[j] && !structure.contradiction) {
        structure.contradiction = {seen[h][n], {b, h, i, j}};
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
