#include "server/oip/settings.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "posenc/base/interruption.h"
#include "posenc/base/status.h"
#include "posenc/wire/parse.h"

namespace posenc::server {
namespace {

// protobuf's reader of JSON cannot be told to stop: it allocates in destructors, which free open arrays by recursion.
// So its memory is bounded beforehand.
constexpr int64_t kMostValues = 100'000;  // in small blocks of up to 300 bytes each
constexpr int64_t kMostLevels = 100;      // protobuf limits those of objects alone

struct JsonSize {
  int64_t values = 0;  // commas and opening brackets, also in strings: about one for each value
  int64_t levels = 0;  // of brackets that are open at the same time
};

// A string is in quotes of either kind, with escapes, as protobuf reads it.
JsonSize SizeOf(const std::string& json) {
  JsonSize size;
  int64_t open = 0;
  char quote = 0;  // of the string that the character is in
  bool escaped = false;
  for (size_t n = 0; n < json.size(); ++n) {
    InterruptionPointOfStep(static_cast<int64_t>(n));
    const char c = json[n];
    const bool opens = c == '[' || c == '{';
    if (opens || c == ',') ++size.values;
    if (quote != 0) {
      if (c == quote && !escaped) quote = 0;
      escaped = c == '\\' && !escaped;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (opens) {
      size.levels = std::max(size.levels, ++open);
    } else if (c == ']' || c == '}') {
      --open;
    }
  }
  return size;
}

}  // namespace

absl::Status ParseSettings(const std::string& json, int64_t most_values, google::protobuf::Message* settings) {
  const std::string type(settings->GetDescriptor()->full_name());
  if (json.empty()) {
    return InvalidArgument("MISSING", kSettings, "", absl::StrCat("must be given: a ", type, " as JSON"));
  }
  const JsonSize size = SizeOf(json);
  if (size.values > kMostValues) {
    return TooLarge(kSettings, absl::StrCat(size.values, " commas and opening brackets"),
                    absl::StrCat("must have at most ", kMostValues));
  }
  if (size.levels > kMostLevels) {
    return InvalidArgument("MALFORMED", kSettings, absl::StrCat(size.levels, " levels deep"),
                           absl::StrCat("must be at most ", kMostLevels, " levels deep"));
  }
  if (size.values > most_values) return WouldBlock();
  const auto parsed = google::protobuf::util::JsonStringToMessage(json, settings);
  if (!parsed.ok()) {
    return InvalidArgument("MALFORMED", kSettings, "",
                           absl::StrCat("must be a ", type, " as JSON: ", Quote(std::string(parsed.message()), 256)));
  }
  return Within(kSettings, wire::RejectUnknown(*settings));
}

}  // namespace posenc::server
