#include "posenc/generate_embedding.h"

#include <memory>

#include "wire/operations.h"
#include "wire/read.h"
#include "wire/rotary_source.h"

namespace posenc::wire {
namespace {

absl::StatusOr<SinusoidalSettings> ReadSinusoidal(const Reader& reader, const v1::Sinusoidal& message) {
  SinusoidalSettings settings;
  POSENC_ASSIGN_OR_RETURN(settings.convention,
                          (Choose<v1::SinusoidalConvention, SinusoidalConvention>(
                              "sinusoidal.convention", message.convention(),
                              {{v1::SINUSOIDAL_CONVENTION_INTERLEAVED, SinusoidalConvention::kInterleaved},
                               {v1::SINUSOIDAL_CONVENTION_HALVES, SinusoidalConvention::kHalves},
                               {v1::SINUSOIDAL_CONVENTION_TENSOR2TENSOR, SinusoidalConvention::kTensor2Tensor},
                               {v1::SINUSOIDAL_CONVENTION_FAIRSEQ, SinusoidalConvention::kFairseq}})));
  settings.dim = message.dim();
  if (message.has_max_timescale()) settings.max_timescale = message.max_timescale();
  if (message.has_min_timescale()) settings.min_timescale = message.min_timescale();
  settings.start_index = message.start_index();
  if (message.has_padding_idx()) settings.padding_idx = message.padding_idx();
  if (message.has_token_valid()) {
    POSENC_ASSIGN_OR_RETURN(settings.token_valid, reader.Flags("sinusoidal.token_valid", message.token_valid()));
    if (settings.token_valid->shared) {
      return InvalidArgument("MISMATCH", "sinusoidal.token_valid.shape", "of rank 1", "must be [B, S]");
    }
  }
  if (message.has_scale()) settings.scale = message.scale();
  return settings;
}

}  // namespace

absl::StatusOr<Job> Prepare(const v1::GenerateEmbeddingRequest& request, const Payloads& payloads, const Limits& limits,
                            v1::GenerateEmbeddingResponse* response) {
  const Reader reader{payloads, limits};
  if (!request.has_sinusoidal()) return InvalidArgument("MISSING", "method", "", "give sinusoidal");
  GenerateEmbedding call;
  POSENC_ASSIGN_OR_RETURN(call.settings, ReadSinusoidal(reader, request.sinusoidal()));
  POSENC_ASSIGN_OR_RETURN(call.positions, reader.ReadPositions(request.positions()));
  if (request.has_count()) call.count = request.count();
  POSENC_ASSIGN_OR_RETURN(call.dtype, Choose("dtype", request.dtype(), kDataTypes));
  POSENC_ASSIGN_OR_RETURN(const Precision precision, ReadPrecision(request.precision(), std::nullopt));
  call.frequencies = precision.frequencies;
  auto created = EmbeddingGeneration::Create(std::move(call), limits);
  POSENC_RETURN_IF_ERROR(created.status());
  const auto generation = std::make_shared<const EmbeddingGeneration>(*std::move(created));
  POSENC_ASSIGN_OR_RETURN(const int64_t bytes, ByteSize("answer", generation->shape(), limits));
  POSENC_RETURN_IF_ERROR(CheckOutput(bytes, limits));

  WriteCommonInfo(precision, {}, response->mutable_info());
  response->mutable_info()->set_plan_fingerprint(generation->Fingerprint());
  WriteShape(generation->shape(), response->mutable_embedding());
  Job job;
  job.outputs = {{response->mutable_embedding(), static_cast<size_t>(bytes)}};
  job.run = [generation](absl::Span<std::byte* const> buffers, WorkPool& pool, const Cancellation& cancelled) {
    return generation->Run(buffers[0], pool, cancelled);
  };
  return job;
}

}  // namespace posenc::wire
