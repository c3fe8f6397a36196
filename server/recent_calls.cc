#include "server/recent_calls.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace posenc::server {
namespace {

constexpr size_t kEntries = 16;             // a service has few models in a step at a time
constexpr size_t kMostBytes = 16 << 10;     // of a message and what was read beside it
constexpr size_t kMostOfArena = 128 << 10;  // of the two messages

}  // namespace

bool RecentCalls::Serves(const Entry& entry, const google::protobuf::Message& type, const std::string& message,
                         const transport::SlicedPayloads& payloads) {
  if (entry.message != message || entry.prepared->request->GetDescriptor() != type.GetDescriptor()) return false;
  for (size_t n = 0; n < entry.sizes.size(); ++n) {  // as many as the message has tickets
    if (payloads.SizeOf(n) != entry.sizes[n]) return false;
    for (size_t done = 0; done < entry.read[n].size();) {
      const absl::Span<const std::byte> piece = payloads.PieceOf(n, done);
      if (std::memcmp(piece.data(), entry.read[n].data() + done, piece.size()) != 0) return false;
      done += piece.size();
    }
  }
  return true;
}

std::shared_ptr<const Prepared> RecentCalls::Find(const google::protobuf::Message& type, const std::string& message,
                                                  const transport::SlicedPayloads& payloads) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& entry) { return Serves(entry, type, message, payloads); });
  if (found == entries_.end()) return nullptr;
  std::rotate(entries_.begin(), found, found + 1);
  return entries_.front().prepared;
}

void RecentCalls::Keep(std::shared_ptr<const Prepared> prepared, std::string message,
                       const transport::SlicedPayloads& payloads) {
  if (prepared->job.operands.empty() || prepared->arena.SpaceUsed() > kMostOfArena) return;
  Entry entry{.message = std::move(message)};
  std::vector<bool> is_operand(payloads.count());
  for (const v1::Tensor* operand : prepared->job.operands) {
    if (!operand->data().empty()) is_operand[wire::TicketOf(operand->data())] = true;
  }
  size_t bytes = entry.message.size();
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
  // Calls that came at once have each prepared it.
  const bool kept = std::any_of(entries_.begin(), entries_.end(), [&](const Entry& other) {
    return Serves(other, *entry.prepared->request, entry.message, payloads);
  });
  if (kept) return;
  entries_.insert(entries_.begin(), std::move(entry));
  if (entries_.size() > kEntries) entries_.pop_back();
}

}  // namespace posenc::server
