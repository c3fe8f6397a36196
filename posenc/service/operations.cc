#include "posenc/service/operations.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "posenc/base/status.h"
#include "posenc/base/tensor.h"
#include "posenc/base/version.h"
#include "posenc/kernels/target.h"
#include "posenc/methods/rope/methods.h"

namespace posenc::wire {
namespace {

template <typename Request, typename Response>
UnaryOperation Unary(Scheduling scheduling = Scheduling::kPooled, Purpose purpose = Purpose::kCompute) {
  const auto prepare = [](const Request& request, const Payloads& payloads, const CallContext& context,
                          Response* response) { return Prepare(request, payloads, context, response); };
  return UnaryOperation::Of<Request, Response>(prepare, scheduling, purpose);
}

template <typename Request>
TileOperation Tiles() {
  using TypedPrepare = absl::StatusOr<TileStream> (*)(const Request&, const Payloads&, const Limits&);
  return TileOperation::Of<Request>(static_cast<TypedPrepare>(&Prepare));
}

template <typename Operation>
const Operation& Find(const std::vector<Operation>& operations, const RpcDescription& rpc) {
  for (const Operation& operation : operations) {
    if (&operation.rpc == &rpc) return operation;
  }
  std::abort();
}

// A family and its methods' names, for server information.
struct MethodFamily {
  std::string_view family;
  std::vector<std::string_view> methods;
};

std::vector<MethodFamily> MethodFamilies() {
  MethodFamily rope{"rope", {}};
  for (const RopeMethod& method : RopeMethods()) rope.methods.push_back(method.rope_type);
  for (std::string_view other : {"given_frequencies", "axial", "given_table", "mrope", "xpos", "query_scale"}) {
    rope.methods.push_back(other);
  }
  return {
      std::move(rope),
      {"sinusoidal", {"interleaved", "halves", "tensor2tensor", "fairseq"}},
      {"learned", {"table"}},
      {"timestep", {"diffusers"}},
      {"grid", {"mae", "diffusers", "big_vision", "detr"}},
      {"fourier", {"given_frequencies"}},
      {"alibi", {"bloom", "mpt", "symmetric", "causal", "asymmetric"}},
      {"t5", {"bidirectional", "causal"}},
      {"kerple", {"log", "power"}},
      {"sandwich", {"paper", "snippet"}},
      {"swin", {"v1", "v2"}},
      {"beit", {"plain", "transformers"}},
      {"relative", {"shaw", "transformer_xl", "tupe", "deberta", "wpr", "cope", "inkling"}},
      {"fire", {"paper"}},
      {"forget_gate", {"log_gates"}},
      {"mask", {"causal", "prefix", "window", "key_valid", "documents"}},
  };
}

}  // namespace

absl::Status CopyOperand(const Payloads& from, const v1::Tensor& tensor, std::byte* out, WorkPool& pool,
                         const Cancellation& cancelled) {
  const TensorBytes bytes(from, tensor);
  return pool.ParallelFor(from.Size(tensor), kCopiedTogether, cancelled,
                          [&](size_t begin, size_t end) { Copy(bytes, begin, end - begin, out + begin); });
}

const Operations& LibraryOperations() {
  static const auto* const operations = new Operations{
      .unary =
          {
              {RpcOf(*v1::GetServerInfoRequest::descriptor()), nullptr, Scheduling::kImmediate, Purpose::kInfo},
              Unary<v1::ExplainRequest, v1::ExplainResponse>(),
              Unary<v1::AnalyzeRequest, v1::AnalyzeResponse>(),
              Unary<v1::CompareRequest, v1::CompareResponse>(),
              Unary<v1::PositionsRequest, v1::PositionsResponse>(),
              Unary<v1::ApplyRotaryRequest, v1::ApplyRotaryResponse>(Scheduling::kAsSmallAsItsRequest),
              Unary<v1::GenerateTableRequest, v1::GenerateTableResponse>(Scheduling::kPreparesQuickly),
              Unary<v1::GenerateEmbeddingRequest, v1::GenerateEmbeddingResponse>(Scheduling::kPreparesQuickly),
              Unary<v1::GenerateBiasRequest, v1::GenerateBiasResponse>(Scheduling::kPreparesQuickly),
              Unary<v1::AddBiasRequest, v1::AddBiasResponse>(Scheduling::kPreparesQuickly),
              Unary<v1::RelativeScoresRequest, v1::RelativeScoresResponse>(Scheduling::kPreparesQuickly),
              Unary<v1::RelativeValuesRequest, v1::RelativeValuesResponse>(Scheduling::kPreparesQuickly),
              Unary<v1::DiagnoseRequest, v1::DiagnoseResponse>(Scheduling::kPooled, Purpose::kDiagnose),
              Unary<v1::DiagnoseBiasRequest, v1::DiagnoseBiasResponse>(Scheduling::kPooled, Purpose::kDiagnose),
          },
      .tiles = {Tiles<v1::StreamTableRequest>(), Tiles<v1::StreamBiasRequest>()},
  };
  return *operations;
}

const UnaryOperation& Operations::UnaryOf(const RpcDescription& rpc) const { return Find(unary, rpc); }

const TileOperation& Operations::TilesOf(const RpcDescription& rpc) const { return Find(tiles, rpc); }

void DescribeLibrary(const Limits& limits, v1::GetServerInfoResponse* response) {
  response->set_version(kVersion);
  response->set_build(kBuild);
  response->set_numerics_version(kNumericsVersion);
  response->set_config_rules(kConfigRules);
  response->set_cpu_target(CpuTarget());
  for (const std::string& target : SupportedCpuTargets()) response->add_cpu_targets(target);
  for (const MethodFamily& family : MethodFamilies()) {
    v1::MethodFamily* message = response->add_methods();
    message->set_family(std::string(family.family));
    for (std::string_view method : family.methods) message->add_methods(std::string(method));
  }
  v1::ServerLimits* message = response->mutable_limits();
  message->set_max_request_bytes(limits.max_request_bytes);
  message->set_max_output_bytes(limits.max_output_bytes);
  message->set_max_tensor_rank(limits.max_tensor_rank);
  message->set_max_rotary_dim(limits.max_rotary_dim);
  message->set_max_heads(limits.max_heads);
  message->set_max_config_json_bytes(limits.max_config_json_bytes);
  message->set_max_sequences(limits.max_sequences);
  message->set_max_plan_values(limits.max_plan_values);
  message->set_max_bias_values(limits.max_bias_values);
  message->set_max_dimension(limits.max_dimension);
}

absl::StatusOr<int64_t> RowsPerTile(std::optional<int64_t> asked, int64_t rows, int64_t row_bytes,
                                    const Limits& limits) {
  if (asked && *asked < 1) {
    return InvalidArgument("OUT_OF_RANGE", "rows_per_tile", fmt::format("{}", *asked), "must be at least 1");
  }
  const int64_t tile_bytes = std::min(int64_t{1} << 20, limits.max_output_bytes);
  const int64_t fill = std::max<int64_t>(tile_bytes / std::max<int64_t>(row_bytes, 1), 1);
  const int64_t tile = std::clamp<int64_t>(asked.value_or(row_bytes == 0 ? rows : fill), 1, std::max<int64_t>(rows, 1));
  int64_t bytes;
  if (__builtin_mul_overflow(std::min(tile, rows), row_bytes, &bytes)) bytes = std::numeric_limits<int64_t>::max();
  POSENC_RETURN_IF_ERROR(CheckOutput(bytes, limits));
  return tile;
}

}  // namespace posenc::wire
