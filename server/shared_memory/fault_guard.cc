#include "server/shared_memory/fault_guard.h"

#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <mutex>

namespace posenc::server {
namespace {

constexpr uint64_t kPage = 4096;  // unit of Slot::range in bytes; the system's pages may be larger
constexpr int kCountBits = 27;    // at most 512 GiB a range; the other bits hold any 48-bit address

// One guarded range. The signal handler reads it, so it is lock-free. A range is one word, never seen half changed.
struct Slot {
  std::atomic<uint64_t> range{0};  // first page << kCountBits | pages; 0: free
  std::atomic<bool> writable{false};
  std::atomic<bool> damaged{false};
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

std::array<Slot, FaultGuard::kMostRanges> slots;
std::atomic<size_t> slots_used{0};  // slots from here on were never used
std::mutex slots_mutex;             // held to take and free slots
struct sigaction before;            // SIGBUS action before ours

// SIGBUS handler. The faulting thread keeps the range that it accesses registered, so that range's slot does not change
// meanwhile; other slots may.
void OnBusError(int signal, siginfo_t* info, void*) {
  const int saved = errno;
  const uint64_t page = reinterpret_cast<uintptr_t>(info->si_addr) / kPage;
  const size_t used = slots_used.load();
  for (size_t n = 0; info->si_code > 0 && n < used; ++n) {
    const uint64_t range = slots[n].range.load();
    const uint64_t first = range >> kCountBits, count = range & ((uint64_t{1} << kCountBits) - 1);
    if (page < first || page - first >= count) continue;
    slots[n].damaged = true;
    const int protection = PROT_READ | (slots[n].writable ? PROT_WRITE : 0);
    void* const begin = reinterpret_cast<void*>(first * kPage);  // NOLINT(performance-no-int-to-ptr): from a word
    void* const mapped =
        mmap(begin, count * kPage, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    errno = saved;
    if (mapped != MAP_FAILED) return;
    break;
  }
  // Not one of our mappings: restore the previous action and let the fault happen again. A sent signal is raised again.
  sigaction(SIGBUS, &before, nullptr);
  if (info->si_code <= 0) raise(signal);
  errno = saved;
}

void InstallOnce() {
  static const bool installed = [] {
    struct sigaction action = {};
    action.sa_sigaction = OnBusError;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    return sigaction(SIGBUS, &action, &before) == 0;
  }();
  static_cast<void>(installed);
}

}  // namespace

std::unique_ptr<FaultGuard> FaultGuard::Make(void* begin, size_t size, bool writable) {
  InstallOnce();
  const uint64_t first = reinterpret_cast<uintptr_t>(begin) / kPage, count = (size + kPage - 1) / kPage;
  if (count >> kCountBits != 0 || first >> (64 - kCountBits) != 0) return nullptr;
  const std::lock_guard lock(slots_mutex);
  for (size_t n = 0; n < slots.size(); ++n) {
    if (slots[n].range.load() != 0) continue;
    std::unique_ptr<FaultGuard> guard(new FaultGuard(n));  // may throw: the slot is still free
    slots[n].damaged = false;
    slots[n].writable = writable;
    slots[n].range = first << kCountBits | count;
    if (slots_used.load() <= n) slots_used = n + 1;
    return guard;
  }
  return nullptr;
}

FaultGuard::~FaultGuard() {
  const std::lock_guard lock(slots_mutex);
  slots[slot_].range = 0;
}

bool FaultGuard::damaged() const { return slots[slot_].damaged.load(std::memory_order_relaxed); }

}  // namespace posenc::server
