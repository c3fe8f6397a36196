#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "posenc/base/status.h"
#include "tools/posenc/bias_flags.h"
#include "tools/posenc/deliver.h"
#include "tools/posenc/field_flags.h"
#include "tools/posenc/onnx.h"
#include "tools/posenc/report.h"
#include "tools/posenc/request_flags.h"
#include "tools/posenc/session.h"

namespace posenc::command {
namespace {

struct ExplainFlags {
  RotaryFlags rotary;
  BiasMethodFlags bias;
  PrecisionFlags precision;
  v1::ExplainRequest request;
};

absl::Status RunExplain(const ExplainFlags& flags, Session& session) {
  if (IsOnnxPath(flags.rotary.model_path())) {
    POSENC_RETURN_IF_ERROR(flags.rotary.CheckPathOnly());
    if (!flags.bias.First().empty() || flags.precision.given() || IsSet(flags.request)) {
      return UsageError("explain: an ONNX graph says all; give no other flag with it");
    }
    return ExplainOnnx(flags.rotary.model_path(), session);
  }
  v1::ExplainRequest request = flags.request;
  if (!flags.bias.First().empty()) {
    if (flags.rotary.given()) return UsageError("explain: give a rotary embedding (or --model) or a bias, not both");
    POSENC_ASSIGN_OR_RETURN(*request.mutable_bias(), flags.bias.Get());
  } else {
    POSENC_ASSIGN_OR_RETURN(v1::RotarySource source, flags.rotary.Get());
    if (source.has_model()) {
      if (flags.bias.has_position_mask()) {  // so the model is one with a bias
        POSENC_ASSIGN_OR_RETURN(*request.mutable_bias(), flags.bias.Get());
        request.mutable_bias()->mutable_model()->Swap(source.mutable_model());
      } else {
        request.mutable_model()->Swap(source.mutable_model());
      }
    } else {
      request.mutable_rotary()->Swap(source.mutable_settings());
    }
  }
  POSENC_RETURN_IF_ERROR(flags.precision.Put(&request));
  POSENC_ASSIGN_OR_RETURN(const v1::ExplainResponse response, session.backend().Explain(request));
  if (session.json()) return PrintJson(session, response);
  std::string report;
  for (const v1::LayerExplanation& layer : response.layers()) {
    absl::StrAppend(&report, report.empty() ? "" : "\n", LayerReport(layer));
  }
  return PrintReport(report);
}

}  // namespace

Subcommand AddExplain(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand(
      "explain", "Explains a config.json, an ONNX graph or settings: formula, frequencies, scaling, slopes, notes");
  const auto flags = std::make_shared<ExplainFlags>();
  flags->rotary.Add(*app, true);
  flags->bias.Add(*app);
  flags->precision.Add(*app);
  AddFieldFlags(*app, "Lengths", &flags->request,
                {{"seq_len", ByLength("sequence lengths to explain; default: one for each branch")}});
  return {app, [flags](Session& session) { return RunExplain(*flags, session); }};
}

}  // namespace posenc::command
