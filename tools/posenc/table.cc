#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "posenc/base/status.h"
#include "tools/files/tensor_file.h"
#include "tools/posenc/defaults.h"
#include "tools/posenc/deliver.h"
#include "tools/posenc/field_flags.h"
#include "tools/posenc/report.h"
#include "tools/posenc/request_flags.h"
#include "tools/posenc/session.h"
#include "tools/posenc/tiles.h"

namespace posenc::command {
namespace {

struct TableFlags {
  RotaryFlags rotary;
  PrecisionFlags precision;
  v1::GenerateTableRequest request;
  std::string out;
};

// Writes tiles to their offsets: both tensors into one .safetensors file, or each into its own .npy file.
class TableFiles {
 public:
  TableFiles(const Session& session, std::string path, v1::DataType dtype, int64_t rows)
      : session_(session), path_(std::move(path)), cos_("cos", dtype, rows), sin_("sin", dtype, rows) {}

  absl::Status Write(const v1::StreamTableResponse& tile) {
    POSENC_RETURN_IF_ERROR(cos_.Check(tile.row_begin(), tile.cos()));
    POSENC_RETURN_IF_ERROR(sin_.Check(tile.row_begin(), tile.sin()));
    if (writers_.empty()) POSENC_RETURN_IF_ERROR(Create());
    POSENC_RETURN_IF_ERROR(cos_.Write(tile.cos(), 0, &writers_.front()));
    return sin_.Write(tile.sin(), writers_.size() == 1 ? 1 : 0, &writers_.back());
  }

  absl::Status Commit() {
    POSENC_RETURN_IF_ERROR(cos_.CheckComplete());
    POSENC_RETURN_IF_ERROR(sin_.CheckComplete());
    for (TensorWriter& writer : writers_) POSENC_RETURN_IF_ERROR(writer.Commit());
    for (const auto& [path, header] : written_to_) POSENC_RETURN_IF_ERROR(PrintTensor(session_, path, header));
    return absl::OkStatus();
  }

  int64_t written() const { return cos_.written(); }

 private:
  absl::Status Create() {
    const TensorHeader &cos = cos_.header(), &sin = sin_.header();
    if (cos.shape.size() != 2 || cos.shape != sin.shape) {
      return absl::InternalError(
          absl::StrCat("the table's cos is ", TensorReport(cos), " and its sin ", TensorReport(sin)));
    }
    POSENC_ASSIGN_OR_RETURN(const uint64_t bytes, ByteSize(cos));
    POSENC_RETURN_IF_ERROR(session_.AllowWriting(path_, 2 * bytes));
    if (!path_.ends_with(".npy")) return Add(path_, {cos, sin});
    const std::string stem = path_.substr(0, path_.size() - 4);
    POSENC_RETURN_IF_ERROR(Add(stem + ".cos.npy", {cos}));
    return Add(stem + ".sin.npy", {sin});
  }

  absl::Status Add(const std::string& path, const std::vector<TensorHeader>& headers) {
    POSENC_ASSIGN_OR_RETURN(TensorWriter writer, TensorWriter::Create(path, headers));
    writers_.push_back(std::move(writer));
    for (const TensorHeader& header : headers) written_to_.emplace_back(path, header);
    return absl::OkStatus();
  }

  const Session& session_;
  const std::string path_;
  TiledTensor cos_, sin_;
  std::vector<TensorWriter> writers_;
  std::vector<std::pair<std::string, TensorHeader>> written_to_;
};

absl::Status RunTable(const TableFlags& flags, Session& session) {
  Missing missing;
  flags.rotary.AddMissing(&missing);
  AddMissingPositions(flags.request.positions(), &missing);
  missing.Add(flags.request.positions().source_case() == v1::Positions::kOffset && !flags.request.has_count(),
              "--count N, the number of rows from --offset on");
  AddMissingOutput(session, flags.out, "-o", &missing);
  POSENC_RETURN_IF_ERROR(missing.Get());
  v1::GenerateTableRequest request = flags.request;
  POSENC_ASSIGN_OR_RETURN(*request.mutable_rotary(), flags.rotary.Get());
  CompletePositions(request.mutable_positions());
  POSENC_RETURN_IF_ERROR(flags.precision.Put(&request));
  if (request.dtype() == v1::DATA_TYPE_UNSPECIFIED) {
    request.set_dtype(UsualDtype(&request.rotary().model(), flags.out, &session));
  }
  if (request.form() == v1::TABLE_FORM_UNSPECIFIED) {
    request.set_form(v1::TABLE_FORM_HALF_WIDTH);
    session.Assume("--form", "half-width");
  }
  if (flags.out.empty()) {
    const uint64_t pair_bytes = 2 * ElementSize(request.dtype());  // a row has one pair or more
    POSENC_RETURN_IF_ERROR(session.AllowMemory(static_cast<double>(CountRows(request.positions(), request.count())) *
                                               static_cast<double>(pair_bytes)));
    POSENC_ASSIGN_OR_RETURN(const v1::GenerateTableResponse response, session.backend().GenerateTable(request));
    POSENC_RETURN_IF_ERROR(CheckDevice(request.hints(), response.info()));
    return PrintJson(session, response);
  }

  if (const std::string& device = request.hints().device(); !device.empty() && device != "cpu") {
    return UsageError("--device: must be cpu or absent with -o: tables in files are computed in tiles, on the CPU");
  }
  // Always streams in tiles, so that neither the message size limit nor memory bounds the table.
  POSENC_RETURN_IF_ERROR(CheckWritable(flags.out, request.dtype(), 1));
  const int64_t rows = CountRows(request.positions(), request.count());
  TableFiles files(session, flags.out, request.dtype(), rows);
  v1::AnswerInfo info;
  v1::StreamTableRequest stream;
  stream.mutable_table()->Swap(&request);
  {
    Progress progress(rows);
    POSENC_RETURN_IF_ERROR(session.backend().StreamTable(stream, [&](const v1::StreamTableResponse& tile) {
      if (tile.has_info()) info = tile.info();
      const absl::Status status = files.Write(tile);
      progress.Update(files.written());
      return status;
    }));
  }
  POSENC_RETURN_IF_ERROR(files.Commit());
  return PrintInfo(session, info);
}

}  // namespace

Subcommand AddTable(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand("table", "Computes the cosines and sines of a rotary embedding");
  const auto flags = std::make_shared<TableFlags>();
  app->add_option("-o,--out", flags->out,
                  "Output: FILE.safetensors with \"cos\" and \"sin\"; FILE.npy makes FILE.cos.npy and FILE.sin.npy")
      ->type_name("FILE");
  AddFieldFlags(*app, "Table", flags->request.mutable_hints(), {{"device", kDeviceHelp}});
  AddFieldFlags(*app, "Table", &flags->request,
                {{"count", "Number of rows, with --offset"},
                 {"dtype", "Element type; default: the model's, else fp32", nullptr, "fp32|fp16|bf16|fp64"},
                 {"form", "One value per pair (half-width, the default) or one per element"},
                 {"operand", "Operand of the table, with --scale-base or --centre (xPos)"}});
  AddPositionFlags(*app, PositionKind::kRows, flags->request.mutable_positions());
  flags->rotary.Add(*app);
  flags->precision.Add(*app);
  return {app, [flags](Session& session) { return RunTable(*flags, session); }};
}

}  // namespace posenc::command
