#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "posenc/base/status.h"
#include "tools/files/tensor_file.h"
#include "tools/posenc/deliver.h"
#include "tools/posenc/diagnosis_report.h"
#include "tools/posenc/field_flags.h"
#include "tools/posenc/request_flags.h"
#include "tools/posenc/session.h"

namespace posenc::command {
namespace {

struct DiagnoseFlags {
  RotaryFlags rotary;
  PrecisionFlags precision;
  v1::DiagnoseRequest request;
  v1::TableEvidence table;
  std::string before, after, k_before, k_after, inv_freq;
  int64_t rotary_offset = 0, k_rotary_offset = 0;
  std::optional<int32_t> max_explanations;
};

// Reads a tensor; [S, D] becomes one head, [S, 1, D].
absl::Status ReadRows(const std::string& path, v1::Tensor* tensor) {
  POSENC_ASSIGN_OR_RETURN(*tensor, ReadTensor(path));
  if (tensor->shape_size() == 2) {
    const int64_t width = tensor->shape(1);
    tensor->set_shape(1, 1);
    tensor->add_shape(width);
  }
  return absl::OkStatus();
}

absl::Status ReadOperand(const std::string& before, const std::string& after, int64_t rotary_offset,
                         v1::BeforeAndAfter* operand) {
  operand->set_rotary_offset(rotary_offset);
  POSENC_RETURN_IF_ERROR(ReadRows(before, operand->mutable_before()));
  return ReadRows(after, operand->mutable_after());
}

absl::Status ReadEvidence(const DiagnoseFlags& flags, v1::DiagnoseRequest* request) {
  const bool rotation = !flags.before.empty() || !flags.after.empty(), table = IsSet(flags.table);
  if (rotation + table + !flags.inv_freq.empty() != 1) {
    return UsageError("give --before and --after, or --table-cos, --table-sin and --table-form, or --applied-inv-freq");
  }
  if (table) *request->mutable_table() = flags.table;
  if (!flags.inv_freq.empty()) {
    POSENC_ASSIGN_OR_RETURN(*request->mutable_inv_freq(), ReadTensor(flags.inv_freq));
  }
  if (!rotation) return absl::OkStatus();
  if (flags.before.empty() || flags.after.empty()) return UsageError("give both --before and --after");
  if (flags.k_before.empty() != flags.k_after.empty()) return UsageError("give both --k-before and --k-after");
  v1::RotationEvidence& evidence = *request->mutable_rotation();
  POSENC_RETURN_IF_ERROR(ReadOperand(flags.before, flags.after, flags.rotary_offset, evidence.mutable_q()));
  if (flags.k_before.empty()) return absl::OkStatus();
  return ReadOperand(flags.k_before, flags.k_after, flags.k_rotary_offset, evidence.mutable_k());
}

// Returns the possible layouts of the tensors: the given one, or those that their number of axes allows.
std::vector<v1::Layout> Layouts(const v1::DiagnoseRequest& request) {
  if (!request.has_rotation() || request.layout() != v1::LAYOUT_UNSPECIFIED) return {request.layout()};
  if (request.rotation().q().before().shape_size() == 3) return {v1::LAYOUT_THD};
  return {v1::LAYOUT_BSHD, v1::LAYOUT_BHSD};
}

double ShareOf(const v1::DiagnoseResponse& response) {
  if (!response.explanations().empty() && response.explanations(0).equal_share() == 1) return 2;  // proven
  const double unexplained = response.measured().norm_residual() + response.measured().head_residual();
  return response.has_measured() && !response.explanations().empty() ? 1 / (1 + unexplained) : 0;
}

absl::Status RunDiagnose(const DiagnoseFlags& flags, Session& session) {
  v1::DiagnoseRequest request = flags.request;
  if (flags.rotary.given()) {
    POSENC_ASSIGN_OR_RETURN(*request.mutable_expected(), flags.rotary.Get());
  }
  POSENC_RETURN_IF_ERROR(flags.precision.Put(&request));
  if (flags.max_explanations) request.set_max_explanations(*flags.max_explanations);
  POSENC_RETURN_IF_ERROR(ReadEvidence(flags, &request));
  DiagnosisContext context;
  if (request.has_inv_freq()) {
    if (!IsSet(request.positions())) request.clear_positions();
  } else {
    context.assumed_positions = request.positions().source_case() == v1::Positions::SOURCE_NOT_SET;
    if (context.assumed_positions) request.mutable_positions()->set_offset(0);
    CompletePositions(request.mutable_positions());
  }
  // If the axes fit several layouts, the layout with the better explanation is used.
  absl::StatusOr<v1::DiagnoseResponse> best = absl::UnknownError("no layout");
  const std::vector<v1::Layout> layouts = Layouts(request);
  for (const v1::Layout layout : layouts) {
    request.set_layout(layout);
    auto response = session.backend().Diagnose(request);
    if (response.ok() && best.ok() && ShareOf(*response) <= ShareOf(*best)) continue;
    if (!response.ok() && (best.ok() || layout != layouts[0])) continue;
    best = std::move(response);
    context.layout = layout;
  }
  POSENC_RETURN_IF_ERROR(best.status());
  context.inferred_layout = layouts.size() > 1;
  if (session.json()) return PrintJson(*best);
  std::fputs(DiagnosisReport(*best, context).c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace

Subcommand AddDiagnose(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand(
      "diagnose", "Finds the rotary encoding that another system applied, and how it differs from a model's");
  const auto flags = std::make_shared<DiagnoseFlags>();
  constexpr char kTensors[] = "Tensors";
  const auto file = [&](const char* name, std::string* path, const char* help) {
    app->add_option(name, *path, help)->type_name("FILE")->group(kTensors);
  };
  file("--before", &flags->before,
       "q (or k alone) before the rotation: FP64, FP32, FP16 or BF16; .npy, .safetensors or .safetensors:NAME");
  file("--after", &flags->after, "q after the rotation by the other system; its type may differ");
  file("--k-before", &flags->k_before, "k before the rotation, from the same call as q");
  file("--k-after", &flags->k_after, "k after the rotation");
  file("--applied-inv-freq", &flags->inv_freq, "Frequencies, [rotary_dim/2], in place of tensors");
  AddFieldFlags(*app, kTensors, &flags->table,
                {{"cos", "Cosines of a table, [rows, width], in place of tensors", "--table-cos"},
                 {"sin", "Sines of the table", "--table-sin"},
                 {"form", "One value per pair (half-width) or one per element", "--table-form"}});
  AddFieldFlags(
      *app, kTensors, &flags->request,
      {{"layout",
        "Order of the tensors' axes: batch, sequence, head, dimension; thd: packed tokens; default: inferred"},
       {"direction", "Expected direction; default forward"}});
  app->add_option("--max-explanations", flags->max_explanations, "Maximum number of explanations; default 5")
      ->group(kTensors);
  app->add_option("--q-rotary-offset", flags->rotary_offset,
                  "First element of a head row of q that should rotate; default 0")
      ->group(kTensors);
  app->add_option("--k-rotary-offset", flags->k_rotary_offset,
                  "First element of a head row of k that should rotate; default 0")
      ->group(kTensors);
  AddPositionFlags(*app, PositionKind::kSequences, flags->request.mutable_positions());
  flags->rotary.Add(*app);
  flags->precision.Add(*app);
  return {app, [flags](Session& session) { return RunDiagnose(*flags, session); }};
}

}  // namespace posenc::command
