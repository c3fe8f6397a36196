// The client against an in-process server whose answers each test defines.
#include "posenc/client/client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include "posenc/base/status.h"
#include "posenc/client/errors.h"
#include "posenc/v1/error.pb.h"
#include "posenc/v1/service.grpc.pb.h"

namespace posenc::client_test {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;

// Makes an error like the server's (proto/posenc/v1/error.proto).
grpc::Status Error(grpc::StatusCode code, const std::string& message, const ErrorDetails& details,
                   bool started = false) {
  v1::ErrorInfo info;
  info.set_reason(details.reason);
  info.set_domain("posenc");
  (*info.mutable_metadata())["field"] = details.field;
  (*info.mutable_metadata())["value"] = details.value;
  (*info.mutable_metadata())["limit"] = details.limit;
  (*info.mutable_metadata())["started"] = started ? "true" : "false";
  v1::RichStatus rich;
  rich.set_code(code);
  rich.set_message(message);
  google::protobuf::Any& any = *rich.add_details();
  any.set_type_url("type.googleapis.com/google.rpc.ErrorInfo");
  any.set_value(info.SerializeAsString());
  return grpc::Status(code, message, rich.SerializeAsString());
}

grpc::Status Busy() { return Error(grpc::StatusCode::UNAVAILABLE, "too many requests", {"OVERLOADED", "", "", ""}); }

class ScriptedService final : public v1::PositionalEncodingService::Service {
 public:
  grpc::Status Explain(grpc::ServerContext* context, const v1::ExplainRequest*,
                       v1::ExplainResponse* response) override {
    return explain(context, response);
  }
  grpc::Status GenerateTable(grpc::ServerContext*, const v1::GenerateTableRequest* request,
                             v1::GenerateTableResponse* response) override {
    response->mutable_cos()->set_dtype(v1::DATA_TYPE_BOOL);
    response->mutable_cos()->add_shape(request->count());
    response->mutable_cos()->set_data(std::string(request->count(), 'c'));
    return grpc::Status::OK;
  }
  grpc::Status StreamTable(grpc::ServerContext*, const v1::StreamTableRequest*,
                           grpc::ServerWriter<v1::StreamTableResponse>* writer) override {
    return stream(writer);
  }

  grpc::Status AddBias(grpc::ServerContext*, const v1::AddBiasRequest*, v1::AddBiasResponse*) override {
    return add_bias();
  }

  // Inverts the bytes of q if `apply_rotary` returns OK.
  grpc::Status ApplyRotary(grpc::ServerContext*, const v1::ApplyRotaryRequest* request,
                           v1::ApplyRotaryResponse* response) override {
    const grpc::Status status = apply_rotary(*request);
    if (!status.ok()) return status;
    *response->mutable_q() = request->q().tensor();
    for (char& byte : *response->mutable_q()->mutable_data()) byte = static_cast<char>(~byte);
    return grpc::Status::OK;
  }

  // Inverts the bytes of chunks until `chunk` returns an error, which ends the stream.
  grpc::Status StreamApplyRotary(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<v1::StreamApplyRotaryResponse, v1::StreamApplyRotaryRequest>* peer) override {
    v1::StreamApplyRotaryRequest request;
    while (peer->Read(&request)) {
      v1::StreamApplyRotaryResponse response;
      if (request.has_header()) {
        response.mutable_info()->set_device("fake");
      } else {
        const grpc::Status status = chunk(request.chunk());
        if (!status.ok()) return status;
        *response.mutable_chunk() = request.chunk();
        for (char& byte : *response.mutable_chunk()->mutable_rows()->mutable_data()) byte = static_cast<char>(~byte);
      }
      if (!peer->Write(response)) return grpc::Status::CANCELLED;
    }
    return grpc::Status::OK;
  }

  std::function<grpc::Status(const v1::RotaryChunk&)> chunk;
  std::function<grpc::Status(grpc::ServerContext*, v1::ExplainResponse*)> explain;
  std::function<grpc::Status()> add_bias;
  std::function<grpc::Status(const v1::ApplyRotaryRequest&)> apply_rotary;
  std::function<grpc::Status(grpc::ServerWriter<v1::StreamTableResponse>*)> stream;
};

class ClientTest : public testing::Test {
 protected:
  ClientTest() {
    grpc::EnableDefaultHealthCheckService(true);
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    options_.address = "127.0.0.1:" + std::to_string(port);
    options_.environment = {.now = [this] { return now_; },
                            .sleep =
                                [this](Duration duration) {
                                  sleeps_.push_back(duration);
                                  now_ += duration;
                                },
                            .random = [] { return 0.5; }};
  }

  ScriptedService service_;
  std::unique_ptr<grpc::Server> server_;
  ClientOptions options_;
  std::vector<Duration> sleeps_;
  std::chrono::steady_clock::time_point now_;
};

TEST_F(ClientTest, TriesAgainWhileTheServerIsBusy) {
  int calls = 0;
  service_.explain = [&](grpc::ServerContext*, v1::ExplainResponse* response) {
    response->add_layers()->set_layer_type("full_attention");
    return ++calls < 3 ? Busy() : grpc::Status::OK;
  };
  const auto response = Client(options_).Explain({});
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->layers_size(), 1);
  EXPECT_EQ(calls, 3);
  EXPECT_THAT(sleeps_, ElementsAre(100ms, 400ms));
}

TEST_F(ClientTest, WaitsAsLongAsTheServerSays) {
  int calls = 0;
  service_.explain = [&](grpc::ServerContext* context, v1::ExplainResponse*) {
    context->AddTrailingMetadata("grpc-retry-pushback-ms", ++calls == 1 ? "1700" : "-1");
    return Busy();
  };
  const auto response = Client(options_).Explain({});
  EXPECT_EQ(DetailsOf(response.status()).reason, "OVERLOADED");
  EXPECT_EQ(calls, 2);
  EXPECT_THAT(sleeps_, ElementsAre(1700ms));
}

TEST_F(ClientTest, ErrorsComeBackAsTheyWere) {
  const absl::Status original = InvalidArgument("OUT_OF_RANGE", "settings.rotary_dim", "63", "must be even");
  service_.explain = [&](grpc::ServerContext*, v1::ExplainResponse*) {
    return Error(grpc::StatusCode::INVALID_ARGUMENT, std::string(original.message()), DetailsOf(original));
  };
  const auto response = Client(options_).Explain({});
  EXPECT_EQ(response.status(), original);  // payloads are compared too
  EXPECT_EQ(DetailsOf(response.status()).limit, "must be even");
  EXPECT_THAT(sleeps_, IsEmpty());
}

TEST_F(ClientTest, TheDeadlineTravelsWithEachAttempt) {
  std::vector<double> seconds;
  service_.explain = [&](grpc::ServerContext* context, v1::ExplainResponse*) {
    seconds.push_back(std::chrono::duration<double>(context->deadline() - std::chrono::system_clock::now()).count());
    return Busy();
  };
  options_.retry = {.max_attempts = 2, .initial_backoff = 3600s, .max_backoff = 3600s};
  EXPECT_FALSE(Client(options_).Explain({}, {.timeout = 7200s}).ok());
  // The fake clock slept half of the time. The tolerance covers the real clock.
  ASSERT_EQ(seconds.size(), 2);
  EXPECT_NEAR(seconds[0], 7200, 600);
  EXPECT_NEAR(seconds[1], 3600, 600);
}

// q [1, 100, 1, 4] of float32: a head row is 16 bytes.
class Transfer {
 public:
  explicit Transfer(bool in_place) : input_(1600, '\0'), output_(in_place ? 0 : 1600, '\0') {
    for (size_t n = 0; n < input_.size(); ++n) input_[n] = static_cast<char>(n * 7);
    for (const char byte : input_) inverted_ += static_cast<char>(~byte);
    v1::Tensor& tensor = *header_.mutable_q()->mutable_tensor();
    tensor.set_dtype(v1::DATA_TYPE_FP32);
    for (const int64_t size : {1, 100, 1, 4}) tensor.add_shape(size);
  }
  absl::Status Run(const ClientOptions& options) {
    const RotaryMemory memory{.q = {input_.data(), output_.empty() ? input_.data() : output_.data()}, .k = {}};
    return Client(options).StreamApplyRotary(header_, memory, {.bytes = 100, .in_flight = 3}).status();
  }
  bool done() const { return (output_.empty() ? input_ : output_) == inverted_; }

 private:
  v1::ApplyRotaryRequest header_;
  std::string input_, output_, inverted_;
};

TEST_F(ClientTest, ABrokenStreamGoesOnWithWhatWasNotAnswered) {
  for (const bool in_place : {false, true}) {
    std::vector<int64_t> answered;
    int calls = 0;
    service_.chunk = [&](const v1::RotaryChunk& chunk) {
      EXPECT_EQ(chunk.rows().data().size(), chunk.rows().byte_offset() == 1536 ? 64 : 96) << "whole head rows";
      // There are more failures than max_attempts, but each stream makes progress.
      if (++calls % 5 == 0) return Busy();
      answered.push_back(chunk.rows().byte_offset());
      return grpc::Status::OK;
    };
    options_.retry.max_attempts = 2;
    Transfer transfer(in_place);
    const absl::Status status = transfer.Run(options_);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_TRUE(transfer.done());
    EXPECT_EQ(answered.size(), 17u) << "nothing that was answered is sent again";
    EXPECT_EQ(calls, 21) << "four streams were broken off";
  }
}

TEST_F(ClientTest, AStreamThatGetsNowhereIsGivenUp) {
  service_.chunk = [](const v1::RotaryChunk&) { return Busy(); };
  Transfer transfer(true);
  const absl::Status status = transfer.Run(options_);
  EXPECT_EQ(DetailsOf(status).reason, "OVERLOADED") << status;
  EXPECT_EQ(sleeps_.size(), 4u);

  int chunks = 0;
  service_.chunk = [&chunks](const v1::RotaryChunk&) {
    return ++chunks < 5 ? grpc::Status::OK : Error(grpc::StatusCode::INVALID_ARGUMENT, "no", {"MISMATCH", "", "", ""});
  };
  EXPECT_TRUE(absl::IsInvalidArgument(transfer.Run(options_)));
  EXPECT_EQ(sleeps_.size(), 4u);
}

TEST_F(ClientTest, TakesAnswersAboveFourMebibytes) {
  v1::GenerateTableRequest request;
  request.set_count(20 << 20);
  const auto response = Client(options_).GenerateTable(request);
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->cos().data().size(), 20 << 20);
}

TEST_F(ClientTest, HandsOverTilesInOrder) {
  service_.stream = [](grpc::ServerWriter<v1::StreamTableResponse>* writer) {
    for (int64_t row : {0, 10, 20}) {
      v1::StreamTableResponse tile;
      tile.set_row_begin(row);
      writer->Write(tile);
    }
    return grpc::Status::OK;
  };
  std::vector<int64_t> rows;
  Client client(options_);
  const auto collect = [&rows](const v1::StreamTableResponse& tile) {
    rows.push_back(tile.row_begin());
    return absl::OkStatus();
  };
  EXPECT_TRUE(client.StreamTable({}, collect).ok());
  EXPECT_THAT(rows, ElementsAre(0, 10, 20));

  const auto refuse = [](const v1::StreamTableResponse&) { return absl::DataLossError("disk full"); };
  EXPECT_EQ(client.StreamTable({}, refuse), absl::DataLossError("disk full"));
}

TEST_F(ClientTest, RepeatsAStreamOnlyBeforeItsFirstTile) {
  int calls = 0;
  service_.stream = [&](grpc::ServerWriter<v1::StreamTableResponse>* writer) {
    if (++calls > 1) writer->Write({});
    return Busy();
  };
  int tiles = 0;
  const absl::Status status = Client(options_).StreamTable({}, [&](const v1::StreamTableResponse&) {
    ++tiles;
    return absl::OkStatus();
  });
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(tiles, 1);
}

TEST_F(ClientTest, RepeatsACallInPlaceOnlyWhereItWasRefused) {
  v1::AddBiasRequest request;
  v1::Region& region = *request.mutable_scores()->mutable_region();
  region.set_token("0123456789abcdef");
  region.set_byte_size(8);
  *request.mutable_output() = region;
  int calls = 0;
  const grpc::Status draining = Error(grpc::StatusCode::UNAVAILABLE, "shutting down", {"DRAINING", "", "", ""});
  // An error without details, as from a proxy or a broken connection.
  const grpc::Status broken(grpc::StatusCode::UNAVAILABLE, "broken");
  service_.add_bias = [&] { return ++calls == 1 ? Busy() : calls == 2 ? draining : broken; };
  EXPECT_EQ(Client(options_).AddBias(request).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(calls, 3) << "refused twice, then broken";
  // Memory may run out after the work has begun.
  service_.add_bias = [&] {
    return ++calls, Error(grpc::StatusCode::UNAVAILABLE, "too many bytes", {"OVERLOADED", "", "", ""}, true);
  };
  calls = 0;
  EXPECT_EQ(Client(options_).AddBias(request).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(calls, 1);
  // A call that writes to other memory may be repeated, if the server has ended it.
  request.mutable_output()->set_offset(8);
  calls = 0;
  EXPECT_EQ(Client(options_).AddBias(request).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(calls, options_.retry.max_attempts);
  service_.add_bias = [&] { return ++calls, broken; };
  calls = 0;
  EXPECT_EQ(Client(options_).AddBias(request).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(calls, 1) << "the first may still write there when a second has ended";
}

// gRPC's own retries do not keep requests above 256 KiB.
TEST_F(ClientTest, LargeCallsAreSentAgainWhole) {
  std::string q(1 << 20, '\0'), inverted;
  for (size_t n = 0; n < q.size(); ++n) q[n] = static_cast<char>(n * 7 + n / 4099);
  for (const char byte : q) inverted += static_cast<char>(~byte);
  std::vector<bool> whole;
  service_.apply_rotary = [&, original = q](const v1::ApplyRotaryRequest& request) {
    whole.push_back(request.q().tensor().data() == original);
    if (whole.size() == 1) return Busy();
    // The answer is copied only after the last attempt, so this failure leaves q unchanged.
    if (whole.size() == 2) return grpc::Status(grpc::StatusCode::UNAVAILABLE, "broken");
    return grpc::Status::OK;
  };
  for (const bool beside : {false, true}) {
    v1::ApplyRotaryRequest request;
    CallOptions options;
    v1::Tensor* tensor = request.mutable_q()->mutable_tensor();
    tensor->set_dtype(v1::DATA_TYPE_BOOL);
    tensor->add_shape(static_cast<int64_t>(q.size()));
    if (beside) {
      const absl::Span<std::byte> bytes(reinterpret_cast<std::byte*>(q.data()), q.size());
      options.inputs = {{tensor, bytes}};
      options.outputs = {bytes};  // in place
    } else {
      tensor->set_data(q);
    }
    whole.clear();
    const auto response = Client(options_).ApplyRotary(request, options);
    ASSERT_TRUE(response.ok()) << response.status();
    EXPECT_TRUE((beside ? q : response->q().data()) == inverted) << beside;
    EXPECT_THAT(whole, ElementsAre(true, true, true)) << beside;
  }
}

TEST_F(ClientTest, AsksForHealth) {
  Client client(options_);
  const std::string name = "posenc.v1.PositionalEncodingService";
  server_->GetHealthCheckService()->SetServingStatus(name, true);
  EXPECT_EQ(*client.CheckHealth(), ServingStatus::kServing);
  EXPECT_EQ(*client.CheckHealth(name), ServingStatus::kServing);
  server_->GetHealthCheckService()->SetServingStatus(false);
  EXPECT_EQ(*client.CheckHealth(), ServingStatus::kNotServing);
  EXPECT_TRUE(absl::IsNotFound(client.CheckHealth("nobody").status()));
}

TEST_F(ClientTest, WithoutAServerItSaysHowToStartOne) {
  options_.address = "unix:" + testing::TempDir() + "nobody.sock";
  options_.retry.max_attempts = 2;
  const auto response = Client(options_).Explain({});
  EXPECT_TRUE(absl::IsUnavailable(response.status()));
  EXPECT_THAT(std::string(response.status().message()),
              HasSubstr("Start it with `posenc-server --listen " + options_.address + "`"));
  EXPECT_EQ(sleeps_.size(), 1);
}

TEST_F(ClientTest, ConnectionsTakeTurns) {
  std::vector<std::string> peers;
  service_.explain = [&](grpc::ServerContext* context, v1::ExplainResponse* response) {
    response->add_layers();
    peers.push_back(context->peer());
    return grpc::Status::OK;
  };
  options_.connections = 3;
  Client client(options_);
  for (int n = 0; n < 6; ++n) EXPECT_TRUE(client.Explain({}).ok());
  EXPECT_EQ(std::set<std::string>(peers.begin(), peers.end()).size(), 3);
  EXPECT_EQ(peers[0], peers[3]);
}

TEST_F(ClientTest, OfSeveralServersThoseAreAskedThatAreServing) {
  std::atomic<int> of_first = 0, of_second = 0;
  const auto counts = [](std::atomic<int>* calls) {
    return [calls](grpc::ServerContext*, v1::ExplainResponse* response) {
      response->add_layers();
      ++*calls;
      return grpc::Status::OK;
    };
  };
  service_.explain = counts(&of_first);
  ScriptedService other;
  other.explain = counts(&of_second);
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&other);
  const std::unique_ptr<grpc::Server> second = builder.BuildAndStart();
  const std::string name = "posenc.v1.PositionalEncodingService";
  for (grpc::Server* server : {server_.get(), second.get()}) {
    server->GetHealthCheckService()->SetServingStatus(name, true);
  }

  options_.address = "ipv4:" + options_.address + ",127.0.0.1:" + std::to_string(port);
  options_.several_servers = true;
  Client client(options_);
  while ((of_first == 0 || of_second == 0) && !HasFailure()) EXPECT_TRUE(client.Explain({}).ok());

  // Round robin would still reach the first server.
  server_->GetHealthCheckService()->SetServingStatus(name, false);
  for (int without = 0; without < 20 && !HasFailure(); ++without) {
    const int before = of_first;
    EXPECT_TRUE(client.Explain({}).ok());
    if (of_first != before) without = 0;
  }
  server_->GetHealthCheckService()->SetServingStatus(name, true);
  for (const int before = of_first; of_first == before && !HasFailure();) EXPECT_TRUE(client.Explain({}).ok());
}

TEST_F(ClientTest, AnAnswerThatIsNoneIsAnError) {
  service_.explain = [](grpc::ServerContext*, v1::ExplainResponse* response) {
    // A truncated layer.
    response->GetReflection()->MutableUnknownFields(response)->AddLengthDelimited(1, "\x12\x05");
    return grpc::Status::OK;
  };
  const absl::Status status = Client(options_).Explain({}).status();
  EXPECT_EQ(status, absl::InternalError("what " + options_.address + " answered is not a posenc.v1.ExplainResponse"));
  EXPECT_THAT(sleeps_, IsEmpty());
  service_.explain = [](grpc::ServerContext*, v1::ExplainResponse*) { return grpc::Status::OK; };
  EXPECT_EQ(Client(options_).Explain({}).status(),
            absl::InternalError(options_.address + " answered an empty message"));
}

TEST_F(ClientTest, ATensorHasTheBytesOfItsTypeAndShape) {
  struct Case {
    v1::DataType dtype;
    std::vector<int64_t> shape;
    size_t bytes;
  };
  const Case wrong[] = {{v1::DATA_TYPE_FP32, {2, 3}, 20},    {v1::DATA_TYPE_FP32, {2, 3}, 28},
                        {v1::DATA_TYPE_FP32, {}, 0},         {v1::DATA_TYPE_FP32, {-2, 3}, 0},
                        {v1::DATA_TYPE_FP32, {-2, -3}, 24},  {v1::DATA_TYPE_FP32, {int64_t{1} << 62, 4}, 0},
                        {v1::DATA_TYPE_UNSPECIFIED, {0}, 0}, {static_cast<v1::DataType>(99), {0}, 0}};
  for (const Case& each : wrong) {
    v1::Tensor tensor;
    tensor.set_dtype(each.dtype);
    tensor.mutable_shape()->Assign(each.shape.begin(), each.shape.end());
    tensor.set_data(std::string(each.bytes, 'a'));
    service_.stream = [&](grpc::ServerWriter<v1::StreamTableResponse>* writer) {
      v1::StreamTableResponse tile;
      *tile.mutable_cos() = tensor;
      writer->Write(tile);
      return grpc::Status::OK;
    };
    int tiles = 0;
    const absl::Status status =
        Client(options_).StreamTable({}, [&](const v1::StreamTableResponse&) { return ++tiles, absl::OkStatus(); });
    EXPECT_TRUE(absl::IsInternal(status)) << tensor.ShortDebugString() << ": " << status;
    EXPECT_EQ(tiles, 0);
  }
}

TEST_F(ClientTest, EscapesControlCharactersOfErrors) {
  for (const bool details : {false, true}) {
    const std::string evil = "a\x1b[2J\nposenc: b";
    const std::string safe = "a\\x1b[2J\\nposenc: b";
    service_.explain = [&](grpc::ServerContext*, v1::ExplainResponse*) {
      return details ? Error(grpc::StatusCode::INVALID_ARGUMENT, evil, {"MISMATCH", evil, evil, evil})
                     : grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, evil);
    };
    const absl::Status status = Client(options_).Explain({}).status();
    EXPECT_EQ(status.message(), safe);
    if (!details) continue;
    EXPECT_EQ(DetailsOf(status).field, safe);
    EXPECT_EQ(DetailsOf(status).value, safe);
    EXPECT_EQ(DetailsOf(status).limit, safe);
  }
}

// Accepts one connection, closes it when a call arrives, and stops listening.
class DyingServer {
 public:
  DyingServer() : listener_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in at = {.sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
    socklen_t size = sizeof(at);
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&at), size), 0);
    EXPECT_EQ(listen(listener_, 1), 0);
    EXPECT_EQ(getsockname(listener_, reinterpret_cast<sockaddr*>(&at), &size), 0);
    address_ = "127.0.0.1:" + std::to_string(ntohs(at.sin_port));
    thread_ = std::thread([this] { Serve(); });
  }
  ~DyingServer() { thread_.join(); }

  const std::string& address() const { return address_; }

 private:
  void Serve() const {
    const int connection = accept(listener_, nullptr, nullptr);
    close(listener_);
    constexpr char kSettings[9] = {0, 0, 0, 4};  // HTTP/2 server preface: an empty SETTINGS frame
    EXPECT_EQ(send(connection, kSettings, sizeof(kSettings), MSG_NOSIGNAL), ssize_t{sizeof(kSettings)});
    std::string received;
    char buffer[4096];
    while (received.find("Explain") == std::string::npos) {
      const ssize_t count = recv(connection, buffer, sizeof(buffer), 0);
      if (count <= 0) break;
      received.append(buffer, count);
    }
    close(connection);
  }

  const int listener_;
  std::string address_;
  std::thread thread_;
};

TEST_F(ClientTest, ALostConnectionIsNotAMissingServer) {
  for (const int attempts : {1, 3}) {
    DyingServer server;
    options_.address = server.address();
    options_.retry.max_attempts = attempts;
    const absl::Status status = Client(options_).Explain({}).status();
    EXPECT_TRUE(absl::IsUnavailable(status));
    EXPECT_THAT(std::string(status.message()), HasSubstr("the connection to " + options_.address + " was lost"));
  }
}

TEST(FromGrpc, KeepsForeignErrorsAsTheyAre) {
  EXPECT_TRUE(FromGrpc(grpc::Status::OK, "here", false).ok());
  EXPECT_EQ(FromGrpc({grpc::StatusCode::UNIMPLEMENTED, "no such method"}, "here", false),
            absl::UnimplementedError("no such method"));
  EXPECT_EQ(FromGrpc({grpc::StatusCode::INTERNAL, "odd", "not a RichStatus"}, "here", false),
            absl::InternalError("odd"));
  grpc::Status other = Error(grpc::StatusCode::INTERNAL, "odd", {"SOME_REASON", "", "", ""});
  EXPECT_EQ(DetailsOf(FromGrpc(other, "here", false)).reason, "SOME_REASON");
  v1::RichStatus rich;
  ASSERT_TRUE(rich.ParseFromString(other.error_details()));
  rich.mutable_details(0)->set_type_url("type.googleapis.com/google.rpc.DebugInfo");
  EXPECT_EQ(FromGrpc({grpc::StatusCode::INTERNAL, "odd", rich.SerializeAsString()}, "here", false),
            absl::InternalError("odd"));
}

TEST(FromGrpc, ACallThatAServerCancelledMayBeTriedAgain) {
  const absl::Status status = FromGrpc({grpc::StatusCode::CANCELLED, "CANCELLED"}, "here", false);
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("here has cancelled the call"));
  EXPECT_TRUE(absl::IsCancelled(FromGrpc(Error(grpc::StatusCode::CANCELLED, "", {"R", "", "", ""}), "here", false)));
}

TEST(FromGrpc, ACallThatAProxyEndedMayBeTriedAgain) {
  const absl::Status status = FromGrpc({grpc::StatusCode::UNKNOWN, "Stream removed"}, "here", true);
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("without a status of here (Stream removed)"));
}

TEST(FromGrpc, ACallThatFoundNoMemoryMayBeTriedAgain) {
  const auto exhausted = [](const char* message) {
    return FromGrpc({grpc::StatusCode::RESOURCE_EXHAUSTED, message}, "here", true);
  };
  EXPECT_TRUE(absl::IsUnavailable(exhausted("Received RST_STREAM with error code 11")));
  EXPECT_TRUE(absl::IsResourceExhausted(exhausted("Received message larger than max (5 vs. 4)")));
}

TEST(FromGrpc, DetailsFromAnywhereDoNoHarm) {
  const std::string nuls(20, '\0');
  const absl::Status status =
      FromGrpc(Error(grpc::StatusCode::INTERNAL, "odd", {"R", nuls + "f", nuls, nuls + "l"}), "here", false);
  EXPECT_EQ(DetailsOf(status).reason, "R");
  EXPECT_THAT(DetailsOf(status).field, EndsWith("\\x00f"));
  EXPECT_THAT(DetailsOf(status).limit, EndsWith("\\x00l"));
}

TEST(PushbackFrom, ReadsNumbersAndRefusesTheRest) {
  EXPECT_EQ(PushbackFrom({}), std::nullopt);
  EXPECT_EQ(PushbackFrom({{"grpc-retry-pushback-ms", "250"}}), 250);
  EXPECT_EQ(PushbackFrom({{"grpc-retry-pushback-ms", "-1"}}), -1);
  EXPECT_EQ(PushbackFrom({{"grpc-retry-pushback-ms", "soon"}}), -1);
}

}  // namespace
}  // namespace posenc::client_test
