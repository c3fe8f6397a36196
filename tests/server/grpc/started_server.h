// A server on its own port, with operations that a test can block, and calls to it.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>

#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/security/credentials.h"
#include "gtest/gtest.h"
#include "posenc/v1/service.grpc.pb.h"
#include "server/grpc/server.h"
#include "tests/server/calls/fake_operations.h"

namespace posenc::server {

using wire::FakeOperations;

constexpr char kService[] = "/posenc.v1.PositionalEncodingService/";

inline Config TestConfig() {
  Config config;
  config.listen = {"127.0.0.1:0"};
  config.threads = 2;
  config.limits.max_request_bytes = 8 << 20;
  config.limits.max_output_bytes = 8 << 20;
  config.max_in_flight_bytes = 16 << 20;
  config.drain_timeout_s = 20;
  EXPECT_EQ(Complete({2, 0}, &config), "");
  return config;
}

inline v1::ApplyRotaryRequest Rotary(size_t q_bytes, size_t k_bytes) {
  v1::ApplyRotaryRequest request;
  request.set_layout(v1::LAYOUT_BSHD);
  request.mutable_hints()->set_request_id("test");
  std::mt19937 random(11);
  for (auto [operand, size] : {std::pair(request.mutable_q(), q_bytes), std::pair(request.mutable_k(), k_bytes)}) {
    operand->mutable_tensor()->set_dtype(v1::DATA_TYPE_BOOL);
    operand->mutable_tensor()->add_shape(static_cast<int64_t>(size));
    std::string* data = operand->mutable_tensor()->mutable_data();
    data->resize(size);
    for (char& byte : *data) byte = static_cast<char>(random());
  }
  return request;
}

inline v1::GenerateTableRequest Taking(int64_t milliseconds) {
  v1::GenerateTableRequest request;
  request.set_count(milliseconds);
  return request;
}

inline bool Eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 10000 && !condition(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return condition();
}

// A call of any kind, one step at a time, in raw bytes.
class RawCall {
 public:
  RawCall(const std::shared_ptr<grpc::Channel>& channel, const std::string& method) : stub_(channel) {
    call_ = stub_.PrepareCall(&context_, method, &queue_);
    call_->StartCall(nullptr);
    Wait();
  }
  ~RawCall() { queue_.Shutdown(); }

  void Write(const std::string& bytes) {
    const grpc::Slice slice(bytes);
    call_->Write(grpc::ByteBuffer(&slice, 1), nullptr);
    Wait();
  }
  void WritesDone() {
    call_->WritesDone(nullptr);
    Wait();
  }
  // Returns nullopt at the stream's end.
  std::optional<std::string> Read() {
    grpc::ByteBuffer buffer;
    call_->Read(&buffer, nullptr);
    if (!Wait()) return std::nullopt;
    grpc::Slice slice;
    EXPECT_TRUE(buffer.DumpToSingleSlice(&slice).ok());
    return std::string(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  grpc::Status Finish() {
    grpc::Status status;
    call_->Finish(&status, nullptr);
    Wait();
    return status;
  }

 private:
  bool Wait() {
    void* tag;
    bool ok = false;
    queue_.Next(&tag, &ok);
    return ok;
  }

  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
};

class ServerTest : public testing::Test {
 protected:
  void Start(const Config& config) {
    auto server = Server::Start(config, FakeOperations::Table());
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
    channel_ = grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(server_->port()),
                                         grpc::InsecureChannelCredentials(), arguments);
    stub_ = v1::PositionalEncodingService::NewStub(channel_);
  }
  void TearDown() override {
    FakeOperations::gate_shut = false;
    FakeOperations::hangs = false;
    FakeOperations::plan_at_hand = false;
    FakeOperations::held_bytes = 0;
    FakeOperations::begun = 0;
  }

  // Makes a call with these bytes as its one message, or with no message.
  grpc::Status Send(const std::string& method, const std::optional<std::string>& bytes) {
    RawCall call(channel_, kService + method);
    if (bytes) call.Write(*bytes);
    call.WritesDone();
    return call.Finish();
  }

  std::unique_ptr<Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::PositionalEncodingService::Stub> stub_;
};

}  // namespace posenc::server
