// Server calls on a transport without connections. Under ThreadSanitizer, gRPC's types are stand-ins, too
// (tests/fake_grpc), so that it sees all of a call.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "posenc/v1/error.pb.h"
#include "posenc/v1/service.pb.h"
#include "server/calls/calls.h"
#include "tests/server/calls/fake_rpc.h"

namespace posenc::server {

inline constexpr int kCallers = 4;
inline constexpr int64_t kRows = 700;

inline Config TestConfig() {
  Config config;
  config.threads = 3;
  config.max_in_flight_bytes = int64_t{1} << 30;
  return config;
}

inline v1::RotarySource Llama() {
  v1::RotarySource rotary;
  auto& settings = *rotary.mutable_settings();
  settings.mutable_rope_parameters()->set_rope_type("default");
  settings.set_rotary_dim(64);
  settings.set_input_pairing(v1::PAIRING_HALF_SPLIT);
  return rotary;
}

inline constexpr size_t kRowBytes = 64 * 2, kTensorRows = 900;

inline v1::ApplyRotaryRequest Rotary(int64_t offset) {
  v1::ApplyRotaryRequest request;
  *request.mutable_rotary() = Llama();
  request.mutable_positions()->set_offset(offset);
  request.set_layout(v1::LAYOUT_BSHD);
  v1::Tensor& tensor = *request.mutable_q()->mutable_tensor();
  tensor.set_dtype(v1::DATA_TYPE_BF16);
  for (const int64_t size : {1, 300, 3, 64}) tensor.add_shape(size);
  std::mt19937 random(5);
  for (int n = 0; n < 300 * 3 * 64; ++n) {
    tensor.mutable_data()->append({static_cast<char>(random()), static_cast<char>(random() % 0x3f)});
  }
  return request;
}

inline std::string Rotation(int64_t offset) { return Rotary(offset).SerializeAsString(); }

inline std::string Header(int64_t offset) {
  v1::StreamApplyRotaryRequest request;
  *request.mutable_header() = Rotary(offset);
  request.mutable_header()->mutable_q()->mutable_tensor()->clear_data();
  return request.SerializeAsString();
}

inline std::string Chunk(int64_t offset, size_t first_row, size_t rows) {
  v1::StreamApplyRotaryRequest request;
  request.mutable_chunk()->set_operand(v1::OPERAND_QUERY);
  request.mutable_chunk()->mutable_rows()->set_byte_offset(static_cast<int64_t>(first_row * kRowBytes));
  request.mutable_chunk()->mutable_rows()->set_data(
      Rotary(offset).q().tensor().data().substr(first_row * kRowBytes, rows * kRowBytes));
  return request.SerializeAsString();
}

inline std::string Table(int64_t offset) {
  v1::StreamTableRequest request;
  *request.mutable_table()->mutable_rotary() = Llama();
  request.mutable_table()->mutable_positions()->set_offset(offset);
  request.mutable_table()->set_count(kRows);
  request.mutable_table()->set_dtype(v1::DATA_TYPE_FP32);
  request.mutable_table()->set_form(v1::TABLE_FORM_HALF_WIDTH);
  request.set_rows_per_tile(100);
  return request.SerializeAsString();
}

// Two slices.
inline grpc::ByteBuffer Buffer(const std::string& bytes) { return BufferOf(bytes, bytes.size() / 2 + 1); }

class CallTest : public testing::Test {
 protected:
  explicit CallTest(const Config& config = TestConfig())
      : core_(std::make_unique<Core>(config)),
        apply_rotary_(wire::UnaryOperation::Of<v1::ApplyRotaryRequest, v1::ApplyRotaryResponse>(
            [](const auto& request, const wire::Payloads& payloads, const wire::CallContext& context, auto* response) {
              return wire::Prepare(request, payloads, context, response);
            })) {}

  void Rotate(FakeRpc* rpc) {
    rpc->Serve([this](Rpc* served, grpc::ByteBuffer* request) {
      return MakeUnaryCall(core_.get(), apply_rotary_, served, request);
    });
  }
  void Stream(FakeRpc* rpc) {
    rpc->Serve([this](Rpc* served, grpc::ByteBuffer* request) {
      return MakeTileStream(core_.get(), stream_table_, served, request);
    });
  }
  // Serves a rotary stream; the test sends its messages.
  void Chunks(FakeRpc* rpc) {
    rpc->Serve([this](Rpc* served, grpc::ByteBuffer*) { return MakeRotaryStream(core_.get(), served); });
  }

  enum Kind { kRotation, kTable, kChunks };
  static constexpr int64_t kKinds = 3;
  void Begin(Kind kind, int64_t offset, FakeRpc* rpc) {
    if (kind == kRotation) return Rotate(rpc);
    if (kind == kTable) return Stream(rpc);
    Chunks(rpc);
    rpc->Send(Buffer(Header(offset)));
    for (size_t row = 0; row < kTensorRows; row += 100) rpc->Send(Buffer(Chunk(offset, row, 100)));
    rpc->HalfClose();
  }
  static grpc::ByteBuffer Request(Kind kind, int64_t offset) {
    return kind == kChunks ? grpc::ByteBuffer() : Buffer(kind == kRotation ? Rotation(offset) : Table(offset));
  }

  // Returns the answers, concatenated.
  std::string AnswerTo(Kind kind, int64_t offset, grpc::Status* status) {
    FakeRpc rpc(Request(kind, offset));
    Begin(kind, offset, &rpc);
    *status = rpc.Wait();
    std::string text;
    for (const grpc::ByteBuffer& message : rpc.messages) text += BytesOf(message);
    return text;
  }

  // The rows of a stream's answers, which must be in order.
  static std::string Rows(const std::vector<grpc::ByteBuffer>& messages) {
    std::string rows;
    for (const grpc::ByteBuffer& message : messages) {
      v1::StreamApplyRotaryResponse response;
      EXPECT_TRUE(response.ParseFromString(BytesOf(message)));
      if (!response.has_chunk()) continue;
      EXPECT_EQ(response.chunk().operand(), v1::OPERAND_QUERY);
      EXPECT_EQ(response.chunk().rows().byte_offset(), static_cast<int64_t>(rows.size()));
      rows += response.chunk().rows().data();
    }
    return rows;
  }

  static v1::ErrorInfo InfoOf(const grpc::Status& status) {
    v1::RichStatus rich;
    v1::ErrorInfo info;
    EXPECT_TRUE(rich.ParseFromString(status.error_details()) && rich.details_size() > 0);
    EXPECT_TRUE(info.ParseFromString(rich.details(0).value()));
    return info;
  }
  static std::map<std::string, std::string> MetadataOf(const grpc::Status& status) {
    const v1::ErrorInfo info = InfoOf(status);
    return {info.metadata().begin(), info.metadata().end()};
  }

  void OnCallers(const std::function<void(int caller)>& body) {
    std::vector<std::thread> callers;
    for (int n = 0; n < kCallers; ++n) callers.emplace_back([&body, n] { body(n); });
    for (std::thread& caller : callers) caller.join();
  }

  // Waits, because a thread that has just ended a call may not have released its bytes yet.
  int64_t BytesInTheEnd() const {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    int64_t bytes = core_->admission->counters().in_flight_bytes;
    while (bytes != 0 && std::chrono::steady_clock::now() < limit) {
      std::this_thread::yield();
      bytes = core_->admission->counters().in_flight_bytes;
    }
    return bytes;
  }

  std::unique_ptr<Core> core_;
  const wire::UnaryOperation apply_rotary_;
  const wire::TileOperation& stream_table_ =
      wire::LibraryOperations().TilesOf(wire::RpcOf(*v1::StreamTableRequest::descriptor()));
};

}  // namespace posenc::server
