// Common interface of the attention bias methods, used by generate_bias.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "posenc/base/limits.h"
#include "posenc/base/modes.h"
#include "posenc/settings/settings.h"

namespace posenc {

// Fills in defaults and checks the settings and the table, if present. Returns an error naming the field; fields of the
// settings have the method's name in front ("alibi.slopes"), except "table".
absl::Status Complete(BiasMethod& method, const Limits& limits);

// The functions below require a completed method.

// The inputs that a cell's value depends on, besides the head.
enum class BiasValues {
  kNone,         // NoPE: all values are 0
  kSlope,        // ALiBi: linear in the distance, or in the key's position
  kByDistance,   // one value per integer distance
  kByMagnitude,  // one value per integer |distance|
  kByQuery,      // FIRE: the distance and the query's position
  kByTokens,     // forget gates: the tokens between key and query
  kByWindow,     // the displacement within a window
};
BiasValues ValuesOf(const BiasMethod& method);

// Returns the method's field name in the API, "alibi", "t5", ...; empty if no method is set.
std::string_view NameOf(const BiasMethod& method);

// True if the method looks its values up in the caller's table.
bool ReadsTable(const BiasMethod& method);

// Returns H, the number of heads; nullopt if the method does not determine it.
std::optional<int64_t> HeadsOf(const BiasMethod& method);

// A window whose tokens are the queries and keys; cls: a cls token precedes them. WindowOf() returns nullopt if the
// method has no window.
struct WindowTokens {
  Window window;
  bool cls;
  int64_t count() const { return window.height * window.width + (cls ? 1 : 0); }
};
std::optional<WindowTokens> WindowOf(const BiasMethod& method);

// True if distances must be integers.
bool IsOfWholeDistances(const BiasMethod& method);

// Returns the largest |distance| that the method supports.
double LargestDistance(const BiasMethod& method);

// Returns the cost of the distances first .. last, in the unit of Limits::max_bias_values.
double CostOf(Frequencies arithmetic, const BiasMethod& method, double first, double last);

// Returns the values of the distances key - query = first, first + 1, ...: [H, count]. Requires kByDistance or
// kByMagnitude.
BiasTable DistanceValues(Frequencies arithmetic, const BiasMethod& method, int64_t first, int64_t count);

// Returns the window's table, [H, rows]. Requires kByWindow.
BiasTable WindowTable(Frequencies arithmetic, const BiasMethod& method);

}  // namespace posenc
