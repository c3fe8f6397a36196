// Calls to a server: what it answers, refuses, ends and counts.
#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "google/rpc/error_details.pb.h"
#include "posenc/v1/error.pb.h"
#include "tests/server/grpc/started_server.h"

namespace posenc::server {
namespace {

using testing::HasSubstr;

// The ErrorInfo of an error.
v1::ErrorInfo InfoOf(const grpc::Status& status) {
  v1::RichStatus rich;
  EXPECT_TRUE(rich.ParseFromString(status.error_details()));
  EXPECT_EQ(rich.code(), status.error_code());
  EXPECT_EQ(rich.message(), status.error_message());
  v1::ErrorInfo info;
  if (rich.details_size() == 0) {
    ADD_FAILURE() << status.error_message() << ": no details";
    return info;
  }
  EXPECT_EQ(rich.details(0).type_url(), "type.googleapis.com/google.rpc.ErrorInfo");
  EXPECT_TRUE(info.ParseFromString(rich.details(0).value()));
  EXPECT_EQ(info.domain(), "posenc");
  EXPECT_EQ(rich.details_size(), info.metadata().contains("field") ? 2 : 1);
  return info;
}

TEST_F(ServerTest, CarriesTensorsThroughUnchanged) {
  Start(TestConfig());
  for (const auto& [q, k] : {std::pair(0, 0), std::pair(1, 65536), std::pair(3 << 20, 12345)}) {
    const v1::ApplyRotaryRequest request = Rotary(q, k);
    v1::ApplyRotaryResponse response;
    grpc::ClientContext context;
    const grpc::Status status = stub_->ApplyRotary(&context, request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_TRUE(response.q().SerializeAsString() == request.q().tensor().SerializeAsString());
    EXPECT_TRUE(response.k().SerializeAsString() == request.k().tensor().SerializeAsString());
    const auto timing = context.GetServerTrailingMetadata().find("server-timing");
    ASSERT_NE(timing, context.GetServerTrailingMetadata().end());
    EXPECT_THAT(std::string(timing->second.data(), timing->second.size()),
                testing::MatchesRegex("queue;dur=[0-9.]+, compute;dur=[0-9.]+"));
  }
  EXPECT_TRUE(Eventually([this] { return server_->counters().in_flight_bytes == 0; })) << "charges are returned";
  EXPECT_TRUE(Eventually([this] { return server_->counters().in_flight_requests == 0; }));
}

TEST_F(ServerTest, AnswersWithoutTensors) {
  Start(TestConfig());
  v1::ExplainResponse response;
  grpc::ClientContext context;
  ASSERT_TRUE(stub_->Explain(&context, {}, &response).ok());
  EXPECT_EQ(response.layers(0).layer_type(), "fake");
}

TEST_F(ServerTest, SurvivesACallWithoutAMessage) {
  Start(TestConfig());
  for (const char* method : {"ApplyRotary", "StreamTable", "StreamBias", "StreamApplyRotary", "GetServerInfo"}) {
    const grpc::Status status = Send(method, std::nullopt);
    EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT) << method << ": " << status.error_message();
  }
  EXPECT_EQ(Send("ApplyRotary", "").error_code(), grpc::INVALID_ARGUMENT) << "the layout is missing";
}

TEST_F(ServerTest, RefusesMalformedAndUnknown) {
  Start(TestConfig());
  grpc::Status status = Send("ApplyRotary", std::string("\x3a\x7f"));
  EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT);
  EXPECT_EQ(InfoOf(status).reason(), "MALFORMED");
  EXPECT_THAT(status.error_message(), HasSubstr("posenc.v1.ApplyRotaryRequest"));

  status = Send("GenerateTable", std::string("\x0a\x04\x0a\x02\x12\x01"));  // truncated; bad UTF-8 has the same code
  EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT);

  status = Send("StreamTable", std::string("\x0a\x03\xf8\x7f\x01"));
  EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT);
  EXPECT_EQ(InfoOf(status).reason(), "UNKNOWN_FIELD");
  EXPECT_EQ(InfoOf(status).metadata().at("field"), "table.2047");
  EXPECT_THAT(status.error_message(), HasSubstr("must be a field of posenc.v1.GenerateTableRequest"));

  status = Send("GetServerInfo", std::string("\x08\x01"));
  EXPECT_EQ(InfoOf(status).reason(), "UNKNOWN_FIELD");
}

TEST_F(ServerTest, PassesTheLibrarysErrorsOn) {
  Start(TestConfig());
  v1::ApplyRotaryRequest request = Rotary(1, 1);
  request.set_layout(v1::LAYOUT_UNSPECIFIED);
  v1::ApplyRotaryResponse response;
  grpc::ClientContext context;
  const grpc::Status status = stub_->ApplyRotary(&context, request, &response);
  EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT);
  const v1::ErrorInfo info = InfoOf(status);
  EXPECT_EQ(info.reason(), "MISSING");
  EXPECT_EQ(info.metadata().at("field"), "layout");
  EXPECT_EQ(info.metadata().at("started"), "false");
  EXPECT_EQ(context.GetServerTrailingMetadata().count("grpc-retry-pushback-ms"), 0u);

  v1::RichStatus rich;
  google::rpc::BadRequest bad_request;
  EXPECT_TRUE(rich.ParseFromString(status.error_details()));
  ASSERT_TRUE(rich.details(1).UnpackTo(&bad_request));
  EXPECT_EQ(bad_request.field_violations(0).field(), "layout");
  EXPECT_EQ("layout: " + bad_request.field_violations(0).description(), status.error_message());
}

TEST_F(ServerTest, RefusesForGoodWhatCanNeverFit) {
  Start(TestConfig());
  grpc::ClientContext contexts[3];
  v1::ApplyRotaryResponse rotary;
  grpc::Status status = stub_->ApplyRotary(&contexts[0], Rotary(8 << 20, 1), &rotary);
  EXPECT_EQ(status.error_code(), grpc::RESOURCE_EXHAUSTED);
  EXPECT_EQ(InfoOf(status).reason(), "TOO_LARGE");
  EXPECT_THAT(status.error_message(), HasSubstr("must be at most 8388608 bytes"));

  v1::GenerateBiasRequest amplified;
  amplified.mutable_geometry()->set_query_length(int64_t{1} << 30);
  v1::GenerateBiasResponse bias;
  status = stub_->GenerateBias(&contexts[1], amplified, &bias);
  EXPECT_EQ(status.error_code(), grpc::RESOURCE_EXHAUSTED);
  EXPECT_EQ(InfoOf(status).reason(), "TOO_LARGE");

  amplified.mutable_geometry()->set_query_length(17 << 20);
  status = stub_->GenerateBias(&contexts[2], amplified, &bias);
  EXPECT_EQ(status.error_code(), grpc::RESOURCE_EXHAUSTED);
  EXPECT_EQ(InfoOf(status).metadata().at("started"), "false");
}

TEST_F(ServerTest, AnExceptionIsAnErrorAndNotTheEnd) {
  Start(TestConfig());
  grpc::ClientContext context;
  v1::AddBiasResponse response;
  const grpc::Status status = stub_->AddBias(&context, {}, &response);
  EXPECT_EQ(status.error_code(), grpc::UNAVAILABLE);
  EXPECT_THAT(status.error_message(), HasSubstr("out of memory"));
  EXPECT_EQ(InfoOf(status).metadata().at("started"), "true");
}

TEST_F(ServerTest, OverloadIsUnavailableWithPushback) {
  Config config = TestConfig();
  config.max_in_flight_requests = 3;  // of which one caller gets two
  config.retry_pushback_ms = 250;
  Start(config);
  FakeOperations::gate_shut = true;
  std::vector<std::thread> callers;
  for (int n = 0; n < 2; ++n) {
    callers.emplace_back([this] {
      grpc::ClientContext context;
      v1::GenerateTableResponse response;
      EXPECT_TRUE(stub_->GenerateTable(&context, Taking(0), &response).ok());
    });
  }
  EXPECT_TRUE(Eventually([this] { return server_->counters().in_flight_requests == 2; }));

  grpc::ClientContext context;
  v1::ExplainResponse response;
  const grpc::Status status = stub_->Explain(&context, {}, &response);
  EXPECT_EQ(status.error_code(), grpc::UNAVAILABLE);
  EXPECT_EQ(InfoOf(status).reason(), "OVERLOADED");
  EXPECT_EQ(InfoOf(status).metadata().at("started"), "false");
  const auto pushback = context.GetServerTrailingMetadata().find("grpc-retry-pushback-ms");
  ASSERT_NE(pushback, context.GetServerTrailingMetadata().end());
  EXPECT_EQ(pushback->second, "250");

  grpc::ClientContext info_context;
  v1::GetServerInfoResponse info;
  EXPECT_TRUE(stub_->GetServerInfo(&info_context, {}, &info).ok()) << "an overloaded server can still say so";
  EXPECT_EQ(info.counters().in_flight_requests(), 2);
  EXPECT_EQ(info.counters().requests_refused(), 1);
  EXPECT_EQ(info.devices(0).threads(), 2);
  EXPECT_EQ(info.limits().max_in_flight_requests(), 3);

  FakeOperations::gate_shut = false;
  for (std::thread& caller : callers) caller.join();
}

TEST_F(ServerTest, SmallCallsWhosePlanIsAtHandWaitForNoThreadOfThePool) {
  Config config = TestConfig();
  config.limits.max_request_bytes = 16 << 20;
  config.max_in_flight_bytes = 64 << 20;
  Start(config);
  FakeOperations::gate_shut = true;
  FakeOperations::polls = false;  // else the small tasks would begin again as bulk ones
  std::vector<std::thread> callers;
  for (int n = 0; n < 3; ++n) {  // two threads and the one for small tasks
    callers.emplace_back([this] {
      grpc::ClientContext context;
      v1::GenerateTableResponse response;
      EXPECT_TRUE(stub_->GenerateTable(&context, Taking(0), &response).ok());
    });
  }
  EXPECT_TRUE(Eventually([] { return FakeOperations::waiting == 3; }));

  const auto rotate = [this](size_t bytes) {
    const v1::ApplyRotaryRequest request = Rotary(bytes, 8);
    const bool answered = FakeOperations::plan_at_hand && bytes < 8 << 20;
    grpc::Status status;
    // On a busy machine a call can take too long for the thread that receives it, and then waits, too.
    for (int tries = answered ? 3 : 1; tries > 0; --tries) {
      grpc::ClientContext context;
      context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(answered ? 10 : 1));
      v1::ApplyRotaryResponse response;
      status = stub_->ApplyRotary(&context, request, &response);
      EXPECT_TRUE(!status.ok() || response.q().data() == request.q().tensor().data());
      if (status.ok()) break;
    }
    return status.error_code();
  };
  EXPECT_EQ(rotate(1000), grpc::DEADLINE_EXCEEDED) << "its plan is not at hand: it waits for a thread";
  FakeOperations::plan_at_hand = true;
  EXPECT_EQ(rotate(1000), grpc::OK);
  EXPECT_EQ(rotate(1'100'000), grpc::OK);
  EXPECT_EQ(rotate(8'000'000), grpc::OK);
  EXPECT_EQ(rotate(9'000'000), grpc::DEADLINE_EXCEEDED) << "it is not small";
  FakeOperations::gate_shut = false;
  FakeOperations::polls = true;
  for (std::thread& caller : callers) caller.join();
}

TEST_F(ServerTest, BytesInFlightAreLimited) {
  Start(TestConfig());
  FakeOperations::gate_shut = true;
  v1::GenerateTableRequest holder = Taking(0);
  holder.mutable_positions()->mutable_ids()->set_data(std::string(8 << 19, 'x'));
  std::vector<std::thread> callers;
  for (int n = 0; n < 2; ++n) {
    callers.emplace_back([this, &holder] {
      grpc::ClientContext context;
      v1::GenerateTableResponse response;
      EXPECT_TRUE(stub_->GenerateTable(&context, holder, &response).ok());
    });
  }
  EXPECT_TRUE(Eventually([this] { return server_->counters().in_flight_bytes > 8 << 20; }));
  grpc::ClientContext context;
  v1::ApplyRotaryResponse response;
  const grpc::Status status = stub_->ApplyRotary(&context, Rotary(5 << 20, 0), &response);
  EXPECT_EQ(status.error_code(), grpc::UNAVAILABLE) << status.error_message();
  FakeOperations::gate_shut = false;
  for (std::thread& caller : callers) caller.join();
  EXPECT_TRUE(Eventually([this] { return server_->counters().in_flight_bytes == 0; }));
}

TEST_F(ServerTest, WorkEndsAtTheDeadlineAndQueuedWorkIsNotStarted) {
  Config config = TestConfig();
  config.threads = 1;
  Start(config);
  FakeOperations::gate_shut = true;
  const auto call = [this](std::chrono::milliseconds time) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + time);
    v1::GenerateTableResponse response;
    return stub_->GenerateTable(&context, Taking(0), &response).error_code();
  };
  const auto hurried = [&call] { EXPECT_EQ(call(std::chrono::milliseconds(100)), grpc::DEADLINE_EXCEEDED); };
  // A deadline may pass before the request is sent, so calls repeat until one has begun.
  while (FakeOperations::begun == 0 && !HasFailure()) hurried();
  EXPECT_TRUE(Eventually([] { return FakeOperations::waiting == 0; }));

  const int before = FakeOperations::begun;
  std::vector<std::thread> patient;
  for (int n = 0; n < 2; ++n) {  // for both threads: one is for small tasks
    patient.emplace_back([&call] { EXPECT_EQ(call(std::chrono::hours(1)), grpc::OK); });
  }
  EXPECT_TRUE(Eventually([] { return FakeOperations::waiting == 2; }));
  const int64_t started = server_->counters().started;
  while (server_->counters().started < started + 3 && !HasFailure()) hurried();
  FakeOperations::gate_shut = false;  // the threads now reach the queued calls
  for (std::thread& caller : patient) caller.join();
  EXPECT_TRUE(Eventually([this] { return server_->counters().in_flight_requests == 0; }));
  EXPECT_EQ(FakeOperations::begun, before + 2);
  EXPECT_TRUE(Eventually([this] { return server_->counters().failed == server_->counters().started - 2; }));
}

TEST_F(ServerTest, WorkEndsWhenTheCallerCancels) {
  Start(TestConfig());
  FakeOperations::gate_shut = true;
  grpc::ClientContext context;
  std::thread caller([this, &context] {
    v1::GenerateTableResponse response;
    EXPECT_EQ(stub_->GenerateTable(&context, Taking(0), &response).error_code(), grpc::CANCELLED);
  });
  EXPECT_TRUE(Eventually([] { return FakeOperations::waiting == 1; }));
  context.TryCancel();
  caller.join();
  EXPECT_TRUE(Eventually([this] { return server_->counters().in_flight_requests == 0; }));
}

TEST_F(ServerTest, WhatAStreamKeepsIsCharged) {
  Start(TestConfig());
  v1::StreamTableRequest request;
  request.mutable_table()->set_count(1);
  request.set_rows_per_tile(1);
  const auto stream = [&](int64_t held_bytes) {
    FakeOperations::held_bytes = held_bytes;
    grpc::ClientContext context;
    auto reader = stub_->StreamTable(&context, request);
    for (v1::StreamTableResponse tile; reader->Read(&tile);) {
    }
    return reader->Finish();
  };
  EXPECT_TRUE(stream(15 << 20).ok());
  const grpc::Status status = stream(17 << 20);
  EXPECT_EQ(status.error_code(), grpc::RESOURCE_EXHAUSTED) << status.error_message();
  EXPECT_TRUE(Eventually([this] { return server_->counters().in_flight_bytes == 0; }));
}

TEST_F(ServerTest, StreamsTilesInOrder) {
  Start(TestConfig());
  for (const int64_t rows : {0, 1, 4, 10}) {
    v1::StreamTableRequest request;
    request.mutable_table()->set_count(rows);
    request.set_rows_per_tile(4);
    grpc::ClientContext context;
    auto reader = stub_->StreamTable(&context, request);
    std::string table;
    int tiles = 0;
    for (v1::StreamTableResponse tile; reader->Read(&tile); ++tiles) {
      EXPECT_EQ(tile.row_begin(), static_cast<int64_t>(table.size()));
      EXPECT_EQ(tile.has_info(), tiles == 0);
      table += tile.cos().data();
    }
    EXPECT_TRUE(reader->Finish().ok());
    EXPECT_EQ(context.GetServerTrailingMetadata().count("server-timing"), 1u);
    EXPECT_EQ(table, std::string("\0\1\2\3\4\5\6\7\10\11", rows));
    EXPECT_EQ(tiles, rows == 0 ? 1 : (rows + 3) / 4);
  }
  EXPECT_TRUE(Eventually([this] { return server_->counters().in_flight_bytes == 0; }));
}

TEST_F(ServerTest, AStreamNobodyReadsHoldsOneTileUntilItIsCancelled) {
  Start(TestConfig());
  v1::StreamTableRequest request;
  request.mutable_table()->set_count(int64_t{1} << 30);
  request.set_rows_per_tile(1 << 20);
  grpc::ClientContext context;
  auto reader = stub_->StreamTable(&context, request);
  v1::StreamTableResponse tile;
  EXPECT_TRUE(reader->Read(&tile));
  EXPECT_LT(server_->counters().in_flight_bytes, 3 << 20);
  context.TryCancel();
  EXPECT_EQ(reader->Finish().error_code(), grpc::CANCELLED);
  EXPECT_TRUE(Eventually([this] { return server_->counters().in_flight_bytes == 0; }));
}

TEST_F(ServerTest, RefusesMessagesCompressedWithDeflate) {
  Start(TestConfig());
  grpc::ClientContext context;
  context.set_compression_algorithm(GRPC_COMPRESS_DEFLATE);
  v1::ApplyRotaryRequest request = Rotary(0, 0);
  request.mutable_q()->mutable_tensor()->set_data(std::string(1 << 20, '\0'));
  v1::ApplyRotaryResponse response;
  EXPECT_EQ(stub_->ApplyRotary(&context, request, &response).error_code(), grpc::UNIMPLEMENTED);
}

}  // namespace
}  // namespace posenc::server
