// SIGBUS handler that keeps the server alive when mapped shared memory disappears.
//
// The owner of a POSIX shared-memory object can truncate it at any time, and a file system may have no page left: then
// the next access raises SIGBUS, on any thread, in the middle of a kernel. The handler maps private, zeroed memory over
// the range, marks it as damaged, and returns. The instruction runs again and succeeds, and the computation continues
// with zeros. Its call checks damaged() between slabs and before it answers.
//
// A per-thread longjmp out of the handler would skip destructors: all code between fault and call, including the work
// pool's locks and counts, would have to allow for that. The whole range is replaced instead of one page, so that the
// number of mappings stays the same: a caller can neither increase it nor make the handler fail that way.
#pragma once

#include <cstddef>
#include <memory>

namespace posenc::server {

class FaultGuard {
 public:
  // Maximum number of guards in the process at a time.
  static constexpr size_t kMostRanges = 4096;

  // Guards the mapping [begin, begin + size), multiples of the page size, for as long as this lives. Returns null if
  // there are too many guards or the range is too large. Faults elsewhere keep their previous effect.
  static std::unique_ptr<FaultGuard> Make(void* begin, size_t size, bool writable);
  ~FaultGuard();
  FaultGuard(const FaultGuard&) = delete;
  FaultGuard& operator=(const FaultGuard&) = delete;

  // True once memory of the range was replaced by zeros. Thread-safe.
  bool damaged() const;

 private:
  explicit FaultGuard(size_t slot) : slot_(slot) {}
  const size_t slot_;
};

}  // namespace posenc::server
