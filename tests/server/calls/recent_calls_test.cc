// Calls like a recent one are prepared once, and each is answered as if it were the first.
#include "server/calls/recent_calls.h"

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "gtest/gtest.h"
#include "posenc/v1/service.pb.h"
#include "server/calls/calls.h"
#include "tests/server/calls/fake_memory.h"
#include "tests/server/calls/fake_rpc.h"
#include "tests/service/call.h"

namespace posenc::server::recent_calls_test {
namespace {

v1::Tensor Filled(std::vector<int64_t> shape, int fill) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return MakeTensor(DType::kFP32, std::move(shape), std::vector<double>(count, 0.5 + fill));
}

// One layer of a decode step: only the tensors' bytes depend on the layer.
v1::ApplyRotaryRequest Layer(int layer) {
  v1::ApplyRotaryRequest request;
  auto& settings = *request.mutable_rotary()->mutable_settings();
  settings.mutable_rope_parameters()->set_rope_type("default");
  settings.set_rotary_dim(8);
  settings.set_input_pairing(v1::PAIRING_HALF_SPLIT);
  *request.mutable_positions()->mutable_ids() = MakeTensor<int64_t>(DType::kINT64, {2, 1}, {17, 400});
  request.set_layout(v1::LAYOUT_BSHD);
  *request.mutable_q()->mutable_tensor() = Filled({2, 1, 4, 8}, layer);
  *request.mutable_k()->mutable_tensor() = Filled({2, 1, 1, 8}, layer + 100);
  return request;
}

// The bytes in three slices.
grpc::ByteBuffer Buffer(const std::string& bytes) {
  std::vector<grpc::Slice> slices;
  for (size_t n = 0; n < 3; ++n) {
    const size_t begin = n * bytes.size() / 3, end = (n + 1) * bytes.size() / 3;
    auto* copy = new std::string(bytes.substr(begin, end - begin));
    slices.emplace_back(
        copy->data(), copy->size(), [](void* string) { delete static_cast<std::string*>(string); }, copy);
  }
  return {slices.data(), slices.size()};
}

Config TestConfig() {
  Config config;
  config.threads = 2;
  config.max_in_flight_bytes = int64_t{1} << 30;
  return config;
}

class RecentCallsTest : public testing::Test {
 protected:
  RecentCallsTest() : core_(TestConfig()), operation_(Operation()) {}

  wire::UnaryOperation Operation() {
    return wire::UnaryOperation::Of<v1::ApplyRotaryRequest, v1::ApplyRotaryResponse>(
        [this](const auto& request, const wire::Payloads& payloads, const wire::CallContext& context, auto* response) {
          ++(context.may_block() ? asked_in_pool_ : asked_at_once_);
          auto job = wire::Prepare(request, payloads, context, response);
          prepared_ += job.ok() ? 1 : 0;
          return job;
        },
        wire::Scheduling::kAsSmallAsItsRequest);
  }

  // Returns how many times this request was prepared.
  int Send(const v1::ApplyRotaryRequest& request) { return Send(request, request); }
  // The same, of a request that is answered like `plain`.
  int Send(const v1::ApplyRotaryRequest& request, const v1::ApplyRotaryRequest& plain) {
    const int before = prepared_;
    FakeRpc rpc(Buffer(request.SerializeAsString()));
    rpc.Serve(
        [this](Rpc* served, grpc::ByteBuffer* bytes) { return MakeUnaryCall(&core_, operation_, served, bytes); });
    const grpc::Status& status = rpc.Wait();
    const auto expected = posenc::Call(plain);
    EXPECT_EQ(status.ok(), expected.ok()) << status.error_message();
    if (!expected.ok()) {
      EXPECT_EQ(status.error_message(), expected.status().message());
      return prepared_ - before;
    }
    std::vector<grpc::Slice> slices;
    rpc.messages.at(0).Dump(&slices);
    std::string text;
    for (const grpc::Slice& slice : slices) text.append(slice.begin(), slice.end());
    v1::ApplyRotaryResponse response;
    EXPECT_TRUE(response.ParseFromString(text));
    EXPECT_TRUE(response.SerializeAsString() == expected->SerializeAsString());
    return prepared_ - before;
  }

  std::atomic<int> prepared_{0}, asked_at_once_{0}, asked_in_pool_{0};
  Core core_;
  const wire::UnaryOperation operation_;
};

TEST_F(RecentCallsTest, TheLayersOfAStepArePreparedOnce) {
  ASSERT_THAT(posenc::Call(Layer(0)), IsOk());  // caches the plan
  EXPECT_EQ(Send(Layer(0)), 1);
  for (int layer = 0; layer < 5; ++layer) EXPECT_EQ(Send(Layer(layer)), 0);
}

// The receiving thread must not parse large files: other callers' messages wait for it.
TEST_F(RecentCallsTest, LargeFilesAreParsedInThePool) {
  const auto with_file = [](size_t padding) {
    v1::ApplyRotaryRequest request = Layer(0);
    request.mutable_rotary()->mutable_model()->set_config_json_text(
        R"({"model_type": "llama", "hidden_size": 24, "num_attention_heads": 3, "rope_theta": 10000, "padding": ")" +
        std::string(padding, 'x') + "\"}");
    return request;
  };
  posenc::Call(with_file(0)).IgnoreError();  // caches the plan
  Send(with_file(0));
  EXPECT_EQ(std::pair(asked_at_once_.load(), asked_in_pool_.load()), std::pair(1, 0));
  Send(with_file(20'000));
  EXPECT_EQ(std::pair(asked_at_once_.load(), asked_in_pool_.load()), std::pair(1, 1));
}

TEST_F(RecentCallsTest, WhatDiffersInMoreIsPreparedAnew) {
  ASSERT_THAT(posenc::Call(Layer(0)), IsOk());
  Send(Layer(0));
  const std::vector<std::function<void(v1::ApplyRotaryRequest*)>> changes = {
      [](auto* request) { request->mutable_positions()->mutable_ids()->mutable_data()->at(15) = 1; },
      [](auto* request) { request->mutable_positions()->set_offset(17); },
      [](auto* request) { request->mutable_rotary()->mutable_settings()->set_input_pairing(v1::PAIRING_INTERLEAVED); },
      [](auto* request) { request->set_direction(v1::DIRECTION_INVERSE); },
      [](auto* request) { request->mutable_hints()->set_return_plan(true); },
      [](auto* request) { request->clear_k(); },
      [](auto* request) {
        *request->mutable_q()->mutable_tensor() = Filled({2, 1, 3, 8}, 1);
      },
      [](auto* request) { request->mutable_k()->mutable_tensor()->set_shape(3, 8); },
      [](auto* request) { request->mutable_q()->mutable_tensor()->set_dtype(v1::DATA_TYPE_INT32); },
      [](auto* request) { request->mutable_q()->mutable_tensor()->mutable_data()->pop_back(); },
      [](auto* request) { request->mutable_positions()->mutable_ids()->mutable_data()->append(8, '\0'); },
  };
  for (const auto& change : changes) {
    v1::ApplyRotaryRequest request = Layer(1);
    change(&request);
    const bool same = request.SerializeAsString() == Layer(1).SerializeAsString();
    EXPECT_EQ(Send(request), same || !posenc::Call(request).ok() ? 0 : 1) << request.ShortDebugString();
    EXPECT_EQ(Send(Layer(2)), 0) << "and what was kept still serves";
  }
}

// Positions in shared memory are read for each call, although the request is prepared once for all that have the same.
TEST_F(RecentCallsTest, PositionsInSharedMemoryAreReadEachTime) {
  const auto memory = std::make_shared<const FakeMemory>(65536);
  core_.memory = std::make_shared<FakeMemorySource>(memory);
  const auto send = [&](int64_t position, int layer) {
    v1::ApplyRotaryRequest plain = Layer(layer);
    *plain.mutable_positions()->mutable_ids() = MakeTensor<int64_t>(DType::kINT64, {2, 1}, {position, 400});
    v1::ApplyRotaryRequest request = plain;
    size_t end = Move(request.mutable_positions()->mutable_ids(), *memory, 0);
    end = Move(request.mutable_q()->mutable_tensor(), *memory, end);
    Move(request.mutable_k()->mutable_tensor(), *memory, end);
    return Send(request, plain);
  };
  ASSERT_THAT(posenc::Call(Layer(0)), IsOk());
  EXPECT_EQ(send(17, 0), 1);
  EXPECT_EQ(send(17, 1), 0);
  EXPECT_EQ(send(18, 2), 1);
  EXPECT_EQ(send(18, 3), 0);
  EXPECT_EQ(send(17, 4), 1) << "what was prepared for other positions is replaced";
}

TEST_F(RecentCallsTest, ManyPositionsInSharedMemoryAreNotKept) {
  const auto memory = std::make_shared<const FakeMemory>(65536);
  core_.memory = std::make_shared<FakeMemorySource>(memory);
  v1::ApplyRotaryRequest plain = Layer(0);
  *plain.mutable_positions()->mutable_ids() =
      MakeTensor<int64_t>(DType::kINT64, {2, 1025}, std::vector<int64_t>(2050, 3));
  *plain.mutable_q()->mutable_tensor() = Filled({2, 1025, 1, 8}, 1);
  plain.clear_k();
  v1::ApplyRotaryRequest request = plain;
  Move(request.mutable_positions()->mutable_ids(), *memory, 0);
  ASSERT_THAT(posenc::Call(plain), IsOk());
  EXPECT_EQ(Send(request, plain), 1);
  EXPECT_EQ(Send(request, plain), 1);
}

v1::ApplyRotaryRequest Named(const std::string& request_id, int layer) {
  v1::ApplyRotaryRequest request = Layer(layer);
  request.mutable_hints()->set_request_id(request_id);
  return request;
}

// Requests that differ only in a request_id of the same length, valid in protobuf, share a preparation.
TEST_F(RecentCallsTest, RequestIdsMayDiffer) {
  ASSERT_THAT(posenc::Call(Layer(0)), IsOk());
  EXPECT_EQ(Send(Named("4f1b-77", 0)), 1);
  EXPECT_EQ(Send(Named("4f1b-78", 1)), 0);
  EXPECT_EQ(Send(Named("another", 2)), 0);
  EXPECT_EQ(Send(Named("longer than that", 3)), 1);
  EXPECT_EQ(Send(Named("short", 3)), 1);
  EXPECT_EQ(Send(Named("", 3)), 1);
  EXPECT_EQ(Send(Named("h\xc3\xa9t\xc3\xa9\n", 4)), 1) << "7 bytes, not all ASCII";
}

// If the request_id's bytes occur twice in the request, other request_ids do not match.
TEST_F(RecentCallsTest, ButNotWhereTheRequestHasThoseBytesTwice) {
  ASSERT_THAT(posenc::Call(Layer(0)), IsOk());
  EXPECT_EQ(Send(Named("default", 0)), 1);  // equals rope_type
  EXPECT_EQ(Send(Named("default", 1)), 0);
  EXPECT_EQ(Send(Named("another", 2)), 1);
  EXPECT_EQ(Send(Named("yet-one", 3)), 0);
}

TEST_F(RecentCallsTest, EachCallLogsItsOwnRequestId) {
  std::string message = "..id-1..";
  RecentCalls recent;
  const auto prepared = std::make_shared<Prepared>();
  auto* request = v1::ApplyRotaryRequest::default_instance().New(&prepared->arena);
  prepared->request = request;
  const transport::SlicedPayloads none({}, {});
  prepared->job.operands = {&request->q().tensor()};
  recent.Keep(prepared, "..id-1..", "id-1", none);
  EXPECT_EQ(recent.Find(nullptr, "..id-2..", none).request_id, "id-2");
  EXPECT_EQ(recent.Find(nullptr, "..id-1..", none).request_id, "id-1");
  EXPECT_EQ(recent.Find(nullptr, ".,id-1..", none).prepared, nullptr);
  EXPECT_EQ(recent.Find(nullptr, "..id-1.,", none).prepared, nullptr);
  EXPECT_EQ(recent
                .Find(nullptr,
                      "..id\xff"
                      "1..",
                      none)
                .prepared,
            nullptr);
  EXPECT_EQ(recent.Find(nullptr, "..id-1", none).prepared, nullptr);
  EXPECT_EQ(recent.Find(nullptr, "", none).prepared, nullptr);
  recent.Keep(prepared, "x-x", "x", none);
  EXPECT_EQ(recent.Find(nullptr, "x-x", none).request_id, "x");
  EXPECT_EQ(recent.Find(nullptr, "y-x", none).prepared, nullptr);
}

TEST_F(RecentCallsTest, TheLeastRecentlyUsedGoesFirst) {
  const auto at = [](int64_t position, int layer) {
    v1::ApplyRotaryRequest request = Layer(layer);
    request.mutable_positions()->set_offset(position);
    return request;
  };
  ASSERT_THAT(posenc::Call(Layer(0)), IsOk());
  for (int64_t position = 0; position < 16; ++position) EXPECT_EQ(Send(at(position, 0)), 1);
  EXPECT_EQ(Send(at(0, 1)), 0);
  EXPECT_EQ(Send(at(16, 1)), 1);
  EXPECT_EQ(Send(at(0, 2)), 0);
  EXPECT_EQ(Send(at(1, 2)), 1);
}

TEST_F(RecentCallsTest, WhatHasMuchBesideTheOperandsIsNotKept) {
  v1::ApplyRotaryRequest request = Layer(0);
  *request.mutable_positions()->mutable_ids() =
      MakeTensor<int64_t>(DType::kINT64, {2, 1025}, std::vector<int64_t>(2050, 3));
  *request.mutable_q()->mutable_tensor() = Filled({2, 1025, 1, 8}, 1);
  request.clear_k();
  ASSERT_THAT(posenc::Call(request), IsOk());
  EXPECT_EQ(Send(request), 1);
  EXPECT_EQ(Send(request), 1);
}

// A request of one head row whose plan has this many pairs.
v1::ApplyRotaryRequest Wide(int64_t pairs) {
  v1::ApplyRotaryRequest request = Layer(0);
  request.mutable_rotary()->mutable_settings()->set_rotary_dim(2 * pairs);
  request.mutable_precision()->set_preset(v1::PRECISION_PRESET_F32);
  request.mutable_positions()->set_offset(0);
  *request.mutable_q()->mutable_tensor() = Filled({1, 1, 1, 2 * pairs}, 1);
  request.clear_k();
  return request;
}

TEST_F(RecentCallsTest, NorWhatHasALargePlan) {
  ASSERT_THAT(posenc::Call(Wide(32768)), IsOk());
  for (int n = 0; n < 3; ++n) EXPECT_EQ(Send(Wide(32768)), 1);
}

TEST_F(RecentCallsTest, ThePlanIsChargedToEachCall) {
  const v1::ApplyRotaryRequest request = Wide(16384);  // 128 KiB; its request and answer 128 KiB each
  ASSERT_THAT(posenc::Call(request), IsOk());
  EXPECT_EQ(Send(request), 1);
  EXPECT_EQ(Send(request), 0);
  Charge others;
  ASSERT_EQ(core_.admission->AdmitBytes((int64_t{1} << 30) - (300 << 10), 0, &others), Admission::Verdict::kAdmitted);
  FakeRpc rpc(Buffer(request.SerializeAsString()));
  rpc.Serve([this](Rpc* served, grpc::ByteBuffer* bytes) { return MakeUnaryCall(&core_, operation_, served, bytes); });
  EXPECT_EQ(rpc.Wait().error_code(), grpc::UNAVAILABLE);
  others.Return();
  EXPECT_EQ(Send(request), 0);
}

TEST_F(RecentCallsTest, NorWhatIsNotAtHand) {
  v1::ApplyRotaryRequest request = Layer(0);
  request.mutable_rotary()->mutable_settings()->mutable_xpos()->set_centre(0);  // xPos always takes long
  for (int n = 0; n < 3; ++n) EXPECT_EQ(Send(request), 1);
}

TEST_F(RecentCallsTest, CallsThatCameAtOnceTakeOnePlace) {
  const std::string bytes = Layer(0).SerializeAsString();
  google::protobuf::io::ArrayInputStream stream(bytes.data(), static_cast<int>(bytes.size()));
  auto stripped = operation_.rpc.request_stripper.Strip(&stream, bytes.size() + 100);
  ASSERT_THAT(stripped, IsOk());
  std::vector<grpc::Slice> slices;
  grpc::ByteBuffer buffer = Buffer(bytes);
  buffer.Dump(&slices);
  const transport::SlicedPayloads payloads(slices, stripped->ranges);
  RecentCalls recent;
  std::vector<std::shared_ptr<const Prepared>> same;
  for (int n = 0; n < 20; ++n) {
    const auto prepared = std::make_shared<Prepared>();
    auto* request = v1::ApplyRotaryRequest::default_instance().New(&prepared->arena);
    ASSERT_TRUE(request->ParseFromString(stripped->message));
    prepared->request = request;
    prepared->job.operands = {&request->q().tensor(), &request->k().tensor()};
    recent.Keep(prepared, stripped->message, "", payloads);
    same.push_back(recent.Find(nullptr, stripped->message, payloads).prepared);
  }
  EXPECT_THAT(same, testing::Each(testing::AllOf(testing::NotNull(), same[0])));
}

TEST_F(RecentCallsTest, ManyAtOnceAreAnsweredAsOneAlone) {
  ASSERT_THAT(posenc::Call(Layer(0)), IsOk());
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([this, caller] {
      for (int layer = 0; layer < 60; ++layer) {
        v1::ApplyRotaryRequest request = Layer(layer);
        request.mutable_positions()->set_offset((layer + caller) % 20);
        Send(request);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
}

}  // namespace
}  // namespace posenc::server::recent_calls_test
