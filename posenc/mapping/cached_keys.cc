#include "posenc/mapping/cached_keys.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "posenc/base/status.h"
#include "posenc/mapping/computed_positions.h"

namespace posenc::wire {

absl::StatusOr<ReadKeys> ReadCachedKeys(const Reader& reader, const v1::ApplyRotaryRequest& request,
                                        const Positions& to, ResolvedRotary* resolved) {
  constexpr char kCached[] = "cached_keys";
  const v1::CachedKeys& message = request.cached_keys();
  if (request.has_q()) {
    return InvalidArgument("CONFLICT", "q", "", "must be absent with cached_keys: queries are not cached");
  }
  if (!request.has_k()) return InvalidArgument("MISSING", "k", "", "must be given with cached_keys: it has the keys");
  POSENC_RETURN_IF_ERROR(KeepRotation(request.rotary(), resolved));
  const v1::RotarySource& source = message.has_rotary() ? message.rotary() : request.rotary();
  std::vector<Note> notes;
  std::optional<ResolvedRotary> other;
  if (message.has_rotary()) {
    POSENC_ASSIGN_OR_RETURN(other, ResolveRotary(reader, source, request.precision(), "cached_keys.rotary"));
    POSENC_RETURN_IF_ERROR(Within(kCached, KeepRotation(source, &*other)));
    if (other->rotary_offset != resolved->rotary_offset) {
      return InvalidArgument(
          "MISMATCH", "cached_keys.rotary", fmt::format("rotary_offset {}", other->rotary_offset),
          fmt::format("must have rotary_offset {}, as rotary: keys keep their places", resolved->rotary_offset));
    }
    notes = other->notes;
  }
  CachedKeys cached{other ? *other->rotary : *resolved->rotary, {}, {}};
  auto positions = ReadPositionsOf(reader, source, message.positions(), IdsFor::kTensor);
  if (!positions.ok()) return Within(kCached, positions.status());
  cached.positions = *std::move(positions);
  if (cached.positions.cu_seqlens && cached.positions.cu_seqlens != to.cu_seqlens) {
    return InvalidArgument("MISMATCH", "cached_keys.positions.cu_seqlens", "",
                           "must be absent, or as in positions: the tokens are the same");
  }
  cached.positions.cu_seqlens = to.cu_seqlens;
  SettleLengthRule(source, cached.rotary, cached.positions, &notes);
  if (source.has_model()) cached.positions.cache_index.reset();
  if (message.has_pages()) {
    const v1::KvPages& pages = message.pages();
    cached.pages = {{pages.block_table().begin(), pages.block_table().end()}, pages.first_slot(), pages.tokens()};
  }
  for (Note& note : notes) {
    note.field = std::string(kCached) + "." + note.field;
    resolved->notes.push_back(std::move(note));
  }
  resolved->notes.push_back(
      {"MOVED_KEYS", kCached,
       "k is rotated from its positions to the call's in one rotation; against keys that are rotated "
       "afresh it has one rounding more, because the cached keys were rounded already"});
  return ReadKeys{std::move(cached), (other ? *other : *resolved).parameters_field};
}

}  // namespace posenc::wire
