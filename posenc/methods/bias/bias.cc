#include "posenc/methods/bias/bias.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "posenc/base/interruption.h"
#include "posenc/base/status.h"
#include "posenc/methods/bias/bias_methods.h"
#include "posenc/methods/bias/fire.h"
#include "posenc/methods/bias/forget_gate.h"

namespace posenc {
namespace {

constexpr int64_t kBeitClsRows = 3;

// One specialization of TraitsOf per method. A method without one does not compile; neither does one that lacks a
// function that its traits require.
struct BiasTraits {
  std::string_view name;
  BiasValues values;
  bool reads_table;  // the caller's table
};
template <class Settings>
constexpr BiasTraits TraitsOf() = delete;
template <>
constexpr BiasTraits TraitsOf<std::monostate>() {
  return {"", BiasValues::kNone, false};
}
template <>
constexpr BiasTraits TraitsOf<NopeSettings>() {
  return {"nope", BiasValues::kNone, false};
}
template <>
constexpr BiasTraits TraitsOf<AlibiSettings>() {
  return {"alibi", BiasValues::kSlope, false};
}
template <>
constexpr BiasTraits TraitsOf<T5Settings>() {
  return {"t5", BiasValues::kByDistance, true};
}
template <>
constexpr BiasTraits TraitsOf<KerpleSettings>() {
  return {"kerple", BiasValues::kByMagnitude, false};
}
template <>
constexpr BiasTraits TraitsOf<SandwichSettings>() {
  return {"sandwich", BiasValues::kByMagnitude, false};
}
template <>
constexpr BiasTraits TraitsOf<FireSettings>() {
  return {"fire", BiasValues::kByQuery, false};
}
template <>
constexpr BiasTraits TraitsOf<ForgetGateSettings>() {
  return {"forget_gate", BiasValues::kByTokens, false};
}
template <>
constexpr BiasTraits TraitsOf<SwinSettings>() {
  return {"swin", BiasValues::kByWindow, true};
}
template <>
constexpr BiasTraits TraitsOf<BeitSettings>() {
  return {"beit", BiasValues::kByWindow, true};
}
template <>
constexpr BiasTraits TraitsOf<SwinV2Settings>() {
  return {"swin_v2", BiasValues::kByWindow, false};
}
BiasTraits TraitsOf(const BiasMethod& method) {
  return std::visit([](const auto& s) { return TraitsOf<std::decay_t<decltype(s)>>(); }, method.settings);
}

absl::Status Complete(std::monostate, const Limits&) {
  return InvalidArgument("MISSING", "method", "", "must be given");
}
absl::Status Complete(T5Settings& s, const Limits&) { return posenc::Complete(s); }
absl::Status Complete(const NopeSettings& s, const Limits& limits) {
  if (!s.num_heads || (*s.num_heads >= 1 && *s.num_heads <= limits.max_heads)) return absl::OkStatus();
  return InvalidArgument("OUT_OF_RANGE", "num_heads", fmt::format("{}", *s.num_heads),
                         fmt::format("must be 1 .. {}", limits.max_heads));
}

// Returns H from the settings. Methods that read a table take H from the table instead.
std::optional<int64_t> OwnHeads(std::monostate) { return std::nullopt; }
std::optional<int64_t> OwnHeads(const NopeSettings& s) { return s.num_heads; }
std::optional<int64_t> OwnHeads(const AlibiSettings& s) { return s.num_heads; }
std::optional<int64_t> OwnHeads(const KerpleSettings& s) { return s.a.size(); }
std::optional<int64_t> OwnHeads(const SandwichSettings& s) { return s.num_heads; }
std::optional<int64_t> OwnHeads(const FireSettings& s) { return s.output_weight.rows; }
std::optional<int64_t> OwnHeads(const ForgetGateSettings& s) { return s.num_heads; }
std::optional<int64_t> OwnHeads(const SwinV2Settings& s) { return s.output_weight.rows; }

// Number of rows that the caller's table must have.
int64_t TableRows(const T5Settings& s) { return *s.num_buckets; }
int64_t TableRows(const SwinSettings& s) { return Displacements(s.window); }
int64_t TableRows(const BeitSettings& s) { return Displacements(s.window) + kBeitClsRows; }

bool HasCls(const BeitSettings&) { return true; }
bool HasCls(const SwinSettings&) { return false; }
bool HasCls(const SwinV2Settings&) { return false; }

// Returns a window method's table as the method reads it: [H, rows].
BiasTable TableOf(Frequencies, const SwinSettings&, const BiasMethod& method) { return *method.table; }
BiasTable TableOf(Frequencies arithmetic, const BeitSettings& s, const BiasMethod& method) {
  return BeitTableAsRead(arithmetic, s, *method.table);
}
BiasTable TableOf(Frequencies arithmetic, const SwinV2Settings& s, const BiasMethod&) {
  return SwinV2Table(arithmetic, s);
}

// Returns the row of the caller's table for each of the distances first, first + 1, ...
std::vector<int32_t> TableRowsOf(Frequencies arithmetic, const T5Settings& s, int64_t first, int64_t count) {
  return T5Buckets(arithmetic, s, first, count);
}

// Returns the values of all heads for |distance| = first, first + 1, ...: [count, H].
std::vector<float> MagnitudeValues(Frequencies arithmetic, const KerpleSettings& s, int64_t first, int64_t count) {
  return KerpleValues(arithmetic, s, first, count);
}
std::vector<float> MagnitudeValues(Frequencies arithmetic, const SandwichSettings& s, int64_t first, int64_t count) {
  return SandwichValues(arithmetic, s, first, count);
}

absl::Status CompleteTable(BiasMethod& method, const Limits& limits) {
  if (!method.table) return absl::OkStatus();
  if (!ReadsTable(method))
    return InvalidArgument("NOT_READ", "table", "", "must be absent: only t5, swin and beit read it");
  BiasTable& table = *method.table;
  const auto rows_of = [](const auto& s) -> int64_t {
    if constexpr (TraitsOf<std::decay_t<decltype(s)>>().reads_table) return TableRows(s);
    std::abort();  // unreachable: refused above
  };
  if (const int64_t rows = std::visit(rows_of, method.settings); table.columns != rows) {
    return InvalidArgument("MISMATCH", "table.shape", fmt::format("{} rows", table.columns),
                           fmt::format("must be {} rows of {} heads; see table_layout", rows, table.rows));
  }
  if (table.rows < 1 || table.rows > limits.max_heads) {
    return InvalidArgument("OUT_OF_RANGE", "table.shape", fmt::format("{} heads", table.rows),
                           fmt::format("must be 1 .. {}", limits.max_heads));
  }
  int64_t seen = 0;
  for (float& value : table.values) {
    InterruptionPointOfStep(++seen);
    if (!std::isfinite(value)) {
      return InvalidArgument("OUT_OF_RANGE", "table", fmt::format("{}", value), "must be finite");
    }
    value += 0.0f;  // turns -0 into +0
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Complete(BiasMethod& method, const Limits& limits) {
  const absl::Status status = std::visit([&](auto& s) { return Complete(s, limits); }, method.settings);
  POSENC_RETURN_IF_ERROR(Within(NameOf(method), status));
  return CompleteTable(method, limits);
}

std::string_view NameOf(const BiasMethod& method) { return TraitsOf(method).name; }
BiasValues ValuesOf(const BiasMethod& method) { return TraitsOf(method).values; }
bool ReadsTable(const BiasMethod& method) { return TraitsOf(method).reads_table; }

std::optional<int64_t> HeadsOf(const BiasMethod& method) {
  const auto heads = [&method](const auto& s) -> std::optional<int64_t> {
    if constexpr (!TraitsOf<std::decay_t<decltype(s)>>().reads_table) return OwnHeads(s);
    return method.table ? std::optional(method.table->rows) : std::nullopt;
  };
  return std::visit(heads, method.settings);
}

std::optional<WindowTokens> WindowOf(const BiasMethod& method) {
  const auto window = [](const auto& s) -> std::optional<WindowTokens> {
    if constexpr (TraitsOf<std::decay_t<decltype(s)>>().values == BiasValues::kByWindow) {
      return WindowTokens{s.window, HasCls(s)};
    }
    return std::nullopt;
  };
  return std::visit(window, method.settings);
}

bool IsOfWholeDistances(const BiasMethod& method) {
  switch (ValuesOf(method)) {
    case BiasValues::kNone:
    case BiasValues::kSlope:
    case BiasValues::kByTokens:
    case BiasValues::kByWindow: return false;
    case BiasValues::kByDistance:
    case BiasValues::kByMagnitude:
    case BiasValues::kByQuery: return true;
  }
  __builtin_unreachable();
}

double LargestDistance(const BiasMethod& method) {
  // Beyond 2^20 float64 cosines are too inaccurate to decide how the sum is rounded, and MPFR would compute most
  // values.
  return std::holds_alternative<SandwichSettings>(method.settings) ? 0x1p20 : 0x1p31 - 1;
}

double CostOf(Frequencies arithmetic, const BiasMethod& method, double first, double last) {
  constexpr double kByMpfr = 8;  // float64 functions have no path faster than MPFR
  if (std::holds_alternative<FireSettings>(method.settings)) return kByMpfr * std::max(std::abs(first), std::abs(last));
  double values = (last - first + 1) * static_cast<double>(HeadsOf(method).value_or(1));
  if (const auto* sandwich = std::get_if<SandwichSettings>(&method.settings)) {
    constexpr double kCosine = 3;
    const bool both_sides = first <= 0 && last >= 0;  // distances n and -n share one sum
    const double sums = both_sides ? std::max(-first, last) + 1 : last - first + 1;
    values += kCosine * sums * static_cast<double>(*sandwich->dim) / 2;
  }
  const bool looks_up = ReadsTable(method);
  return arithmetic == Frequencies::kFloat64 && !looks_up ? kByMpfr * values : values;
}

BiasTable DistanceValues(Frequencies arithmetic, const BiasMethod& method, int64_t first, int64_t count) {
  const int64_t heads = *HeadsOf(method), last = first + count - 1;
  BiasTable values{std::vector<float>(heads * count), heads, count, false};
  const auto fill = [&](const auto& value) {  // value(head, distance)
    float* out = values.values.data();
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t distance = first; distance <= last; ++distance) *out++ = value(h, distance);
    }
  };
  const auto compute = [&](const auto& s) {
    constexpr BiasValues kValues = TraitsOf<std::decay_t<decltype(s)>>().values;
    if constexpr (kValues == BiasValues::kByDistance) {
      const std::vector<int32_t> rows = TableRowsOf(arithmetic, s, first, count);
      fill([&](int64_t h, int64_t distance) { return method.table->row(h)[rows[distance - first]]; });
    } else if constexpr (kValues == BiasValues::kByMagnitude) {
      const int64_t nearest = first <= 0 && last >= 0 ? 0 : std::min(std::abs(first), std::abs(last));
      const int64_t magnitudes = std::max(std::abs(first), std::abs(last)) - nearest + 1;
      const std::vector<float> by_magnitude = MagnitudeValues(arithmetic, s, nearest, magnitudes);
      fill([&](int64_t h, int64_t distance) { return by_magnitude[(std::abs(distance) - nearest) * heads + h]; });
    } else {
      std::abort();  // unreachable for methods without values by distance
    }
  };
  std::visit(compute, method.settings);
  return values;
}

BiasTable WindowTable(Frequencies arithmetic, const BiasMethod& method) {
  const auto table = [&](const auto& s) -> BiasTable {
    if constexpr (TraitsOf<std::decay_t<decltype(s)>>().values == BiasValues::kByWindow) {
      return TableOf(arithmetic, s, method);
    }
    std::abort();  // unreachable for methods without a window
  };
  return std::visit(table, method.settings);
}

}  // namespace posenc
