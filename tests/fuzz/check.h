// Checks of the fuzzers. Each ends the process, so that libFuzzer keeps the input that made it fail.
#pragma once

#include <ctime>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/status/status.h"

namespace posenc::fuzz {

inline void Check(bool holds, const std::string& otherwise) {
  if (holds) return;
  std::fprintf(stderr, "fuzz: %s\n", otherwise.c_str());
  std::abort();
}

// Checks that a caller may get this error: its code and reason are those of proto/posenc/v1/error.proto, its texts are
// within their limits, and it names a field unless no field is to blame.
void CheckError(const absl::Status& status);

// Checks at the end of its scope that it took at most a second of this process's processor time. Unlike libFuzzer's
// -timeout, which only ends a call that hangs, this does not depend on what else the machine does.
class CheckTime {
 public:
  CheckTime() = default;
  ~CheckTime() { Check(Seconds() - begin_ < 1, "took more than a second of processor time"); }
  CheckTime(const CheckTime&) = delete;
  CheckTime& operator=(const CheckTime&) = delete;

 private:
  static double Seconds() {
    timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
  }
  const double begin_ = Seconds();
};

}  // namespace posenc::fuzz
