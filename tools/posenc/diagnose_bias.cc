#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "posenc/base/status.h"
#include "tools/files/tensor_file.h"
#include "tools/posenc/attention_flags.h"
#include "tools/posenc/bias_flags.h"
#include "tools/posenc/bias_report.h"
#include "tools/posenc/deliver.h"
#include "tools/posenc/diagnosis_report.h"
#include "tools/posenc/field_flags.h"
#include "tools/posenc/request_flags.h"
#include "tools/posenc/session.h"

namespace posenc::command {
namespace {

struct DiagnoseBiasFlags {
  BiasFlags expected;
  PrecisionFlags precision;
  v1::DiagnoseBiasRequest request;
  v1::Mask mask;
  std::string bias;
  std::optional<int32_t> max_explanations;
};

absl::Status RunDiagnoseBias(const DiagnoseBiasFlags& flags, Session& session) {
  Missing missing;
  missing.Add(flags.bias.empty(), "FILE, the bias");
  POSENC_RETURN_IF_ERROR(missing.Get());
  v1::DiagnoseBiasRequest request = flags.request;
  if (flags.expected.given()) {
    POSENC_ASSIGN_OR_RETURN(*request.mutable_expected(), flags.expected.Get(&session));
  } else {
    POSENC_RETURN_IF_ERROR(flags.expected.CheckUnused());
  }
  if (IsSet(flags.mask)) *request.mutable_mask() = flags.mask;
  POSENC_RETURN_IF_ERROR(flags.precision.Put(&request));
  if (flags.max_explanations) request.set_max_explanations(*flags.max_explanations);
  POSENC_ASSIGN_OR_RETURN(v1::Tensor bias, ReadTensor(flags.bias));
  if (bias.shape_size() == 2) {  // one head
    const int64_t keys = bias.shape(1);
    bias.set_shape(1, bias.shape(0));
    bias.set_shape(0, 1);
    bias.add_shape(keys);
  }
  const int64_t queries = bias.shape_size() < 2 ? 0 : bias.shape(bias.shape_size() - 2);
  *request.mutable_bias() = std::move(bias);
  if (!session.json()) request.set_return_values(true);
  POSENC_ASSIGN_OR_RETURN(const v1::DiagnoseBiasResponse response, session.backend().DiagnoseBias(request));
  if (const v1::Tensor& values = response.values();
      response.has_values() &&
      (values.dtype() != v1::DATA_TYPE_FP64 || values.shape_size() != 2 || values.shape(0) < 1)) {
    return absl::InternalError("values are not FP64 of the shape [heads, n]");
  }
  session.set_exit_code(ExitCode(response.verdict()));
  if (session.json()) return PrintVerdictFirst(session, response);
  return PrintVerdict(BiasReport(response, queries), session.exit_code());
}

}  // namespace

Subcommand AddDiagnoseBias(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand(
      "diagnose-bias", std::string("Finds the method and the mask of an attention bias, and whether it matches a "
                                   "model.\n") +
                           kExitCodes);
  const auto flags = std::make_shared<DiagnoseBiasFlags>();
  app->add_option("bias,--bias", flags->bias,
                  "Attention bias: FP64, FP32, FP16 or BF16, [Sq, Sk], [H, Sq, Sk] or [B, H, Sq, Sk]; .npy, "
                  ".safetensors or .safetensors:NAME")
      ->type_name("FILE");
  AddFieldFlags(*app, "Bias", &flags->request,
                {{"query_offset", "Position of the first query, with the first key at 0; default: inferred"},
                 {"head_start", "Index of the bias's first head among the expected method's heads; default 0"},
                 {"tolerance_ulp", "Units in the last place that count as rounding; default 2", "--tolerance"},
                 {"up_to_softmax", "Accepts a constant in each row, which softmax removes"},
                 {"return_values", "With --json: also print the values by distance or by key"}});
  app->add_option("--max-explanations", flags->max_explanations, "Maximum number of explanations; default 5")
      ->group("Bias");
  flags->expected.Add(*app);
  AddHidingFlags(*app, &flags->mask);
  flags->precision.Add(*app);
  return {app, [flags](Session& session) { return RunDiagnoseBias(*flags, session); }};
}

}  // namespace posenc::command
