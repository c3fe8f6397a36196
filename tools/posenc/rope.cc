#include <memory>
#include <string>

#include "posenc/base/status.h"
#include "tools/files/tensor_file.h"
#include "tools/posenc/defaults.h"
#include "tools/posenc/deliver.h"
#include "tools/posenc/field_flags.h"
#include "tools/posenc/request_flags.h"
#include "tools/posenc/session.h"

namespace posenc::command {
namespace {

struct RopeFlags {
  RotaryFlags rotary;
  PrecisionFlags precision;
  v1::ApplyRotaryRequest request;
  std::string q, k, q_out, k_out;
  bool in_place = false;
};

absl::Status ReadOperand(const std::string& path, v1::RotaryOperand* operand) {
  POSENC_ASSIGN_OR_RETURN(*operand->mutable_tensor(), ReadTensor(path));
  return absl::OkStatus();
}

// Reads the model and the tensors, as far as they are given, and completes what they tell.
absl::Status ReadInputs(const RopeFlags& flags, Session* session, v1::ApplyRotaryRequest* request) {
  if (flags.rotary.given()) {
    POSENC_ASSIGN_OR_RETURN(*request->mutable_rotary(), flags.rotary.Get());
  }
  if (!flags.q.empty()) POSENC_RETURN_IF_ERROR(ReadOperand(flags.q, request->mutable_q()));
  if (flags.k.empty()) {
    request->clear_k();
  } else {
    POSENC_RETURN_IF_ERROR(ReadOperand(flags.k, request->mutable_k()));
  }
  CompleteLayout(request, session);
  return absl::OkStatus();
}

// True if a given table's rows are by token: then there are no positions.
bool HasRowsByToken(const v1::RotarySource& rotary) {
  const v1::GivenTable& table = rotary.settings().given_table();
  return table.cos().shape_size() > (table.per_head() ? 3 : 2);
}

absl::Status RunRope(const RopeFlags& flags, Session& session) {
  const bool to_files = !flags.q_out.empty() || !flags.k_out.empty();
  const bool together = flags.q_out == flags.k_out;
  v1::ApplyRotaryRequest request = flags.request;
  const absl::Status read = ReadInputs(flags, &session, &request);
  Missing missing;
  missing.Add(flags.q.empty(), "--q FILE");
  flags.rotary.AddMissing(&missing);
  missing.Add(request.layout() == v1::LAYOUT_UNSPECIFIED && (read.ok() || flags.q.empty()), "--layout bshd|bhsd|thd");
  if (!HasRowsByToken(request.rotary())) AddMissingPositions(request.positions(), &missing);
  AddMissingOutput(session, flags.q_out, "--q-out", &missing);
  POSENC_RETURN_IF_ERROR(missing.Get());
  POSENC_RETURN_IF_ERROR(read);
  if (!request.has_rotary()) return flags.rotary.Get().status();  // --layer-type without --model
  if (flags.k.empty() && (!flags.k_out.empty() || IsSet(flags.request.k()))) {
    return UsageError("--k-out, --k-rotary-offset: need --k");
  }
  if (to_files && (flags.q_out.empty() || (!flags.k.empty() && flags.k_out.empty()))) {
    return UsageError("give both --q-out and --k-out; they may name the same .safetensors file");
  }

  POSENC_RETURN_IF_ERROR(CheckKept("--q-out", flags.q_out, {flags.q, flags.k}, flags.in_place));
  POSENC_RETURN_IF_ERROR(CheckKept("--k-out", flags.k_out, {flags.q, flags.k}, flags.in_place));
  if (IsSet(request.positions())) CompletePositions(request.mutable_positions());
  POSENC_RETURN_IF_ERROR(flags.precision.Put(&request));
  const size_t bytes = request.q().tensor().data().size() + request.k().tensor().data().size();
  POSENC_RETURN_IF_ERROR(session.AllowMemory(static_cast<double>(bytes)));
  if (to_files) {
    const size_t count = together ? 2 : 1;
    POSENC_RETURN_IF_ERROR(CheckWritable(flags.q_out, request.q().tensor().dtype(), count));
    if (request.has_k()) POSENC_RETURN_IF_ERROR(CheckWritable(flags.k_out, request.k().tensor().dtype(), count));
  }

  POSENC_ASSIGN_OR_RETURN(const v1::ApplyRotaryResponse response, session.backend().ApplyRotary(request));
  POSENC_RETURN_IF_ERROR(CheckDevice(request.hints(), response.info()));
  POSENC_RETURN_IF_ERROR(CheckLike("q", request.q().tensor(), response.q()));
  if (request.has_k()) POSENC_RETURN_IF_ERROR(CheckLike("k", request.k().tensor(), response.k()));
  std::vector<Destination> files;
  if (to_files) files.push_back({flags.q_out, {{"q", &response.q()}}});
  if (to_files && request.has_k()) {
    if (together) {
      files[0].tensors.push_back({"k", &response.k()});
    } else {
      files.push_back({flags.k_out, {{"k", &response.k()}}});
    }
  }
  return Deliver(session, response, response.info(), files);
}

}  // namespace

Subcommand AddRope(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand("rope", "Rotates q and, optionally, k (RoPE)");
  const auto flags = std::make_shared<RopeFlags>();
  app->add_option("--q", flags->q, "Query tensor, FP32, FP16 or BF16; .npy, .safetensors or .safetensors:NAME")
      ->type_name("FILE");
  app->add_option("--k", flags->k, "Key tensor; types and formats as for --q")->type_name("FILE");
  app->add_option("--q-out", flags->q_out, "Output file of the rotated q (tensor \"q\")")->type_name("FILE");
  app->add_option("--k-out", flags->k_out,
                  "Output file of the rotated k (tensor \"k\"); may be the .safetensors file of --q-out")
      ->type_name("FILE");
  AddInPlaceFlag(*app, &flags->in_place);
  AddFieldFlags(
      *app, "Tensors", &flags->request,
      {{"layout",
        "Order of the tensors' axes: batch, sequence, head, dimension; thd: packed tokens; default: from the shapes "
        "and the model's heads, if they leave one"},
       {"direction", "inverse undoes forward, transpose computes gradients; default forward"}});
  AddFieldFlags(
      *app, "Tensors", flags->request.mutable_q(),
      {{"rotary_offset", "First rotated element of a head row of q; default: the model's, else 0", "--q-rotary-offset"},
       {"rotates_first", "Rotate the first elements of a head row of q, whatever the model does",
        "--q-rotates-first"}});
  AddFieldFlags(
      *app, "Tensors", flags->request.mutable_k(),
      {{"rotary_offset", "First rotated element of a head row of k; default: the model's, else 0", "--k-rotary-offset"},
       {"rotates_first", "Rotate the first elements of a head row of k, whatever the model does",
        "--k-rotates-first"}});
  AddFieldFlags(*app, "Tensors", flags->request.mutable_hints(), {{"device", kDeviceHelp}});
  AddPositionFlags(*app, PositionKind::kSequences, flags->request.mutable_positions());
  flags->rotary.Add(*app);
  flags->precision.Add(*app);
  return {app, [flags](Session& session) { return RunRope(*flags, session); }};
}

}  // namespace posenc::command
