#include <memory>
#include <string>

#include "client/command/attention_flags.h"
#include "client/command/bias_flags.h"
#include "client/command/deliver.h"
#include "client/command/field_flags.h"
#include "client/command/request_flags.h"
#include "client/command/session.h"
#include "client/tensor_file.h"
#include "posenc/status.h"

namespace posenc::command {
namespace {

struct Flags {
  BiasFlags bias;
  PrecisionFlags precision;
  v1::BiasGeometry geometry;
  v1::Mask mask;
  v1::GenerateBiasRequest request;
  std::string scores, out;
};

// What GenerateBias and AddBias have in common.
template <typename Request>
absl::Status Fill(const Flags& flags, Request* request) {
  POSENC_ASSIGN_OR_RETURN(*request->mutable_method(), flags.bias.Get());
  *request->mutable_geometry() = flags.geometry;
  if (IsSet(flags.mask)) *request->mutable_mask() = flags.mask;
  return flags.precision.Put(request);
}

absl::Status Generate(const Flags& flags, Session& session) {
  v1::GenerateBiasRequest request = flags.request;
  POSENC_RETURN_IF_ERROR(Fill(flags, &request));
  if (!flags.out.empty()) POSENC_RETURN_IF_ERROR(CheckWritable(flags.out, request.dtype(), 1));
  POSENC_ASSIGN_OR_RETURN(const v1::GenerateBiasResponse response, session.backend().GenerateBias(request));
  std::vector<Destination> files;
  if (!flags.out.empty()) files.push_back({flags.out, {{"bias", &response.bias()}}});
  return Deliver(session, response, response.info(), files);
}

absl::Status Add(const Flags& flags, Session& session) {
  if (IsSet(flags.request)) return UsageError("--dtype, --bias-form: not with --scores, whose type and shape count");
  v1::AddBiasRequest request;
  POSENC_RETURN_IF_ERROR(Fill(flags, &request));
  POSENC_ASSIGN_OR_RETURN(*request.mutable_scores(), ReadTensor(flags.scores));
  if (!flags.out.empty()) POSENC_RETURN_IF_ERROR(CheckWritable(flags.out, request.scores().dtype(), 1));
  POSENC_ASSIGN_OR_RETURN(const v1::AddBiasResponse response, session.backend().AddBias(request));
  std::vector<Destination> files;
  if (!flags.out.empty()) files.push_back({flags.out, {{"scores", &response.scores()}}});
  return Deliver(session, response, response.info(), files);
}

}  // namespace

Subcommand AddBias(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand(
      "bias", "An attention bias (ALiBi, T5, KERPLE, Sandwich, Swin, BEiT) or a mask, alone or added to scores");
  const auto flags = std::make_shared<Flags>();
  app->add_option("--scores", flags->scores, "Adds the bias to these, FP32, FP16 or BF16, [B, H, Sq, Sk]")
      ->type_name("FILE");
  app->add_option("-o,--out", flags->out, "Where the answer goes, as \"bias\" or \"scores\"")->type_name("FILE");
  AddFieldFlags(*app, "Bias, without --scores", &flags->request,
                {{"form", "Every cell or one value a distance; bias or table row", "--bias-form"},
                 {"dtype", "The elements' type; int32 for an index", nullptr, "fp32|fp16|bf16|int32"}});
  flags->bias.Add(*app);
  AddGeometryFlags(*app, &flags->geometry);
  AddHeadFlags(*app, &flags->geometry);
  AddMaskFlags(*app, &flags->mask);
  flags->precision.Add(*app);
  return {app, [flags](Session& session) -> absl::Status {
            POSENC_RETURN_IF_ERROR(CheckDestination(session, flags->out, "-o"));
            return flags->scores.empty() ? Generate(*flags, session) : Add(*flags, session);
          }};
}

}  // namespace posenc::command
