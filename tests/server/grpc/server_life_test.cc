// A server's start and end, its health, and its reflection.
#include <grpc/support/log.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "server/core/log.h"
#include "tests/server/grpc/started_server.h"

namespace posenc::server {
namespace {

using testing::HasSubstr;

#ifdef GPR_ASSERT  // newer versions of gRPC abort by Abseil's CHECK, which prints its message itself
TEST_F(ServerTest, AFailedAssertionOfGrpcIsLogged) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto fail = [this] {
    dup2(STDERR_FILENO, STDOUT_FILENO);  // a death test reads standard error
    StartLog({});
    Start(TestConfig());
    GPR_ASSERT(1 + 1 == 3);
  };
  EXPECT_DEATH(fail(), "critical gRPC aborts message=\"assertion failed: 1 \\+ 1 == 3\" place=.*server_life_test");
}
#endif

// A drain waits for a moment without calls for a quarter of this time.
Config BusyDrainConfig() {
  Config config = TestConfig();
  config.drain_timeout_s = 10;
  return config;
}

TEST_F(ServerTest, DrainAnswersWhatItHasBegunAndRefusesTheRest) {
  Start(BusyDrainConfig());
  FakeOperations::gate_shut = true;
  std::thread caller([this] {
    grpc::ClientContext context;
    v1::GenerateTableResponse response;
    const grpc::Status status = stub_->GenerateTable(&context, Taking(0), &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
  });
  EXPECT_TRUE(Eventually([] { return FakeOperations::waiting == 1; }));
  std::atomic<bool> clean{false};
  std::thread drain([this, &clean] { clean = server_->Drain(); });
  grpc::Status status;
  EXPECT_TRUE(Eventually([this, &status] {
    grpc::ClientContext context;
    v1::ExplainResponse response;
    status = stub_->Explain(&context, {}, &response);
    return !status.ok();
  }));
  EXPECT_EQ(status.error_code(), grpc::UNAVAILABLE) << status.error_message();
  FakeOperations::gate_shut = false;
  drain.join();
  caller.join();
  EXPECT_TRUE(clean);
}

TEST_F(ServerTest, DrainCancelsWhatIsLeftAtItsTimeout) {
  Config config = TestConfig();
  config.drain_timeout_s = 1;
  Start(config);
  FakeOperations::hangs = true;  // does not see that it should end
  std::thread caller([this] {
    grpc::ClientContext context;
    v1::ApplyRotaryResponse response;
    EXPECT_FALSE(stub_->ApplyRotary(&context, Rotary(8, 8), &response).ok());
    FakeOperations::hangs = false;  // the drain waits for what it has cancelled
  });
  EXPECT_TRUE(Eventually([this] { return server_->counters().in_flight_requests == 1; }));
  EXPECT_FALSE(server_->Drain());
  caller.join();
}

// A call that computes for longer than a drain waits ends with an error, not with its connection.
TEST_F(ServerTest, DrainEndsWhatStillComputesBeforeItsTimeout) {
  Config config = TestConfig();
  config.drain_timeout_s = 4;
  Start(config);
  FakeOperations::gate_shut = true;
  std::vector<std::thread> callers;
  for (int n = 0; n < 5; ++n) {  // some of them wait for a thread
    callers.emplace_back([this] {
      grpc::ClientContext context;
      v1::GenerateTableResponse response;
      const grpc::Status status = stub_->GenerateTable(&context, Taking(0), &response);
      EXPECT_EQ(status.error_code(), grpc::UNAVAILABLE);
      EXPECT_THAT(status.error_message(), testing::HasSubstr("shutting down"));
    });
  }
  EXPECT_TRUE(Eventually([this] { return server_->counters().in_flight_requests == 5; }));
  EXPECT_TRUE(server_->Drain());
  for (std::thread& caller : callers) caller.join();
}

// inference.ModelInferRequest: model_name is field 1. No such model is known, so the answer says an error.
std::string InferRequest(size_t name_bytes) {
  std::string length;
  for (size_t left = name_bytes; left > 0 || length.empty(); left >>= 7) {
    length += static_cast<char>((left & 0x7f) | (left >> 7 > 0 ? 0x80 : 0));
  }
  return '\x0a' + length + std::string(name_bytes, 'x');
}

TEST_F(ServerTest, DrainAnswersWhatAStreamHasBegunAndThenEndsIt) {
  Start(BusyDrainConfig());
  FakeOperations::gate_shut = true;
  std::vector<std::thread> callers;
  for (int n = 0; n < 2; ++n) {  // both threads wait
    callers.emplace_back([this] {
      grpc::ClientContext context;
      v1::GenerateTableResponse response;
      EXPECT_TRUE(stub_->GenerateTable(&context, Taking(0), &response).ok());
    });
  }
  EXPECT_TRUE(Eventually([] { return FakeOperations::waiting == 2; }));
  RawCall stream(channel_, "/inference.GRPCInferenceService/ModelStreamInfer");
  const auto in_flight = [this](int64_t requests) {
    return Eventually([this, requests] { return server_->counters().in_flight_requests == requests; });
  };
  stream.Write(InferRequest(1));
  EXPECT_NE(stream.Read(), std::nullopt);
  EXPECT_TRUE(in_flight(2));
  stream.Write(InferRequest(400 << 10));  // so large that it waits for a thread
  EXPECT_TRUE(in_flight(3));
  std::thread drain([this] { EXPECT_TRUE(server_->Drain()); });
  EXPECT_TRUE(Eventually([this] {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(100));  // no thread is free
    v1::ExplainResponse response;
    return stub_->Explain(&context, {}, &response).error_code() == grpc::UNAVAILABLE;
  }));
  stream.Write(InferRequest(1));
  FakeOperations::gate_shut = false;
  EXPECT_NE(stream.Read(), std::nullopt) << "it was admitted";
  EXPECT_EQ(stream.Read(), std::nullopt);
  const grpc::Status status = stream.Finish();
  EXPECT_EQ(status.error_code(), grpc::UNAVAILABLE);
  EXPECT_THAT(status.error_message(), HasSubstr("shutting down"));
  drain.join();
  for (std::thread& caller : callers) caller.join();
}

// grpc.health.v1: HealthCheckRequest.service is field 1, HealthCheckResponse.status is field 1 (1 SERVING,
// 2 NOT_SERVING).
constexpr char kServing[] = "\x08\x01";
constexpr char kNotServing[] = "\x08\x02";

std::string HealthRequest(const std::string& service) {
  return service.empty() ? "" : std::string{'\x0a', static_cast<char>(service.size())} + service;
}

TEST_F(ServerTest, TellsItsHealth) {
  Start(TestConfig());
  for (const char* service : {"", "posenc.v1.PositionalEncodingService", "no.such.Service"}) {
    RawCall call(channel_, "/grpc.health.v1.Health/Check");
    call.Write(HealthRequest(service));
    call.WritesDone();
    const bool known = service != std::string("no.such.Service");
    EXPECT_EQ(call.Read(), known ? std::optional<std::string>(kServing) : std::nullopt) << service;
    EXPECT_EQ(call.Finish().error_code(), known ? grpc::OK : grpc::NOT_FOUND);
  }
}

TEST_F(ServerTest, DrainTellsWatchersAndDoesNotWaitForThem) {
  Start(TestConfig());
  RawCall watch(channel_, "/grpc.health.v1.Health/Watch");
  watch.Write(HealthRequest("posenc.v1.PositionalEncodingService"));
  watch.WritesDone();
  EXPECT_EQ(watch.Read(), kServing);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(server_->Drain());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15)) << "the timeout is 20 s";
  EXPECT_EQ(watch.Read(), kNotServing);
  EXPECT_EQ(watch.Read(), std::nullopt);
  EXPECT_FALSE(watch.Finish().ok());
}

TEST_F(ServerTest, DescribesItselfByReflection) {
  Start(TestConfig());
  RawCall call(channel_, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo");
  call.Write(std::string("\x3a\x00", 2));  // list_services
  const auto services = call.Read();
  ASSERT_TRUE(services);
  EXPECT_THAT(*services, HasSubstr("posenc.v1.PositionalEncodingService"));
  EXPECT_THAT(*services, HasSubstr("grpc.health.v1.Health"));
  call.WritesDone();
  EXPECT_TRUE(call.Finish().ok());
}

TEST_F(ServerTest, IsNotHealthyWhileAThreadIsStuck) {
  Config config = TestConfig();
  config.stuck_thread_s = 1;
  config.io_threads = 2;  // one of them gets stuck
  Start(config);
  RawCall watch(channel_, "/grpc.health.v1.Health/Watch");
  watch.Write(HealthRequest(""));
  watch.WritesDone();
  EXPECT_EQ(watch.Read(), kServing);
  const auto counts = [this](int64_t count) {
    return Eventually([&] {
      server_->Maintain();
      v1::GetServerInfoResponse info;
      grpc::ClientContext context;
      return stub_->GetServerInfo(&context, {}, &info).ok() && info.counters().stuck_threads() == count;
    });
  };
  FakeOperations::plan_at_hand = true;  // rotations are computed by the thread that receives them
  for (const bool receives : {false, true}) {
    FakeOperations::gate_shut = FakeOperations::hangs = true;
    std::thread caller([this, receives] {
      grpc::ClientContext context;
      v1::GenerateTableResponse table;
      v1::ApplyRotaryResponse rotated;
      EXPECT_TRUE(receives ? stub_->ApplyRotary(&context, Rotary(8, 8), &rotated).ok()
                           : stub_->GenerateTable(&context, Taking(0), &table).ok());
    });
    EXPECT_TRUE(counts(1)) << receives;
    EXPECT_EQ(watch.Read(), kNotServing);
    FakeOperations::gate_shut = FakeOperations::hangs = false;
    caller.join();
    EXPECT_TRUE(counts(0)) << receives;
    EXPECT_EQ(watch.Read(), kServing);
  }
}

class DrainTest : public ServerTest, public testing::WithParamInterface<int64_t> {};

TEST_P(DrainTest, LosesNoCallUnderLoad) {
  Config config = TestConfig();
  config.io_threads = GetParam();
  config.retry_pushback_ms = 2000;  // the drain ends after a pause this long; no caller is delayed that much
  Start(config);
  std::atomic<int> answered{0}, refused{0};
  std::vector<std::thread> callers;
  for (int n = 0; n < 4; ++n) {
    callers.emplace_back([this, &answered, &refused] {
      const v1::ApplyRotaryRequest request = Rotary(100000, 10);
      for (;;) {
        grpc::ClientContext context;
        v1::ApplyRotaryResponse response;
        const grpc::Status status = stub_->ApplyRotary(&context, request, &response);
        if (!status.ok()) {
          EXPECT_EQ(status.error_code(), grpc::UNAVAILABLE) << status.error_message();
          ++refused;
          return;
        }
        EXPECT_TRUE(response.q().data() == request.q().tensor().data());
        ++answered;
      }
    });
  }
  EXPECT_TRUE(Eventually([&answered] { return answered > 200; }));
  EXPECT_TRUE(server_->Drain());
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(refused, 4);
}

INSTANTIATE_TEST_SUITE_P(IoThreads, DrainTest, testing::Values(1, 3));

TEST(Server, SaysWhereItCannotListen) {
  Config config = TestConfig();
  const auto first = Server::Start(config);
  ASSERT_TRUE(first.ok());
  const std::string taken = "127.0.0.1:" + std::to_string((*first)->port());
  config.listen = {"127.0.0.1:0", taken};
  const auto second = Server::Start(config);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kInvalidArgument) << "the port is taken";
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(taken));
  config.listen = {"no such place"};
  EXPECT_FALSE(Server::Start(config).ok());
}

}  // namespace
}  // namespace posenc::server
