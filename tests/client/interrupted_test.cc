// A signal that the caller handles does not end a wait for the server.
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "posenc/client/shared_memory.h"
#include "posenc/v1/shared_memory.pb.h"

namespace posenc::interrupted_test {
namespace {

std::atomic<int> handled{0};

TEST(SharedMemory, WaitsOnAfterASignal) {
  constexpr int kSignals = 100;  // those after the first ones arrive while Create() waits for the answer
  struct sigaction action = {}, before = {};
  action.sa_handler = [](int) { ++handled; };
  sigaction(SIGUSR1, &action, &before);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const std::string path = testing::TempDir() + "/posenc-interrupted-" + std::to_string(getpid());
  ASSERT_LT(path.size(), sizeof(address.sun_path));
  std::memcpy(address.sun_path, path.data(), path.size());
  const int listener = socket(AF_UNIX, SOCK_SEQPACKET, 0);
  ASSERT_EQ(bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(listen(listener, 1), 0);

  std::thread server([listener, caller = pthread_self()] {
    const int connection = accept(listener, nullptr, nullptr);
    std::array<char, 4096> packet;
    recv(connection, packet.data(), packet.size(), 0);
    for (int n = 1; n <= kSignals; ++n) {
      pthread_kill(caller, SIGUSR1);
      while (handled < n) std::this_thread::yield();
    }
    v1::SharedMemoryResponse response;
    response.set_token("token");
    const std::string answer = response.SerializeAsString();
    send(connection, answer.data(), answer.size(), MSG_NOSIGNAL);
    close(connection);
  });
  const auto memory = SharedMemory::Create(path, 1);
  EXPECT_TRUE(memory.ok()) << memory.status();
  server.join();
  close(listener);
  unlink(path.c_str());
  sigaction(SIGUSR1, &before, nullptr);
}

}  // namespace
}  // namespace posenc::interrupted_test
