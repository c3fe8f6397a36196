// Calls as the server makes them, many at once, on a transport of standard types (tests/fake_grpc): what
// ThreadSanitizer can see, which it cannot where gRPC is linked.
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "posenc/v1/service.pb.h"
#include "server/table_stream.h"
#include "server/unary_call.h"

namespace posenc::server {
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

std::string Rotation(int64_t offset) {
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

// The bytes in two slices, as gRPC hands over what came in two frames.
grpc::ByteBuffer Buffer(const std::string& bytes) {
  std::vector<grpc::Slice> slices;
  for (const std::string& part : {bytes.substr(0, bytes.size() / 2), bytes.substr(bytes.size() / 2)}) {
    auto* copy = new std::string(part);
    slices.emplace_back(
        copy->data(), copy->size(), [](void* string) { delete static_cast<std::string*>(string); }, copy);
  }
  return {slices.data(), slices.size()};
}

std::string Text(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  buffer.Dump(&slices);
  std::string text;
  for (const grpc::Slice& slice : slices) text.append(slice.begin(), slice.end());
  return text;
}

class CallTest : public testing::Test {
 protected:
  // One call from its beginning to its end.
  struct Exchange {
    explicit Exchange(const std::string& bytes) : request(Buffer(bytes)) {}
    grpc::CallbackServerContext context;
    grpc::ByteBuffer request, answer;
    std::shared_ptr<grpc::FakeCall> call;
  };

  explicit CallTest(Config config = TestConfig())
      : core_(std::make_unique<Core>(config)),
        apply_rotary_(UnaryMethod::Of<v1::ApplyRotaryRequest, v1::ApplyRotaryResponse>(
            "ApplyRotary", [](const auto& request, const wire::Payloads& payloads, const Limits& limits,
                              auto* response) { return wire::Prepare(request, payloads, limits, response); })) {}

  void Rotate(Exchange* exchange) {
    exchange->call = grpc::FakeCall::Of(
        StartUnaryCall(core_.get(), apply_rotary_, &exchange->context, &exchange->request, &exchange->answer));
  }
  void Stream(Exchange* exchange) {
    exchange->call =
        grpc::FakeCall::Of(StartTableStream(core_.get(), stream_table_, &exchange->context, &exchange->request));
  }

  // The answers, one after the other.
  std::string AnswerTo(bool stream, int64_t offset, grpc::Status* status) {
    Exchange exchange(stream ? Table(offset) : Rotation(offset));
    stream ? Stream(&exchange) : Rotate(&exchange);
    *status = exchange.call->Wait();
    std::string text = Text(exchange.answer);
    for (const grpc::ByteBuffer& message : exchange.call->messages) text += Text(message);
    return text;
  }

  void OnCallers(const std::function<void(int caller)>& body) {
    std::vector<std::thread> callers;
    for (int n = 0; n < kCallers; ++n) callers.emplace_back([&body, n] { body(n); });
    for (std::thread& caller : callers) caller.join();
  }

  // A thread that has just ended a call may still have to let its bytes go.
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
  const UnaryMethod apply_rotary_;
  const wire::Stripper stream_table_{v1::StreamTableRequest::descriptor()};
};

TEST_F(CallTest, ManyAtOnceAreAnsweredAsOneAlone) {
  std::vector<std::string> alone;
  grpc::Status status;
  for (int64_t n = 0; n < 8; ++n) {
    alone.push_back(AnswerTo(n % 2, 1000 * n, &status));
    ASSERT_TRUE(status.ok()) << status.error_message();
    ASSERT_GT(alone.back().size(), 80'000u);
  }
  OnCallers([&](int caller) {
    for (int64_t round = 0; round < 40; ++round) {
      const int64_t n = (round * 3 + caller) % 8;
      grpc::Status ended;
      EXPECT_TRUE(AnswerTo(n % 2, 1000 * n, &ended) == alone[n]);
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
      const bool stream = random() % 2;
      Exchange exchange(stream ? Table(round) : Rotation(round));
      if (random() % 4 == 0) exchange.context.time_limit = system_clock::now() + milliseconds(random() % 5);
      stream ? Stream(&exchange) : Rotate(&exchange);
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
      if (random() % 4 != 0) exchange.call->Cancel();
      switch (const grpc::Status& status = exchange.call->Wait(); status.error_code()) {
        case grpc::OK: ++answered; break;
        case grpc::CANCELLED: ++cancelled; break;
        case grpc::DEADLINE_EXCEEDED: ++late; break;
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
      Exchange exchange(Rotation(caller + n));
      Rotate(&exchange);
      const grpc::Status status = exchange.call->Wait();
      if (status.ok()) {
        ++answered;
        continue;
      }
      ++refused;
      EXPECT_EQ(status.error_code(), grpc::UNAVAILABLE) << status.error_message();
      EXPECT_EQ(exchange.context.trailers.count("grpc-retry-pushback-ms"), 1u);
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

TEST_F(CallTest, AnAnswerMayOutliveTheServer) {
  Exchange exchange(Rotation(0));
  Rotate(&exchange);
  EXPECT_TRUE(exchange.call->Wait().ok());
  const std::string answer = Text(exchange.answer);
  const std::weak_ptr<Admission> books = core_->admission;
  EXPECT_GT(books.lock()->counters().in_flight_bytes, 0) << "gRPC has not released it";
  core_.reset();
  EXPECT_EQ(Text(exchange.answer), answer);
  exchange.answer.Clear();
  EXPECT_TRUE(books.expired());
}

}  // namespace
}  // namespace posenc::server
