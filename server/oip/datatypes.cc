#include "server/oip/datatypes.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "posenc/base/interruption.h"
#include "posenc/base/memory_account.h"
#include "posenc/base/status.h"

namespace posenc::server {
namespace {

using inference::InferTensorContents;

constexpr std::string_view kPrefix = "DATA_TYPE_";

static_assert(std::endian::native == std::endian::little);

template <typename Element, typename Values>
std::string Packed(const Values& values) {
  std::string bytes(values.size() * sizeof(Element), '\0');
  for (int n = 0; n < values.size(); ++n) {
    InterruptionPointOfStep(n);
    const Element element = static_cast<Element>(values[n]);
    std::memcpy(bytes.data() + n * sizeof(Element), &element, sizeof(Element));
  }
  return bytes;
}

// The field of contents for a type; 0: none.
int FieldOf(v1::DataType type) {
  switch (type) {
    case v1::DATA_TYPE_BOOL: return InferTensorContents::kBoolContentsFieldNumber;
    case v1::DATA_TYPE_INT32: return InferTensorContents::kIntContentsFieldNumber;
    case v1::DATA_TYPE_INT64: return InferTensorContents::kInt64ContentsFieldNumber;
    case v1::DATA_TYPE_FP32: return InferTensorContents::kFp32ContentsFieldNumber;
    case v1::DATA_TYPE_FP64: return InferTensorContents::kFp64ContentsFieldNumber;
    default: return 0;
  }
}

}  // namespace

absl::StatusOr<v1::DataType> DataTypeOf(const std::string& field, const std::string& name,
                                        const std::vector<std::string>& accepted) {
  v1::DataType type = v1::DATA_TYPE_UNSPECIFIED;
  const bool known = v1::DataType_Parse(std::string(kPrefix) + name, &type) && type != v1::DATA_TYPE_UNSPECIFIED;
  if (std::find(accepted.begin(), accepted.end(), name) != accepted.end() && known) return type;
  return InvalidArgument(name.empty() ? "MISSING"
                         : known      ? "UNSUPPORTED"
                                      : "UNKNOWN_VALUE",
                         field, name, absl::StrCat("must be one of ", absl::StrJoin(accepted, ", ")));
}

std::string NameOf(v1::DataType type) { return v1::DataType_Name(type).substr(kPrefix.size()); }

inference::DataType ConfigTypeOf(const std::string& name) {
  inference::DataType type = inference::TYPE_INVALID;
  (void)inference::DataType_Parse("TYPE_" + name, &type);
  return type;
}

absl::StatusOr<std::string> BytesOf(const std::string& input, v1::DataType type, const InferTensorContents& contents) {
  const int wanted = FieldOf(type);
  if (wanted == 0) {
    return InvalidArgument(
        "UNSUPPORTED", absl::StrCat(input, ".contents"), "",
        absl::StrCat("must be absent for ", NameOf(type), ", whose elements are raw_input_contents"));
  }
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  contents.GetReflection()->ListFields(contents, &fields);
  for (const auto* field : fields) {
    if (field->number() == wanted) continue;
    return InvalidArgument("MISMATCH", absl::StrCat(input, ".contents.", field->name()), "",
                           absl::StrCat("must be absent for ", NameOf(type)));
  }
  const LargeBlocksMayBeRefused scope;
  switch (type) {
    case v1::DATA_TYPE_BOOL: return Packed<uint8_t>(contents.bool_contents());
    case v1::DATA_TYPE_INT32: return Packed<int32_t>(contents.int_contents());
    case v1::DATA_TYPE_INT64: return Packed<int64_t>(contents.int64_contents());
    case v1::DATA_TYPE_FP32: return Packed<float>(contents.fp32_contents());
    default: return Packed<double>(contents.fp64_contents());
  }
}

}  // namespace posenc::server
