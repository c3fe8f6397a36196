#include "server/oip/parse.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <cstdint>
#include <map>

#include "absl/strings/str_cat.h"
#include "posenc/base/interruption.h"
#include "posenc/base/memory_account.h"
#include "posenc/base/status.h"
#include "posenc/wire/parse.h"

namespace posenc::server {
namespace {

using MessageType = google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::internal::WireFormatLite;

absl::Status MalformedRequest(const MessageType& type) {
  return InvalidArgument("MALFORMED", kWholeRequest, "", absl::StrCat("must be an ", type.full_name()));
}

// Counts the entries of a serialized request: everything whose parsed form can take many times its bytes.
class EntryCount {
 public:
  EntryCount(const std::string& serialized, const MessageType& root)
      : root_(root), input_(reinterpret_cast<const uint8_t*>(serialized.data()), static_cast<int>(serialized.size())) {}

  absl::Status Add() { return Add(root_, ""); }

 private:
  // Adds those of a message of this type, which ends where the stream does.
  absl::Status Add(const MessageType& type, const std::string& path) {
    for (uint32_t tag = input_.ReadTag(); tag != 0; tag = input_.ReadTag()) {
      InterruptionPointOfStep(++fields_);
      // Not a field of any message here. What is in a group would not be counted.
      if (WireFormatLite::GetTagWireType(tag) == WireFormatLite::WIRETYPE_START_GROUP) {
        return Refuse(nullptr, PlaceOf(path, nullptr, tag), type);
      }
      const FieldDescriptor* field = type.FindFieldByNumber(WireFormatLite::GetTagFieldNumber(tag));
      if (!Fits(field, tag)) field = nullptr;  // protobuf keeps it as an unknown field
      const bool is_message = field != nullptr && field->message_type() != nullptr;
      const bool is_entry = field == nullptr || is_message || (field->is_repeated() && !field->is_packable());
      std::string place;
      if (is_entry) {
        place = PlaceOf(path, field, tag);
        if (++counts_[field] > kMostEntries) return Refuse(field, place, type);
      }
      if (is_message) {
        POSENC_RETURN_IF_ERROR(AddInner(*field->message_type(), place));
      } else if (!WireFormatLite::SkipField(&input_, tag)) {
        return MalformedRequest(root_);
      }
    }
    return input_.ConsumedEntireMessage() ? absl::OkStatus() : MalformedRequest(root_);
  }

  static std::string PlaceOf(const std::string& path, const FieldDescriptor* field, uint32_t tag) {
    const uint32_t number = WireFormatLite::GetTagFieldNumber(tag);
    return absl::StrCat(path, path.empty() ? "" : ".", field == nullptr ? absl::StrCat(number) : field->name());
  }

  static absl::Status Refuse(const FieldDescriptor* field, const std::string& place, const MessageType& type) {
    if (field == nullptr) {
      return InvalidArgument("UNKNOWN_FIELD", place, "", absl::StrCat("must be a field of ", type.full_name()));
    }
    return TooLarge(place, absl::StrCat(kMostEntries + 1, " or more"),
                    absl::StrCat("must be at most ", kMostEntries, " in one request"));
  }

  static bool Fits(const FieldDescriptor* field, uint32_t tag) {
    if (field == nullptr) return false;
    const auto type = WireFormatLite::GetTagWireType(tag);
    return type == WireFormatLite::WireTypeForFieldType(static_cast<WireFormatLite::FieldType>(field->type())) ||
           (type == WireFormatLite::WIRETYPE_LENGTH_DELIMITED && field->is_packable());
  }

  absl::Status AddInner(const MessageType& type, const std::string& path) {
    uint32_t length = 0;
    if (!input_.ReadVarint32(&length)) return MalformedRequest(root_);
    const auto outer = input_.PushLimit(static_cast<int>(length));
    POSENC_RETURN_IF_ERROR(Add(type, path));
    if (input_.BytesUntilLimit() != 0) return MalformedRequest(root_);
    input_.PopLimit(outer);
    return absl::OkStatus();
  }

  const MessageType& root_;
  google::protobuf::io::CodedInputStream input_;
  int64_t fields_ = 0;                            // read so far
  std::map<const FieldDescriptor*, int> counts_;  // null: unknown fields
};

}  // namespace

absl::Status ParseInference(const std::string& serialized, google::protobuf::Message* request) {
  const MessageType& type = *request->GetDescriptor();
  POSENC_RETURN_IF_ERROR(EntryCount(serialized, type).Add());
  const LargeBlocksMayBeRefused scope;
  return request->ParseFromString(serialized) ? wire::RejectUnknownFields(*request) : MalformedRequest(type);
}

}  // namespace posenc::server
