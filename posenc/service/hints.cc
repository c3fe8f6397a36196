#include "posenc/service/hints.h"

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "google/protobuf/descriptor.h"
#include "posenc/base/status.h"
#include "posenc/v1/service.pb.h"

namespace posenc::wire {
namespace {

using google::protobuf::Message;
using Path = std::vector<const google::protobuf::FieldDescriptor*>;

void AddPathsToHints(const google::protobuf::Descriptor& type, const Path& way, std::vector<Path>* paths) {
  for (int n = 0; n < type.field_count(); ++n) {
    const auto* field = type.field(n);
    if (field->is_repeated() || field->message_type() == nullptr) continue;
    Path further = way;
    further.push_back(field);
    if (field->message_type() == v1::CallHints::descriptor()) {
      paths->push_back(further);
    } else if (way.empty()) {
      AddPathsToHints(*field->message_type(), further, paths);
    }
  }
}

const std::vector<Path>& PathsOf(const google::protobuf::Descriptor* type) {
  // Computed once: reflection is slow.
  static const auto* const paths = [] {
    auto* all = new absl::flat_hash_map<const google::protobuf::Descriptor*, std::vector<Path>>;
    const auto& file = *v1::ApplyRotaryRequest::descriptor()->file();
    for (int n = 0; n < file.message_type_count(); ++n) {
      AddPathsToHints(*file.message_type(n), {}, &(*all)[file.message_type(n)]);
    }
    return all;
  }();
  return paths->at(type);
}

const v1::CallHints* At(const Path& path, const Message& request) {
  const Message* message = &request;
  for (const auto* field : path) {
    const auto& reflection = *message->GetReflection();
    if (!reflection.HasField(*message, field)) return nullptr;
    message = &reflection.GetMessage(*message, field);
  }
  return static_cast<const v1::CallHints*>(message);
}

}  // namespace

const v1::CallHints* HintsOf(const Message& request) {
  for (const Path& path : PathsOf(request.GetDescriptor())) {
    if (const v1::CallHints* hints = At(path, request); hints != nullptr) return hints;
  }
  return nullptr;
}

absl::Status CheckHints(const Message& request, const Devices* devices) {
  static const Devices& none = *new Devices();
  for (const Path& path : PathsOf(request.GetDescriptor())) {
    const v1::CallHints* hints = At(path, request);
    if (hints == nullptr || hints->device().empty()) continue;
    const absl::Status status = (devices == nullptr ? none : *devices).CheckName(hints->device());
    return path.size() == 1 ? status : Within(std::string(path[0]->name()), status);
  }
  return absl::OkStatus();
}

}  // namespace posenc::wire
