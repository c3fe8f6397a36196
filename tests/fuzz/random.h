// Random choices of the mutators.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>

// libFuzzer's own mutation of bytes, which also uses the constants that the code compared with. Returns the new size.
extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace posenc::fuzz {

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}

  size_t Below(size_t bound) { return engine_() % bound; }
  bool OneIn(size_t n) { return Below(n) == 0; }
  // An element of a container that is not empty.
  template <typename Container>
  auto& Of(Container& container) {
    return container[Below(std::size(container))];
  }
  // A number at which code may fail: an extreme, a power of two or its neighbour, or a small one.
  int64_t Integer();
  double Number();
  // `text` after a mutation by libFuzzer, at most 64 bytes longer.
  std::string Text(std::string text);

 private:
  std::minstd_rand engine_;
};

}  // namespace posenc::fuzz
