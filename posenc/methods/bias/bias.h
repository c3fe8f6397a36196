// The methods of attention biases: what generate_bias.h asks of any of them.
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

// Fills in defaults and checks the table, if there is one; INVALID_ARGUMENT naming the field from the method's name on.
absl::Status Complete(BiasMethod& method, const Limits& limits);

// Of a completed method:

// What a cell's value depends on, beside the head.
enum class BiasValues {
  kNone,         // NoPE: all values are 0
  kSlope,        // ALiBi: linear in the distance, or in the key's position
  kByDistance,   // one value a whole distance
  kByMagnitude,  // the same for both signs of the distance
  kByQuery,      // FIRE: the distance, and the query's position
  kByWindow,     // the displacement within a window
};
BiasValues ValuesOf(const BiasMethod& method);

// "alibi", "t5", ...: its field in the API.
std::string_view NameOf(const BiasMethod& method);

// Whether it looks its values up in the caller's table.
bool ReadsTable(const BiasMethod& method);

// H; nothing where the method leaves it open.
std::optional<int64_t> HeadsOf(const BiasMethod& method);

// The window whose tokens are queries and keys, and whether a cls token goes before them.
struct WindowTokens {
  Window window;
  bool cls;
  int64_t count() const { return window.height * window.width + (cls ? 1 : 0); }
};
std::optional<WindowTokens> WindowOf(const BiasMethod& method);

// Whether distances must be whole numbers.
bool IsOfWholeDistances(const BiasMethod& method);

// The largest magnitude of a distance.
double LargestDistance(const BiasMethod& method);

// How many values (Limits::max_bias_values) the distances first .. last take.
double CostOf(Frequencies arithmetic, const BiasMethod& method, double first, double last);

// [H, distances] of the distances key - query = first, first + 1, ..., of a method of kByDistance or kByMagnitude.
BiasTable DistanceValues(Frequencies arithmetic, const BiasMethod& method, int64_t first, int64_t count);

// [H, rows], of a method with a window.
BiasTable WindowTable(Frequencies arithmetic, const BiasMethod& method);

}  // namespace posenc
