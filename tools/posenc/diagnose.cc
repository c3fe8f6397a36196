#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "posenc/base/status.h"
#include "posenc/command_line/arguments.h"
#include "tools/files/tensor_file.h"
#include "tools/posenc/defaults.h"
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
  std::string before, after, k_before, k_after, inv_freq, expected_table;
  std::optional<std::string> expected_pairing;
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

absl::Status ReadOperand(const std::string& before, const std::string& after, v1::BeforeAndAfter* operand) {
  POSENC_RETURN_IF_ERROR(ReadRows(before, operand->mutable_before()));
  return ReadRows(after, operand->mutable_after());
}

bool HasRotation(const DiagnoseFlags& flags) {
  return !flags.before.empty() || !flags.after.empty() || !flags.k_before.empty() || !flags.k_after.empty();
}

absl::Status CheckGiven(const DiagnoseFlags& flags) {
  Missing missing;
  const bool rotation = HasRotation(flags), table = IsSet(flags.table);
  missing.Add(!rotation && !table && flags.inv_freq.empty(),
              "the tensors: --before FILE and --after FILE, or --table-cos and --table-sin, or --applied-inv-freq");
  missing.Add(rotation && flags.before.empty(), "--before FILE");
  missing.Add(rotation && flags.after.empty(), "--after FILE");
  missing.Add(flags.k_before.empty() && !flags.k_after.empty(), "--k-before FILE");
  missing.Add(flags.k_after.empty() && !flags.k_before.empty(), "--k-after FILE");
  missing.Add(table && !flags.table.has_cos(), "--table-cos FILE");
  missing.Add(table && !flags.table.has_sin(), "--table-sin FILE");
  missing.Add(!flags.expected_table.empty() && !flags.expected_pairing, "--expect-pairing half-split|interleaved");
  return missing.Get();
}

absl::Status ReadEvidence(const DiagnoseFlags& flags, v1::DiagnoseRequest* request) {
  const bool rotation = HasRotation(flags), table = IsSet(flags.table);
  if (rotation + table + !flags.inv_freq.empty() > 1) {
    return UsageError("give only one of: --before and --after, --table-cos and --table-sin, --applied-inv-freq");
  }
  if (table) *request->mutable_table() = flags.table;
  if (!flags.inv_freq.empty()) {
    POSENC_ASSIGN_OR_RETURN(*request->mutable_inv_freq(), ReadTensor(flags.inv_freq));
  }
  if (!rotation) return absl::OkStatus();
  v1::RotationEvidence& evidence = *request->mutable_rotation();
  POSENC_RETURN_IF_ERROR(ReadOperand(flags.before, flags.after, evidence.mutable_q()));
  if (flags.k_before.empty()) {
    evidence.clear_k();
    return absl::OkStatus();
  }
  return ReadOperand(flags.k_before, flags.k_after, evidence.mutable_k());
}

// Diagnoses in the layout of the request. Without one, in both that tensors of four axes may have: the better answer to
// look at, but which of them holds is not known from it.
absl::StatusOr<v1::DiagnoseResponse> Diagnose(v1::DiagnoseRequest* request, Session& session) {
  if (!request->has_rotation() || request->layout() != v1::LAYOUT_UNSPECIFIED) {
    return session.backend().Diagnose(*request);
  }
  request->set_layout(v1::LAYOUT_BSHD);
  absl::StatusOr<v1::DiagnoseResponse> bshd = session.backend().Diagnose(*request);
  request->set_layout(v1::LAYOUT_BHSD);
  absl::StatusOr<v1::DiagnoseResponse> bhsd = session.backend().Diagnose(*request);
  if (!bshd.ok() && !bhsd.ok()) return bshd;
  if (!bshd.ok() || !bhsd.ok()) {
    session.Assume("--layout", bshd.ok() ? "bshd" : "bhsd", "the other does not fit");
    return bshd.ok() ? bshd : bhsd;
  }
  const v1::Verdict &first = bshd->verdict(), &second = bhsd->verdict();
  v1::Verdict verdict = first;
  if (ExitCode(first) != ExitCode(second)) verdict.set_kind(v1::VERDICT_KIND_UNKNOWN);
  const bool one_matches = ExitCode(first) == kDone || ExitCode(second) == kDone;
  const auto words = [&](const v1::Verdict& one) { return one_matches ? KindOf(one) : InOneLine(one); };
  verdict.set_sentence(absl::StrCat("give --layout, which the shapes do not tell. With bshd: ", words(first),
                                    ". With bhsd: ", words(second)));
  absl::StatusOr<v1::DiagnoseResponse>& nearer = ExitCode(second) < ExitCode(first) ? bhsd : bshd;
  *nearer->mutable_verdict() = std::move(verdict);
  return nearer;
}

// True if in every row the elements at k and at k + apart are equal, for k = 0, step, 2 * step, ... below `end`. The
// table must not be empty.
bool Repeats(const v1::Tensor& table, int64_t step, int64_t apart, int64_t end) {
  const int64_t rows = table.shape(0), columns = table.shape(1);
  const auto size = static_cast<int64_t>(table.data().size()) / (rows * columns);
  for (int64_t row = 0; row < rows; ++row) {
    const char* line = table.data().data() + row * columns * size;
    for (int64_t k = 0; k < end; k += step) {
      if (std::memcmp(line + k * size, line + (k + apart) * size, size) != 0) return false;
    }
  }
  return true;
}

// Reads the expected table, "cos" and "sin" of a .safetensors file, and finds its form.
absl::Status ReadExpectedTable(const std::string& path, v1::RotarySettings* settings) {
  v1::GivenTable* table = settings->mutable_given_table();
  POSENC_ASSIGN_OR_RETURN(std::vector<v1::Tensor> tensors, ReadTensors(path, {"cos", "sin"}));
  *table->mutable_cos() = std::move(tensors[0]);
  *table->mutable_sin() = std::move(tensors[1]);
  table->set_form(v1::TABLE_FORM_HALF_WIDTH);
  const v1::Tensor &cos = table->cos(), &sin = table->sin();
  if (cos.shape_size() != 2 || cos.shape(1) % 2 != 0 || cos.data().empty() ||
      !std::ranges::equal(cos.shape(), sin.shape())) {
    return absl::OkStatus();  // the service checks them
  }
  const int64_t columns = cos.shape(1);
  if (Repeats(cos, 1, columns / 2, columns / 2) && Repeats(sin, 1, columns / 2, columns / 2)) {
    table->set_form(v1::TABLE_FORM_DUPLICATED);
  } else if (Repeats(cos, 2, 1, columns) && Repeats(sin, 2, 1, columns)) {
    table->set_form(v1::TABLE_FORM_REPEAT_INTERLEAVED);
  }
  return absl::OkStatus();
}

absl::Status RunDiagnose(const DiagnoseFlags& flags, Session& session) {
  POSENC_RETURN_IF_ERROR(CheckGiven(flags));
  v1::DiagnoseRequest request = flags.request;
  if (!flags.expected_table.empty()) {
    if (flags.rotary.given()) return UsageError("--expect-table: not with a model or other settings");
    v1::RotarySettings* settings = request.mutable_expected()->mutable_settings();
    settings->set_input_pairing(*flags.expected_pairing == "interleaved" ? v1::PAIRING_INTERLEAVED
                                                                         : v1::PAIRING_HALF_SPLIT);
    POSENC_RETURN_IF_ERROR(ReadExpectedTable(flags.expected_table, settings));
  } else if (flags.rotary.given()) {
    POSENC_ASSIGN_OR_RETURN(*request.mutable_expected(), flags.rotary.Get());
  }
  POSENC_RETURN_IF_ERROR(flags.precision.Put(&request));
  if (flags.max_explanations) request.set_max_explanations(*flags.max_explanations);
  POSENC_RETURN_IF_ERROR(ReadEvidence(flags, &request));
  bool assumed_positions = false;
  if (request.has_inv_freq()) {
    if (!IsSet(request.positions())) request.clear_positions();
  } else {
    assumed_positions = request.positions().source_case() == v1::Positions::SOURCE_NOT_SET;
    if (assumed_positions) request.mutable_positions()->set_offset(0);
    CompletePositions(request.mutable_positions());
  }
  CompleteLayout(&request, &session);
  POSENC_ASSIGN_OR_RETURN(const v1::DiagnoseResponse response, Diagnose(&request, session));
  session.set_exit_code(ExitCode(response.verdict()));
  if (assumed_positions) session.Assume("--offset", "0");
  if (session.json()) return PrintVerdictFirst(session, response);
  return PrintVerdict(DiagnosisReport(response), session.exit_code());
}

}  // namespace

Subcommand AddDiagnose(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand(
      "diagnose", std::string("Finds the rotary encoding that another system applied, and how it differs from a "
                              "model's. `posenc positions --given-ids` compares position ids.\n") +
                      kExitCodes);
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
  AddFieldFlags(
      *app, kTensors, &flags->table,
      {{"cos", "Cosines of a table, [rows, width], in place of tensors", "--table-cos"},
       {"sin", "Sines of the table", "--table-sin"},
       {"form", "One value per pair (half-width) or one per element; default: found from the table", "--table-form"}});
  file("--expect-table", &flags->expected_table,
       "Expected table: a .safetensors file with cos and sin, as posenc table writes it; in place of a model");
  app->add_option("--expect-pairing", flags->expected_pairing, "Pairing of the expected table")
      ->type_name("half-split|interleaved")
      ->check(OneOf({"half-split", "interleaved"}))
      ->group(kTensors);
  AddFieldFlags(
      *app, kTensors, &flags->request,
      {{"layout",
        "Order of the tensors' axes: batch, sequence, head, dimension; thd: packed tokens; default: inferred"},
       {"direction", "Expected direction; default forward"},
       {"tolerance_ulp",
        "Units in the last place, at the norm of an element's pair, that count as rounding; default 2, and more for "
        "float32 phases",
        "--tolerance"}});
  app->add_option("--max-explanations", flags->max_explanations, "Maximum number of explanations; default 5")
      ->group(kTensors);
  v1::RotationEvidence& evidence = *flags->request.mutable_rotation();
  AddFieldFlags(*app, kTensors, evidence.mutable_q(),
                {{"rotary_offset", "First element of a head row of q that should rotate; default: the model's, else 0",
                  "--q-rotary-offset"},
                 {"rotates_first", "The first elements of a head row of q should rotate, whatever the model does",
                  "--q-rotates-first"}});
  AddFieldFlags(*app, kTensors, evidence.mutable_k(),
                {{"rotary_offset", "First element of a head row of k that should rotate; default: the model's, else 0",
                  "--k-rotary-offset"},
                 {"rotates_first", "The first elements of a head row of k should rotate, whatever the model does",
                  "--k-rotates-first"}});
  AddPositionFlags(*app, PositionKind::kSequences, flags->request.mutable_positions());
  flags->rotary.Add(*app);
  flags->precision.Add(*app);
  return {app, [flags](Session& session) { return RunDiagnose(*flags, session); }};
}

}  // namespace posenc::command
