// Counts the heap memory that the steps of one call hold.
//
// A MemoryScope sets the account of the current thread. A program that replaces operator new (server/core/
// counted_memory.cc) reports every allocation and release within the scope to it. Nothing is counted without a scope or
// in other programs. docs/adr/0019-counted-memory.md explains why memory is counted where it is allocated.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <utility>

namespace posenc {

// Heap memory of one call, charged in steps. The threads of the call take turns; only refused() is thread-safe.
class MemoryAccount {
 public:
  // Charges so many more bytes. Returns false if they do not fit. Must not throw.
  using Charge = std::function<bool(int64_t bytes)>;
  // `charge` must outlive all scopes of the account.
  explicit MemoryAccount(Charge charge) : charge_(std::move(charge)) {}

  // Counts a block. Returns false if it cannot be charged; `only_if_charged`: it is then not counted.
  bool Add(int64_t bytes, bool only_if_charged = false);
  // Counts the release of a block.
  void Remove(int64_t bytes) { held_ = bytes < held_ ? held_ - bytes : 0; }

  // True once a charge was refused. No further charge is tried.
  bool refused() const { return refused_; }
  int64_t charged() const { return charged_; }
  int64_t held() const { return held_; }
  // The most that was held at a time.
  int64_t peak() const { return peak_; }
  // Forgets blocks above `most` bytes, which others have released. Returns the charged bytes that are no longer held:
  // the caller uncharges them.
  int64_t Shrink(int64_t most);
  // Forgets all blocks.
  void Clear() { held_ = charged_ = 0; }

 private:
  bool ChargeUpTo(int64_t held);

  const Charge charge_;
  int64_t held_ = 0;     // bytes in blocks; too few if blocks of others were released in a scope, such as cached values
  int64_t charged_ = 0;  // bytes
  int64_t peak_ = 0;     // bytes
  std::atomic<bool> refused_{false};
};

// RAII scope that sets the current thread's account; null: nothing is counted. The innermost scope applies.
// A LargeBlocksMayBeRefused outside of the scope has no effect in it. The account must outlive it.
class MemoryScope {
 public:
  explicit MemoryScope(MemoryAccount* account);
  ~MemoryScope();
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;

 private:
  MemoryAccount* const outer_;
  const bool outer_may_refuse_;
};

// RAII scope in which operator new refuses large blocks that cannot be charged: it throws std::bad_alloc. Elsewhere
// blocks are only counted, and the call is refused at its next interruption point or at the end of its step: many
// functions of libraries, destructors among them, must not see an exception. Open it around a parser, or around our own
// code that allocates in proportion to a request.
class LargeBlocksMayBeRefused {
 public:
  LargeBlocksMayBeRefused();
  ~LargeBlocksMayBeRefused();
  LargeBlocksMayBeRefused(const LargeBlocksMayBeRefused&) = delete;
  LargeBlocksMayBeRefused& operator=(const LargeBlocksMayBeRefused&) = delete;
  // True within such a scope of the current thread.
  static bool Applies();

 private:
  const bool outer_;
};

// Throws std::bad_alloc if so many further bytes do not fit into the current thread's account. Call it before a library
// allocates in proportion to a request, where an exception must not pass through the library.
void RequireMemory(int64_t bytes);

// RAII scope that counts memory which other threads hold for the current thread's account. `bytes` must be at least 0.
class CountedBytes {
 public:
  explicit CountedBytes(int64_t bytes);
  ~CountedBytes();
  CountedBytes(const CountedBytes&) = delete;
  CountedBytes& operator=(const CountedBytes&) = delete;
  // True if they could not be charged.
  bool refused() const { return refused_; }

 private:
  MemoryAccount* const account_;
  const int64_t bytes_;
  const bool refused_;
};

// Returns the current thread's account; null if there is none.
MemoryAccount* CurrentMemoryAccount();

}  // namespace posenc
