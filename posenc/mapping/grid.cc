#include "posenc/mapping/embedding_method.h"

#include <numbers>

namespace posenc::wire {
namespace {

constexpr EnumPairs<v1::GridConvention, GridConvention> kGridConventions = {
    {v1::GRID_CONVENTION_MAE, GridConvention::kMae},
    {v1::GRID_CONVENTION_DIFFUSERS, GridConvention::kDiffusers},
    {v1::GRID_CONVENTION_BIG_VISION, GridConvention::kBigVision},
    {v1::GRID_CONVENTION_DETR, GridConvention::kDetr},
};

absl::StatusOr<GridSettings> Read(const v1::Grid& message) {
  GridSettings settings;
  POSENC_ASSIGN_OR_RETURN(settings.convention, Choose("convention", message.convention(), kGridConventions));
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
  settings.rows_first = message.rows_first();
  if (message.has_normalize()) settings.normalize = message.normalize();
  if (message.has_scale()) settings.scale = message.scale();
  if (message.has_offset()) settings.offset = message.offset();
  if (message.has_pos_embed_max_size()) settings.pos_embed_max_size = message.pos_embed_max_size();
  return settings;
}

}  // namespace

absl::StatusOr<OfModel<GridSettings>> ResolveGrid(const Reader& reader, const v1::Grid& message) {
  OfModel<GridSettings> resolved;
  v1::Grid filled = message;
  if (message.has_model()) {
    POSENC_ASSIGN_OR_RETURN(ModelLayers layers, SelectWeighted(reader, message.model(), Wanted::kGrid));
    v1::Grid said;
    WriteGrid(*layers.grid, &said);
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
  POSENC_ASSIGN_OR_RETURN(resolved.settings, Read(filled));
  return resolved;
}

void WriteGrid(const GridSettings& settings, v1::Grid* message) {
  message->set_convention(Name(settings.convention, kGridConventions));
  message->set_dim(settings.dim);
  message->set_height(settings.height);
  message->set_width(settings.width);
  if (settings.frames) message->set_frames(*settings.frames);
  if (settings.temperature) message->set_temperature(*settings.temperature);
  if (settings.base_size) message->set_base_size(*settings.base_size);
  if (settings.interpolation_scale) message->set_interpolation_scale(*settings.interpolation_scale);
  if (settings.temporal_interpolation_scale) {
    message->set_temporal_interpolation_scale(*settings.temporal_interpolation_scale);
  }
  message->set_extra_tokens(settings.extra_tokens);
  message->set_rows_first(settings.rows_first);
  if (settings.normalize) message->set_normalize(*settings.normalize);
  if (settings.scale) message->set_scale(*settings.scale);
  if (settings.offset) message->set_offset(*settings.offset);
  if (settings.pos_embed_max_size) message->set_pos_embed_max_size(*settings.pos_embed_max_size);
}

}  // namespace posenc::wire
