// Digests of conversions between types.
#include <fmt/format.h>

#include "posenc/kernels/convert.h"
#include "tests/digests/digest_case.h"
#include "tests/digests/digest_inputs.h"

namespace posenc {
namespace {

std::vector<Case> ConvertCases() {
  std::vector<Case> cases;
  for (const DType from : kTypes) {
    for (const DType to : kTypes) {
      for (const size_t count : {1, 2, 3, 5, 8, 13, 21, 34, 55, 67, 129, 300, 4096}) {
        if (from == to) continue;
        const auto run = [=] {
          Block in(count * SizeOf(from), 1), out(count * SizeOf(to), 1);
          FillWithElements(from, count, 0, count, in.data());
          Convert(from, to, in.data(), out.data(), count);
          MakeNansEqual(to, out.data(), count);
          return out;
        };
        cases.push_back({fmt::format("from={} to={} count={}", Name(from), Name(to), count), run});
      }
    }
  }
  return cases;
}

}  // namespace

TEST_P(DigestTest, Convert) { Check("convert", ConvertCases()); }

}  // namespace posenc
