// Tensors in the caller's memory give the same bytes and errors as in messages, in process and by a server.
#include "posenc/backend/tensor_memory.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "posenc/base/status.h"
#include "posenc/client/client.h"
#include "posenc/client/transfer.h"
#include "posenc/in_process/in_process.h"
#include "server/core/config.h"
#include "server/grpc/server.h"

namespace posenc::tensor_memory_test {
namespace {

using namespace std::chrono_literals;

using Bytes = std::vector<std::byte>;

Bytes BytesOf(const std::string& text) {
  Bytes bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

class TensorMemoryTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    server::Config config;
    config.listen = {"127.0.0.1:0"};
    config.threads = 1;
    config.log_level = "error";
    ASSERT_EQ(server::Complete({1, 0}, &config), "");
    auto server = server::Server::Start(config);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = server->release();
  }
  static void TearDownTestSuite() {
    delete server_;
    server_ = nullptr;
  }

  TensorMemoryTest() : client_({.address = "127.0.0.1:" + std::to_string(server_->port())}) {}

  std::vector<Backend*> backends() { return {&client_, &in_process_}; }

  static server::Server* server_;
  Client client_;
  InProcess in_process_;
};

server::Server* TensorMemoryTest::server_ = nullptr;

v1::Tensor Random(std::vector<int64_t> shape, uint32_t seed) {
  std::mt19937 random(seed);
  v1::Tensor tensor;
  tensor.set_dtype(v1::DATA_TYPE_BF16);
  tensor.mutable_shape()->Assign(shape.begin(), shape.end());
  int64_t count = 1;
  for (const int64_t dimension : shape) count *= dimension;
  for (int64_t i = 0; i < count; ++i) {
    tensor.mutable_data()->push_back(static_cast<char>(random()));
    tensor.mutable_data()->push_back('\x3f');
  }
  return tensor;
}

// q has 256 KiB and is lent; k has 1 KiB and is copied.
v1::ApplyRotaryRequest Rotation() {
  v1::ApplyRotaryRequest request;
  v1::RotarySettings& settings = *request.mutable_rotary()->mutable_settings();
  settings.mutable_rope_parameters()->set_rope_type("default");
  settings.set_rotary_dim(8);
  settings.set_input_pairing(v1::PAIRING_HALF_SPLIT);
  request.mutable_positions()->set_offset(1000);
  request.set_layout(v1::LAYOUT_BSHD);
  *request.mutable_q()->mutable_tensor() = Random({1, 64, 256, 8}, 1);
  *request.mutable_k()->mutable_tensor() = Random({1, 64, 1, 8}, 2);
  return request;
}

v1::AddBiasRequest Addition() {
  v1::AddBiasRequest request;
  v1::Alibi& alibi = *request.mutable_method()->mutable_alibi();
  alibi.set_num_heads(4);
  alibi.set_rule(v1::ALIBI_SLOPE_RULE_POWER_OF_TWO);
  alibi.set_form(v1::ALIBI_FORM_SYMMETRIC);
  request.mutable_geometry()->set_query_offset(2);
  *request.mutable_scores() = Random({2, 4, 30, 50}, 3);
  return request;
}

v1::RelativeScoresRequest Scores() {
  v1::RelativeScoresRequest request;
  v1::Shaw& shaw = *request.mutable_method()->mutable_shaw();
  *shaw.mutable_table() = Random({9, 8}, 4);
  shaw.set_order(v1::SHAW_ORDER_KEY_MINUS_QUERY);
  shaw.set_clip(true);
  request.set_layout(v1::LAYOUT_BSHD);
  request.set_content(false);
  *request.mutable_q() = Random({1, 32, 2, 8}, 5);
  *request.mutable_add_to() = Random({1, 2, 32, 32}, 6);
  return request;
}

// Moves the tensor's data out of the message.
Bytes TakeData(v1::Tensor* tensor) {
  Bytes bytes = BytesOf(tensor->data());
  tensor->clear_data();
  return bytes;
}

TEST_F(TensorMemoryTest, RotatesFromAndToTheCallersMemory) {
  v1::ApplyRotaryRequest request = Rotation();
  v1::ApplyRotaryResponse expected = in_process_.ApplyRotary(request).value();
  const Bytes q = TakeData(request.mutable_q()->mutable_tensor()), k = TakeData(request.mutable_k()->mutable_tensor());
  const Bytes rotated_q = TakeData(expected.mutable_q()), rotated_k = TakeData(expected.mutable_k());
  for (Backend* backend : backends()) {
    Bytes q_out(q.size()), k_out(k.size());
    const auto response =
        backend->ApplyRotary(request, {.inputs = {{&request.q().tensor(), q}, {&request.k().tensor(), k}},
                                       .outputs = {absl::MakeSpan(q_out), absl::MakeSpan(k_out)}});
    ASSERT_TRUE(response.ok()) << response.status();
    EXPECT_EQ(response->SerializeAsString(), expected.SerializeAsString());
    EXPECT_TRUE(q_out == rotated_q);
    EXPECT_TRUE(k_out == rotated_k);
  }
}

TEST_F(TensorMemoryTest, RotatesInPlace) {
  v1::ApplyRotaryRequest request = Rotation();
  const v1::ApplyRotaryResponse expected = in_process_.ApplyRotary(request).value();
  const Bytes q = TakeData(request.mutable_q()->mutable_tensor()), k = TakeData(request.mutable_k()->mutable_tensor());
  for (Backend* backend : backends()) {
    Bytes q_memory = q, k_memory = k;
    const auto response =
        backend->ApplyRotary(request, {.inputs = {{&request.q().tensor(), q_memory}, {&request.k().tensor(), k_memory}},
                                       .outputs = {absl::MakeSpan(q_memory), absl::MakeSpan(k_memory)}});
    ASSERT_TRUE(response.ok()) << response.status();
    EXPECT_TRUE(q_memory == BytesOf(expected.q().data()));
    EXPECT_TRUE(k_memory == BytesOf(expected.k().data()));
  }
}

// Rotating directly into these outputs would overwrite input that is still to be read.
TEST_F(TensorMemoryTest, OutputsMayLieOverAnyInput) {
  v1::ApplyRotaryRequest request = Rotation();
  *request.mutable_k() = request.q();
  *request.mutable_k()->mutable_tensor() = Random({1, 64, 256, 8}, 7);
  const v1::ApplyRotaryResponse expected = in_process_.ApplyRotary(request).value();
  const Bytes q = TakeData(request.mutable_q()->mutable_tensor()), k = TakeData(request.mutable_k()->mutable_tensor());
  const size_t size = q.size();
  constexpr size_t kShift = 512;
  for (Backend* backend : backends()) {
    // q's result overwrites k, and k's result overwrites q.
    Bytes first = q, second = k;
    ASSERT_TRUE(backend
                    ->ApplyRotary(request, {.inputs = {{&request.q().tensor(), first}, {&request.k().tensor(), second}},
                                            .outputs = {absl::MakeSpan(second), absl::MakeSpan(first)}})
                    .ok());
    EXPECT_TRUE(second == BytesOf(expected.q().data()));
    EXPECT_TRUE(first == BytesOf(expected.k().data()));
    // q's result overwrites q, kShift bytes later.
    Bytes both = q;
    both.resize(size + kShift);
    ASSERT_TRUE(backend
                    ->ApplyRotary(request,
                                  {.inputs = {{&request.q().tensor(), {both.data(), size}}, {&request.k().tensor(), k}},
                                   .outputs = {absl::MakeSpan(both).subspan(kShift)}})
                    .ok());
    EXPECT_TRUE(Bytes(both.begin() + kShift, both.end()) == BytesOf(expected.q().data()));
  }
}

TEST_F(TensorMemoryTest, AddsInPlace) {
  v1::AddBiasRequest request = Addition();
  const v1::AddBiasResponse expected = in_process_.AddBias(request).value();
  const Bytes scores = TakeData(request.mutable_scores());
  for (Backend* backend : backends()) {
    Bytes memory = scores;
    const auto response =
        backend->AddBias(request, {.inputs = {{&request.scores(), memory}}, .outputs = {absl::MakeSpan(memory)}});
    ASSERT_TRUE(response.ok()) << response.status();
    EXPECT_TRUE(memory == BytesOf(expected.scores().data()));
  }
}

TEST_F(TensorMemoryTest, TensorsAtAnyDepth) {
  v1::RelativeScoresRequest request = Scores();
  const v1::RelativeScoresResponse expected = in_process_.RelativeScores(request).value();
  v1::Tensor* table = request.mutable_method()->mutable_shaw()->mutable_table();
  const Bytes weights = TakeData(table), q = TakeData(request.mutable_q()), add_to = TakeData(request.mutable_add_to());
  for (Backend* backend : backends()) {
    Bytes memory = add_to;
    const auto response =
        backend->RelativeScores(request, {.inputs = {{&request.add_to(), memory}, {table, weights}, {&request.q(), q}},
                                          .outputs = {absl::MakeSpan(memory)}});
    ASSERT_TRUE(response.ok()) << response.status();
    EXPECT_TRUE(memory == BytesOf(expected.scores().data()));
  }
}

TEST_F(TensorMemoryTest, OneOutputMayStayInTheResponse) {
  v1::GenerateTableRequest request;
  *request.mutable_rotary() = Rotation().rotary();
  request.mutable_positions()->set_offset(5);
  request.set_count(1000);
  request.set_dtype(v1::DATA_TYPE_FP32);
  request.set_form(v1::TABLE_FORM_HALF_WIDTH);
  const v1::GenerateTableResponse expected = in_process_.GenerateTable(request).value();
  for (Backend* backend : backends()) {
    Bytes sin(expected.sin().data().size());
    const auto response = backend->GenerateTable(request, {.outputs = {{}, absl::MakeSpan(sin)}});
    ASSERT_TRUE(response.ok()) << response.status();
    EXPECT_EQ(response->cos().data(), expected.cos().data());
    EXPECT_TRUE(sin == BytesOf(expected.sin().data()));
    EXPECT_EQ(response->sin().data(), "");
  }
}

TEST_F(TensorMemoryTest, MemoryThatDoesNotFitIsRefused) {
  v1::ApplyRotaryRequest request = Rotation();
  const v1::ApplyRotaryRequest with_data = request;
  const Bytes q = TakeData(request.mutable_q()->mutable_tensor());
  Bytes out(q.size()), small(q.size() - 1);
  const v1::Tensor* tensor = &request.q().tensor();
  struct Case {
    const char* what;
    const v1::ApplyRotaryRequest& request;
    CallOptions options;
    const char* reason;
    const char* field;
  };
  const Case cases[] = {
      {"of no tensor of the request", request, {.inputs = {{&with_data.q().tensor(), q}}}, "NOT_READ", "inputs[0]"},
      {"twice", request, {.inputs = {{tensor, q}, {tensor, q}}}, "NOT_READ", "inputs[1]"},
      {"with data", with_data, {.inputs = {{&with_data.q().tensor(), q}}}, "CONFLICT", "inputs[0]"},
      {"too short", request, {.inputs = {{tensor, small}}}, "MISMATCH", "q.tensor.data"},
      {"no room", request, {.inputs = {{tensor, q}}, .outputs = {absl::MakeSpan(small)}}, "MISMATCH", "outputs[0]"},
      {"overlap",
       request,
       {.inputs = {{tensor, q}}, .outputs = {absl::MakeSpan(out), absl::MakeSpan(out).subspan(7, 9)}},
       "CONFLICT",
       "outputs[1]"},
      {"three", request, {.inputs = {{tensor, q}}, .outputs = {{}, {}, absl::MakeSpan(out)}}, "NOT_READ", "outputs[2]"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    const absl::Status remote = client_.ApplyRotary(c.request, c.options).status();
    EXPECT_EQ(remote, in_process_.ApplyRotary(c.request, c.options).status());
    EXPECT_TRUE(absl::IsInvalidArgument(remote));
    EXPECT_EQ(DetailsOf(remote).reason, c.reason);
    EXPECT_EQ(DetailsOf(remote).field, c.field);
  }
  v1::StreamTableRequest stream;
  for (Backend* backend : backends()) {
    const absl::Status status = backend->StreamTable(
        stream, [](const v1::StreamTableResponse&) { return absl::OkStatus(); }, {.outputs = {absl::MakeSpan(out)}});
    EXPECT_EQ(DetailsOf(status).reason, "UNSUPPORTED") << status;
  }
}

TEST(Loan, EndsWhenEverySliceHasComeBack) {
  v1::ApplyRotaryRequest request = Rotation();
  const auto message = wire::Gather(request, {});
  ASSERT_TRUE(message.ok()) << message.status();
  std::atomic<bool> gone = false;
  std::thread holder;
  {
    Loan loan;
    grpc::ByteBuffer buffer = loan.Lend(*message);
    auto slices = std::make_unique<std::vector<grpc::Slice>>();
    ASSERT_TRUE(buffer.Dump(slices.get()).ok());
    EXPECT_EQ(slices->size(), message->pieces.size());
    buffer.Clear();
    holder = std::thread([&gone, held = std::move(slices)]() mutable {
      std::this_thread::yield();
      gone = true;
      held.reset();
    });
  }
  EXPECT_TRUE(gone);
  holder.join();
}

// Accepts a connection and reads nothing from it.
class DeafServer {
 public:
  DeafServer() : listener_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in at = {.sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
    socklen_t size = sizeof(at);
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&at), size), 0);
    EXPECT_EQ(listen(listener_, 1), 0);
    EXPECT_EQ(getsockname(listener_, reinterpret_cast<sockaddr*>(&at), &size), 0);
    address_ = "127.0.0.1:" + std::to_string(ntohs(at.sin_port));
    thread_ = std::thread([this] {
      connection_ = accept(listener_, nullptr, nullptr);
      if (connection_ < 0) return;                 // nobody has come
      constexpr char kSettings[9] = {0, 0, 0, 4};  // HTTP/2 server preface: an empty SETTINGS frame
      EXPECT_EQ(send(connection_, kSettings, sizeof(kSettings), MSG_NOSIGNAL), ssize_t{sizeof(kSettings)});
    });
  }
  ~DeafServer() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    if (connection_ >= 0) close(connection_);
    close(listener_);
  }
  const std::string& address() const { return address_; }

 private:
  const int listener_;
  int connection_ = -1;
  std::string address_;
  std::thread thread_;
};

TEST(Deadline, GivesTheCallersMemoryBack) {
  DeafServer server;
  Client client({.address = server.address()});
  v1::ApplyRotaryRequest request = Rotation();
  request.mutable_q()->mutable_tensor()->clear_data();
  auto q = std::make_unique<Bytes>(size_t{64} << 20);
  Bytes out(q->size(), std::byte{1});
  const absl::Status status =
      client
          .ApplyRotary(request,
                       {.timeout = 300ms, .inputs = {{&request.q().tensor(), *q}}, .outputs = {absl::MakeSpan(out)}})
          .status();
  q.reset();  // a sanitizer reports it if gRPC still reads from q
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_TRUE(out == Bytes(out.size(), std::byte{1})) << "no answer has come";
}

TEST(Deadline, GivesTheMemoryOfAStreamBack) {
  DeafServer server;
  Client client({.address = server.address()});
  v1::ApplyRotaryRequest header = Rotation();
  header.clear_k();
  header.mutable_q()->mutable_tensor()->clear_data();
  header.mutable_q()->mutable_tensor()->set_shape(1, 8192);
  auto q = std::make_unique<Bytes>(size_t{64} << 20);
  const RotaryMemory in_place = {.q = {q->data(), q->data()}, .k = {}};
  const absl::Status status =
      client.StreamApplyRotary(header, in_place, {.bytes = 16 << 20}, {.timeout = 300ms}).status();
  q.reset();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
}

}  // namespace
}  // namespace posenc::tensor_memory_test
