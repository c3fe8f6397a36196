#include "tests/fuzz/check.h"

#include <set>
#include <string_view>

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

}  // namespace

void CheckError(const absl::Status& status) {
  const ErrorDetails details = DetailsOf(status);
  const std::string text = status.ToString() + " with reason " + details.reason + ", field " + details.field;
  Check(IsDocumented(status.code(), details.reason), "undocumented error: " + text);
  if (absl::IsInvalidArgument(status)) {
    Check(!details.field.empty() && !details.value.empty(), "no field or value is named: " + text);
    Check(details.limit.starts_with("must "), "the limit is not a condition: " + details.limit + ": " + text);
  }
  Check(status.message().size() <= 1024 && details.value.size() <= 64, "long error: " + text);
}

}  // namespace posenc::fuzz

// protobuf logs each malformed message. The server does not log those lines either.
extern "C" int LLVMFuzzerInitialize(int*, char***) {
  google::protobuf::SetLogHandler(nullptr);
  return 0;
}
