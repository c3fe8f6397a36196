#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "posenc/base/status.h"
#include "tools/files/tensor_file.h"
#include "tools/files/tensor_header.h"
#include "tools/posenc/attention_flags.h"
#include "tools/posenc/bias_flags.h"
#include "tools/posenc/deliver.h"
#include "tools/posenc/field_flags.h"
#include "tools/posenc/request_flags.h"
#include "tools/posenc/session.h"
#include "tools/posenc/tiles.h"

namespace posenc::command {
namespace {

struct BiasCommandFlags {
  BiasFlags bias;
  PrecisionFlags precision;
  v1::BiasGeometry geometry;
  v1::Mask mask;
  v1::GenerateBiasRequest request;
  std::string scores, out;
  bool in_place = false;
};

// Fills the fields that GenerateBias and AddBias requests share.
template <typename Request>
absl::Status Fill(const BiasCommandFlags& flags, Session* session, Request* request) {
  POSENC_ASSIGN_OR_RETURN(*request->mutable_method(), flags.bias.Get(session));
  *request->mutable_geometry() = flags.geometry;
  if (IsSet(flags.mask)) {
    *request->mutable_mask() = flags.mask;
    CompleteMask(request->mutable_mask(), session);
  }
  return flags.precision.Put(request);
}

// Streams the bias in tiles, so that neither the message size limit nor memory bounds its size.
absl::Status Stream(const v1::GenerateBiasRequest& request, const std::string& out, Session& session) {
  v1::StreamBiasRequest stream;
  *stream.mutable_bias() = request;
  const int64_t queries = request.geometry().query_length();
  TiledTensor bias("bias", request.dtype(), queries);
  std::optional<TensorWriter> file;
  v1::AnswerInfo info;
  {
    Progress progress(queries);
    const auto write = [&](const v1::StreamBiasResponse& tile) -> absl::Status {
      if (tile.has_info()) info = tile.info();
      POSENC_RETURN_IF_ERROR(bias.Check(tile.row_begin(), tile.bias()));
      if (!file) {
        POSENC_ASSIGN_OR_RETURN(const uint64_t bytes, ByteSize(bias.header()));
        POSENC_RETURN_IF_ERROR(session.AllowWriting(out, bytes));
        POSENC_ASSIGN_OR_RETURN(TensorWriter created, TensorWriter::Create(out, {bias.header()}));
        file.emplace(std::move(created));
      }
      POSENC_RETURN_IF_ERROR(bias.Write(tile.bias(), 0, &*file));
      progress.Update(bias.written());
      return absl::OkStatus();
    };
    POSENC_RETURN_IF_ERROR(session.backend().StreamBias(stream, write));
  }
  POSENC_RETURN_IF_ERROR(bias.CheckComplete());
  POSENC_RETURN_IF_ERROR(file->Commit());
  POSENC_RETURN_IF_ERROR(PrintTensor(session, out, bias.header()));
  return PrintInfo(session, info);
}

// Returns the least bytes of an answer that is not streamed.
double BytesOfOneHead(const v1::GenerateBiasRequest& request) {
  const auto queries = static_cast<double>(request.geometry().query_length());
  const auto keys = static_cast<double>(request.geometry().key_length());
  const bool cells = request.form() == v1::BIAS_FORM_DENSE || request.form() == v1::BIAS_FORM_INDEX;
  return (cells ? queries * keys : queries + keys) * static_cast<double>(ElementSize(request.dtype()));
}

absl::Status Generate(const BiasCommandFlags& flags, Session& session) {
  v1::GenerateBiasRequest request = flags.request;
  if (request.form() == v1::BIAS_FORM_UNSPECIFIED) {
    request.set_form(v1::BIAS_FORM_DENSE);
    session.Assume("--bias-form", "dense");
  }
  if (request.dtype() == v1::DATA_TYPE_UNSPECIFIED) {
    const bool values = request.form() == v1::BIAS_FORM_DENSE || request.form() == v1::BIAS_FORM_COMPACT;
    request.set_dtype(values ? v1::DATA_TYPE_FP32 : v1::DATA_TYPE_INT32);
    session.Assume("--dtype", EnumName(request.dtype()));
  }
  POSENC_RETURN_IF_ERROR(Fill(flags, &session, &request));
  if (!flags.out.empty()) POSENC_RETURN_IF_ERROR(CheckWritable(flags.out, request.dtype(), 1));
  // A window bias has a length of its own, without query_length, and is small: no streaming.
  if (!flags.out.empty() && request.form() == v1::BIAS_FORM_DENSE && request.geometry().has_query_length()) {
    return Stream(request, flags.out, session);
  }
  POSENC_RETURN_IF_ERROR(session.AllowMemory(BytesOfOneHead(request)));
  POSENC_ASSIGN_OR_RETURN(const v1::GenerateBiasResponse response, session.backend().GenerateBias(request));
  std::vector<Destination> files;
  if (!flags.out.empty()) files.push_back({flags.out, {{"bias", &response.bias()}}});
  return Deliver(session, response, response.info(), files);
}

absl::Status Add(const BiasCommandFlags& flags, Session& session) {
  if (IsSet(flags.request)) return UsageError("--dtype, --bias-form: not allowed with --scores, which sets both");
  v1::AddBiasRequest request;
  POSENC_RETURN_IF_ERROR(Fill(flags, &session, &request));
  POSENC_ASSIGN_OR_RETURN(*request.mutable_scores(), ReadTensor(flags.scores));
  if (!flags.out.empty()) POSENC_RETURN_IF_ERROR(CheckWritable(flags.out, request.scores().dtype(), 1));
  POSENC_RETURN_IF_ERROR(session.AllowMemory(static_cast<double>(request.scores().data().size())));
  POSENC_ASSIGN_OR_RETURN(const v1::AddBiasResponse response, session.backend().AddBias(request));
  POSENC_RETURN_IF_ERROR(CheckLike("scores", request.scores(), response.scores()));
  std::vector<Destination> files;
  if (!flags.out.empty()) files.push_back({flags.out, {{"scores", &response.scores()}}});
  return Deliver(session, response, response.info(), files);
}

absl::Status CheckGiven(const BiasCommandFlags& flags, const Session& session) {
  Missing missing;
  flags.bias.AddMissing(&missing);
  AddMissingOutput(session, flags.out, "-o", &missing);
  POSENC_RETURN_IF_ERROR(missing.Get());
  return CheckKept("-o", flags.out, {flags.scores}, flags.in_place);
}

}  // namespace

Subcommand AddBias(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand(
      "bias",
      "Computes an attention bias (ALiBi, T5, KERPLE, Sandwich, FIRE, Swin, BEiT) or a mask, alone or added to scores");
  const auto flags = std::make_shared<BiasCommandFlags>();
  app->add_option("--scores", flags->scores, "Scores to add the bias to: FP32, FP16 or BF16, [B, H, Sq, Sk]")
      ->type_name("FILE");
  app->add_option("-o,--out", flags->out, "Output file (tensor \"bias\", or \"scores\" with --scores)")
      ->type_name("FILE");
  AddInPlaceFlag(*app, &flags->in_place);
  AddFieldFlags(
      *app, "Bias, without --scores", &flags->request,
      {{"form",
        "dense: one value per cell; compact: one per distance; index forms: table rows, not values; default dense",
        "--bias-form"},
       {"dtype", "Element type; default fp32, or int32 with an index form", nullptr, "fp32|fp16|bf16|int32"}});
  flags->bias.Add(*app);
  AddGeometryFlags(*app, &flags->geometry);
  AddHeadFlags(*app, &flags->geometry);
  AddMaskFlags(*app, &flags->mask);
  flags->precision.Add(*app);
  return {app, [flags](Session& session) -> absl::Status {
            POSENC_RETURN_IF_ERROR(CheckGiven(*flags, session));
            return flags->scores.empty() ? Generate(*flags, session) : Add(*flags, session);
          }};
}

}  // namespace posenc::command
