#include "tests/fuzz/check.h"

#include <ctime>
#include <set>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "google/protobuf/stubs/logging.h"
#include "posenc/base/status.h"

namespace posenc::fuzz {
namespace {

// The reasons of each code that a call without overload, drain or devices can end with.
bool IsDocumented(absl::StatusCode code, std::string_view reason) {
  static const std::set<std::string_view> kInvalid = {"MISSING",       "OUT_OF_RANGE",  "MISMATCH", "CONFLICT",
                                                      "UNKNOWN_FIELD", "UNKNOWN_VALUE", "NOT_READ", "MALFORMED",
                                                      "UNSUPPORTED",   "BAD_HANDLE"};
  switch (code) {
    case absl::StatusCode::kInvalidArgument: return kInvalid.contains(reason);
    case absl::StatusCode::kResourceExhausted: return reason == "TOO_LARGE";
    case absl::StatusCode::kNotFound: return reason == "NOT_FOUND";
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kDeadlineExceeded: return reason == "CANCELLED";
    default: return false;
  }
}

bool IsOfInference(absl::StatusCode code, std::string_view reason) {
  switch (code) {
    case absl::StatusCode::kUnimplemented: return reason == "UNSUPPORTED";
    case absl::StatusCode::kInternal: return reason == "UNSUPPORTED" || reason == "NOT_FOUND";
    case absl::StatusCode::kAlreadyExists: return reason == "CONFLICT";
    case absl::StatusCode::kUnavailable: return reason == "MODEL_UNAVAILABLE";
    default: return false;
  }
}

double ProcessorSeconds() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

}  // namespace

void CheckError(const absl::Status& status, bool of_inference) {
  const ErrorDetails details = DetailsOf(status);
  const auto check = [&](bool holds, const char* otherwise) {
    if (!holds)
      Fail(absl::StrCat(otherwise, ": ", status.ToString(), " with reason ", details.reason, ", field ", details.field,
                        ", limit ", details.limit));
  };
  check(IsDocumented(status.code(), details.reason) || (of_inference && IsOfInference(status.code(), details.reason)),
        "undocumented error");
  if (absl::IsInvalidArgument(status)) {
    check(!details.field.empty() && !details.value.empty(), "no field or value is named");
    check(details.limit.starts_with("must "), "the limit is not a condition");
  }
  const std::string message(status.message());
  check(message == Quote(message, 1024) && details.value.size() <= 64, "long or unescaped error");
}

}  // namespace posenc::fuzz

// Unlike libFuzzer's -timeout, which only ends a call that hangs, this does not depend on what else the machine does.
// But the processor time of a virtual machine can include time that its host gave to others: so a slow input runs once
// more.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr double kMostSeconds = 1, kCertainlySlow = 5;
  const double begin = posenc::fuzz::ProcessorSeconds();
  const int result = posenc::fuzz::RunInput(data, size);
  const double first = posenc::fuzz::ProcessorSeconds() - begin;
  if (first < kMostSeconds) return result;
  posenc::fuzz::Check(first < kCertainlySlow, "took more than five seconds of processor time");
  const double again = posenc::fuzz::ProcessorSeconds();
  posenc::fuzz::RunInput(data, size);
  posenc::fuzz::Check(posenc::fuzz::ProcessorSeconds() - again < kMostSeconds,
                      "took more than a second of processor time, twice");
  return result;
}

// protobuf logs each malformed message. The server does not log those lines either.
extern "C" int LLVMFuzzerInitialize(int*, char***) {
  google::protobuf::SetLogHandler(nullptr);
  return 0;
}
