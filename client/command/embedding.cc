#include <memory>
#include <string>

#include "client/command/deliver.h"
#include "client/command/field_flags.h"
#include "client/command/request_flags.h"
#include "client/command/session.h"
#include "client/tensor_file.h"
#include "posenc/status.h"

namespace posenc::command {
namespace {

struct Flags {
  PrecisionFlags precision;
  v1::GenerateEmbeddingRequest request;
  v1::Sinusoidal sinusoidal;
  v1::Learned learned;
  v1::Timestep timestep;
  v1::Grid grid;
  v1::Fourier fourier;
  v1::Positions positions;
  std::string add_to, out;
};

// Sets the one method that flags were given for.
absl::Status SetMethod(const Flags& flags, v1::GenerateEmbeddingRequest* request) {
  int methods = 0;
  const auto consider = [&](const auto& message, auto* (v1::GenerateEmbeddingRequest::*field)()) {
    if (!IsSet(message)) return;
    *(request->*field)() = message;
    ++methods;
  };
  using Request = v1::GenerateEmbeddingRequest;
  consider(flags.sinusoidal, &Request::mutable_sinusoidal);
  consider(flags.learned, &Request::mutable_learned);
  consider(flags.timestep, &Request::mutable_timestep);
  consider(flags.grid, &Request::mutable_grid);
  consider(flags.fourier, &Request::mutable_fourier);
  if (methods == 1) return absl::OkStatus();
  return UsageError(methods == 0 ? "give a method's flags, as --convention and --dim, or --learned-table"
                                 : "the flags are of several methods; give those of one");
}

absl::Status Run(const Flags& flags, Session& session) {
  POSENC_RETURN_IF_ERROR(CheckDestination(session, flags.out, "-o"));
  v1::GenerateEmbeddingRequest request = flags.request;
  POSENC_RETURN_IF_ERROR(SetMethod(flags, &request));
  if (IsSet(flags.positions)) *request.mutable_positions() = flags.positions;
  POSENC_RETURN_IF_ERROR(flags.precision.Put(&request));
  if (!flags.add_to.empty()) {
    POSENC_ASSIGN_OR_RETURN(*request.mutable_add_to(), ReadTensor(flags.add_to));
  }
  const v1::DataType dtype = request.has_add_to() ? request.add_to().dtype() : request.dtype();
  if (!flags.out.empty()) POSENC_RETURN_IF_ERROR(CheckWritable(flags.out, dtype, 1));
  POSENC_ASSIGN_OR_RETURN(const v1::GenerateEmbeddingResponse response, session.backend().GenerateEmbedding(request));
  std::vector<Destination> files;
  if (!flags.out.empty()) files.push_back({flags.out, {{"embedding", &response.embedding()}}});
  return Deliver(session, response, response.info(), files);
}

}  // namespace

Subcommand AddEmbedding(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand("embedding", "A position embedding, alone or added to a tensor");
  const auto flags = std::make_shared<Flags>();
  app->add_option("-o,--out", flags->out, "Where the answer goes, as \"embedding\"")->type_name("FILE");
  app->add_option("--add-to", flags->add_to, "Adds the embedding to this, FP32, FP16 or BF16, [.., S, D]")
      ->type_name("FILE");
  AddFieldFlags(*app, "Embedding", &flags->request,
                {{"count", "Rows, with --offset"},
                 {"dtype", "The elements' type; with --add-to it says it", nullptr, "fp32|fp16|bf16|fp64"}});
  AddFieldFlags(*app, "Sinusoidal", &flags->sinusoidal,
                {{"convention", "How elements are ordered and frequencies spaced"},
                 {"dim", "Elements of a row"},
                 {"max_timescale", "Default 10000"},
                 {"min_timescale", "tensor2tensor; default 1"},
                 {"start_index", "tensor2tensor: added to every position"},
                 {"padding_idx", "fairseq: row of the padding token"},
                 {"token_valid", "fairseq: BOOL [B, S], in place of positions"},
                 {"scale", "Multiplies the encoding; default 1"}});
  AddFieldFlags(*app, "Learned", &flags->learned,
                {{"table", "The rows, [N, D]", "--learned-table"},
                 {"offset", "Position p gets row p + this: 2 for OPT", "--learned-offset"},
                 {"token_valid", "BOOL [B, S], in place of positions", "--learned-token-valid"},
                 {"scale", "Multiplies the rows", "--learned-scale"}});
  AddFieldFlags(*app, "Timestep of a diffusion model", &flags->timestep,
                {{"dim", "Elements of a row", "--timestep-dim"},
                 {"max_period", "Default 10000", "--timestep-max-period"},
                 {"downscale_freq_shift", "Default 1; 0 for FLUX", "--timestep-downscale-freq-shift"},
                 {"scale", "Multiplies the angle; default 1", "--timestep-scale"},
                 {"flip_sin_to_cos", "Cosines first", "--timestep-flip-sin-to-cos"}});
  AddFieldFlags(*app, "Grid of an image or video", &flags->grid,
                {{"convention", "Whose frequencies and coordinates", "--grid-convention"},
                 {"dim", "Elements of a row", "--grid-dim"},
                 {"height", "Rows of cells", "--grid-height"},
                 {"width", "Columns of cells", "--grid-width"},
                 {"frames", "diffusers: makes it three-dimensional", "--grid-frames"},
                 {"temperature", "Default 10000", "--grid-temperature"},
                 {"base_size", "diffusers; default 16", "--grid-base-size"},
                 {"interpolation_scale", "diffusers; default 1", "--grid-interpolation-scale"},
                 {"temporal_interpolation_scale", "With frames; default 1", "--grid-temporal-interpolation-scale"},
                 {"extra_tokens", "Rows of zeros before the grid's", "--grid-extra-tokens"}});
  AddFieldFlags(*app, "Fourier features", &flags->fourier,
                {{"frequencies", "B, [m, n]", "--fourier-frequencies"}, {"points", "x, [S, n]", "--fourier-points"}});
  AddFieldFlags(*app, "Positions", &flags->positions,
                {{"offset", "Tokens stand at N, N+1, ..."},
                 {"ids", "One position a token", "--positions"},
                 {"segments", "Runs of evenly spaced positions"}});
  flags->precision.Add(*app);
  return {app, [flags](Session& session) { return Run(*flags, session); }};
}

}  // namespace posenc::command
