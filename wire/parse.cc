#include "wire/parse.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "posenc/status.h"
#include "wire/strict.h"

namespace posenc::wire {

absl::StatusOr<std::vector<ByteRange>> ParseRequest(const Stripper& stripper,
                                                    google::protobuf::io::ZeroCopyInputStream* input,
                                                    google::protobuf::Message* request, bool* has_regions) {
  POSENC_ASSIGN_OR_RETURN(Stripped stripped, stripper.Strip(input, kMaxStrippedBytes));
  if (!request->ParseFromString(stripped.message)) {
    return InvalidArgument("MALFORMED", "", "", absl::StrCat("not a ", request->GetDescriptor()->full_name()));
  }
  POSENC_RETURN_IF_ERROR(RejectUnknown(*request, has_regions));
  return std::move(stripped.ranges);
}

}  // namespace posenc::wire
