// Working precision of real numbers (posenc/exact/real.h), in bits.
#pragma once

#include <cstdint>
#include <utility>

namespace posenc {

// RAII scope that sets the current thread's working precision; the innermost one applies.
class RealPrecision {
 public:
  static constexpr int64_t kDefault = 256;

  explicit RealPrecision(int64_t bits) : outer_(std::exchange(current_, bits)) {}
  ~RealPrecision() { current_ = outer_; }
  RealPrecision(const RealPrecision&) = delete;
  RealPrecision& operator=(const RealPrecision&) = delete;
  static int64_t Current() { return current_; }

 private:
  static inline thread_local int64_t current_ = kDefault;
  const int64_t outer_;
};

}  // namespace posenc
