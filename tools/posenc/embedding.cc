#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include "posenc/base/status.h"
#include "tools/files/tensor_file.h"
#include "tools/posenc/defaults.h"
#include "tools/posenc/deliver.h"
#include "tools/posenc/embedding_flags.h"
#include "tools/posenc/field_flags.h"
#include "tools/posenc/request_flags.h"
#include "tools/posenc/session.h"

namespace posenc::command {
namespace {

struct EmbeddingFlags {
  PrecisionFlags precision;
  v1::GenerateEmbeddingRequest request;
  EmbeddingMethodFlags method;
  ModelFlags model;
  v1::Positions positions;
  std::string add_to, out;
  bool in_place = false;
};

// Returns the bytes of the answer, as far as the request tells them.
double BytesOf(const v1::GenerateEmbeddingRequest& request) {
  if (request.has_add_to()) return static_cast<double>(request.add_to().data().size());
  const v1::Grid& grid = request.grid();
  int64_t elements = 0;  // of a row; at most one of the methods is set
  elements += request.sinusoidal().dim() + request.timestep().dim() + grid.dim();
  if (request.learned().table().shape_size() == 2) elements += request.learned().table().shape(1);
  double rows = static_cast<double>(CountRows(request.positions(), request.count()));
  if (request.learned().has_resize() && rows == 0) {
    rows = 1;
    for (const int64_t length : request.learned().resize().target()) rows *= static_cast<double>(length);
  }
  if (request.has_grid()) {
    rows = static_cast<double>(grid.height()) * static_cast<double>(grid.width()) *
           static_cast<double>(std::max<int64_t>(1, grid.frames()));
  }
  return rows * static_cast<double>(elements) * static_cast<double>(ElementSize(request.dtype()));
}

absl::StatusOr<v1::GenerateEmbeddingResponse> CallWithMethod(const EmbeddingFlags& flags, Session& session,
                                                             v1::GenerateEmbeddingRequest request) {
  const auto* reflection = request.GetReflection();
  const auto* methods = request.GetDescriptor()->FindOneofByName("method");
  const auto call = [&]() -> absl::StatusOr<v1::GenerateEmbeddingResponse> {
    const auto* method = reflection->GetOneofFieldDescriptor(request, methods);
    POSENC_RETURN_IF_ERROR(flags.model.PutBeside(reflection->MutableMessage(&request, method)));
    POSENC_RETURN_IF_ERROR(session.AllowMemory(BytesOf(request)));
    POSENC_ASSIGN_OR_RETURN(auto response, session.backend().GenerateEmbedding(request));
    if (request.has_add_to()) POSENC_RETURN_IF_ERROR(CheckLike("embedding", request.add_to(), response.embedding()));
    return response;
  };
  if (flags.method.given() || !flags.model.given()) {
    POSENC_RETURN_IF_ERROR(flags.method.Put(&request));
    return call();
  }
  // Only --model was given: try the encodings that a config.json alone can define.
  request.mutable_sinusoidal();
  auto response = call();
  if (response.ok() || DetailsOf(response.status()).reason != "UNSUPPORTED") return response;
  request.mutable_grid();
  response = call();
  if (response.ok() || DetailsOf(response.status()).reason != "UNSUPPORTED") return response;
  return UsageError(
      "--model: the model adds no sinusoidal encoding to its input; if it adds a learned table, give --learned-table");
}

absl::Status RunEmbedding(const EmbeddingFlags& flags, Session& session) {
  Missing missing;
  missing.Add(!flags.method.given() && !flags.model.given(),
              "a method: --convention and --dim, --learned-table, --timestep-dim, --grid-convention, ...; or --model");
  AddMissingOutput(session, flags.out, "-o", &missing);
  POSENC_RETURN_IF_ERROR(missing.Get());
  POSENC_RETURN_IF_ERROR(CheckKept("-o", flags.out, {flags.add_to}, flags.in_place));
  v1::GenerateEmbeddingRequest request = flags.request;
  if (IsSet(flags.positions)) *request.mutable_positions() = flags.positions;
  POSENC_RETURN_IF_ERROR(flags.precision.Put(&request));
  if (!flags.add_to.empty()) {
    POSENC_ASSIGN_OR_RETURN(*request.mutable_add_to(), ReadTensor(flags.add_to));
  }
  if (!request.has_add_to() && request.dtype() == v1::DATA_TYPE_UNSPECIFIED) {
    v1::ModelConfig model;
    if (flags.model.given()) {
      POSENC_ASSIGN_OR_RETURN(model, flags.model.Get());
    }
    request.set_dtype(UsualDtype(&model, flags.out, &session));
  }
  const v1::DataType dtype = request.has_add_to() ? request.add_to().dtype() : request.dtype();
  if (!flags.out.empty()) POSENC_RETURN_IF_ERROR(CheckWritable(flags.out, dtype, 1));
  POSENC_ASSIGN_OR_RETURN(const v1::GenerateEmbeddingResponse response,
                          CallWithMethod(flags, session, std::move(request)));
  std::vector<Destination> files;
  if (!flags.out.empty()) files.push_back({flags.out, {{"embedding", &response.embedding()}}});
  return Deliver(session, response, response.info(), files);
}

}  // namespace

Subcommand AddEmbedding(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand("embedding", "Computes a position embedding, alone or added to a tensor");
  const auto flags = std::make_shared<EmbeddingFlags>();
  app->add_option("-o,--out", flags->out, "Output file (tensor \"embedding\")")->type_name("FILE");
  app->add_option("--add-to", flags->add_to, "Tensor to add the embedding to: FP32, FP16 or BF16, [.., S, D]")
      ->type_name("FILE");
  AddInPlaceFlag(*app, &flags->in_place);
  AddFieldFlags(*app, "Embedding", &flags->request,
                {{"count", "Number of rows, with --offset"},
                 {"dtype", "Element type; default: the model's, else fp32; with --add-to it is that tensor's type",
                  nullptr, "fp32|fp16|bf16|fp64"}});
  flags->method.Add(*app);
  flags->model.Add(*app);
  AddFieldFlags(*app, "Positions", &flags->positions,
                {{"offset", "Tokens have positions N, N+1, ..."},
                 {"ids", "One position per token", "--positions"},
                 {"segments", "Runs of evenly spaced positions"}});
  flags->precision.Add(*app);
  return {app, [flags](Session& session) { return RunEmbedding(*flags, session); }};
}

}  // namespace posenc::command
