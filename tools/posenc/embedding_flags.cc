#include "tools/posenc/embedding_flags.h"

#include "tools/posenc/field_flags.h"
#include "tools/posenc/session.h"

namespace posenc::command {

void AddSinusoidalFlags(CLI::App& app, v1::Sinusoidal* sinusoidal) {
  AddFieldFlags(app, "Sinusoidal", sinusoidal,
                {{"convention", "Order of the elements and spacing of the frequencies"},
                 {"dim", "Elements per row"},
                 {"max_timescale", "Default 10000"},
                 {"min_timescale", "tensor2tensor; default 1"},
                 {"start_index", "tensor2tensor: added to every position"},
                 {"padding_idx", "fairseq: row of the padding token"},
                 {"token_valid", "fairseq: BOOL [B, S], false for padding; in place of positions"},
                 {"scale", "Multiplies the encoding; default 1"},
                 {"cosines_first", "tensor2tensor: cosines before sines"}});
}

void EmbeddingMethodFlags::Add(CLI::App& app) {
  AddSinusoidalFlags(app, &sinusoidal_);
  AddFieldFlags(app, "Learned", &learned_,
                {{"table", "Embedding table, [N, D]", "--learned-table"},
                 {"offset", "Position p has row p + N; 2 for OPT", "--learned-offset"},
                 {"token_valid", "BOOL [B, S], false for padding; in place of positions", "--learned-token-valid"},
                 {"scale", "Multiplies the rows", "--learned-scale"}});
  AddFieldFlags(app, "Resized grid of a learned table", &resize_,
                {{"target", "Rows and columns of the image's grid, or a length", "--resize-target"},
                 {"mode", "Interpolation; a --model gives it, and what follows", "--resize-mode"},
                 {"source", "Rows and columns of the table's grid; default: a square", "--resize-source"},
                 {"align_corners", "The centers of corner cells coincide", "--resize-align-corners"},
                 {"antialias", "Stretch the kernel for smaller targets", "--resize-antialias"},
                 {"scale_factor", "Compute coordinates with these factors", "--resize-scale-factor"},
                 {"padding", "Beyond the border; default border", "--resize-padding"},
                 {"operations", "Whose roundings; default interpolate", "--resize-operations"},
                 {"rows_before", "Rows before the grid's: a class token", "--resize-rows-before"},
                 {"rows_after", "Rows after the grid's", "--resize-rows-after"},
                 {"spatial_merge_size", "Order cells in blocks; default 1", "--resize-spatial-merge-size"}});
  AddFieldFlags(app, "Timestep of a diffusion model", &timestep_,
                {{"dim", "Elements per row", "--timestep-dim"},
                 {"max_period", "Default 10000", "--timestep-max-period"},
                 {"downscale_freq_shift", "Default 1; 0 for FLUX", "--timestep-downscale-freq-shift"},
                 {"scale", "Multiplies the angle; default 1", "--timestep-scale"},
                 {"flip_sin_to_cos", "Cosines first", "--timestep-flip-sin-to-cos"}});
  AddFieldFlags(app, "Grid of an image or video", &grid_,
                {{"convention", "Implementation whose frequencies and coordinates are used", "--grid-convention"},
                 {"dim", "Elements per row", "--grid-dim"},
                 {"height", "Rows of cells", "--grid-height"},
                 {"width", "Columns of cells", "--grid-width"},
                 {"frames", "diffusers: number of frames; makes the grid three-dimensional", "--grid-frames"},
                 {"temperature", "Default 10000", "--grid-temperature"},
                 {"base_size", "diffusers; default 16", "--grid-base-size"},
                 {"pos_embed_max_size", "diffusers: size of a larger grid, of which the middle is used",
                  "--grid-pos-embed-max-size"},
                 {"interpolation_scale", "diffusers; default 1", "--grid-interpolation-scale"},
                 {"temporal_interpolation_scale", "With frames; default 1", "--grid-temporal-interpolation-scale"},
                 {"extra_tokens", "Rows of zeros before the grid's", "--grid-extra-tokens"},
                 {"rows_first", "mae, big-vision: encode the row before the column", "--grid-rows-first"},
                 {"normalize", "detr; default true", "--grid-normalize"},
                 {"scale", "detr, normalised; default 2 pi", "--grid-scale"},
                 {"offset", "detr, normalised: added to coordinates; default 0", "--grid-offset"}});
  AddFieldFlags(app, "Fourier features", &fourier_,
                {{"frequencies", "B, [m, n]", "--fourier-frequencies"}, {"points", "x, [S, n]", "--fourier-points"}});
}

bool EmbeddingMethodFlags::given() const {
  return IsSet(sinusoidal_) || IsSet(learned_) || IsSet(resize_) || IsSet(timestep_) || IsSet(grid_) || IsSet(fourier_);
}

absl::Status EmbeddingMethodFlags::Put(v1::GenerateEmbeddingRequest* request) const {
  int methods = 0;
  const auto consider = [&](const auto& message, auto* (v1::GenerateEmbeddingRequest::*field)()) {
    if (!IsSet(message)) return;
    *(request->*field)() = message;
    ++methods;
  };
  using Request = v1::GenerateEmbeddingRequest;
  consider(sinusoidal_, &Request::mutable_sinusoidal);
  v1::Learned learned = learned_;
  if (IsSet(resize_)) *learned.mutable_resize() = resize_;
  consider(learned, &Request::mutable_learned);
  consider(timestep_, &Request::mutable_timestep);
  consider(grid_, &Request::mutable_grid);
  consider(fourier_, &Request::mutable_fourier);
  if (methods == 1) return absl::OkStatus();
  return UsageError(methods == 0 ? "give the flags of a method, such as --convention and --dim, or --learned-table"
                                 : "flags of several methods are given; give those of one method");
}

}  // namespace posenc::command
