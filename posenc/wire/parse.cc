#include "posenc/wire/parse.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "posenc/base/status.h"
#include "posenc/wire/strict.h"

namespace posenc::wire {

absl::Status ParseStripped(const std::string& stripped, google::protobuf::Message* request, bool* has_regions) {
  if (!request->ParseFromString(stripped)) {
    return InvalidArgument("MALFORMED", "", "", absl::StrCat("not a ", request->GetDescriptor()->full_name()));
  }
  return RejectUnknown(*request, has_regions);
}

absl::StatusOr<std::vector<ByteRange>> ParseRequest(const Stripper& stripper,
                                                    google::protobuf::io::ZeroCopyInputStream* input,
                                                    google::protobuf::Message* request) {
  POSENC_ASSIGN_OR_RETURN(Stripped stripped, stripper.Strip(input, kMaxStrippedBytes));
  POSENC_RETURN_IF_ERROR(ParseStripped(stripped.message, request));
  return std::move(stripped.ranges);
}

}  // namespace posenc::wire
