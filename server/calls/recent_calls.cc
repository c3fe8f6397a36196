#include "server/calls/recent_calls.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "posenc/base/memory_account.h"

namespace posenc::server {
namespace {

constexpr size_t kEntries = 16;               // few models are in a step at the same time
constexpr size_t kMostBytes = 16 << 10;       // bytes of an entry: message and non-operand payloads
constexpr int64_t kMostPrepared = 256 << 10;  // bytes of what was prepared: messages, positions, plans

}  // namespace

// Equal sizes and equal bytes apart from request_id parse to the same message apart from request_id, if that is UTF-8
// (ASCII is required here).
bool RecentCalls::IsSame(const Entry& entry, const std::string& message) {
  if (message.size() != entry.message.size()) return false;
  const std::string_view kept = entry.message, now = message;
  const std::string_view id = now.substr(entry.id_begin, entry.id_end - entry.id_begin);
  return kept.substr(0, entry.id_begin) == now.substr(0, entry.id_begin) &&
         kept.substr(entry.id_end) == now.substr(entry.id_end) &&
         std::all_of(id.begin(), id.end(), [](char byte) { return byte >= ' ' && byte <= '~'; });
}

bool RecentCalls::Serves(const Entry& entry, const void* key, const std::string& message,
                         const transport::SlicedPayloads& payloads) {
  if (entry.prepared->key.get() != key || !IsSame(entry, message)) return false;
  for (size_t n = 0; n < entry.sizes.size(); ++n) {  // one per ticket in the message
    if (payloads.SizeOf(n) != entry.sizes[n]) return false;
    for (size_t done = 0; done < entry.read[n].size();) {
      const absl::Span<const std::byte> piece = payloads.PieceOf(n, done);
      if (std::memcmp(piece.data(), entry.read[n].data() + done, piece.size()) != 0) return false;
      done += piece.size();
    }
  }
  return true;
}

RecentCalls::Found RecentCalls::Find(const void* key, const std::string& message,
                                     const transport::SlicedPayloads& payloads) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& entry) { return Serves(entry, key, message, payloads); });
  if (found == entries_.end()) return {};
  std::rotate(entries_.begin(), found, found + 1);
  const Entry& entry = entries_.front();
  if (entry.id_end == 0) return {entry.prepared, entry.request_id};
  return {entry.prepared, message.substr(entry.id_begin, entry.id_end - entry.id_begin)};
}

void RecentCalls::Keep(std::shared_ptr<const Prepared> prepared, std::string message, std::string request_id,
                       const transport::SlicedPayloads& payloads) {
  if (prepared->only_once || prepared->job.operands.empty() || prepared->bytes > kMostPrepared) return;
  const MemoryScope uncounted(nullptr);  // entries have limits of their own, and another call's may be freed here
  Entry entry{.message = std::move(message), .request_id = std::move(request_id)};
  // Only if the request_id's bytes occur once in the message, they are certain to be that field's.
  const size_t at = entry.message.find(entry.request_id);
  if (!entry.request_id.empty() && entry.message.find(entry.request_id, at + 1) == std::string::npos) {
    entry.id_begin = at;
    entry.id_end = at + entry.request_id.size();
  }
  std::vector<bool> is_operand(payloads.count());
  for (const v1::Tensor* operand : prepared->job.operands) {
    if (!operand->data().empty()) is_operand[wire::TicketOf(operand->data())] = true;
  }
  size_t bytes = entry.message.size() + entry.request_id.size() + prepared->copies.size();
  for (size_t n = 0; n < payloads.count(); ++n) {
    entry.sizes.push_back(payloads.SizeOf(n));
    std::string& read = entry.read.emplace_back();
    if (is_operand[n]) continue;
    bytes += payloads.SizeOf(n);
    if (bytes > kMostBytes) return;
    while (read.size() < payloads.SizeOf(n)) {
      const absl::Span<const std::byte> piece = payloads.PieceOf(n, read.size());
      read.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    }
  }
  if (bytes > kMostBytes) return;
  entry.prepared = std::move(prepared);
  const std::lock_guard lock(mutex_);
  // Concurrent calls may each have prepared the same.
  const auto kept = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& other) {
    return Serves(other, entry.prepared->key.get(), entry.message, payloads);
  });
  if (kept != entries_.end()) {
    if (kept->prepared->copies != entry.prepared->copies) *kept = std::move(entry);
    return;
  }
  entries_.insert(entries_.begin(), std::move(entry));
  if (entries_.size() > kEntries) entries_.pop_back();
}

}  // namespace posenc::server
