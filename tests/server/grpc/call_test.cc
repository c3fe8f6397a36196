// Server calls, many at once, on a transport of standard types (tests/fake_grpc), so that ThreadSanitizer sees all of
// them, which it does not where gRPC is linked.
#include <array>
#include <functional>
#include <future>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "posenc/v1/error.pb.h"
#include "posenc/v1/service.pb.h"
#include "server/grpc/calls.h"
#include "tests/server/grpc/fake_rpc.h"

namespace posenc::server::call_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using std::chrono::system_clock;

constexpr int kCallers = 4;
constexpr int64_t kRows = 700;

Config TestConfig() {
  Config config;
  config.threads = 3;
  config.max_in_flight_bytes = int64_t{1} << 30;
  return config;
}

v1::RotarySource Llama() {
  v1::RotarySource rotary;
  auto& settings = *rotary.mutable_settings();
  settings.mutable_rope_parameters()->set_rope_type("default");
  settings.set_rotary_dim(64);
  settings.set_input_pairing(v1::PAIRING_HALF_SPLIT);
  return rotary;
}

constexpr size_t kRowBytes = 64 * 2, kTensorRows = 900;

v1::ApplyRotaryRequest Rotary(int64_t offset) {
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

std::string Rotation(int64_t offset) { return Rotary(offset).SerializeAsString(); }

std::string Header(int64_t offset) {
  v1::StreamApplyRotaryRequest request;
  *request.mutable_header() = Rotary(offset);
  request.mutable_header()->mutable_q()->mutable_tensor()->clear_data();
  return request.SerializeAsString();
}

std::string Chunk(int64_t offset, size_t first_row, size_t rows) {
  v1::StreamApplyRotaryRequest request;
  request.mutable_chunk()->set_operand(v1::OPERAND_QUERY);
  request.mutable_chunk()->mutable_rows()->set_byte_offset(static_cast<int64_t>(first_row * kRowBytes));
  request.mutable_chunk()->mutable_rows()->set_data(
      Rotary(offset).q().tensor().data().substr(first_row * kRowBytes, rows * kRowBytes));
  return request.SerializeAsString();
}

std::string Table(int64_t offset) {
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
grpc::ByteBuffer Buffer(const std::string& bytes) { return grpc::BufferOf(bytes, bytes.size() / 2 + 1); }

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
    for (const grpc::ByteBuffer& message : rpc.messages) text += grpc::BytesOf(message);
    return text;
  }

  // The rows of a stream's answers, which must be in order.
  static std::string Rows(const std::vector<grpc::ByteBuffer>& messages) {
    std::string rows;
    for (const grpc::ByteBuffer& message : messages) {
      v1::StreamApplyRotaryResponse response;
      EXPECT_TRUE(response.ParseFromString(grpc::BytesOf(message)));
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

TEST_F(CallTest, ManyAtOnceAreAnsweredAsOneAlone) {
  std::vector<std::string> alone;
  grpc::Status status;
  for (int64_t n = 0; n < 9; ++n) {
    alone.push_back(AnswerTo(Kind(n % kKinds), 1000 * n, &status));
    ASSERT_TRUE(status.ok()) << status.error_message();
    ASSERT_GT(alone.back().size(), 80'000u);
  }
  OnCallers([&](int caller) {
    for (int64_t round = 0; round < 40; ++round) {
      const int64_t n = (round * 4 + caller) % 9;
      grpc::Status ended;
      EXPECT_TRUE(AnswerTo(Kind(n % kKinds), 1000 * n, &ended) == alone[n]);
      EXPECT_TRUE(ended.ok()) << ended.error_message();
    }
  });
  EXPECT_EQ(BytesInTheEnd(), 0);
  EXPECT_EQ(core_->admission->counters().in_flight_requests, 0);
  EXPECT_EQ(core_->admission->counters().failed, 0);
}

TEST_F(CallTest, MayBeCancelledOrRunOutOfTimeAtAnyMoment) {
  std::atomic<int> answered{0}, cancelled{0}, late{0};
  OnCallers([&](int caller) {
    std::mt19937 random(caller);
    for (int round = 0; round < 60; ++round) {
      const Kind kind = Kind(random() % kKinds);
      FakeRpc rpc(Request(kind, round));
      if (random() % 4 == 0) rpc.time_limit = system_clock::now() + milliseconds(random() % 5);
      Begin(kind, round, &rpc);
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
      if (random() % 4 != 0) rpc.Cancel();
      switch (const grpc::Status& status = rpc.Wait(); status.error_code()) {
        case grpc::OK: ++answered; break;
        case grpc::CANCELLED: ++cancelled; break;
        case grpc::DEADLINE_EXCEEDED: ++late; break;
        case grpc::INVALID_ARGUMENT:  // the stream may end before the cancellation arrives
          EXPECT_EQ(kind, kChunks) << status.error_message();
          ++cancelled;
          break;
        default: ADD_FAILURE() << status.error_code() << " " << status.error_message();
      }
    }
  });
  EXPECT_EQ(answered + cancelled + late, kCallers * 60);
  EXPECT_GT(cancelled, 0);
  const Admission::Counters counters = core_->admission->counters();
  EXPECT_EQ(counters.failed, cancelled + late);
  EXPECT_EQ(BytesInTheEnd(), 0);
  EXPECT_EQ(counters.in_flight_requests, 0);
  EXPECT_TRUE(core_->admission->WaitForHandlers(steady_clock::now()));
}

TEST_F(CallTest, ADrainUnderLoadAnswersWhatWasAdmittedAndRefusesTheRest) {
  std::atomic<int> answered{0}, refused{0};
  std::thread drain([&] {
    while (answered < 30) std::this_thread::sleep_for(milliseconds(1));
    core_->admission->Drain();
    const auto forever = steady_clock::now() + std::chrono::hours(1);
    EXPECT_TRUE(core_->admission->WaitForQuiet(milliseconds(5), forever));
    EXPECT_TRUE(core_->admission->WaitForHandlers(forever));
  });
  OnCallers([&](int caller) {
    for (int64_t n = 0;; ++n) {
      FakeRpc rpc(Buffer(Rotation(caller + n)));
      Rotate(&rpc);
      const grpc::Status status = rpc.Wait();
      if (status.ok()) {
        ++answered;
        continue;
      }
      ++refused;
      EXPECT_EQ(status.error_code(), grpc::UNAVAILABLE) << status.error_message();
      EXPECT_EQ(rpc.trailers.count("grpc-retry-pushback-ms"), 1u);
      return;
    }
  });
  drain.join();
  const Admission::Counters counters = core_->admission->counters();
  EXPECT_EQ(refused, kCallers);
  EXPECT_EQ(counters.refused, refused);
  EXPECT_EQ(counters.started, answered + refused);
  EXPECT_EQ(counters.in_flight_requests, 0);
}

TEST_F(CallTest, ChunksAreAnsweredAsTheWholeIs) {
  FakeRpc whole(Buffer(Rotation(7)));
  Rotate(&whole);
  ASSERT_TRUE(whole.Wait().ok());
  v1::ApplyRotaryResponse response;
  ASSERT_TRUE(response.ParseFromString(grpc::BytesOf(whole.messages.at(0))));
  FakeRpc rpc;
  Begin(kChunks, 7, &rpc);
  const grpc::Status& status = rpc.Wait();
  EXPECT_TRUE(status.ok()) << status.error_message();
  v1::StreamApplyRotaryResponse first;
  ASSERT_TRUE(first.ParseFromString(grpc::BytesOf(rpc.messages[0])));
  EXPECT_EQ(first.info().SerializeAsString(), response.info().SerializeAsString());
  EXPECT_TRUE(Rows(rpc.messages) == response.q().data());
}

TEST_F(CallTest, AWrongMessageEndsAStreamAfterWhatCameBefore) {
  v1::StreamApplyRotaryRequest beyond;
  beyond.mutable_chunk()->set_operand(v1::OPERAND_QUERY);
  beyond.mutable_chunk()->mutable_rows()->set_byte_offset(kTensorRows * kRowBytes);
  beyond.mutable_chunk()->mutable_rows()->set_data("x");
  v1::StreamApplyRotaryRequest of_k = beyond;
  of_k.mutable_chunk()->set_operand(v1::OPERAND_KEY);
  struct Case {
    std::string message;
    std::string field, operand, byte_offset;
  };
  const std::string done = std::to_string(200 * kRowBytes);
  for (const Case& c : {Case{beyond.SerializeAsString(), "chunk.rows.byte_offset", "OPERAND_QUERY", done},
                        Case{of_k.SerializeAsString(), "chunk.rows.byte_offset", "OPERAND_KEY", "0"},
                        Case{Header(1), "header", "OPERAND_QUERY", done}, Case{"", "part", "OPERAND_QUERY", done},
                        Case{"\x0a", "request", "OPERAND_QUERY", done},
                        Case{std::string("\x12\x02\x08\x09"), "chunk.operand", "OPERAND_QUERY", done},
                        Case{std::string("\x12\x03\xf8\x7f\x01"), "chunk.2047", "OPERAND_QUERY", done}}) {
    FakeRpc rpc;
    Chunks(&rpc);
    rpc.Send(Buffer(Header(0)));
    rpc.Send(Buffer(Chunk(0, 100, 100)));  // chunks may come in any order
    rpc.Send(Buffer(Chunk(0, 0, 100)));
    rpc.Send(Buffer(Chunk(0, 0, 50)));  // and may come twice
    rpc.Send(Buffer(Chunk(0, 300, 100)));
    rpc.Send(Buffer(c.message));
    rpc.Send(Buffer(Chunk(0, 200, 100)));
    const grpc::Status& status = rpc.Wait();
    EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT) << status.error_message();
    EXPECT_EQ(rpc.messages.size(), 5u) << "all that came before is answered, nothing after";
    auto metadata = MetadataOf(status);
    EXPECT_EQ(metadata["field"], c.field);
    EXPECT_EQ(metadata["operand"], c.operand);
    EXPECT_EQ(metadata["byte_offset"], c.byte_offset);
    EXPECT_EQ(metadata["started"], "true");
  }
  EXPECT_EQ(BytesInTheEnd(), 0);
}

TEST_F(CallTest, AStreamBeginsWithItsHeader) {
  for (const bool chunk : {true, false}) {
    FakeRpc rpc;
    Chunks(&rpc);
    if (chunk) rpc.Send(Buffer(Chunk(0, 0, 1)));
    rpc.HalfClose();
    const grpc::Status& status = rpc.Wait();
    EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT);
    auto metadata = MetadataOf(status);
    EXPECT_EQ(metadata["field"], "header");
    EXPECT_EQ(metadata["byte_offset"], "0");
    EXPECT_EQ(metadata["started"], "false");
  }
}

TEST_F(CallTest, AStreamWhoseAnswersAreNotTakenHoldsFewChunks) {
  FakeRpc rpc;
  Chunks(&rpc);
  rpc.Send(Buffer(Header(0)));
  rpc.WaitForMessages(1);
  rpc.ShutWindow();
  for (size_t row = 0; row < kTensorRows; row += 100) rpc.Send(Buffer(Chunk(0, row, 100)));
  const auto chunk = static_cast<int64_t>(100 * kRowBytes);
  const auto held = [this] { return core_->admission->counters().in_flight_bytes; };
  while (held() < chunk) std::this_thread::yield();
  for (int n = 0; n < 100; ++n) {
    EXPECT_LT(held(), 4 * chunk + 1000);
    std::this_thread::yield();
  }
  rpc.Cancel();
  rpc.Wait();
  EXPECT_LT(rpc.messages.size(), 4u);
  rpc.messages.clear();
  EXPECT_EQ(BytesInTheEnd(), 0);
}

class CrowdedTest : public CallTest {
 protected:
  static Config Crowded() {
    Config config = TestConfig();
    config.max_in_flight_bytes = static_cast<int64_t>(250 * kRowBytes);
    return config;
  }
  CrowdedTest() : CallTest(Crowded()) {}
};

// The budget has room for one chunk of a hundred rows and its answer, but not for two.
TEST_F(CrowdedTest, AStreamWaitsForItsOwnAnswersAndForNobodyElses) {
  {  // Caches the plan, which the budget has no room to make.
    std::unique_ptr<Core> crowded = std::exchange(core_, std::make_unique<Core>(TestConfig()));
    FakeRpc planning(Buffer(Rotation(0)));
    Rotate(&planning);
    ASSERT_TRUE(planning.Wait().ok());
    core_ = std::move(crowded);
  }
  FakeRpc rpc;
  Chunks(&rpc);
  rpc.Send(Buffer(Header(0)));
  rpc.WaitForMessages(1);
  rpc.ShutWindow();
  rpc.Send(Buffer(Chunk(0, 0, 100)));
  rpc.Send(Buffer(Chunk(0, 100, 100)));
  while (core_->admission->counters().in_flight_bytes < static_cast<int64_t>(100 * kRowBytes))
    std::this_thread::yield();

  FakeRpc other;
  Chunks(&other);
  other.Send(Buffer(Header(0)));
  other.Send(Buffer(Chunk(0, 0, 100)));
  const grpc::Status& refused = other.Wait();
  EXPECT_EQ(refused.error_code(), grpc::UNAVAILABLE) << refused.error_message();
  EXPECT_EQ(MetadataOf(refused)["byte_offset"], "0");
  EXPECT_EQ(other.trailers.count("grpc-retry-pushback-ms"), 1u);

  rpc.Cancel();
  EXPECT_EQ(rpc.Wait().error_code(), grpc::CANCELLED);
  rpc.messages.clear();
  other.messages.clear();
  EXPECT_EQ(BytesInTheEnd(), 0);
}

class ImpatientTest : public CallTest {
 protected:
  static Config Impatient(int64_t send_timeout_s, int64_t max_call_s) {
    Config config = TestConfig();
    config.send_timeout_s = send_timeout_s;
    config.max_call_s = config.max_stream_s = max_call_s;
    return config;
  }
  ImpatientTest() : CallTest(Impatient(1, 600)) {}

  std::mutex gate_;  // while locked, the pool's threads wait
};

TEST_F(ImpatientTest, AnAnswerThatIsNotTakenIsCancelled) {
  for (const Kind kind : {kRotation, kTable, kChunks}) {
    FakeRpc rpc(Request(kind, 0));
    // The window is shut before anything can have been written.
    if (kind == kChunks) {
      Chunks(&rpc);
      rpc.ShutWindow();
      rpc.Send(Buffer(Header(0)));
    } else {
      const std::lock_guard shut(gate_);
      for (size_t n = 0; n < core_->pool.threads(); ++n) {
        core_->pool.Submit([this] { const std::lock_guard opened(gate_); }, Lane::kSmall);
      }
      Begin(kind, 0, &rpc);
      rpc.ShutWindow();
    }
    rpc.Wait();
    rpc.messages.clear();
    EXPECT_EQ(BytesInTheEnd(), 0);
  }
}

// The fake RPC ends the process if a call is cancelled after its end.
TEST_F(ImpatientTest, NoTimerOutlivesItsCall) {
  core_ = std::make_unique<Core>(Impatient(0, 600));
  OnCallers([&](int caller) {
    for (int round = 0; round < 100; ++round) {
      const Kind kind = Kind((round + caller) % kKinds);
      FakeRpc rpc(Request(kind, round));
      Begin(kind, round, &rpc);
      rpc.Wait();
    }
  });
  EXPECT_EQ(BytesInTheEnd(), 0);
}

TEST_F(ImpatientTest, ACallHasOnlySoMuchTime) {
  core_ = std::make_unique<Core>(Impatient(60, 0));
  for (const Kind kind : {kRotation, kTable}) {
    FakeRpc rpc(Request(kind, 0));
    Begin(kind, 0, &rpc);
    EXPECT_EQ(rpc.Wait().error_code(), grpc::DEADLINE_EXCEEDED);
  }
  FakeRpc idle;
  Chunks(&idle);
  EXPECT_EQ(idle.Wait().error_code(), grpc::DEADLINE_EXCEEDED);
}

TEST_F(CallTest, WhatIsSmallInAskingAndAnsweringGoesFirst) {
  Config config = TestConfig();
  config.threads = 1;
  core_ = std::make_unique<Core>(config);
  std::mutex mutex;
  std::vector<int64_t> prepared, computed;
  std::set<std::thread::id> threads;
  const auto note = [&](std::vector<int64_t>* in, int64_t rows) {
    const std::lock_guard lock(mutex);
    in->push_back(rows);
    threads.insert(std::this_thread::get_id());
  };
  const auto generate_table = wire::UnaryOperation::Of<v1::GenerateTableRequest, v1::GenerateTableResponse>(
      [&](const auto& request, const wire::Payloads& payloads, const wire::CallContext& context, auto* response) {
        auto job = wire::Prepare(request, payloads, context, response);
        note(&prepared, request.count());
        job->run = [&, rows = request.count(), run = std::move(job->run)](auto&&... arguments) {
          note(&computed, rows);
          return run(arguments...);
        };
        return job;
      },
      wire::Scheduling::kPreparesQuickly);
  const auto ask = [](int64_t rows) {
    v1::StreamTableRequest request;
    EXPECT_TRUE(request.ParseFromString(Table(0)));
    request.mutable_table()->set_count(rows);
    return Buffer(request.table().SerializeAsString());
  };
  const MakeReactor make = [&](Rpc* rpc, grpc::ByteBuffer* request) {
    return MakeUnaryCall(core_.get(), generate_table, rpc, request);
  };
  // The pool's relief thread may run one if this thread or the pool's waits for a processor; then all is tried again.
  do {
    for (std::vector<int64_t>* noted : {&prepared, &computed}) noted->clear();
    threads.clear();
    FakeRpc large(ask(10'000)), small(ask(10));
    std::promise<void> begun, both_wait;
    core_->pool.Submit([&] {
      begun.set_value();
      both_wait.get_future().wait();
    });
    begun.get_future().wait();
    large.Serve(make);
    small.Serve(make);
    both_wait.set_value();
    EXPECT_TRUE(small.Wait().ok());
    EXPECT_TRUE(large.Wait().ok());
  } while (threads.size() > 1);
  EXPECT_THAT(prepared, testing::ElementsAre(10'000, 10, 10'000));
  EXPECT_THAT(computed, testing::ElementsAre(10, 10'000));
}

// The bytes for a diagnosis are admitted before `decide` computes the answer.
TEST_F(CallTest, AnOverloadIsToldBeforeAnythingIsDecided) {
  Config config = TestConfig();
  config.max_in_flight_bytes = 20'000;
  core_ = std::make_unique<Core>(config);
  Charge others;
  ASSERT_EQ(core_->admission->AdmitBytes(10'000, 0, &others), Admission::Verdict::kAdmitted);
  bool decided = false;
  const auto diagnose = wire::UnaryOperation::Of<v1::DiagnoseRequest, v1::DiagnoseResponse>(
      [&](const auto&, const wire::Payloads&, const Limits&, auto*) -> absl::StatusOr<wire::Job> {
        wire::Job job;
        job.decide = [&](WorkPool&, const Cancellation&) {
          decided = true;
          return absl::OkStatus();
        };
        return job;
      });
  FakeRpc rpc(Buffer(v1::DiagnoseRequest().SerializeAsString()));
  rpc.Serve(
      [&](Rpc* served, grpc::ByteBuffer* request) { return MakeUnaryCall(core_.get(), diagnose, served, request); });
  EXPECT_EQ(rpc.Wait().error_code(), grpc::UNAVAILABLE);
  EXPECT_EQ(rpc.trailers.count("grpc-retry-pushback-ms"), 1u);
  EXPECT_FALSE(decided);
}

// Answers a diagnosis with what `decide` returns. `prepare` runs before it.
wire::UnaryOperation Diagnosis(
    std::function<std::shared_ptr<void>()> prepare, std::function<void()> decide = [] {}) {
  return wire::UnaryOperation::Of<v1::DiagnoseRequest, v1::DiagnoseResponse>(
      [prepare, decide](const auto&, const wire::Payloads&, const Limits&, auto*) -> absl::StatusOr<wire::Job> {
        wire::Job job;
        job.decide = [decide, kept = prepare()](WorkPool&, const Cancellation&) {
          decide();
          return absl::OkStatus();
        };
        return job;
      });
}

class MemoryTest : public CallTest {
 protected:
  static Config WithLittleMemory() {
    Config config = TestConfig();
    config.max_in_flight_bytes = 4 << 20;
    return config;
  }
  MemoryTest() : CallTest(WithLittleMemory()) {}

  // Serves the operation. Returns the status' code and its reason.
  std::pair<grpc::StatusCode, std::string> Serve(const wire::UnaryOperation& operation) {
    FakeRpc rpc(Buffer(v1::DiagnoseRequest().SerializeAsString()));
    rpc.Serve(
        [&](Rpc* served, grpc::ByteBuffer* request) { return MakeUnaryCall(core_.get(), operation, served, request); });
    const grpc::Status status = rpc.Wait();
    return {status.error_code(), status.ok() ? "" : InfoOf(status).reason()};
  }
  int64_t BytesNow() const { return core_->admission->counters().in_flight_bytes; }
};

TEST_F(MemoryTest, OfACallIsChargedUntilItEnds) {
  int64_t during = 0;
  EXPECT_EQ(
      Serve(Diagnosis([] { return std::make_shared<std::vector<char>>(3 << 20); }, [&] { during = BytesNow(); })).first,
      grpc::OK);
  EXPECT_GE(during, 3 << 20);
  EXPECT_LT(during, (3 << 20) + (128 << 10));
  EXPECT_EQ(BytesInTheEnd(), 0);
}

TEST_F(MemoryTest, ThatWasFreedIsNotCharged) {
  for (int n = 0; n < 3; ++n) {
    int64_t during = -1;
    const auto in_turn = [] {
      for (int block = 0; block < 10; ++block) std::vector<char>(3 << 20);
      return nullptr;
    };
    EXPECT_EQ(Serve(Diagnosis(in_turn, [&] { during = BytesNow(); })).first, grpc::OK);
    EXPECT_GE(during, 0);
  }
  EXPECT_EQ(BytesInTheEnd(), 0);
}

TEST_F(MemoryTest, ThatNeverFitsIsTooLarge) {
  const auto large = Diagnosis([] { return std::make_shared<std::vector<char>>(5 << 20); });
  EXPECT_THAT(Serve(large), testing::Pair(grpc::RESOURCE_EXHAUSTED, "TOO_LARGE"));
  const auto in_small_blocks = Diagnosis([] {
    auto blocks = std::make_shared<std::list<std::array<char, 1000>>>();
    for (int n = 0; n < 5000; ++n) blocks->emplace_back();
    return blocks;
  });
  EXPECT_THAT(Serve(in_small_blocks), testing::Pair(grpc::RESOURCE_EXHAUSTED, "TOO_LARGE"));
  EXPECT_EQ(BytesInTheEnd(), 0);
}

TEST_F(MemoryTest, ThatDoesNotFitNowIsAnOverload) {
  Charge others;
  ASSERT_EQ(core_->admission->AdmitBytes(3 << 20, 0, &others), Admission::Verdict::kAdmitted);
  const auto operation = Diagnosis([] { return std::make_shared<std::vector<char>>(2 << 20); });
  EXPECT_THAT(Serve(operation), testing::Pair(grpc::UNAVAILABLE, "OVERLOADED"));
  others.Return();
  EXPECT_EQ(Serve(operation).first, grpc::OK);
  EXPECT_EQ(BytesInTheEnd(), 0);
}

// Also where the plan was cached by another call: a stream holds it after the cache has evicted it.
TEST_F(MemoryTest, OfAPlanIsChargedToEachStreamThatHoldsIt) {
  v1::StreamApplyRotaryRequest request;
  v1::ApplyRotaryRequest& header = *request.mutable_header();
  header = Rotary(0);
  header.mutable_rotary()->mutable_settings()->set_rotary_dim(65536);
  header.mutable_precision()->set_preset(v1::PRECISION_PRESET_F32);
  header.mutable_q()->mutable_tensor()->clear_data();
  header.mutable_q()->mutable_tensor()->set_shape(3, 65536);
  for (int n = 0; n < 2; ++n) {
    FakeRpc rpc;
    Chunks(&rpc);
    rpc.Send(Buffer(request.SerializeAsString()));
    rpc.WaitForMessages(1);
    EXPECT_GE(BytesNow(), 256 << 10) << n;
    EXPECT_LT(BytesNow(), 512 << 10) << n;
    rpc.HalfClose();
    EXPECT_TRUE(rpc.Wait().ok()) << rpc.Wait().error_message();
  }
  EXPECT_EQ(BytesInTheEnd(), 0);
}

TEST_F(CallTest, AnAnswerMayOutliveTheServer) {
  FakeRpc rpc(Buffer(Rotation(0)));
  Rotate(&rpc);
  EXPECT_TRUE(rpc.Wait().ok());
  const std::string answer = grpc::BytesOf(rpc.messages.at(0));
  const std::weak_ptr<Admission> books = core_->admission;
  EXPECT_GT(books.lock()->counters().in_flight_bytes, 0) << "gRPC has not released it";
  core_.reset();
  EXPECT_EQ(grpc::BytesOf(rpc.messages.at(0)), answer);
  rpc.messages.clear();
  EXPECT_TRUE(books.expired());
}

}  // namespace
}  // namespace posenc::server::call_test
