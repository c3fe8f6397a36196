// Checks of the fuzzers. Each ends the process, so that libFuzzer keeps the input that made it fail.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/status/status.h"

namespace posenc::fuzz {

[[noreturn]] inline void Fail(const std::string& text) {
  std::fprintf(stderr, "fuzz: %s\n", text.c_str());
  std::abort();
}

// For texts that must be put together, which takes longer than many a check, use Fail().
inline void Check(bool holds, const char* otherwise) {
  if (!holds) Fail(otherwise);
}

// Checks that a caller may get this error: its code and reason are those of proto/posenc/v1/error.proto, its texts are
// within their limits, and it names a field unless no field is to blame. `of_inference`: the Open Inference Protocol
// has Triton's codes, too.
void CheckError(const absl::Status& status, bool of_inference = false);

// Runs one input; each fuzzer defines it. Returns -1 if the corpus must not keep the input, else 0. libFuzzer's entry
// point, in check.cc, calls it and checks that it takes at most a second of this process's processor time.
int RunInput(const uint8_t* data, size_t size);

}  // namespace posenc::fuzz
