#include "posenc/client/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "posenc/base/status.h"
#include "posenc/client/errors.h"
#include "posenc/v1/shared_memory.pb.h"

namespace posenc {
namespace {

constexpr size_t kMostPacketBytes = 8192;
// A signal ends a call with a timeout by EINTR, whatever SA_RESTART says. TEMP_FAILURE_RETRY repeats the call.
constexpr timeval kPatience = {10, 0};  // timeout; a server answers within microseconds

std::string TextOf(int error) { return std::generic_category().message(error); }

absl::Status NotThere(const std::string& socket, int error) {
  return absl::UnavailableError(absl::StrCat("no answer from ", socket, " (", TextOf(error),
                                             "); was posenc-server started with --shared-memory-socket ", socket, "?"));
}

absl::StatusOr<int> Connect(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return InvalidArgument("OUT_OF_RANGE", "socket", path, "a socket's path has 1 to 107 bytes");
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  const int connection = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (connection < 0) return NotThere(path, errno);
  for (const int option : {SO_SNDTIMEO, SO_RCVTIMEO}) {
    setsockopt(connection, SOL_SOCKET, option, &kPatience, sizeof(kPatience));
  }
  if (TEMP_FAILURE_RETRY(connect(connection, reinterpret_cast<const sockaddr*>(&address), sizeof(address))) == 0)
    return connection;
  const absl::Status status = NotThere(path, errno);
  close(connection);
  return status;
}

// Creates a sealed memfd and maps it to *data. Returns the descriptor.
absl::StatusOr<int> Allocate(size_t bytes, std::byte** data) {
  const int file = memfd_create("posenc", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file < 0) return absl::ResourceExhaustedError(absl::StrCat("memfd_create: ", TextOf(errno)));
  void* mapped = MAP_FAILED;
  if (ftruncate(file, static_cast<off_t>(bytes)) == 0 && fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0) {
    mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  }
  if (mapped != MAP_FAILED) {
    *data = static_cast<std::byte*>(mapped);
    return file;
  }
  const absl::Status status = absl::ResourceExhaustedError(absl::StrCat(bytes, " bytes to share: ", TextOf(errno)));
  close(file);
  return status;
}

// Sends the packet with the file descriptor.
bool Send(int connection, std::string packet, int file) {
  iovec bytes = {packet.data(), packet.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control = {};
  msghdr message = {};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &file, sizeof(int));
  const ssize_t sent = TEMP_FAILURE_RETRY(sendmsg(connection, &message, MSG_NOSIGNAL));
  return sent == static_cast<ssize_t>(packet.size());
}

}  // namespace

absl::StatusOr<SharedMemory> SharedMemory::Create(const std::string& socket, size_t bytes) {
  if (bytes == 0) return InvalidArgument("OUT_OF_RANGE", "bytes", "0", "must be at least 1");
  SharedMemory memory;
  POSENC_ASSIGN_OR_RETURN(memory.connection_, Connect(socket));
  POSENC_ASSIGN_OR_RETURN(const int file, Allocate(bytes, &memory.data_));
  memory.size_ = bytes;
  v1::SharedMemoryRequest request;
  request.mutable_register_memfd()->set_byte_size(static_cast<int64_t>(bytes));
  std::array<char, kMostPacketBytes> packet;
  ssize_t received = -1;
  // A server that rejects us sends the reason before it closes.
  if (Send(memory.connection_, request.SerializeAsString(), file) || errno == EPIPE) {
    received = TEMP_FAILURE_RETRY(recv(memory.connection_, packet.data(), packet.size(), 0));
  }
  const int error = received == 0 ? ECONNRESET : errno;
  close(file);  // both sides have mapped it
  if (received <= 0) return NotThere(socket, error);
  v1::SharedMemoryResponse response;
  if (!response.ParseFromArray(packet.data(), static_cast<int>(received))) {
    return absl::InternalError(absl::StrCat(socket, " answers, but is no posenc-server's"));
  }
  if (response.has_error()) return FromRich(response.error());
  memory.token_ = response.token();
  return memory;
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      connection_(std::exchange(other.connection_, -1)),
      token_(std::move(other.token_)) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(connection_, other.connection_);
  std::swap(token_, other.token_);
  return *this;
}

SharedMemory::~SharedMemory() {
  if (connection_ >= 0) close(connection_);
  if (data_ != nullptr) munmap(data_, size_);
}

v1::Region SharedMemory::Part(size_t offset, size_t size) const {
  v1::Region region;
  region.set_token(token_);
  region.set_offset(static_cast<int64_t>(offset));
  region.set_byte_size(static_cast<int64_t>(size));
  return region;
}

}  // namespace posenc
