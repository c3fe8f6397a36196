// How many of the cases of the very longest tests are tried.
#pragma once

#include <cstdlib>

namespace posenc {

// One in how many: all, unless POSENC_TEST_ONE_IN holds a power of two. scripts/test-arm sets it, and scripts/test for
// ThreadSanitizer: both are some twenty times slower.
inline size_t OneIn() {
  const char* text = std::getenv("POSENC_TEST_ONE_IN");
  return text == nullptr ? 1 : std::strtoul(text, nullptr, 10);
}

// How many times as many random cases are tried: 1, unless POSENC_TEST_TIMES says more, for a proof by hand.
inline size_t Times() {
  const char* text = std::getenv("POSENC_TEST_TIMES");
  return text == nullptr ? 1 : std::strtoul(text, nullptr, 10);
}

}  // namespace posenc
