// A client of several servers, one of which is drained.
#include <netdb.h>

#include <memory>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "posenc/client/client.h"
#include "server/core/config.h"
#include "server/grpc/server.h"

namespace posenc::several_servers_test {
namespace {

std::unique_ptr<server::Server> Start(int port = 0) {
  server::Config config;
  config.listen = {absl::StrCat("127.0.0.1:", port)};
  config.threads = 1;
  config.log_level = "error";
  EXPECT_EQ(server::Complete({1, 0}, &config), "");
  auto started = server::Server::Start(config);
  EXPECT_TRUE(started.ok()) << started.status();
  return *std::move(started);
}

v1::GenerateTableRequest Table() {
  v1::GenerateTableRequest request;
  v1::RotarySettings& settings = *request.mutable_rotary()->mutable_settings();
  settings.mutable_rope_parameters()->set_rope_type("default");
  settings.set_rotary_dim(8);
  settings.set_input_pairing(v1::PAIRING_HALF_SPLIT);
  request.mutable_positions()->set_offset(0);
  request.set_count(4);
  request.set_dtype(v1::DATA_TYPE_FP32);
  request.set_form(v1::TABLE_FORM_HALF_WIDTH);
  return request;
}

TEST(SeveralServers, ShareTheCallsAndOneMayGo) {
  std::unique_ptr<server::Server> first = Start(), second = Start();
  Client client({.address = absl::StrCat("ipv4:127.0.0.1:", first->port(), ",127.0.0.1:", second->port()),
                 .several_servers = true});
  const auto call = [&client] {
    const auto response = client.GenerateTable(Table());
    EXPECT_TRUE(response.ok()) << response.status();
  };
  // The client may connect to one server before the other; from then on calls alternate.
  while (!testing::Test::HasFailure() && (first->counters().started == 0 || second->counters().started == 0)) {
    call();
  }

  bool answered = false;
  std::atomic<bool> gone = false;
  std::thread drain([&] {
    answered = first->Drain();
    first.reset();
    gone = true;
  });
  while (!gone) call();
  drain.join();
  EXPECT_TRUE(answered);
  const int64_t before = second->counters().started;
  for (int n = 0; n < 20; ++n) call();
  EXPECT_EQ(second->counters().started, before + 20);
}

// Nobody may listen at some addresses of the name, such as ::1.
TEST(SeveralServers, MayBeOfOneName) {
  addrinfo* found = nullptr;
  if (getaddrinfo("localhost", nullptr, nullptr, &found) != 0)
    GTEST_SKIP() << "skipped: localhost does not resolve here";
  freeaddrinfo(found);
  std::unique_ptr<server::Server> server = Start();
  const int port = server->port();
  Client client({.address = absl::StrCat("dns:///localhost:", port), .several_servers = true});
  for (int n = 0; n < 5; ++n) {
    const auto response = client.GenerateTable(Table());
    EXPECT_TRUE(response.ok()) << response.status();
  }
  EXPECT_EQ(server->counters().started, 5);

  EXPECT_TRUE(server->Drain());
  server.reset();
  server = Start(port);
  const auto response = client.GenerateTable(Table());
  EXPECT_TRUE(response.ok()) << response.status() << ": it has come back";
}

}  // namespace
}  // namespace posenc::several_servers_test
