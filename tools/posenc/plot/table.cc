// `posenc plot table`: cosines and sines, or an absolute encoding, as heat maps over positions.
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "posenc/base/status.h"
#include "tools/posenc/embedding_flags.h"
#include "tools/posenc/field_flags.h"
#include "tools/posenc/plot/plot.h"
#include "tools/posenc/report.h"

namespace posenc::command {
namespace {

struct TablePlotFlags {
  PictureFlags picture;
  RotaryFlags rotary;
  EmbeddingMethodFlags embedding;
  PrecisionFlags precision;
  v1::Positions positions;
  v1::GenerateTableRequest table;  // only count and operand are used
};

// Sets the fields that all tables share; the caller sets the rest.
absl::StatusOr<HeatMaps> Maps(const TablePlotFlags& flags, const v1::Tensor& tensor) {
  HeatMaps maps;
  if (tensor.shape_size() != 2)
    return UsageError("a picture shows one sequence: --token-valid and --learned-token-valid are not allowed");
  maps.rows = tensor.shape(0);
  maps.columns = tensor.shape(1);
  if (maps.rows == 0 || maps.rows * maps.columns > kMaxCells) {
    return UsageError(absl::StrFormat("%d x %d cells: a picture shows 1 to %d", maps.rows, maps.columns, kMaxCells));
  }
  maps.first_y = static_cast<double>(flags.positions.offset());
  maps.y_label = "position";
  return maps;
}

absl::Status RotaryTable(const TablePlotFlags& flags, Session& session) {
  v1::GenerateTableRequest request = flags.table;
  POSENC_ASSIGN_OR_RETURN(*request.mutable_rotary(), flags.rotary.Get());
  *request.mutable_positions() = flags.positions;
  if (!flags.positions.has_offset()) request.mutable_positions()->set_offset(0);
  CompletePositions(request.mutable_positions());
  if (!request.has_count()) request.set_count(128);
  request.set_dtype(v1::DATA_TYPE_FP32);
  request.set_form(v1::TABLE_FORM_HALF_WIDTH);
  request.mutable_hints()->set_return_plan(true);
  POSENC_RETURN_IF_ERROR(flags.precision.Put(&request));
  POSENC_ASSIGN_OR_RETURN(const v1::GenerateTableResponse response, session.backend().GenerateTable(request));
  POSENC_ASSIGN_OR_RETURN(HeatMaps maps, Maps(flags, response.cos()));
  maps.title = RotaryTitle("Table of a rotary embedding", ModelName(flags.rotary.model_path()), response.info());
  maps.settings = Subject(response.info());
  maps.x_label = "pair";
  maps.colour_label = "value, with attention scaling";
  maps.panels = {{"cos(position * inv_freq)", Numbers(response.cos())},
                 {"sin(position * inv_freq)", Numbers(response.sin())}};
  return flags.picture.Deliver(session, response, maps);
}

absl::Status Embedding(const TablePlotFlags& flags, Session& session) {
  v1::GenerateEmbeddingRequest request;
  POSENC_RETURN_IF_ERROR(flags.embedding.Put(&request));
  if (!request.has_grid() && !request.has_fourier()) {
    *request.mutable_positions() = flags.positions;
    if (!flags.positions.has_offset()) request.mutable_positions()->set_offset(0);
    request.set_count(flags.table.has_count() ? flags.table.count() : 128);
  }
  request.set_dtype(v1::DATA_TYPE_FP32);
  POSENC_RETURN_IF_ERROR(flags.precision.Put(&request));
  POSENC_ASSIGN_OR_RETURN(const v1::GenerateEmbeddingResponse response, session.backend().GenerateEmbedding(request));
  POSENC_ASSIGN_OR_RETURN(HeatMaps maps, Maps(flags, response.embedding()));
  const auto* method = request.GetDescriptor()->FindFieldByNumber(request.method_case());
  maps.title = "Absolute encoding";
  maps.settings =
      absl::StrCat(method->name(), ": ", SettingsLine(request.GetReflection()->GetMessage(request, method)));
  maps.x_label = "dimension";
  maps.colour_label = "value";
  maps.panels = {{"", Numbers(response.embedding())}};
  return flags.picture.Deliver(session, response, maps);
}

absl::Status RunTablePlot(const TablePlotFlags& flags, Session& session) {
  Missing missing;
  if (!flags.embedding.given()) flags.rotary.AddMissing(&missing);
  POSENC_RETURN_IF_ERROR(flags.picture.Check(session, missing));
  if (!flags.embedding.given()) return RotaryTable(flags, session);
  if (flags.rotary.given()) return UsageError("give a rotary embedding (or --model) or an absolute encoding, not both");
  return Embedding(flags, session);
}

}  // namespace

Subcommand AddTablePlot(CLI::App& plot) {
  CLI::App* app = plot.add_subcommand("table", "Heat maps of cosines and sines, or of an absolute encoding");
  const auto flags = std::make_shared<TablePlotFlags>();
  flags->picture.Add(*app);
  AddFieldFlags(*app, "Table", &flags->table,
                {{"count", "Number of positions; default 128"},
                 {"operand", "Operand of the table, with --scale-base or --centre (xPos)"}});
  AddFieldFlags(*app, "Positions", &flags->positions,
                {{"offset", "First position; default 0"}, {"seq_len", ByLength("length that sets the frequencies")}});
  flags->rotary.Add(*app);
  flags->embedding.Add(*app);
  flags->precision.Add(*app);
  return {app, [flags](Session& session) { return RunTablePlot(*flags, session); }};
}

}  // namespace posenc::command
