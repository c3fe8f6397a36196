// Keys of a KV cache, which are rotated already, that move to other positions or to another scaling.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "posenc/rotary/rotary_plan.h"
#include "posenc/settings/settings.h"

namespace posenc {

// The tokens of one sequence in a paged cache: token t has slot (first_slot + t) % page_size of page
// block_table[(first_slot + t) / page_size].
struct KeyPages {
  std::vector<int64_t> block_table;
  int64_t first_slot = 0;
  int64_t tokens = 0;
};

// Returns INVALID_ARGUMENT naming the field within `cached_keys.pages` unless the pages have exactly these tokens, and
// each page occurs once.
absl::Status Check(const KeyPages& pages, int64_t cache_pages, int64_t page_size);

struct CachedKeys {
  Rotary rotary;  // by which they are rotated
  Positions positions;
  std::optional<KeyPages> pages;
};

// Returns INVALID_ARGUMENT unless keys rotated by `from` can become keys rotated by `to` in one rotation.
absl::Status CheckMove(const Rotary& from, const Rotary& to);

}  // namespace posenc
