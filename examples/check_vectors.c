/* Compares a port's float32 rotation with the values that `posenc vectors` wrote. Copy it into a test suite.
 *
 * actual, expected: [rows, head_dim], of which the first rotary_dim elements of each row rotate. interleaved: pairs are
 * (0, 1), (2, 3), ...; otherwise (0, rotary_dim / 2), (1, rotary_dim / 2 + 1), ... tolerance: tolerance_of_pair_norm in
 * the file's metadata. Returns the index of the first element that differs by more than tolerance times the norm of its
 * pair, or that is NaN in actual only; -1 if there is none. */
#include <math.h>

long check_rotated(const float* actual, const float* expected, long rows, long head_dim, long rotary_dim,
                   int interleaved, double tolerance) {
  const long half = rotary_dim / 2;
  for (long row = 0; row < rows; ++row) {
    const float* e = expected + row * head_dim;
    for (long i = 0; i < head_dim; ++i) {
      double bound = 0;
      if (i < rotary_dim) {
        const long partner = interleaved ? i ^ 1 : i < half ? i + half : i - half;
        bound = tolerance * sqrt((double)e[i] * e[i] + (double)e[partner] * e[partner]);
      }
      if (!(fabs((double)actual[row * head_dim + i] - e[i]) <= bound)) return row * head_dim + i;
    }
  }
  return -1;
}
