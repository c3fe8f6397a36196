// A rotation stream that loses its server continues at the next one, after the rows already answered.
#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "posenc/client/client.h"
#include "server/core/config.h"
#include "server/grpc/server.h"

namespace posenc::lost_server_test {
namespace {

constexpr int64_t kRows = 20'000, kRowBytes = 16;

std::unique_ptr<server::Server> Start(int port, int64_t max_connection_age_s) {
  server::Config config;
  config.listen = {absl::StrCat("127.0.0.1:", port)};
  config.threads = 1;
  config.log_level = "off";
  config.drain_timeout_s = 0;
  config.max_connection_age_s = max_connection_age_s;
  config.max_connection_age_grace_s = 0;
  EXPECT_EQ(server::Complete({1, 0}, &config), "");
  auto started = server::Server::Start(config);
  EXPECT_TRUE(started.ok()) << started.status();
  return *std::move(started);
}

// A transfer with one head row per message, thus thousands of messages.
class Transfer {
 public:
  Transfer() {
    v1::RotarySettings& settings = *header_.mutable_rotary()->mutable_settings();
    settings.mutable_rope_parameters()->set_rope_type("default");
    settings.set_rotary_dim(4);
    settings.set_input_pairing(v1::PAIRING_HALF_SPLIT);
    header_.mutable_positions()->set_offset(0);
    header_.set_layout(v1::LAYOUT_BSHD);
    v1::Tensor& tensor = *header_.mutable_q()->mutable_tensor();
    tensor.set_dtype(v1::DATA_TYPE_FP32);
    for (const int64_t size : {int64_t{1}, kRows, int64_t{1}, kRowBytes / 4}) tensor.add_shape(size);
    for (size_t n = 0; n < input_.size(); ++n) input_[n] = static_cast<float>(1 + n % 97);
  }

  // Rotates the whole tensor in one call.
  std::string Expected(Backend& client) const {
    v1::ApplyRotaryRequest whole = header_;
    whole.mutable_q()->mutable_tensor()->set_data(input_.data(), input_.size() * sizeof(float));
    const auto response = client.ApplyRotary(whole);
    EXPECT_TRUE(response.ok()) << response.status();
    return response.ok() ? response->q().data() : "";
  }
  absl::Status Run(Backend& client) {
    std::fill(output_.begin(), output_.end(), 0.0f);
    const RotaryMemory memory{.q = {input_.data(), output_.data()}, .k = {}};
    return client.StreamApplyRotary(header_, memory, {.bytes = kRowBytes, .in_flight = 2}).status();
  }
  std::string Result() const { return {reinterpret_cast<const char*>(output_.data()), output_.size() * sizeof(float)}; }
  // Volatile, because another thread polls it during the transfer.
  bool HasBegun() const { return *static_cast<const volatile float*>(output_.data()) != 0; }
  // No answered row begins with two zeros.
  int64_t RowsAnswered() const {
    int64_t rows = 0;
    for (size_t n = 0; n < output_.size(); n += kRowBytes / 4) rows += output_[n] != 0 || output_[n + 1] != 0;
    return rows;
  }

 private:
  v1::ApplyRotaryRequest header_;
  std::vector<float> input_ = std::vector<float>(kRows * kRowBytes / 4), output_ = input_;
};

TEST(LostServer, AStreamGoesOnAtAnotherOnItsPort) {
  std::unique_ptr<server::Server> server = Start(0, 3600);
  const int port = server->port();
  Transfer transfer;
  std::thread stop;
  int64_t before = 0;
  ClientOptions options{.address = absl::StrCat("127.0.0.1:", port)};
  options.environment.sleep = [&](Duration duration) {
    if (stop.joinable()) {  // the first retry: the old server accepts no more calls
      stop.join();
      before = transfer.RowsAnswered();
      server.reset();
      server = Start(port, 3600);
    }
    std::this_thread::sleep_for(duration);
  };
  Client client(options);
  const std::string expected = transfer.Expected(client);
  stop = std::thread([&] {
    while (!transfer.HasBegun()) std::this_thread::yield();
    server->Drain();  // waits for no call in flight; whether it cancels the stream's wait or its work depends on timing
  });
  const absl::Status status = transfer.Run(client);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(transfer.Result() == expected);
  EXPECT_GT(before, 0);
  EXPECT_LT(before, kRows);
  EXPECT_EQ(server->counters().started, 1) << "the second half of it";
  if (stop.joinable()) stop.join();
}

TEST(LostServer, AStreamIsLongerThanAConnection) {
  const std::unique_ptr<server::Server> server = Start(0, 1);
  int cuts = 0;
  ClientOptions options{.address = absl::StrCat("127.0.0.1:", server->port())};
  options.environment.sleep = [&cuts](Duration duration) {
    ++cuts;
    std::this_thread::sleep_for(duration);
  };
  Client client(options);
  Transfer transfer;
  const std::string expected = transfer.Expected(client);
  // However fast this machine is, a connection reaches its maximum age within some transfer.
  while (cuts == 0 && !testing::Test::HasFailure()) {
    const absl::Status status = transfer.Run(client);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_TRUE(transfer.Result() == expected);
  }
}

}  // namespace
}  // namespace posenc::lost_server_test
