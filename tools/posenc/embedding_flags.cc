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
  return IsSet(sinusoidal_) || IsSet(learned_) || IsSet(timestep_) || IsSet(grid_) || IsSet(fourier_);
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
  consider(learned_, &Request::mutable_learned);
  consider(timestep_, &Request::mutable_timestep);
  consider(grid_, &Request::mutable_grid);
  consider(fourier_, &Request::mutable_fourier);
  if (methods == 1) return absl::OkStatus();
  return UsageError(methods == 0 ? "give the flags of a method, such as --convention and --dim, or --learned-table"
                                 : "flags of several methods are given; give those of one method");
}

}  // namespace posenc::command
