#include "posenc/rotary/moved_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "posenc/base/status.h"

namespace posenc {
namespace {

absl::Status Unsupported(std::string_view field, std::string_view limit) {
  return InvalidArgument("UNSUPPORTED", std::string(field), "", std::string(limit));
}

absl::Status CheckRotation(std::string_view field, const Rotary& rotary) {
  if (!rotary.rotates()) return Unsupported(field, "must rotate");
  if (rotary.arithmetic() != Frequencies::kExact) {
    return InvalidArgument("UNSUPPORTED", "precision", "",
                           "must have FREQUENCY_ARITHMETIC_EXACT: a difference of rounded angles is no model's angle");
  }
  if (rotary.table() != nullptr) {
    return Unsupported(field, "must have frequencies: the difference of two angles of a given_table is not known");
  }
  if (rotary.differs_in_pair()) {
    return Unsupported(field, "must be a rotation: the two elements of a pair have different angles");
  }
  return absl::OkStatus();
}

bool HaveEqualXpos(const RotarySettings& a, const RotarySettings& b) {
  if (!a.xpos || !b.xpos) return a.xpos.has_value() == b.xpos.has_value();
  return a.xpos->scale_base == b.xpos->scale_base && a.xpos->centre == b.xpos->centre;
}

}  // namespace

absl::Status Check(const KeyPages& pages, int64_t cache_pages, int64_t page_size) {
  constexpr char kTable[] = "cached_keys.pages.block_table";
  if (page_size < 1) {
    return InvalidArgument("MISMATCH", "k.tensor.shape", "", "must have at least one token in a page (S)");
  }
  if (pages.first_slot < 0 || pages.first_slot >= page_size) {
    return InvalidArgument("OUT_OF_RANGE", "cached_keys.pages.first_slot", fmt::format("{}", pages.first_slot),
                           fmt::format("must be 0 .. {}, within a page (S)", page_size - 1));
  }
  const int64_t listed = static_cast<int64_t>(pages.block_table.size());
  if (pages.tokens < 0 || pages.tokens > listed * page_size - pages.first_slot) {
    return InvalidArgument("OUT_OF_RANGE", "cached_keys.pages.tokens", fmt::format("{}", pages.tokens),
                           fmt::format("must be 0 .. {}, the slots of {} pages of {} from first_slot on",
                                       std::max<int64_t>(listed * page_size - pages.first_slot, 0), listed, page_size));
  }
  for (size_t n = 0; n < pages.block_table.size(); ++n) {
    const int64_t page = pages.block_table[n];
    if (page >= 0 && page < cache_pages) continue;
    return InvalidArgument("OUT_OF_RANGE", fmt::format("{}[{}]", kTable, n), fmt::format("{}", page),
                           fmt::format("must be 0 .. {}, a page of k (B)", cache_pages - 1));
  }
  std::vector<int64_t> sorted = pages.block_table;
  std::sort(sorted.begin(), sorted.end());
  if (const auto twice = std::adjacent_find(sorted.begin(), sorted.end()); twice != sorted.end()) {
    return InvalidArgument("CONFLICT", kTable, fmt::format("{}", *twice), "must list each page once");
  }
  return absl::OkStatus();
}

absl::Status CheckMove(const Rotary& from, const Rotary& to) {
  constexpr char kFrom[] = "cached_keys.rotary", kTo[] = "rotary";
  POSENC_RETURN_IF_ERROR(CheckRotation(kTo, to));
  POSENC_RETURN_IF_ERROR(CheckRotation(kFrom, from));
  if (to.input_pairing() != to.output_pairing() || from.output_pairing() != to.input_pairing()) {
    return InvalidArgument("MISMATCH", kTo, "",
                           "must have the cache's pairing as input_pairing and output_pairing: keys keep their order");
  }
  if (from.rotary_dim() != to.rotary_dim() || from.heads() != to.heads() || from.axes() != to.axes()) {
    return InvalidArgument("MISMATCH", kFrom, "", "must have the rotary width, heads and axes of rotary");
  }
  if (from.half_split_parts() != to.half_split_parts() && to.input_pairing() == Pairing::kHalfSplit) {
    return InvalidArgument("MISMATCH", kFrom, "", "must have the half_split_parts of rotary");
  }
  if (!HaveEqualXpos(from.settings(), to.settings())) {
    return InvalidArgument("MISMATCH", kFrom, "", "must have the xpos of rotary");
  }
  return absl::OkStatus();
}

}  // namespace posenc
