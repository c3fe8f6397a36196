#include "server/shared_memory/registrar.h"

#include <algorithm>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "posenc/base/status.h"
#include "posenc/wire/parse.h"
#include "server/core/rich_status.h"

namespace posenc::server {

Registrar::~Registrar() {
  for (const std::string& token : tokens_) registry_->Unregister(token);
}

std::string Registrar::ErrorPacket(const absl::Status& status) {
  v1::SharedMemoryResponse response;
  *response.mutable_error() = ToRich(status, /*started=*/false);
  return response.SerializeAsString();
}

std::string Registrar::Answer(std::string_view packet, const std::vector<Descriptor>& descriptors) {
  const absl::StatusOr<v1::SharedMemoryResponse> response = Act(packet, descriptors);
  return response.ok() ? response->SerializeAsString() : ErrorPacket(response.status());
}

absl::StatusOr<v1::SharedMemoryResponse> Registrar::Act(std::string_view packet,
                                                        const std::vector<Descriptor>& descriptors) {
  v1::SharedMemoryRequest request;
  if (!request.ParseFromArray(packet.data(), static_cast<int>(packet.size()))) {
    return InvalidArgument("MALFORMED", kWholeRequest, "", "must be a posenc.v1.SharedMemoryRequest");
  }
  POSENC_RETURN_IF_ERROR(wire::RejectUnknown(request));
  const size_t wanted = request.has_register_memfd() ? 1 : 0;
  if (descriptors.size() != wanted) {
    return InvalidArgument("MISMATCH", kWholeRequest, absl::StrCat(descriptors.size(), " descriptors"),
                           "must be one descriptor (SCM_RIGHTS) with register_memfd, and none with other actions");
  }
  switch (request.action_case()) {
    case v1::SharedMemoryRequest::kRegisterMemfd: {
      const v1::RegisterMemfd& action = request.register_memfd();
      POSENC_RETURN_IF_ERROR(CheckMemfd(descriptors[0], action.byte_size()));
      return Keep(registry_->Register(descriptors[0], action.byte_size(), action.read_only()));
    }
    case v1::SharedMemoryRequest::kRegisterPosix: {
      const v1::RegisterPosix& action = request.register_posix();
      POSENC_ASSIGN_OR_RETURN(const Descriptor file,
                              OpenPosix(action.name(), prefix_, action.byte_size(), action.read_only()));
      return Keep(registry_->Register(file, action.byte_size(), action.read_only()));
    }
    case v1::SharedMemoryRequest::kRegisterDeviceMemory: {
      const v1::RegisterDeviceMemory& action = request.register_device_memory();
      Device* device = devices_->Find(action.device());
      if (device == nullptr) {
        const std::string limit = "must be a device of the server";
        return Restore(absl::StatusCode::kNotFound, "device: " + limit,
                       {"NOT_FOUND", "device", Quote(action.device()), limit});
      }
      return Keep(registry_->RegisterOn(device, action.handle(), action.byte_size(), action.read_only()));
    }
    case v1::SharedMemoryRequest::kUnregister: {
      const auto own = std::find(tokens_.begin(), tokens_.end(), request.unregister().token());
      if (own == tokens_.end()) {
        const std::string limit = "must be memory that this connection has registered";
        return Restore(absl::StatusCode::kNotFound, "token: " + limit,
                       {"NOT_FOUND", "token", std::string(kPresent), limit});
      }
      registry_->Unregister(*own);
      tokens_.erase(own);
      v1::SharedMemoryResponse response;
      response.set_unregistered(true);
      return response;
    }
    case v1::SharedMemoryRequest::ACTION_NOT_SET: break;
  }
  return InvalidArgument("MISSING", "action", "",
                         "must be register_memfd, register_posix, register_device_memory or unregister");
}

absl::StatusOr<v1::SharedMemoryResponse> Registrar::Keep(absl::StatusOr<std::string> token) {
  POSENC_RETURN_IF_ERROR(token.status());
  try {
    tokens_.push_back(*token);
  } catch (const std::bad_alloc&) {  // else nobody could unregister it
    registry_->Unregister(*token);
    throw;
  }
  v1::SharedMemoryResponse response;
  response.set_token(*std::move(token));
  return response;
}

}  // namespace posenc::server
