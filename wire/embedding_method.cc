#include "wire/embedding_method.h"

#include <utility>

#include "wire/weighted_model.h"

namespace posenc::wire {
namespace {

// BOOL [B, S].
absl::StatusOr<Matrix<uint8_t>> ReadTokenValid(const Reader& reader, const v1::Tensor& tensor) {
  POSENC_ASSIGN_OR_RETURN(Matrix<uint8_t> valid, reader.Flags("token_valid", tensor));
  if (!valid.shared) return valid;
  return InvalidArgument("MISMATCH", "token_valid.shape", "of rank 1", "must be [B, S]");
}

absl::StatusOr<EmbeddingMethod> Read(const Reader& reader, const v1::Sinusoidal& message) {
  return ReadSinusoidal(reader, message);
}

absl::StatusOr<EmbeddingMethod> Read(const Reader& reader, const v1::Learned& message) {
  LearnedSettings settings;
  if (!message.has_table()) return InvalidArgument("MISSING", "table", "", "is required");
  POSENC_ASSIGN_OR_RETURN(settings.table_shape, reader.Shape("table", message.table()));
  settings.table.resize(reader.payloads.Size(message.table()));
  reader.payloads.CopyTo(message.table(), settings.table.data());
  settings.offset = message.offset();
  if (message.has_token_valid()) {
    POSENC_ASSIGN_OR_RETURN(settings.token_valid, ReadTokenValid(reader, message.token_valid()));
  }
  if (message.has_scale()) settings.scale = message.scale();
  return settings;
}

absl::StatusOr<EmbeddingMethod> Read(const Reader&, const v1::Timestep& message) {
  TimestepSettings settings;
  settings.dim = message.dim();
  if (message.has_max_period()) settings.max_period = message.max_period();
  if (message.has_downscale_freq_shift()) settings.downscale_freq_shift = message.downscale_freq_shift();
  if (message.has_scale()) settings.scale = message.scale();
  settings.flip_sin_to_cos = message.flip_sin_to_cos();
  return settings;
}

absl::StatusOr<EmbeddingMethod> Read(const Reader&, const v1::Grid& message) {
  GridSettings settings;
  POSENC_ASSIGN_OR_RETURN(settings.convention, (Choose<v1::GridConvention, GridConvention>(
                                                   "convention", message.convention(),
                                                   {{v1::GRID_CONVENTION_MAE, GridConvention::kMae},
                                                    {v1::GRID_CONVENTION_DIFFUSERS, GridConvention::kDiffusers},
                                                    {v1::GRID_CONVENTION_BIG_VISION, GridConvention::kBigVision}})));
  settings.dim = message.dim();
  settings.height = message.height();
  settings.width = message.width();
  if (message.has_frames()) settings.frames = message.frames();
  if (message.has_temperature()) settings.temperature = message.temperature();
  if (message.has_base_size()) settings.base_size = message.base_size();
  if (message.has_interpolation_scale()) settings.interpolation_scale = message.interpolation_scale();
  if (message.has_temporal_interpolation_scale()) {
    settings.temporal_interpolation_scale = message.temporal_interpolation_scale();
  }
  settings.extra_tokens = message.extra_tokens();
  return settings;
}

absl::StatusOr<EmbeddingMethod> Read(const Reader& reader, const v1::Fourier& message) {
  FourierSettings settings;
  if (!message.has_frequencies()) return InvalidArgument("MISSING", "frequencies", "", "is required");
  if (!message.has_points()) return InvalidArgument("MISSING", "points", "", "is required");
  POSENC_ASSIGN_OR_RETURN(settings.frequencies, reader.Numbers("frequencies", message.frequencies()));
  POSENC_ASSIGN_OR_RETURN(settings.points, reader.Numbers("points", message.points()));
  return settings;
}

template <class Message>
absl::StatusOr<EmbeddingMethod> ReadWithin(std::string_view field, const Reader& reader, const Message& message) {
  auto settings = Read(reader, message);
  if (!settings.ok()) return Within(field, settings.status());
  return settings;
}

absl::StatusOr<EmbeddingMethod> ReadMethod(const Reader& reader, const v1::GenerateEmbeddingRequest& request) {
  switch (request.method_case()) {
    case v1::GenerateEmbeddingRequest::METHOD_NOT_SET: break;
    case v1::GenerateEmbeddingRequest::kSinusoidal: return ReadWithin("sinusoidal", reader, request.sinusoidal());
    case v1::GenerateEmbeddingRequest::kLearned: return ReadWithin("learned", reader, request.learned());
    case v1::GenerateEmbeddingRequest::kTimestep: return ReadWithin("timestep", reader, request.timestep());
    case v1::GenerateEmbeddingRequest::kGrid: return ReadWithin("grid", reader, request.grid());
    case v1::GenerateEmbeddingRequest::kFourier: return ReadWithin("fourier", reader, request.fourier());
  }
  return InvalidArgument("MISSING", "method", "", "give sinusoidal, learned, timestep, grid or fourier");
}

// A table whose offset and shape its model's config.json says. Errors name the field within the message.
absl::StatusOr<ResolvedEmbedding> ReadOfModel(const Reader& reader, const v1::Learned& message) {
  POSENC_ASSIGN_OR_RETURN(const ModelLayers layers, SelectWeighted(reader, message.model(), Wanted::kLearned));
  v1::Learned said, filled = message;
  said.set_offset(layers.table->offset);
  POSENC_RETURN_IF_ERROR(FillFrom(said, &filled));
  POSENC_ASSIGN_OR_RETURN(EmbeddingMethod method, Read(reader, filled));
  const std::vector<int64_t>& shape = std::get<LearnedSettings>(method).table_shape.shape;
  if (shape != std::vector{layers.table->rows, layers.table->width}) {
    return InvalidArgument("MISMATCH", "table.shape", ToString(shape),
                           "config.json says " + ToString({layers.table->rows, layers.table->width}));
  }
  return ResolvedEmbedding{std::move(method), layers.precision, layers.notes};
}

}  // namespace

absl::StatusOr<SinusoidalSettings> ReadSinusoidal(const Reader& reader, const v1::Sinusoidal& message) {
  SinusoidalSettings settings;
  POSENC_ASSIGN_OR_RETURN(settings.convention,
                          (Choose<v1::SinusoidalConvention, SinusoidalConvention>(
                              "convention", message.convention(),
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
    POSENC_ASSIGN_OR_RETURN(settings.token_valid, ReadTokenValid(reader, message.token_valid()));
  }
  if (message.has_scale()) settings.scale = message.scale();
  return settings;
}

absl::StatusOr<ResolvedEmbedding> ReadEmbeddingMethod(const Reader& reader,
                                                      const v1::GenerateEmbeddingRequest& request) {
  if (request.learned().has_model()) {
    auto resolved = ReadOfModel(reader, request.learned());
    if (!resolved.ok()) return Within("learned", resolved.status());
    return resolved;
  }
  POSENC_ASSIGN_OR_RETURN(EmbeddingMethod method, ReadMethod(reader, request));
  return ResolvedEmbedding{std::move(method)};
}

}  // namespace posenc::wire
