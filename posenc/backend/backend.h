// Interface to the service's methods: Client sends them to a server, InProcess computes them in this process.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "google/protobuf/message.h"
#include "posenc/v1/service.pb.h"
#include "posenc/wire/payloads.h"
#include "posenc/wire/rpcs.h"

namespace posenc {

using Duration = std::chrono::nanoseconds;

struct CallOptions {
  // Limit for the whole call, including retries and waits. Absent: the backend's own default.
  std::optional<Duration> timeout;

  // Tensors in the caller's memory instead of the messages. With a server they are sent without a copy and received
  // with one; in process there is no copy. For all methods with tensors except streams.
  //
  // Tensors of the request, whose data is empty:   {{&request.q().tensor(), q_bytes}, ...}
  std::vector<wire::TensorView> inputs;
  // Destinations of the answer's tensors, in the order of their fields (ApplyRotary: q, k; GenerateTable: cos, sin).
  // Each has exactly the tensor's bytes; that tensor's data stays empty in the response. Null or left out: the tensor
  // goes into the response. An output may equal or overlap an input (in place). If a call fails, the outputs are
  // undefined in process and unchanged with a server.
  std::vector<absl::Span<std::byte>> outputs;
};

// Health status with the names and numbers of grpc.health.v1.
enum class ServingStatus { kUnknown = 0, kServing = 1, kNotServing = 2, kServiceUnknown = 3 };

// Callback for each tile, in order. A status other than OK ends the stream and becomes its result.
using TileSink = absl::FunctionRef<absl::Status(const v1::StreamTableResponse& tile)>;
using BiasTileSink = absl::FunctionRef<absl::Status(const v1::StreamBiasResponse& tile)>;

// A tensor in the caller's memory, of the type and shape in the stream's header. Not owned.
struct TensorMemory {
  const void* input = nullptr;
  // Same size as the input: either the input itself (in place), or no overlap with any input or the other output.
  void* output = nullptr;
};
struct RotaryMemory {
  TensorMemory q, k;
};
struct ChunkOptions {
  // Bytes per message, rounded down to whole head rows; at least one row. At most ServerLimits.max_request_bytes; a
  // quarter of max_in_flight_bytes or less is recommended.
  int64_t bytes = int64_t{4} << 20;
  // Chunks in flight: sent and not yet answered. >= 1.
  int in_flight = 4;
};

// All backends return the same errors: code, message and DetailsOf() (posenc/base/status.h). Thread-safe.
class Backend {
 public:
  virtual ~Backend() = default;

  // Calls any unary RPC by its request message. Aborts if it is not the request of a unary RPC.
  absl::StatusOr<std::unique_ptr<google::protobuf::Message>> CallUnary(const google::protobuf::Message& request,
                                                                       const CallOptions& options = {}) {
    const wire::RpcDescription& rpc = wire::RpcOf(*request.GetDescriptor());
    std::unique_ptr<google::protobuf::Message> response(rpc.response.New());
    if (absl::Status status = DoUnary(rpc, request, options, response.get()); !status.ok()) return status;
    return response;
  }

  absl::StatusOr<v1::GetServerInfoResponse> GetServerInfo(const v1::GetServerInfoRequest& request = {},
                                                          const CallOptions& options = {}) {
    return Unary<v1::GetServerInfoResponse>(request, options);
  }
  absl::StatusOr<v1::ExplainResponse> Explain(const v1::ExplainRequest& request, const CallOptions& options = {}) {
    return Unary<v1::ExplainResponse>(request, options);
  }
  absl::StatusOr<v1::AnalyzeResponse> Analyze(const v1::AnalyzeRequest& request, const CallOptions& options = {}) {
    return Unary<v1::AnalyzeResponse>(request, options);
  }
  absl::StatusOr<v1::CompareResponse> Compare(const v1::CompareRequest& request, const CallOptions& options = {}) {
    return Unary<v1::CompareResponse>(request, options);
  }
  absl::StatusOr<v1::PositionsResponse> Positions(const v1::PositionsRequest& request,
                                                  const CallOptions& options = {}) {
    return Unary<v1::PositionsResponse>(request, options);
  }
  absl::StatusOr<v1::ApplyRotaryResponse> ApplyRotary(const v1::ApplyRotaryRequest& request,
                                                      const CallOptions& options = {}) {
    return Unary<v1::ApplyRotaryResponse>(request, options);
  }
  absl::StatusOr<v1::GenerateTableResponse> GenerateTable(const v1::GenerateTableRequest& request,
                                                          const CallOptions& options = {}) {
    return Unary<v1::GenerateTableResponse>(request, options);
  }
  absl::StatusOr<v1::GenerateEmbeddingResponse> GenerateEmbedding(const v1::GenerateEmbeddingRequest& request,
                                                                  const CallOptions& options = {}) {
    return Unary<v1::GenerateEmbeddingResponse>(request, options);
  }
  absl::StatusOr<v1::GenerateBiasResponse> GenerateBias(const v1::GenerateBiasRequest& request,
                                                        const CallOptions& options = {}) {
    return Unary<v1::GenerateBiasResponse>(request, options);
  }
  absl::StatusOr<v1::AddBiasResponse> AddBias(const v1::AddBiasRequest& request, const CallOptions& options = {}) {
    return Unary<v1::AddBiasResponse>(request, options);
  }
  absl::StatusOr<v1::RelativeScoresResponse> RelativeScores(const v1::RelativeScoresRequest& request,
                                                            const CallOptions& options = {}) {
    return Unary<v1::RelativeScoresResponse>(request, options);
  }
  absl::StatusOr<v1::RelativeValuesResponse> RelativeValues(const v1::RelativeValuesRequest& request,
                                                            const CallOptions& options = {}) {
    return Unary<v1::RelativeValuesResponse>(request, options);
  }
  absl::StatusOr<v1::DiagnoseResponse> Diagnose(const v1::DiagnoseRequest& request, const CallOptions& options = {}) {
    return Unary<v1::DiagnoseResponse>(request, options);
  }
  absl::StatusOr<v1::DiagnoseBiasResponse> DiagnoseBias(const v1::DiagnoseBiasRequest& request,
                                                        const CallOptions& options = {}) {
    return Unary<v1::DiagnoseBiasResponse>(request, options);
  }
  absl::Status StreamTable(const v1::StreamTableRequest& request, TileSink sink, const CallOptions& options = {}) {
    return Tiles<v1::StreamTableResponse>(request, sink, options);
  }
  absl::Status StreamBias(const v1::StreamBiasRequest& request, BiasTileSink sink, const CallOptions& options = {}) {
    return Tiles<v1::StreamBiasResponse>(request, sink, options);
  }
  // Rotates tensors of any size. The header is an ApplyRotaryRequest whose tensors have neither data nor region. After
  // an error each head row of the outputs is either rotated or unchanged.
  absl::StatusOr<v1::AnswerInfo> StreamApplyRotary(const v1::ApplyRotaryRequest& header, const RotaryMemory& memory,
                                                   const ChunkOptions& chunks = {}, const CallOptions& options = {}) {
    return DoStreamApplyRotary(header, memory, chunks, options);
  }
  // `service` is a fully qualified name; empty: the process as a whole.
  absl::StatusOr<ServingStatus> CheckHealth(const std::string& service = "", const CallOptions& options = {}) {
    return DoCheckHealth(service, options);
  }

 protected:
  using AnyTileSink = absl::FunctionRef<absl::Status(const google::protobuf::Message& tile)>;

 private:
  // `response` is empty and of the RPC's type.
  virtual absl::Status DoUnary(const wire::RpcDescription& rpc, const google::protobuf::Message& request,
                               const CallOptions& options, google::protobuf::Message* response) = 0;
  virtual absl::Status DoTiles(const wire::RpcDescription& rpc, const google::protobuf::Message& request,
                               AnyTileSink sink, const CallOptions& options) = 0;
  virtual absl::StatusOr<v1::AnswerInfo> DoStreamApplyRotary(const v1::ApplyRotaryRequest& header,
                                                             const RotaryMemory& memory, const ChunkOptions& chunks,
                                                             const CallOptions& options) = 0;
  virtual absl::StatusOr<ServingStatus> DoCheckHealth(const std::string& service, const CallOptions& options) = 0;

  template <typename Response, typename Request>
  absl::StatusOr<Response> Unary(const Request& request, const CallOptions& options) {
    static const wire::RpcDescription& rpc = wire::RpcOf(*Request::descriptor());
    Response response;
    if (absl::Status status = DoUnary(rpc, request, options, &response); !status.ok()) return status;
    return response;
  }

  template <typename Response, typename Request>
  absl::Status Tiles(const Request& request, absl::FunctionRef<absl::Status(const Response&)> sink,
                     const CallOptions& options) {
    static const wire::RpcDescription& rpc = wire::RpcOf(*Request::descriptor());
    return DoTiles(
        rpc, request,
        [sink](const google::protobuf::Message& tile) { return sink(static_cast<const Response&>(tile)); }, options);
  }
};

}  // namespace posenc
