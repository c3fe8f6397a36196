// Digests of the bytes that every primitive writes, on every CPU target of this machine. They are equal on all machines
// (tests/digests/README.md, which also says how to rewrite them).
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "posenc/base/dtype.h"
#include "posenc/kernels/rotate_pairs.h"
#include "posenc/kernels/sincos_rows.h"
#include "tests/kernels/elements.h"

namespace posenc {

// A case: `name` describes it completely, `run` returns its bytes.
struct Case {
  std::string name;
  std::function<Block()> run;
};

// Compares the cases' digests with tests/digests/FILE.txt. Writes that file first if asked to.
void Check(const std::string& file, const std::vector<Case>& cases);

// Runs on every CPU target. Primitives without vector code use a plain TEST.
class DigestTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override;
  void TearDown() override;
};

inline constexpr DType kTypes[] = {DType::kFP64, DType::kFP32, DType::kFP16, DType::kBF16};
inline constexpr DType kTensorTypes[] = {DType::kFP32, DType::kFP16, DType::kBF16};
inline constexpr Frequencies kArithmetics[] = {Frequencies::kExact, Frequencies::kFloat64, Frequencies::kFloat32};
inline constexpr Rounding kRoundings[] = {Rounding::kOnce, Rounding::kEachOperation};
inline constexpr Pairing kPairings[] = {Pairing::kInterleaved, Pairing::kHalfSplit};

inline const char* Name(Frequencies f) {
  return f == Frequencies::kExact ? "exact" : f == Frequencies::kFloat64 ? "float64" : "float32";
}
inline const char* Name(Rounding r) { return r == Rounding::kOnce ? "once" : "each"; }
inline const char* Name(Pairing p) { return p == Pairing::kInterleaved ? "interleaved" : "half-split"; }

// Returns choice n modulo N.
template <class T, size_t N>
T Turn(size_t n, const T (&choices)[N]) {
  return choices[n % N];
}

}  // namespace posenc
