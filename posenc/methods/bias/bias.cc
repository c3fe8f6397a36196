#include "posenc/methods/bias/bias.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "posenc/base/status.h"
#include "posenc/methods/bias/alibi.h"
#include "posenc/methods/bias/fire.h"
#include "posenc/methods/bias/kerple.h"
#include "posenc/methods/bias/sandwich.h"
#include "posenc/methods/bias/t5.h"
#include "posenc/methods/bias/window.h"

namespace posenc {
namespace {

constexpr int64_t kBeitClsRows = 3;

absl::Status CompleteSettings(BiasMethod& method, const Limits& limits) {
  const auto complete = [&](auto& s) -> absl::Status {
    using Settings = std::decay_t<decltype(s)>;
    if constexpr (std::is_same_v<Settings, std::monostate>) {
      return InvalidArgument("MISSING", "method", "", "is required");
    } else if constexpr (std::is_same_v<Settings, T5Settings>) {
      return Complete(s);
    } else if constexpr (std::is_same_v<Settings, NopeSettings>) {
      if (!s.num_heads || (*s.num_heads >= 1 && *s.num_heads <= limits.max_heads)) return absl::OkStatus();
      return InvalidArgument("OUT_OF_RANGE", "num_heads", fmt::format("{}", *s.num_heads),
                             fmt::format("must be 1 .. {}", limits.max_heads));
    } else {
      return Complete(s, limits);
    }
  };
  return std::visit(complete, method.settings);
}

// How many rows the caller's table must have.
int64_t TableRows(const BiasMethod& method) {
  if (const auto* t5 = std::get_if<T5Settings>(&method.settings)) return *t5->num_buckets;
  const bool beit = std::holds_alternative<BeitSettings>(method.settings);
  return Displacements(WindowOf(method)->window) + (beit ? kBeitClsRows : 0);
}

absl::Status CompleteTable(BiasMethod& method, const Limits& limits) {
  if (!method.table) return absl::OkStatus();
  if (!ReadsTable(method)) return InvalidArgument("NOT_READ", "table", "", "is read by t5, swin and beit only");
  BiasTable& table = *method.table;
  if (table.columns != TableRows(method)) {
    return InvalidArgument("MISMATCH", "table.shape", fmt::format("{} rows", table.columns),
                           fmt::format("must be {}, by {} heads; see table_layout", TableRows(method), table.rows));
  }
  if (table.rows < 1 || table.rows > limits.max_heads) {
    return InvalidArgument("OUT_OF_RANGE", "table.shape", fmt::format("{} heads", table.rows),
                           fmt::format("must be 1 .. {}", limits.max_heads));
  }
  for (float& value : table.values) {
    if (!std::isfinite(value)) {
      return InvalidArgument("OUT_OF_RANGE", "table", fmt::format("{}", value), "must be finite");
    }
    value += 0.0f;  // a zero of any bias is +0
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Complete(BiasMethod& method, const Limits& limits) {
  POSENC_RETURN_IF_ERROR(Within(NameOf(method), CompleteSettings(method, limits)));
  return CompleteTable(method, limits);
}

std::string_view NameOf(const BiasMethod& method) {
  constexpr std::string_view kNames[] = {"",     "alibi", "t5",      "kerple", "sandwich",
                                         "swin", "beit",  "swin_v2", "nope",   "fire"};
  static_assert(std::size(kNames) == std::variant_size_v<decltype(method.settings)>);
  return kNames[method.settings.index()];
}

bool ReadsTable(const BiasMethod& method) {
  return std::holds_alternative<T5Settings>(method.settings) || std::holds_alternative<SwinSettings>(method.settings) ||
         std::holds_alternative<BeitSettings>(method.settings);
}

std::optional<int64_t> HeadsOf(const BiasMethod& method) {
  const auto& m = method.settings;
  if (const auto* alibi = std::get_if<AlibiSettings>(&m)) return alibi->num_heads;
  if (const auto* kerple = std::get_if<KerpleSettings>(&m)) return kerple->a.size();
  if (const auto* sandwich = std::get_if<SandwichSettings>(&m)) return sandwich->num_heads;
  if (const auto* swin = std::get_if<SwinV2Settings>(&m)) return swin->output_weight.rows;
  if (const auto* nope = std::get_if<NopeSettings>(&m)) return nope->num_heads;
  if (const auto* fire = std::get_if<FireSettings>(&m)) return fire->output_weight.rows;
  return method.table ? std::optional(method.table->rows) : std::nullopt;
}

std::optional<WindowTokens> WindowOf(const BiasMethod& method) {
  if (const auto* swin = std::get_if<SwinSettings>(&method.settings)) return WindowTokens{swin->window, false};
  if (const auto* swin = std::get_if<SwinV2Settings>(&method.settings)) return WindowTokens{swin->window, false};
  if (const auto* beit = std::get_if<BeitSettings>(&method.settings)) return WindowTokens{beit->window, true};
  return std::nullopt;
}

bool IsOfWholeDistances(const BiasMethod& method) {
  return std::holds_alternative<T5Settings>(method.settings) ||
         std::holds_alternative<KerpleSettings>(method.settings) ||
         std::holds_alternative<SandwichSettings>(method.settings) ||
         std::holds_alternative<FireSettings>(method.settings);
}

double LargestDistance(const BiasMethod& method) {
  // Farther cosines lose what decides their sum in float64, and MPFR would have most of the work.
  return std::holds_alternative<SandwichSettings>(method.settings) ? 0x1p20 : 0x1p31 - 1;
}

double CostOf(Frequencies arithmetic, const BiasMethod& method, double first, double last) {
  constexpr double kByMpfr = 8;  // float64's functions have no faster way
  if (std::holds_alternative<FireSettings>(method.settings)) return kByMpfr * std::max(std::abs(first), std::abs(last));
  double values = (last - first + 1) * static_cast<double>(HeadsOf(method).value_or(1));
  if (const auto* sandwich = std::get_if<SandwichSettings>(&method.settings)) {
    constexpr double kCosine = 3;
    const bool both_sides = first <= 0 && last >= 0;  // which share their sums
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
  if (const auto* t5 = std::get_if<T5Settings>(&method.settings)) {
    const std::vector<int32_t> buckets = T5Buckets(arithmetic, *t5, first, count);
    fill([&](int64_t h, int64_t distance) { return method.table->row(h)[buckets[distance - first]]; });
    return values;
  }
  // The others are the same on both sides.
  const int64_t nearest = first <= 0 && last >= 0 ? 0 : std::min(std::abs(first), std::abs(last));
  const int64_t magnitudes = std::max(std::abs(first), std::abs(last)) - nearest + 1;
  const auto* kerple = std::get_if<KerpleSettings>(&method.settings);
  const std::vector<float> by_distance =
      kerple != nullptr ? KerpleValues(arithmetic, *kerple, nearest, magnitudes)
                        : SandwichValues(arithmetic, std::get<SandwichSettings>(method.settings), nearest, magnitudes);
  fill([&](int64_t h, int64_t distance) { return by_distance[(std::abs(distance) - nearest) * heads + h]; });
  return values;
}

BiasTable WindowTable(Frequencies arithmetic, const BiasMethod& method) {
  if (const auto* network = std::get_if<SwinV2Settings>(&method.settings)) return SwinV2Table(arithmetic, *network);
  if (const auto* beit = std::get_if<BeitSettings>(&method.settings)) {
    return BeitTableAsRead(arithmetic, *beit, *method.table);
  }
  return *method.table;
}

}  // namespace posenc
