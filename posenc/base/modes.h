// Computation modes that settings select, shared by formulas and kernels.
#pragma once

namespace posenc {

// Layout of the rotated element pairs; kernels/rotate_pairs.h has a diagram of both.
enum class Pairing { kInterleaved, kHalfSplit };

// Points at which results are rounded to the tensor's type T. Arithmetic (fl) is in float32, or in float64 if the table
// is; each rn_T is one rounding from it, so a float64 table causes no intermediate float32 rounding to FP16 or BF16.
enum class Rounding {
  kOnce,           // rn_T(fl(fl(x0*c) - fl(x1*s)))
  kEachOperation,  // rn_T(fl(rn_T(fl(x0*c)) - rn_T(fl(x1*s)))): torch's eager expression
};

// The arithmetic of frequencies and angles, defined in kernels/sincos_rows.h and exact/arithmetic.h.
enum class Frequencies { kExact, kFloat64, kFloat32 };

}  // namespace posenc
