#include "tests/fuzz/random.h"

#include <cmath>
#include <limits>

namespace posenc::fuzz {

int64_t Random::Integer() {
  if (OneIn(2)) return static_cast<int64_t>(Below(20));
  if (OneIn(8)) return OneIn(2) ? std::numeric_limits<int64_t>::max() : std::numeric_limits<int64_t>::min();
  const int64_t near = (int64_t{1} << Below(63)) + static_cast<int64_t>(Below(3)) - 1;
  return OneIn(3) ? -near : near;
}

double Random::Number() {
  static const double kNumbers[] = {0,
                                    0.5,
                                    1,
                                    2,
                                    3,
                                    8,
                                    256,
                                    1e4,
                                    5e5,
                                    5e-324,
                                    1e-310,
                                    1e-30,
                                    1e12,
                                    0x1p53,
                                    1e30,
                                    1e100,
                                    1.7e308,
                                    std::numeric_limits<double>::infinity(),
                                    std::numeric_limits<double>::quiet_NaN()};
  const double number = OneIn(3)   ? static_cast<double>(Below(1000)) / 16
                        : OneIn(4) ? std::ldexp(1.0, static_cast<int>(Below(2098)) - 1074)
                                   : Of(kNumbers);
  return OneIn(3) ? -number : number;
}

std::string Random::Text(std::string text) {
  const size_t size = text.size();
  text.resize(size + 64);
  text.resize(LLVMFuzzerMutate(reinterpret_cast<uint8_t*>(text.data()), size, text.size()));
  return text;
}

}  // namespace posenc::fuzz
