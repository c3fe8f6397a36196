// The side socket's packets. An input is a sequence of SharedMemoryRequests, which one connection sends. A request to
// unregister an empty token stands for the token that the connection received last. Each fourth packet has a descriptor
// if it must have none, and the other way round.
#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "posenc/base/status.h"
#include "posenc/service/devices.h"
#include "posenc/v1/error.pb.h"
#include "posenc/v1/shared_memory.pb.h"
#include "server/shared_memory/registrar.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/message_mutator.h"
#include "tests/fuzz/sequence.h"

namespace posenc::server {
namespace {

using fuzz::Check;

// Enough to register as many regions as fit, to release them and to register others. Further packets meet no other
// state, and inputs with hundreds of them take most of the time.
constexpr size_t kMostPackets = 16;

Descriptor MakeMemfd() {
  Descriptor file(memfd_create("fuzz", MFD_ALLOW_SEALING | MFD_CLOEXEC));
  Check(ftruncate(file.get(), 8192) == 0 && fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0,
        "cannot make a memfd");
  return file;
}

// A further descriptor of one file: to make a file takes ten times as long.
Descriptor Memfd() {
  static const Descriptor file = MakeMemfd();
  return Descriptor(fcntl(file.get(), F_DUPFD_CLOEXEC, 0));
}

const fuzz::SequenceType& Requests() {
  static const auto* const type = new fuzz::SequenceType(*v1::SharedMemoryRequest::descriptor());
  return *type;
}

void CheckResponse(const v1::SharedMemoryResponse& response) {
  if (!response.has_error()) return Check(response.result_case() != 0, "an empty response");
  v1::ErrorInfo info;
  Check(response.error().details_size() > 0 && info.ParseFromString(response.error().details(0).value()),
        "an error without details");
  // Descriptors are no field of the request.
  if (response.error().message().find("SCM_RIGHTS") != std::string::npos) return;
  const auto get = [&info](const char* key) -> std::string {
    const auto found = info.metadata().find(key);
    return found == info.metadata().end() ? "" : found->second;
  };
  fuzz::CheckError(Restore(static_cast<absl::StatusCode>(response.error().code()), response.error().message(),
                           {info.reason(), get("field"), get("value"), get("limit")}));
}

std::string Unregister(const std::string& token) {
  v1::SharedMemoryRequest request;
  request.mutable_unregister()->set_token(token);
  return request.SerializeAsString();
}

void Serve(const std::vector<std::string>& packets) {
  static const std::string kUnregisterEmpty = Unregister("");
  constexpr char kRegisterMemfdTag = v1::SharedMemoryRequest::kRegisterMemfdFieldNumber << 3 | 2;
  SharedMemoryRegistry registry(/*max_regions=*/4, /*max_bytes=*/20000);
  const Devices devices;
  {
    Registrar registrar(&registry, "/posenc-fuzz-", &devices);
    std::string token;
    for (size_t n = 0; n < packets.size(); ++n) {
      std::string packet = packets[n];
      if (packet == kUnregisterEmpty) packet = Unregister(token);
      std::vector<Descriptor> descriptors;
      if (packet.starts_with(kRegisterMemfdTag) != (n % 4 == 3)) descriptors.push_back(Memfd());
      v1::SharedMemoryResponse response;
      Check(response.ParseFromString(registrar.Answer(packet, descriptors)), "not a response");
      CheckResponse(response);
      if (response.has_token()) token = response.token();
      Check(!response.has_token() || registry.Find(token) != nullptr, "memory that is not registered");
    }
  }
  Check(registry.counters().regions == 0 && registry.counters().bytes == 0, "memory outlives its connection");
}

}  // namespace
}  // namespace posenc::server

int posenc::fuzz::RunInput(const uint8_t* data, size_t size) {
  posenc::server::Serve(posenc::fuzz::Split({data, size}, posenc::server::kMostPackets));
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  posenc::fuzz::Random random(seed);
  return posenc::fuzz::MutateMessage(posenc::server::Requests().prototype(), absl::MakeSpan(data, max_size), size,
                                     random);
}
