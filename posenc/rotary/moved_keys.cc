#include "posenc/rotary/moved_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "posenc/base/status.h"

namespace posenc {
namespace {

absl::Status Unsupported(std::string_view field, std::string_view limit) {
  return InvalidArgument("UNSUPPORTED", field, "", limit);
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

std::string Shown(const std::optional<Xpos>& xpos) {
  if (!xpos) return "absent";
  return fmt::format("scale_base {}, centre {}", xpos->scale_base.value_or(0), xpos->centre.value_or(0));
}

std::string_view NameOf(Pairing pairing) { return pairing == Pairing::kInterleaved ? "interleaved" : "half-split"; }

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
  const auto listed = static_cast<int64_t>(pages.block_table.size());
  const int64_t slots = std::max<int64_t>(listed * page_size - pages.first_slot, 0);
  if (pages.tokens < 0 || pages.tokens > slots) {
    return InvalidArgument(
        "OUT_OF_RANGE", "cached_keys.pages.tokens", fmt::format("{}", pages.tokens),
        fmt::format("must be 0 .. {}, the slots of {} pages of {} from first_slot on", slots, listed, page_size));
  }
  for (size_t n = 0; n < pages.block_table.size(); ++n) {
    const int64_t page = pages.block_table[n];
    if (page >= 0 && page < cache_pages) continue;
    return InvalidArgument("OUT_OF_RANGE", fmt::format("{}[{}]", kTable, n), fmt::format("{}", page),
                           cache_pages == 0 ? "must be absent: k has no pages (B)"
                                            : fmt::format("must be 0 .. {}, a page of k (B)", cache_pages - 1));
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
  struct Fact {
    std::string_view name;
    std::string from, to;
  };
  const Fact facts[] = {
      {"output_pairing", std::string(NameOf(from.output_pairing())), std::string(NameOf(to.output_pairing()))},
      {"rotary_dim", fmt::format("{}", from.rotary_dim()), fmt::format("{}", to.rotary_dim())},
      {"half_split_parts", fmt::format("{}", from.half_split_parts()), fmt::format("{}", to.half_split_parts())},
      {"heads", fmt::format("{}", from.heads()), fmt::format("{}", to.heads())},
      {"axes", fmt::format("{}", from.axes()), fmt::format("{}", to.axes())},
      {"xpos", Shown(from.settings().xpos), Shown(to.settings().xpos)},
  };
  for (const Fact& fact : facts) {
    if (fact.from == fact.to) continue;
    return InvalidArgument("MISMATCH", kFrom, fmt::format("{} {}", fact.name, fact.from),
                           fmt::format("must have {} {}, as rotary: keys keep their places", fact.name, fact.to));
  }
  return absl::OkStatus();
}

}  // namespace posenc
