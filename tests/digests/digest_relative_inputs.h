// Inputs of the digests of relative terms: numbers of ordinary size.
#pragma once

#include <cstdint>
#include <vector>

#include "posenc/kernels/convert.h"
#include "posenc/settings/settings.h"
#include "tests/digests/digest_case.h"
#include "tests/digests/digest_inputs.h"

namespace posenc {

inline std::vector<float> SeededNumbers(uint64_t stream, int64_t count) {
  std::vector<float> numbers(count);
  for (int64_t n = 0; n < count; ++n) numbers[n] = static_cast<float>(RandomReal(stream, n, -4, 5));
  return numbers;
}
inline Matrix<float> Table(uint64_t stream, int64_t rows, int64_t columns) {
  return {SeededNumbers(stream, rows * columns), rows, columns, false};
}
inline Block Tensor(DType dtype, uint64_t stream, int64_t count) {
  const std::vector<float> numbers = SeededNumbers(stream, count);
  Block bytes(count * SizeOf(dtype), 1);
  Convert(DType::kFP32, dtype, numbers.data(), bytes.data(), count);
  return bytes;
}

}  // namespace posenc
