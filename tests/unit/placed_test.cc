#include "posenc/client/placed.h"

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace posenc::placed_test {
namespace {

// Computes nothing: says that it was asked.
class Asked final : public Backend {
 public:
  explicit Asked(absl::StatusCode code) : status_(code, "asked") {}

 private:
  absl::StatusOr<v1::GetServerInfoResponse> DoGetServerInfo(const v1::GetServerInfoRequest&,
                                                            const CallOptions&) override {
    return status_;
  }
  absl::StatusOr<v1::ExplainResponse> DoExplain(const v1::ExplainRequest&, const CallOptions&) override {
    return status_;
  }
  absl::StatusOr<v1::AnalyzeResponse> DoAnalyze(const v1::AnalyzeRequest&, const CallOptions&) override {
    return status_;
  }
  absl::StatusOr<v1::ApplyRotaryResponse> DoApplyRotary(const v1::ApplyRotaryRequest&, const CallOptions&) override {
    return status_;
  }
  absl::StatusOr<v1::GenerateTableResponse> DoGenerateTable(const v1::GenerateTableRequest&,
                                                            const CallOptions&) override {
    return status_;
  }
  absl::StatusOr<v1::AnswerInfo> DoStreamApplyRotary(const v1::ApplyRotaryRequest&, const RotaryMemory&,
                                                     const ChunkOptions&, const CallOptions&) override {
    return status_;
  }
  absl::Status DoStreamBias(const v1::StreamBiasRequest&, BiasTileSink, const CallOptions&) override { return status_; }
  absl::Status DoStreamTable(const v1::StreamTableRequest&, TileSink, const CallOptions&) override { return status_; }
  absl::StatusOr<v1::GenerateEmbeddingResponse> DoGenerateEmbedding(const v1::GenerateEmbeddingRequest&,
                                                                    const CallOptions&) override {
    return status_;
  }
  absl::StatusOr<v1::GenerateBiasResponse> DoGenerateBias(const v1::GenerateBiasRequest&, const CallOptions&) override {
    return status_;
  }
  absl::StatusOr<v1::AddBiasResponse> DoAddBias(const v1::AddBiasRequest&, const CallOptions&) override {
    return status_;
  }
  absl::StatusOr<v1::RelativeScoresResponse> DoRelativeScores(const v1::RelativeScoresRequest&,
                                                              const CallOptions&) override {
    return status_;
  }
  absl::StatusOr<v1::RelativeValuesResponse> DoRelativeValues(const v1::RelativeValuesRequest&,
                                                              const CallOptions&) override {
    return status_;
  }
  absl::StatusOr<v1::DiagnoseResponse> DoDiagnose(const v1::DiagnoseRequest&, const CallOptions&) override {
    return status_;
  }
  absl::StatusOr<v1::DiagnoseBiasResponse> DoDiagnoseBias(const v1::DiagnoseBiasRequest&, const CallOptions&) override {
    return status_;
  }
  absl::StatusOr<ServingStatus> DoCheckHealth(const std::string&, const CallOptions&) override { return status_; }

  const absl::Status status_;
};

constexpr absl::StatusCode kHere = absl::StatusCode::kNotFound, kThere = absl::StatusCode::kDataLoss;

Placed Make(Placement placement, const PlacementCosts& costs = {}) {
  return Placed(std::make_unique<Asked>(kHere), std::make_unique<Asked>(kThere), placement, costs);
}

v1::RelativeScoresRequest Scores(int64_t length) {
  v1::RelativeScoresRequest request;
  request.set_layout(v1::LAYOUT_BSHD);
  for (v1::Tensor* tensor : {request.mutable_q(), request.mutable_k()}) {
    for (const int64_t dimension : {int64_t{1}, length, int64_t{32}, int64_t{128}}) tensor->add_shape(dimension);
  }
  return request;
}

TEST(Placed, AFixedPlacementIsForEveryCall) {
  for (const auto& [placement, where] : {std::pair(Placement::kLocal, kHere), {Placement::kRemote, kThere}}) {
    Placed placed = Make(placement, {.server_speed = 100});
    EXPECT_EQ(placed.GetServerInfo().status().code(), where);
    EXPECT_EQ(placed.CheckHealth().status().code(), where);
    EXPECT_EQ(placed.Explain({}).status().code(), where);
    EXPECT_EQ(placed.Analyze({}).status().code(), where);
    EXPECT_EQ(placed.ApplyRotary({}).status().code(), where);
    EXPECT_EQ(placed.GenerateTable({}).status().code(), where);
    EXPECT_EQ(placed.GenerateEmbedding({}).status().code(), where);
    EXPECT_EQ(placed.GenerateBias({}).status().code(), where);
    EXPECT_EQ(placed.AddBias({}).status().code(), where);
    EXPECT_EQ(placed.RelativeScores({}).status().code(), where);
    EXPECT_EQ(placed.RelativeValues({}).status().code(), where);
    EXPECT_EQ(placed.Diagnose({}).status().code(), where);
    EXPECT_EQ(placed.DiagnoseBias({}).status().code(), where);
    const auto sink = [](const v1::StreamTableResponse&) { return absl::OkStatus(); };
    EXPECT_EQ(placed.StreamTable({}, sink).code(), where);
  }
}

TEST(Placed, AServerThatIsNoFasterIsNotAsked) {
  Placed placed = Make(Placement::kAuto);
  EXPECT_EQ(placed.RelativeScores(Scores(100000)).status().code(), kHere);
  EXPECT_EQ(placed.GetServerInfo().status().code(), kThere) << "which only it knows";
  EXPECT_EQ(placed.CheckHealth().status().code(), kThere);
}

TEST(Placed, WhatIsComputedIsSentWhereItIsLarge) {
  Placed placed = Make(Placement::kAuto, {.server_speed = 8});
  EXPECT_EQ(placed.RelativeScores(Scores(1)).status().code(), kHere);
  EXPECT_EQ(placed.RelativeScores(Scores(4096)).status().code(), kThere);
  // What is moved more than computed is not.
  v1::ApplyRotaryRequest request;
  const std::vector<std::byte> q(size_t{64} << 20);
  std::vector<std::byte> out(q.size());
  const v1::Tensor& tensor = request.mutable_q()->tensor();
  EXPECT_EQ(placed.ApplyRotary(request, {.inputs = {{&tensor, q}}, .outputs = {absl::MakeSpan(out)}}).status().code(),
            kHere);
}

TEST(Placed, TheCallersMemorySaysHowLargeTheAnswerIs) {
  Placed placed = Make(Placement::kAuto, {.transport_bytes_per_second = 1e11, .server_speed = 8});
  std::vector<std::byte> cos(size_t{64} << 20);
  EXPECT_EQ(placed.GenerateTable({}).status().code(), kHere);
  EXPECT_EQ(placed.GenerateTable({}, {.outputs = {absl::MakeSpan(cos)}}).status().code(), kThere);
}

TEST(Placed, WhoSharesMemoryWithTheServerAsksIt) {
  Placed placed = Make(Placement::kAuto);
  v1::GenerateBiasRequest request;
  EXPECT_EQ(placed.GenerateBias(request).status().code(), kHere);
  request.mutable_output()->set_byte_size(8);
  EXPECT_EQ(placed.GenerateBias(request).status().code(), kThere);
}

TEST(Placed, TheRule) {
  const PlacementCosts costs{.call_seconds = 1, .transport_bytes_per_second = 10, .server_speed = 2};
  // 100 bytes here: 100 s at 1 byte a second; there 1 + 10 + 50 s, and what the request adds.
  EXPECT_TRUE(IsFasterRemote(costs, 1, 0, 100));
  EXPECT_TRUE(IsFasterRemote(costs, 1, 389, 100));
  EXPECT_FALSE(IsFasterRemote(costs, 1, 391, 100));
  EXPECT_FALSE(IsFasterRemote(costs, 1, 0, 2)) << "1 + 0.2 + 1 s for 2";
}

}  // namespace
}  // namespace posenc::placed_test
