// The share of their cases that the longest tests run.
#pragma once

#include <cstdlib>

namespace posenc {

// The longest tests run one case in OneIn(): all, unless POSENC_TEST_ONE_IN holds a power of two. scripts/test-arm sets
// it, and scripts/test for ThreadSanitizer: both are about twenty times slower.
inline size_t OneIn() {
  const char* text = std::getenv("POSENC_TEST_ONE_IN");
  return text == nullptr ? 1 : std::strtoul(text, nullptr, 10);
}

// Multiplies the number of random cases: 1, unless POSENC_TEST_TIMES says more, for a manual proof.
inline size_t Times() {
  const char* text = std::getenv("POSENC_TEST_TIMES");
  return text == nullptr ? 1 : std::strtoul(text, nullptr, 10);
}

}  // namespace posenc
