#include "server/core/rich_status.h"

#include <string>
#include <string_view>
#include <utility>

#include "google/rpc/error_details.pb.h"
#include "posenc/base/status.h"

namespace posenc::server {
namespace {

constexpr size_t kMaxTextBytes = 1024;
constexpr size_t kMaxValueBytes = 64;
constexpr char kDomain[] = "posenc";
constexpr char kErrorInfoType[] = "type.googleapis.com/google.rpc.ErrorInfo";

// BadRequest with one violation. Its description is the message without the leading "field: ".
google::rpc::BadRequest ViolationOf(const std::string& field, std::string_view message) {
  google::rpc::BadRequest bad_request;
  auto& violation = *bad_request.add_field_violations();
  violation.set_field(field);
  const std::string prefix = field + ": ";
  if (message.starts_with(prefix)) message.remove_prefix(prefix.size());
  violation.set_description(std::string(message));
  return bad_request;
}

}  // namespace

v1::RichStatus ToRich(const absl::Status& status, bool started) {
  const ErrorDetails details = DetailsOf(status);
  v1::ErrorInfo info;
  info.set_reason(details.reason);
  info.set_domain(kDomain);
  auto& metadata = *info.mutable_metadata();
  const std::pair<const char*, const std::string&> parts[] = {
      {"field", details.field},     {"value", details.value},
      {"limit", details.limit},     {"other_field", details.other_field},
      {"line", details.line},       {"column", details.column},
      {"operand", details.operand}, {"byte_offset", details.byte_offset}};
  for (const auto& [key, part] : parts) {
    const size_t most = &part == &details.value ? kMaxValueBytes : kMaxTextBytes;
    if (!part.empty()) metadata[key] = Quote(part, most);
  }
  metadata["started"] = started ? "true" : "false";

  v1::RichStatus rich;
  rich.set_code(static_cast<int>(status.code()));  // absl and gRPC use the same numbers
  rich.set_message(Quote({status.message().data(), status.message().size()}, kMaxTextBytes));
  google::protobuf::Any* detail = rich.add_details();
  detail->set_type_url(kErrorInfoType);
  detail->set_value(info.SerializeAsString());
  if (!details.field.empty()) (void)rich.add_details()->PackFrom(ViolationOf(metadata["field"], rich.message()));
  return rich;
}

}  // namespace posenc::server
