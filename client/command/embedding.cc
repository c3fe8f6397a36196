#include <memory>
#include <string>

#include "client/command/deliver.h"
#include "client/command/field_flags.h"
#include "client/command/request_flags.h"
#include "client/command/session.h"
#include "posenc/status.h"

namespace posenc::command {
namespace {

struct Flags {
  PrecisionFlags precision;
  v1::GenerateEmbeddingRequest request;
  v1::Positions positions;
  std::string out;
};

absl::Status Run(const Flags& flags, Session& session) {
  POSENC_RETURN_IF_ERROR(CheckDestination(session, flags.out, "-o"));
  v1::GenerateEmbeddingRequest request = flags.request;
  if (IsSet(flags.positions)) *request.mutable_positions() = flags.positions;
  POSENC_RETURN_IF_ERROR(flags.precision.Put(&request));
  if (!flags.out.empty()) POSENC_RETURN_IF_ERROR(CheckWritable(flags.out, request.dtype(), 1));
  POSENC_ASSIGN_OR_RETURN(const v1::GenerateEmbeddingResponse response, session.backend().GenerateEmbedding(request));
  std::vector<Destination> files;
  if (!flags.out.empty()) files.push_back({flags.out, {{"embedding", &response.embedding()}}});
  return Deliver(session, response, response.info(), files);
}

}  // namespace

Subcommand AddEmbedding(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand("embedding", "A sinusoidal position embedding");
  const auto flags = std::make_shared<Flags>();
  app->add_option("-o,--out", flags->out, "Where the answer goes, as \"embedding\"")->type_name("FILE");
  AddFieldFlags(*app, "Embedding", &flags->request,
                {{"count", "Rows, with --offset"}, {"dtype", "The elements' type"}});
  AddFieldFlags(*app, "Embedding", flags->request.mutable_sinusoidal(),
                {{"convention", "How elements are ordered and frequencies spaced"},
                 {"dim", "Elements of a row"},
                 {"max_timescale", "Default 10000"},
                 {"min_timescale", "tensor2tensor; default 1"},
                 {"start_index", "tensor2tensor: added to every position"},
                 {"padding_idx", "fairseq: row of the padding token"},
                 {"token_valid", "fairseq: BOOL [B, S], in place of positions"},
                 {"scale", "Multiplies the encoding; default 1"}});
  AddFieldFlags(*app, "Positions", &flags->positions,
                {{"offset", "Tokens stand at N, N+1, ..."},
                 {"ids", "One position a token", "--positions"},
                 {"segments", "Runs of evenly spaced positions"}});
  flags->precision.Add(*app);
  return {app, [flags](Session& session) { return Run(*flags, session); }};
}

}  // namespace posenc::command
