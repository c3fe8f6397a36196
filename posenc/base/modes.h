// How settings ask for a computation to be done: choices that formulas and kernels share.
#pragma once

namespace posenc {

// How elements pair up; kernels/rotate_pairs.h draws both.
enum class Pairing { kInterleaved, kHalfSplit };

// Where results are rounded to the tensor's type T. Arithmetic (fl) is in float32, or in float64 if the table is; each
// rn_T is one rounding from it, so that with a float64 table nothing is rounded to float32 on the way to FP16 or BF16.
enum class Rounding {
  kOnce,           // rn_T(fl(fl(x0*c) - fl(x1*s)))
  kEachOperation,  // rn_T(fl(rn_T(fl(x0*c)) - rn_T(fl(x1*s)))): the chain that torch's eager expression runs
};

// The arithmetic of frequencies and angles; kernels/sincos_rows.h and exact/arithmetic.h say what each one does.
enum class Frequencies { kExact, kFloat64, kFloat32 };

}  // namespace posenc
