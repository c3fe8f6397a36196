#include "posenc/mapping/embedding_method.h"

namespace posenc::wire {
namespace {

constexpr double kMaxTimescale = 10000;

constexpr EnumPairs<v1::SinusoidalConvention, SinusoidalConvention> kSinusoidalConventions = {
    {v1::SINUSOIDAL_CONVENTION_INTERLEAVED, SinusoidalConvention::kInterleaved},
    {v1::SINUSOIDAL_CONVENTION_HALVES, SinusoidalConvention::kHalves},
    {v1::SINUSOIDAL_CONVENTION_TENSOR2TENSOR, SinusoidalConvention::kTensor2Tensor},
    {v1::SINUSOIDAL_CONVENTION_FAIRSEQ, SinusoidalConvention::kFairseq},
};

absl::StatusOr<SinusoidalSettings> Read(const Reader& reader, const v1::Sinusoidal& message) {
  SinusoidalSettings settings;
  POSENC_ASSIGN_OR_RETURN(settings.convention, Choose("convention", message.convention(), kSinusoidalConventions));
  settings.dim = message.dim();
  if (message.has_max_timescale()) settings.max_timescale = message.max_timescale();
  if (message.has_min_timescale()) settings.min_timescale = message.min_timescale();
  settings.start_index = message.start_index();
  if (message.has_padding_idx()) settings.padding_idx = message.padding_idx();
  if (message.has_token_valid()) {
    POSENC_ASSIGN_OR_RETURN(settings.token_valid, ReadTokenValid(reader, message.token_valid()));
  }
  if (message.has_scale()) settings.scale = message.scale();
  settings.cosines_first = message.cosines_first();
  return settings;
}

}  // namespace

absl::StatusOr<OfModel<SinusoidalSettings>> ResolveSinusoidal(const Reader& reader, const v1::Sinusoidal& message) {
  OfModel<SinusoidalSettings> resolved;
  v1::Sinusoidal filled = message;
  if (message.has_model()) {
    POSENC_ASSIGN_OR_RETURN(ModelLayers layers, SelectWeighted(reader, message.model(), Wanted::kSinusoidal));
    v1::Sinusoidal said;
    WriteSinusoidal(*layers.sinusoidal, &said);
    // The request may state defaults that config.json omits.
    if (message.has_max_timescale() && !said.has_max_timescale()) said.set_max_timescale(kMaxTimescale);
    if (message.has_scale() && !said.has_scale()) said.set_scale(1);
    POSENC_RETURN_IF_ERROR(FillFrom(said, &filled));
    resolved.precision = layers.precision;
    resolved.notes = std::move(layers.notes);
  }
  POSENC_ASSIGN_OR_RETURN(resolved.settings, Read(reader, filled));
  return resolved;
}

void WriteSinusoidal(const SinusoidalSettings& settings, v1::Sinusoidal* message) {
  message->set_convention(Name(settings.convention, kSinusoidalConventions));
  message->set_dim(settings.dim);
  if (settings.max_timescale) message->set_max_timescale(*settings.max_timescale);
  if (settings.min_timescale) message->set_min_timescale(*settings.min_timescale);
  message->set_start_index(settings.start_index);
  if (settings.padding_idx) message->set_padding_idx(*settings.padding_idx);
  if (settings.scale) message->set_scale(*settings.scale);
  message->set_cosines_first(settings.cosines_first);
}

absl::StatusOr<Matrix<uint8_t>> ReadTokenValid(const Reader& reader, const v1::Tensor& tensor) {
  POSENC_ASSIGN_OR_RETURN(Matrix<uint8_t> valid, reader.Flags("token_valid", tensor));
  if (!valid.shared) return valid;
  return InvalidArgument("MISMATCH", "token_valid.shape", "of rank 1", "must be [B, S]");
}

}  // namespace posenc::wire
