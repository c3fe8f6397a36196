#include "posenc/mapping/embedding_method.h"

#include <utility>

namespace posenc::wire {
namespace {

using Resolved = OfModel<EmbeddingMethod>;

absl::StatusOr<Resolved> Resolve(const Reader& reader, const v1::Sinusoidal& message) {
  POSENC_ASSIGN_OR_RETURN(OfModel<SinusoidalSettings> read, ResolveSinusoidal(reader, message));
  return Resolved{std::move(read.settings), read.precision, std::move(read.notes)};
}

absl::StatusOr<Resolved> Resolve(const Reader& reader, const v1::Grid& message) {
  POSENC_ASSIGN_OR_RETURN(OfModel<GridSettings> read, ResolveGrid(reader, message));
  return Resolved{read.settings, read.precision, std::move(read.notes)};
}

absl::StatusOr<LearnedSettings> Read(const Reader& reader, const v1::Learned& message) {
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

// Resolves a learned table, whose offset and shape its model's config.json may give.
absl::StatusOr<Resolved> Resolve(const Reader& reader, const v1::Learned& message) {
  if (!message.has_model()) {
    POSENC_ASSIGN_OR_RETURN(LearnedSettings settings, Read(reader, message));
    return Resolved{std::move(settings)};
  }
  POSENC_ASSIGN_OR_RETURN(const ModelLayers layers, SelectWeighted(reader, message.model(), Wanted::kLearned));
  v1::Learned said, filled = message;
  said.set_offset(layers.table->offset);
  POSENC_RETURN_IF_ERROR(FillFrom(said, &filled));
  POSENC_ASSIGN_OR_RETURN(LearnedSettings settings, Read(reader, filled));
  const std::vector<int64_t>& shape = settings.table_shape.shape;
  if (shape != std::vector{layers.table->rows, layers.table->width}) {
    return InvalidArgument("MISMATCH", "table.shape", ToString(shape),
                           "must be " + ToString({layers.table->rows, layers.table->width}) + ", as in config.json");
  }
  return Resolved{std::move(settings), layers.precision, layers.notes};
}

absl::StatusOr<Resolved> Resolve(const Reader&, const v1::Timestep& message) {
  TimestepSettings settings;
  settings.dim = message.dim();
  if (message.has_max_period()) settings.max_period = message.max_period();
  if (message.has_downscale_freq_shift()) settings.downscale_freq_shift = message.downscale_freq_shift();
  if (message.has_scale()) settings.scale = message.scale();
  settings.flip_sin_to_cos = message.flip_sin_to_cos();
  return Resolved{settings};
}

absl::StatusOr<Resolved> Resolve(const Reader& reader, const v1::Fourier& message) {
  FourierSettings settings;
  if (!message.has_frequencies()) return InvalidArgument("MISSING", "frequencies", "", "is required");
  if (!message.has_points()) return InvalidArgument("MISSING", "points", "", "is required");
  POSENC_ASSIGN_OR_RETURN(settings.frequencies, reader.Numbers("frequencies", message.frequencies()));
  POSENC_ASSIGN_OR_RETURN(settings.points, reader.Numbers("points", message.points()));
  return Resolved{std::move(settings)};
}

template <class Message>
absl::StatusOr<Resolved> ResolveWithin(std::string_view field, const Reader& reader, const Message& message) {
  auto resolved = Resolve(reader, message);
  if (!resolved.ok()) return Within(field, resolved.status());
  return resolved;
}

}  // namespace

absl::StatusOr<OfModel<EmbeddingMethod>> ResolveEmbedding(const Reader& reader,
                                                          const v1::GenerateEmbeddingRequest& request) {
  switch (request.method_case()) {
    case v1::GenerateEmbeddingRequest::METHOD_NOT_SET: break;
    case v1::GenerateEmbeddingRequest::kSinusoidal: return ResolveWithin("sinusoidal", reader, request.sinusoidal());
    case v1::GenerateEmbeddingRequest::kLearned: return ResolveWithin("learned", reader, request.learned());
    case v1::GenerateEmbeddingRequest::kTimestep: return ResolveWithin("timestep", reader, request.timestep());
    case v1::GenerateEmbeddingRequest::kGrid: return ResolveWithin("grid", reader, request.grid());
    case v1::GenerateEmbeddingRequest::kFourier: return ResolveWithin("fourier", reader, request.fourier());
  }
  return InvalidArgument("MISSING", "method", "", "give sinusoidal, learned, timestep, grid or fourier");
}

bool WriteEmbeddingPlan(const EmbeddingMethod& method, v1::Plan* plan) {
  if (const auto* sinusoidal = std::get_if<SinusoidalSettings>(&method)) {
    WriteSinusoidal(*sinusoidal, plan->mutable_sinusoidal());
  } else if (const auto* grid = std::get_if<GridSettings>(&method)) {
    WriteGrid(*grid, plan->mutable_grid());
  } else if (const auto* learned = std::get_if<LearnedSettings>(&method)) {
    plan->mutable_learned()->set_offset(learned->offset);
    if (learned->scale) plan->mutable_learned()->set_scale(*learned->scale);
  } else {
    return false;
  }
  plan->set_softmax_scale_factor(1);
  return true;
}

}  // namespace posenc::wire
