// What keeps the server alive when shared memory goes from under it.
//
// The owner of a POSIX shared-memory object can truncate it at any time, and a file system may have no page left: then
// the next access raises SIGBUS, on whichever thread, in the middle of a kernel. The handler puts private, empty memory
// where the range was, notes that it did, and returns: the instruction is run again and succeeds, work goes on with
// zeros, and its call asks damaged() between slabs and before it answers.
//
// Why not a jump out of the handler, per thread: a jump skips destructors, and what runs between fault and call, the
// work pool's locks and counts included, would have to be written for that. Why the whole range and not its page: one
// mapping is exchanged for one, so that neither their number nor the handler's own failures are in the caller's hands.
#pragma once

#include <cstddef>
#include <memory>

namespace posenc::server {

class FaultGuard {
 public:
  // At a time, in the process.
  static constexpr size_t kMostRanges = 4096;

  // Guards the mapping [begin, begin + size), which are multiples of a page, for as long as this lives. Null if there
  // are too many. A fault anywhere else has the effect that it had before the first guard was made.
  static std::unique_ptr<FaultGuard> Make(void* begin, size_t size, bool writable);
  ~FaultGuard();
  FaultGuard(const FaultGuard&) = delete;
  FaultGuard& operator=(const FaultGuard&) = delete;

  bool damaged() const;

 private:
  explicit FaultGuard(size_t slot) : slot_(slot) {}
  const size_t slot_;
};

}  // namespace posenc::server
