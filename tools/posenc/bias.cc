#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
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

// Writes tiles of query rows to their offsets in the file: one run of rows in each matrix.
class BiasFile {
 public:
  BiasFile(const Session& session, std::string path, int64_t queries)
      : session_(session), path_(std::move(path)), queries_(queries) {}

  absl::Status Write(const v1::StreamBiasResponse& tile) {
    const v1::Tensor& rows = tile.bias();
    if (!writer_) POSENC_RETURN_IF_ERROR(Create(rows));
    const uint64_t count = rows.shape(rows.shape_size() - 2), part = count * row_bytes_;
    if (tile.row_begin() != written_ || (part != 0 && rows.data().size() % part != 0)) {
      return absl::InternalError("the tiles of the bias do not fit together");
    }
    for (uint64_t matrix = 0; matrix * part < rows.data().size(); ++matrix) {
      const uint64_t row = matrix * static_cast<uint64_t>(queries_) + static_cast<uint64_t>(written_);
      POSENC_RETURN_IF_ERROR(
          writer_->Write(0, row * row_bytes_, std::string_view(rows.data()).substr(matrix * part, part)));
    }
    written_ += static_cast<int64_t>(count);
    return absl::OkStatus();
  }

  absl::Status Commit() {
    if (!writer_ || written_ != queries_) return absl::InternalError("the bias is incomplete");
    POSENC_RETURN_IF_ERROR(writer_->Commit());
    return PrintTensor(session_, path_, header_);
  }

  int64_t written() const { return written_; }

 private:
  absl::Status Create(const v1::Tensor& rows) {
    if (rows.shape_size() < 2) return absl::InternalError("the first tile of the bias is not a matrix");
    header_ = {"bias", rows.dtype(), {rows.shape().begin(), rows.shape().end()}};
    header_.shape[header_.shape.size() - 2] = queries_;
    row_bytes_ = ElementSize(rows.dtype()) * static_cast<uint64_t>(header_.shape.back());
    POSENC_ASSIGN_OR_RETURN(const uint64_t bytes, ByteSize(header_));
    POSENC_RETURN_IF_ERROR(session_.AllowWriting(path_, bytes));
    POSENC_ASSIGN_OR_RETURN(TensorWriter writer, TensorWriter::Create(path_, {header_}));
    writer_.emplace(std::move(writer));
    return absl::OkStatus();
  }

  const Session& session_;
  const std::string path_;
  const int64_t queries_;
  std::optional<TensorWriter> writer_;
  TensorHeader header_;
  uint64_t row_bytes_ = 0;
  int64_t written_ = 0;
};

// Streams the bias in tiles, so that neither the message size limit nor memory bounds its size.
absl::Status Stream(const v1::GenerateBiasRequest& request, const std::string& out, Session& session) {
  v1::StreamBiasRequest stream;
  *stream.mutable_bias() = request;
  const int64_t queries = request.geometry().query_length();
  BiasFile file(session, out, queries);
  v1::AnswerInfo info;
  {
    Progress progress(queries);
    POSENC_RETURN_IF_ERROR(session.backend().StreamBias(stream, [&](const v1::StreamBiasResponse& tile) {
      if (tile.has_info()) info = tile.info();
      const absl::Status status = file.Write(tile);
      progress.Update(file.written());
      return status;
    }));
  }
  POSENC_RETURN_IF_ERROR(file.Commit());
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
