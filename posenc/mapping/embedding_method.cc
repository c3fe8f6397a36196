#include "posenc/mapping/embedding_method.h"

#include <numbers>
#include <utility>

#include "posenc/mapping/fields.h"
#include "posenc/methods/embedding/encoding.h"

namespace posenc::wire {

template <>
inline constexpr EnumPairs<v1::SinusoidalConvention, SinusoidalConvention> kEnumPairs<SinusoidalConvention> = {
    {v1::SINUSOIDAL_CONVENTION_INTERLEAVED, SinusoidalConvention::kInterleaved},
    {v1::SINUSOIDAL_CONVENTION_HALVES, SinusoidalConvention::kHalves},
    {v1::SINUSOIDAL_CONVENTION_TENSOR2TENSOR, SinusoidalConvention::kTensor2Tensor},
    {v1::SINUSOIDAL_CONVENTION_FAIRSEQ, SinusoidalConvention::kFairseq},
};
template <>
inline constexpr EnumPairs<v1::GridConvention, GridConvention> kEnumPairs<GridConvention> = {
    {v1::GRID_CONVENTION_MAE, GridConvention::kMae},
    {v1::GRID_CONVENTION_DIFFUSERS, GridConvention::kDiffusers},
    {v1::GRID_CONVENTION_BIG_VISION, GridConvention::kBigVision},
    {v1::GRID_CONVENTION_DETR, GridConvention::kDetr},
};
template <>
inline constexpr EnumPairs<v1::ResizeMode, ResizeMode> kEnumPairs<ResizeMode> = {
    {v1::RESIZE_MODE_NEAREST, ResizeMode::kNearest},
    {v1::RESIZE_MODE_LINEAR, ResizeMode::kLinear},
    {v1::RESIZE_MODE_BILINEAR, ResizeMode::kBilinear},
    {v1::RESIZE_MODE_BICUBIC, ResizeMode::kBicubic},
};
template <>
inline constexpr EnumPairs<v1::ResizePadding, ResizePadding> kEnumPairs<ResizePadding> = {
    {v1::RESIZE_PADDING_UNSPECIFIED, ResizePadding::kBorder},
    {v1::RESIZE_PADDING_BORDER, ResizePadding::kBorder},
    {v1::RESIZE_PADDING_ZEROS, ResizePadding::kZeros},
};
template <>
inline constexpr EnumPairs<v1::ResizeOperations, ResizeOperations> kEnumPairs<ResizeOperations> = {
    {v1::RESIZE_OPERATIONS_UNSPECIFIED, ResizeOperations::kInterpolate},
    {v1::RESIZE_OPERATIONS_INTERPOLATE, ResizeOperations::kInterpolate},
    {v1::RESIZE_OPERATIONS_GATHER, ResizeOperations::kGather},
    {v1::RESIZE_OPERATIONS_EMBEDDING_BAG, ResizeOperations::kEmbeddingBag},
    {v1::RESIZE_OPERATIONS_GRID_SAMPLE, ResizeOperations::kGridSample},
};

namespace {

using Resolved = OfModel<EmbeddingMethod>;

// Reads a message's token_valid, a BOOL tensor [B, S], if it has one.
template <class Message>
absl::Status ReadTokenValid(const Reader& reader, const Message& message, std::optional<Matrix<uint8_t>>* valid) {
  if (!message.has_token_valid()) return absl::OkStatus();
  POSENC_ASSIGN_OR_RETURN(*valid, reader.Flags("token_valid", message.token_valid()));
  if (!(*valid)->shared) return absl::OkStatus();
  return InvalidArgument("MISMATCH", "token_valid.shape", "of rank 1", "must be [B, S]");
}

absl::StatusOr<Resolved> Resolve(const Reader& reader, const v1::Sinusoidal& message) {
  POSENC_ASSIGN_OR_RETURN(OfModel<SinusoidalSettings> read, ResolveSinusoidal(reader, message));
  return Resolved{std::move(read.settings), read.precision, std::move(read.notes)};
}

absl::StatusOr<Resolved> Resolve(const Reader& reader, const v1::Grid& message) {
  Resolved resolved;
  v1::Grid filled = message;  // a grid has no tensors
  if (message.has_model()) {
    POSENC_ASSIGN_OR_RETURN(ModelLayers layers, SelectWeighted(reader, message.model(), Wanted::kGrid));
    v1::Grid said;
    WriteFields(*layers.grid, &said);
    // The request may state defaults that config.json omits.
    if (message.has_normalize() && !said.has_normalize()) said.set_normalize(true);
    if (message.has_scale() && !said.has_scale()) said.set_scale(2 * std::numbers::pi);
    if (message.has_offset() && !said.has_offset()) said.set_offset(0);
    if (said.height() == 0) {  // the model takes any image size
      said.set_height(message.height());
      said.set_width(message.width());
      if (said.has_frames()) said.set_frames(message.frames());
    }
    POSENC_RETURN_IF_ERROR(FillFrom(said, &filled));
    resolved.precision = layers.precision;
    resolved.notes = std::move(layers.notes);
  }
  POSENC_ASSIGN_OR_RETURN(resolved.settings, Read<GridSettings>(reader, filled));
  return resolved;
}

absl::StatusOr<LearnedSettings> ReadLearned(const Reader& reader, const v1::Learned& message) {
  if (!message.has_table()) return InvalidArgument("MISSING", "table", "", "must be given");
  POSENC_ASSIGN_OR_RETURN(LearnedSettings settings, Read<LearnedSettings>(reader, message));
  POSENC_ASSIGN_OR_RETURN(settings.table_shape, reader.Shape("table", message.table()));
  settings.table = CopyOf(reader.payloads, message.table());
  POSENC_RETURN_IF_ERROR(ReadTokenValid(reader, message, &settings.token_valid));
  return settings;
}

// Writes how the model resizes its table to the request's target.
absl::Status SayResize(const ModelTable& table, const v1::TableResize& asked, v1::TableResize* said) {
  if (!table.resize) {
    return InvalidArgument("NOT_READ", "", "", "must be absent: the model of config.json does not resize its table");
  }
  WriteFields(*table.resize, said);
  *said->mutable_target() = asked.target();
  if (table.resize_added == 0) return absl::OkStatus();
  for (size_t n = 0; n < table.resize->source.size() && n < static_cast<size_t>(asked.target_size()); ++n) {
    said->add_scale_factor((static_cast<double>(asked.target(static_cast<int>(n))) + table.resize_added) /
                           static_cast<double>(table.resize->source[n]));
  }
  return absl::OkStatus();
}

// Resolves a learned table, whose offset and shape its model's config.json may give.
absl::StatusOr<Resolved> Resolve(const Reader& reader, const v1::Learned& message) {
  if (!message.has_model()) {
    POSENC_ASSIGN_OR_RETURN(LearnedSettings settings, ReadLearned(reader, message));
    return Resolved{std::move(settings)};
  }
  POSENC_ASSIGN_OR_RETURN(const ModelLayers layers, SelectWeighted(reader, message.model(), Wanted::kLearned));
  v1::Learned said, filled = message;
  const PayloadsOfCopy payloads(reader.payloads, message, filled);
  said.set_offset(layers.table->offset);
  if (message.has_resize()) {
    POSENC_RETURN_IF_ERROR(Within("resize", SayResize(*layers.table, message.resize(), said.mutable_resize())));
  }
  POSENC_RETURN_IF_ERROR(FillFrom(said, &filled));
  POSENC_ASSIGN_OR_RETURN(LearnedSettings settings, ReadLearned({payloads, reader.limits, reader.plan_source}, filled));
  const std::vector<int64_t>& shape = settings.table_shape.shape;
  if (shape != std::vector{layers.table->rows, layers.table->width}) {
    return InvalidArgument("MISMATCH", "table.shape", ToString(shape),
                           "must be " + ToString({layers.table->rows, layers.table->width}) + ", as in config.json");
  }
  return Resolved{std::move(settings), layers.precision, layers.notes};
}

absl::StatusOr<Resolved> Resolve(const Reader& reader, const v1::Timestep& message) {
  POSENC_ASSIGN_OR_RETURN(const TimestepSettings settings, Read<TimestepSettings>(reader, message));
  return Resolved{settings};
}

absl::StatusOr<Resolved> Resolve(const Reader& reader, const v1::Fourier& message) {
  if (!message.has_frequencies()) return InvalidArgument("MISSING", "frequencies", "", "must be given");
  if (!message.has_points()) return InvalidArgument("MISSING", "points", "", "must be given");
  POSENC_ASSIGN_OR_RETURN(FourierSettings settings, Read<FourierSettings>(reader, message));
  return Resolved{std::move(settings)};
}

template <class Message>
absl::StatusOr<Resolved> ResolveWithin(std::string_view field, const Reader& reader, const Message& message) {
  auto resolved = Resolve(reader, message);
  if (!resolved.ok()) return Within(field, resolved.status());
  return resolved;
}

}  // namespace

absl::StatusOr<OfModel<SinusoidalSettings>> ResolveSinusoidal(const Reader& reader, const v1::Sinusoidal& message) {
  OfModel<SinusoidalSettings> resolved;
  v1::Sinusoidal filled = message;
  const PayloadsOfCopy payloads(reader.payloads, message, filled);
  const Reader of_copy{payloads, reader.limits, reader.plan_source};
  if (message.has_model()) {
    POSENC_ASSIGN_OR_RETURN(ModelLayers layers, SelectWeighted(reader, message.model(), Wanted::kSinusoidal));
    SinusoidalSettings complete = *layers.sinusoidal;
    POSENC_RETURN_IF_ERROR(Within("model", InFile(layers, Complete(complete, reader.limits))));
    v1::Sinusoidal said;
    WriteFields(*layers.sinusoidal, &said);
    // The request may state defaults that config.json omits.
    if (message.has_max_timescale() && !said.has_max_timescale()) said.set_max_timescale(10000);
    if (message.has_scale() && !said.has_scale()) said.set_scale(1);
    POSENC_RETURN_IF_ERROR(FillFrom(said, &filled));
    resolved.precision = layers.precision;
    resolved.notes = std::move(layers.notes);
  }
  POSENC_RETURN_IF_ERROR(ReadFields(of_copy, filled, &resolved.settings));
  POSENC_RETURN_IF_ERROR(ReadTokenValid(of_copy, filled, &resolved.settings.token_valid));
  return resolved;
}

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
  return InvalidArgument("MISSING", "method", "", "must be given: sinusoidal, learned, timestep, grid or fourier");
}

bool WriteEmbeddingPlan(const EmbeddingMethod& method, v1::Plan* plan) {
  if (const auto* sinusoidal = std::get_if<SinusoidalSettings>(&method)) {
    WriteFields(*sinusoidal, plan->mutable_sinusoidal());
  } else if (const auto* grid = std::get_if<GridSettings>(&method)) {
    WriteFields(*grid, plan->mutable_grid());
  } else if (const auto* learned = std::get_if<LearnedSettings>(&method)) {
    WriteFields(*learned, plan->mutable_learned());
  } else {
    return false;
  }
  plan->set_softmax_scale_factor(1);
  return true;
}

}  // namespace posenc::wire
