// The side socket's packets, seen from the other end of a real socket.
#include "server/shared_memory/side_socket.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <list>
#include <optional>
#include <random>
#include <thread>

#include "posenc/v1/shared_memory.pb.h"
#include "server/core/unix_socket.h"
#include "tests/service/call.h"

namespace posenc::server {
namespace {

constexpr int64_t kPageBytes = 4096;

Descriptor Memfd() {
  Descriptor file(memfd_create("test", MFD_ALLOW_SEALING | MFD_CLOEXEC));
  EXPECT_EQ(ftruncate(file.get(), kPageBytes), 0);
  EXPECT_EQ(fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  return file;
}

std::string RegisterMemfd(int64_t byte_size = kPageBytes) {
  v1::SharedMemoryRequest request;
  request.mutable_register_memfd()->set_byte_size(byte_size);
  return request.SerializeAsString();
}

std::string Unregister(const std::string& token) {
  v1::SharedMemoryRequest request;
  request.mutable_unregister()->set_token(token);
  return request.SerializeAsString();
}

size_t OpenDescriptors() {
  const std::filesystem::directory_iterator begin("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin, std::filesystem::directory_iterator()));
}

class Caller {
 public:
  explicit Caller(const std::string& path, int type = SOCK_SEQPACKET) : socket_(socket(AF_UNIX, type, 0)) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    connected = connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  }

  void Send(const std::string& packet, const std::vector<int>& files = {}) {
    iovec bytes = {const_cast<char*>(packet.data()), packet.size()};
    std::vector<char> control(CMSG_SPACE(files.size() * sizeof(int)));
    msghdr message = {};
    message.msg_iov = &bytes;
    message.msg_iovlen = 1;
    if (!files.empty()) {
      message.msg_control = control.data();
      message.msg_controllen = control.size();
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(files.size() * sizeof(int));
      std::memcpy(CMSG_DATA(header), files.data(), files.size() * sizeof(int));
    }
    EXPECT_EQ(sendmsg(socket_.get(), &message, MSG_NOSIGNAL), static_cast<ssize_t>(packet.size()));
  }

  // Returns nullopt at the connection's end.
  std::optional<v1::SharedMemoryResponse> Receive() {
    std::array<char, 8192> packet;
    const ssize_t size = recv(socket_.get(), packet.data(), packet.size(), 0);
    v1::SharedMemoryResponse response;
    if (size <= 0) return std::nullopt;
    EXPECT_TRUE(response.ParseFromArray(packet.data(), static_cast<int>(size)));
    return response;
  }

  std::optional<v1::SharedMemoryResponse> Ask(const std::string& packet, const std::vector<int>& files = {}) {
    Send(packet, files);
    return Receive();
  }

  // Returns the error code of the answer, or -1 without an answer.
  int Refusal(const std::string& packet, const std::vector<int>& files = {}) {
    const auto response = Ask(packet, files);
    return response ? response->error().code() : -1;
  }

  bool connected;

 private:
  const Descriptor socket_;
};

class Side : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "/posenc-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    directory_ = name;
    path_ = name + "/memory.sock";
    Start();
  }
  void TearDown() override {
    side_.reset();
    std::filesystem::remove_all(directory_);
  }
  void Start() {
    auto side = SideSocket::Start(path_, "/posenc-", &registry_, &devices_);
    ASSERT_THAT(side, IsOk());
    side_ = *std::move(side);
  }
  void ExpectRegions(int64_t count) {
    for (int n = 0; n < 10000 && registry_.counters().regions != count; ++n) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(registry_.counters().regions, count);
  }

  std::string directory_, path_;
  SharedMemoryRegistry registry_{8, 1 << 20};
  const Devices devices_;
  std::unique_ptr<SideSocket> side_;
};

constexpr int kInvalid = static_cast<int>(absl::StatusCode::kInvalidArgument);
constexpr int kNotFound = static_cast<int>(absl::StatusCode::kNotFound);
constexpr int kExhausted = static_cast<int>(absl::StatusCode::kResourceExhausted);

TEST_F(Side, RegistersUntilUnregistered) {
  Caller caller(path_), other(path_);
  const Descriptor file = Memfd();
  const auto token = caller.Ask(RegisterMemfd(), {file.get()});
  ASSERT_TRUE(token);
  ASSERT_EQ(token->token().size(), 16U);
  EXPECT_NE(registry_.Find(token->token()), nullptr);
  EXPECT_EQ(other.Refusal(Unregister(token->token())), kNotFound) << "it is not the other's";
  const auto done = caller.Ask(Unregister(token->token()));
  ASSERT_TRUE(done);
  EXPECT_TRUE(done->unregistered());
  EXPECT_EQ(registry_.Find(token->token()), nullptr);
  EXPECT_EQ(caller.Refusal(Unregister(token->token())), kNotFound);
}

TEST_F(Side, RegistersUntilTheConnectionEnds) {
  const Descriptor file = Memfd();
  Caller stays(path_);
  ASSERT_TRUE(stays.Ask(RegisterMemfd(), {file.get()}));
  {
    Caller leaves(path_);
    ASSERT_TRUE(leaves.Ask(RegisterMemfd(), {file.get()}));
    ASSERT_TRUE(leaves.Ask(RegisterMemfd(), {file.get()}));
    EXPECT_EQ(registry_.counters().regions, 3);
  }
  ExpectRegions(1);
  side_.reset();
  EXPECT_EQ(registry_.counters().regions, 0);
}

TEST_F(Side, RefusesWhatIsMalformedAndGoesOn) {
  Caller caller(path_);
  const Descriptor file = Memfd();
  EXPECT_EQ(caller.Refusal("\xff\xff\xff"), kInvalid);
  EXPECT_EQ(caller.Refusal(RegisterMemfd()), kInvalid) << "no descriptor";
  EXPECT_EQ(caller.Refusal(RegisterMemfd(), {file.get(), file.get()}), kInvalid);
  EXPECT_EQ(caller.Refusal(Unregister("x"), {file.get()}), kInvalid);
  EXPECT_EQ(caller.Refusal("\x98\x06\x01"), kInvalid) << "an unknown field";
  EXPECT_EQ(caller.Refusal(RegisterMemfd(kPageBytes + 1), {file.get()}), kInvalid);
  EXPECT_EQ(caller.Refusal(RegisterMemfd(-1), {file.get()}), kInvalid);
  EXPECT_TRUE(caller.Ask(RegisterMemfd(), {file.get()})->has_token());
}

TEST_F(Side, EndsConnectionsWhosePacketsAreTooLong) {
  const Descriptor file = Memfd();
  Caller caller(path_), caller_of_many(path_);
  EXPECT_EQ(caller.Refusal(std::string(5000, 'x'), {file.get()}), kExhausted);
  EXPECT_FALSE(caller.Receive());
  EXPECT_EQ(caller_of_many.Refusal(RegisterMemfd(), std::vector<int>(100, file.get())), kExhausted);
  EXPECT_FALSE(caller_of_many.Receive());
  Caller empty(path_);
  empty.Send("");
  EXPECT_FALSE(empty.Receive());
}

TEST_F(Side, LeaksNoDescriptor) {
  const Descriptor file = Memfd();
  Caller caller(path_);
  EXPECT_EQ(caller.Refusal("x"), kInvalid);
  const size_t before = OpenDescriptors();
  std::mt19937 random(7);
  for (int n = 0; n < 1000; ++n) {
    std::string packet = n % 3 == 0 ? RegisterMemfd(-1) : n % 3 == 1 ? Unregister("0123456789abcdef") : RegisterMemfd();
    if (n % 3 == 2) packet[random() % packet.size()] ^= static_cast<char>(1 << random() % 8);
    const auto response = caller.Ask(packet, std::vector<int>(1 + n % 4, file.get()));
    ASSERT_TRUE(response);
    if (response->has_token()) caller.Ask(Unregister(response->token()));
  }
  for (int n = 0; n < 100; ++n) {
    Caller cut(path_);
    EXPECT_EQ(cut.Refusal(std::string(5000, 'x'), std::vector<int>(20, file.get())), kExhausted);
    EXPECT_FALSE(cut.Receive());
  }
  EXPECT_EQ(caller.Refusal("x"), kInvalid);
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST_F(Side, HasLimits) {
  const Descriptor file = Memfd();
  Caller caller(path_);
  for (int n = 0; n < 8; ++n) EXPECT_TRUE(caller.Ask(RegisterMemfd(), {file.get()})->has_token());
  EXPECT_EQ(caller.Refusal(RegisterMemfd(), {file.get()}), kExhausted);
  std::list<Caller> callers;
  while (callers.size() < SideSocket::kMostConnections - 1) {
    callers.emplace_back(path_);
    ASSERT_EQ(callers.back().Refusal("x"), kInvalid) << callers.size();
  }
  Caller beyond(path_);
  EXPECT_EQ(beyond.Receive()->error().code(), kExhausted);
  EXPECT_FALSE(beyond.Receive());
  callers.clear();
  ExpectRegions(8);
}

TEST_F(Side, ServesManyAtOnce) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      const Descriptor file = Memfd();
      for (int n = 0; n < 50; ++n) {
        Caller caller(path_);
        const auto response = caller.Ask(RegisterMemfd(), {file.get()});
        ASSERT_TRUE(response && response->has_token()) << response->error().message();
        const auto memory = registry_.Find(response->token());
        if (n % 2 == 0) caller.Ask(Unregister(response->token()));
        memory->bytes()[0] = std::byte{1};
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ExpectRegions(0);
}

TEST_F(Side, IsItsUsersOnly) {
  struct stat status = {};
  ASSERT_EQ(stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600U);
  EXPECT_FALSE(Caller(path_, SOCK_STREAM).connected);
}

TEST_F(Side, IsNotTakenFromALiveServer) {
  SharedMemoryRegistry second(1, 1);
  EXPECT_THAT(SideSocket::Start(path_, "", &second, &devices_), IsInvalid("UNSUPPORTED", "--shared-memory-socket"));
  EXPECT_TRUE(Caller(path_).connected);
  side_.reset();
  EXPECT_FALSE(std::filesystem::exists(path_)) << "it cleans up";
  EXPECT_THAT(SideSocket::Start(path_, "", &second, &devices_), IsOk());
}

TEST_F(Side, TakesADeadServersPlace) {
  const std::string dead = directory_ + "/dead.sock", file = directory_ + "/file";
  { const Descriptor ended = *ListenForPackets("--flag", dead); }
  ASSERT_TRUE(std::filesystem::exists(dead));
  EXPECT_THAT(SideSocket::Start(dead, "", &registry_, &devices_), IsOk());
  close(creat(file.c_str(), 0600));
  EXPECT_THAT(ListenForPackets("--flag", file), IsInvalid("UNSUPPORTED", "--flag"));
  EXPECT_TRUE(std::filesystem::exists(file));
  EXPECT_THAT(ListenForPackets("--flag", directory_ + "/no/such"), IsInvalid("UNSUPPORTED", "--flag"));
  EXPECT_THAT(ListenForPackets("--flag", std::string(200, 'x')), IsInvalid("UNSUPPORTED", "--flag"));
}

}  // namespace
}  // namespace posenc::server
