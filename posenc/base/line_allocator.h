// Vectors that begin where a cache line does.
#pragma once

#include <cstddef>
#include <new>
#include <utility>
#include <vector>

namespace posenc {

// A vector of the processor that crosses from one line into the next costs twice.
template <class T>
struct LineAllocator {
  using value_type = T;
  static constexpr std::align_val_t kLine{64};

  LineAllocator() = default;
  template <class U>
  LineAllocator(const LineAllocator<U>&) {}  // NOLINT(google-explicit-constructor): as containers convert it
  T* allocate(size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), kLine)); }
  // Bytes without a value stay as they are: whoever asks for them writes them.
  template <class U, class... Arguments>
  void construct(U* p, Arguments&&... arguments) {
    if constexpr (sizeof...(Arguments) == 0) {
      ::new (static_cast<void*>(p)) U;
    } else {
      ::new (static_cast<void*>(p)) U(std::forward<Arguments>(arguments)...);
    }
  }
  void deallocate(T* p, size_t) { ::operator delete(p, kLine); }
  bool operator==(const LineAllocator&) const { return true; }
};

template <class T>
using LineVector = std::vector<T, LineAllocator<T>>;

}  // namespace posenc
