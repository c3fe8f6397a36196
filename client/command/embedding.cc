#include <memory>
#include <string>

#include "client/command/deliver.h"
#include "client/command/embedding_flags.h"
#include "client/command/field_flags.h"
#include "client/command/request_flags.h"
#include "client/command/session.h"
#include "client/tensor_file.h"
#include "posenc/status.h"

namespace posenc::command {
namespace {

struct EmbeddingFlags {
  PrecisionFlags precision;
  v1::GenerateEmbeddingRequest request;
  EmbeddingMethodFlags method;
  ModelFlags model;
  v1::Positions positions;
  std::string add_to, out;
};

// The method that flags were given for, or else that a config.json says alone.
absl::StatusOr<google::protobuf::Message*> PutMethod(const EmbeddingFlags& flags, Session& session,
                                                     v1::GenerateEmbeddingRequest* request) {
  if (flags.method.given() || !flags.model.given()) {
    POSENC_RETURN_IF_ERROR(flags.method.Put(request));
    const auto* method = request->GetDescriptor()->FindOneofByName("method");
    const auto* reflection = request->GetReflection();
    return reflection->MutableMessage(request, reflection->GetOneofFieldDescriptor(*request, method));
  }
  v1::ExplainRequest explain;
  POSENC_ASSIGN_OR_RETURN(*explain.mutable_model(), flags.model.Get());
  POSENC_ASSIGN_OR_RETURN(const v1::ExplainResponse said, session.backend().Explain(explain));
  const v1::Plan& plan = said.layers(0).info().plan();
  if (plan.has_sinusoidal()) return request->mutable_sinusoidal();
  if (plan.has_grid()) return request->mutable_grid();
  return UsageError(plan.has_learned() ? "--model: the model's table is learned: give --learned-table"
                                       : "--model: the model adds nothing to its input: see posenc explain");
}

absl::Status Run(const EmbeddingFlags& flags, Session& session) {
  POSENC_RETURN_IF_ERROR(CheckDestination(session, flags.out, "-o"));
  v1::GenerateEmbeddingRequest request = flags.request;
  POSENC_ASSIGN_OR_RETURN(google::protobuf::Message * method, PutMethod(flags, session, &request));
  POSENC_RETURN_IF_ERROR(flags.model.PutBeside(method));
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
  const auto flags = std::make_shared<EmbeddingFlags>();
  app->add_option("-o,--out", flags->out, "Where the answer goes, as \"embedding\"")->type_name("FILE");
  app->add_option("--add-to", flags->add_to, "Adds the embedding to this, FP32, FP16 or BF16, [.., S, D]")
      ->type_name("FILE");
  AddFieldFlags(*app, "Embedding", &flags->request,
                {{"count", "Rows, with --offset"},
                 {"dtype", "The elements' type; with --add-to it says it", nullptr, "fp32|fp16|bf16|fp64"}});
  flags->method.Add(*app);
  flags->model.Add(*app);
  AddFieldFlags(*app, "Positions", &flags->positions,
                {{"offset", "Tokens stand at N, N+1, ..."},
                 {"ids", "One position a token", "--positions"},
                 {"segments", "Runs of evenly spaced positions"}});
  flags->precision.Add(*app);
  return {app, [flags](Session& session) { return Run(*flags, session); }};
}

}  // namespace posenc::command
