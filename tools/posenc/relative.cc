// `posenc scores` and `posenc values`: relative terms, computed from q, k or probabilities.
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "posenc/base/status.h"
#include "tools/files/tensor_file.h"
#include "tools/posenc/attention_flags.h"
#include "tools/posenc/defaults.h"
#include "tools/posenc/deliver.h"
#include "tools/posenc/field_flags.h"
#include "tools/posenc/relative_flags.h"
#include "tools/posenc/request_flags.h"
#include "tools/posenc/session.h"

namespace posenc::command {
namespace {

constexpr char kTensors[] = "Tensors";
constexpr char kFloats[] = "fp32|fp16|bf16";

struct ScoresFlags {
  v1::RelativeMethod method;
  ModelFlags model;
  PrecisionFlags precision;
  v1::BiasGeometry geometry;
  v1::Mask mask;
  v1::RelativeScoresRequest request;
  std::string q, k, add_to, out;
  bool in_place = false;
};

struct ValuesFlags {
  v1::Shaw shaw;
  ModelFlags model;
  PrecisionFlags precision;
  v1::BiasGeometry geometry;
  v1::RelativeValuesRequest request;
  std::string probabilities, add_to, out;
  bool in_place = false;
};

// Fills the fields that scores and values requests share: geometry, precision, add_to and dtype, by default that of
// `input`.
template <typename Flags, typename Request>
absl::Status Fill(const Flags& flags, const v1::Tensor& input, Session* session, Request* request) {
  if (IsSet(flags.geometry)) *request->mutable_geometry() = flags.geometry;
  POSENC_RETURN_IF_ERROR(flags.precision.Put(request));
  if (!flags.add_to.empty()) {
    POSENC_ASSIGN_OR_RETURN(*request->mutable_add_to(), ReadTensor(flags.add_to));
  }
  if (!request->has_add_to() && request->dtype() == v1::DATA_TYPE_UNSPECIFIED) {
    request->set_dtype(input.dtype());
    session->Assume("--dtype", EnumName(input.dtype()), "the input's");
  }
  const v1::DataType dtype = request->has_add_to() ? request->add_to().dtype() : request->dtype();
  return flags.out.empty() ? absl::OkStatus() : CheckWritable(flags.out, dtype, 1);
}

// Returns the bytes of the scores, [B, H, Sq, Sk].
double BytesOf(const v1::RelativeScoresRequest& request) {
  const v1::Tensor& q = request.q();
  if (q.shape_size() != 4) return 0;
  const int tokens = request.layout() == v1::LAYOUT_BSHD ? 1 : 2;
  const auto queries = static_cast<double>(q.shape(tokens));
  double keys = request.geometry().has_key_length() ? static_cast<double>(request.geometry().key_length()) : queries;
  if (request.k().shape_size() == 4) keys = static_cast<double>(request.k().shape(tokens));
  const v1::DataType dtype = request.has_add_to() ? request.add_to().dtype() : request.dtype();
  return static_cast<double>(q.shape(0)) * static_cast<double>(q.shape(3 - tokens)) * queries * keys *
         static_cast<double>(ElementSize(dtype));
}

// Returns the bytes of the values, which have the shape of add_to or [B, H, Sq, D].
double BytesOf(const v1::RelativeValuesRequest& request) {
  const v1::Tensor &p = request.probabilities(), &table = request.shaw().table();
  if (request.has_add_to()) return static_cast<double>(request.add_to().data().size());
  if (p.shape_size() != 4 || table.shape_size() != 2) return 0;
  return static_cast<double>(p.shape(0)) * static_cast<double>(p.shape(1)) * static_cast<double>(p.shape(2)) *
         static_cast<double>(table.shape(1)) * static_cast<double>(ElementSize(request.dtype()));
}

template <typename Response>
absl::Status Finish(const Session& session, const std::string& out, const Response& response, const char* name,
                    const v1::Tensor& tensor) {
  std::vector<Destination> files;
  if (!out.empty()) files.push_back({out, {{name, &tensor}}});
  return Deliver(session, response, response.info(), files);
}

// Returns the message of the method that is set.
google::protobuf::Message* MethodOf(v1::RelativeMethod* method) {
  const auto* field = method->GetDescriptor()->FindFieldByNumber(method->method_case());
  return method->GetReflection()->MutableMessage(method, field);
}

// Reads the tensors, and completes what they tell.
absl::Status ReadInputs(const ScoresFlags& flags, Session* session, v1::RelativeScoresRequest* request) {
  POSENC_ASSIGN_OR_RETURN(*request->mutable_q(), ReadTensor(flags.q));
  if (!flags.k.empty()) {
    POSENC_ASSIGN_OR_RETURN(*request->mutable_k(), ReadTensor(flags.k));
  }
  POSENC_RETURN_IF_ERROR(Fill(flags, request->q(), session, request));
  CompleteLayout(request, session);
  return absl::OkStatus();
}

absl::Status ReadInputs(const ValuesFlags& flags, Session* session, v1::RelativeValuesRequest* request) {
  POSENC_ASSIGN_OR_RETURN(*request->mutable_probabilities(), ReadTensor(flags.probabilities));
  POSENC_RETURN_IF_ERROR(Fill(flags, request->probabilities(), session, request));
  CompleteLayout(request, session);
  return absl::OkStatus();
}

absl::Status RunScores(const ScoresFlags& flags, Session& session) {
  v1::RelativeScoresRequest request = flags.request;
  const absl::Status read = flags.q.empty() ? absl::OkStatus() : ReadInputs(flags, &session, &request);
  Missing missing;
  missing.Add(flags.q.empty(), "--q FILE");
  missing.Add(!IsSet(flags.method),
              "a method: --shaw-table, --shaw-order and --shaw-clip; --wpr-wavelet; ...; with --model: its weights");
  missing.Add(request.layout() == v1::LAYOUT_UNSPECIFIED && read.ok(), "--layout bshd|bhsd");
  missing.Add(!request.has_content(), "--content true|false");
  AddMissingOutput(session, flags.out, "-o", &missing);
  POSENC_RETURN_IF_ERROR(missing.Get());
  POSENC_RETURN_IF_ERROR(read);
  POSENC_RETURN_IF_ERROR(CheckKept("-o", flags.out, {flags.q, flags.k, flags.add_to}, flags.in_place));
  *request.mutable_method() = flags.method;
  if (request.method().has_tupe()) CompleteTableLayout(request.mutable_method()->mutable_tupe(), &session);
  POSENC_RETURN_IF_ERROR(flags.model.PutBeside(MethodOf(request.mutable_method())));
  if (IsSet(flags.mask)) {
    *request.mutable_mask() = flags.mask;
    CompleteMask(request.mutable_mask(), &session);
  }
  POSENC_RETURN_IF_ERROR(session.AllowMemory(BytesOf(request)));
  POSENC_ASSIGN_OR_RETURN(const v1::RelativeScoresResponse response, session.backend().RelativeScores(request));
  if (request.has_add_to()) POSENC_RETURN_IF_ERROR(CheckLike("scores", request.add_to(), response.scores()));
  return Finish(session, flags.out, response, "scores", response.scores());
}

absl::Status RunValues(const ValuesFlags& flags, Session& session) {
  v1::RelativeValuesRequest request = flags.request;
  const absl::Status read = flags.probabilities.empty() ? absl::OkStatus() : ReadInputs(flags, &session, &request);
  Missing missing;
  missing.Add(flags.probabilities.empty(), "--probabilities FILE");
  missing.Add(!IsSet(flags.shaw), "--shaw-table, --shaw-order and --shaw-clip");
  missing.Add(request.layout() == v1::LAYOUT_UNSPECIFIED && read.ok(), "--layout bshd|bhsd");
  AddMissingOutput(session, flags.out, "-o", &missing);
  POSENC_RETURN_IF_ERROR(missing.Get());
  POSENC_RETURN_IF_ERROR(read);
  POSENC_RETURN_IF_ERROR(CheckKept("-o", flags.out, {flags.probabilities, flags.add_to}, flags.in_place));
  *request.mutable_shaw() = flags.shaw;
  POSENC_RETURN_IF_ERROR(flags.model.PutBeside(request.mutable_shaw()));
  POSENC_RETURN_IF_ERROR(session.AllowMemory(BytesOf(request)));
  POSENC_ASSIGN_OR_RETURN(const v1::RelativeValuesResponse response, session.backend().RelativeValues(request));
  if (request.has_add_to()) POSENC_RETURN_IF_ERROR(CheckLike("values", request.add_to(), response.values()));
  return Finish(session, flags.out, response, "values", response.values());
}

void AddTensorFlag(CLI::App& app, const std::string& flag, std::string* path, const std::string& help) {
  app.add_option(flag, *path, help)->type_name("FILE")->group(kTensors);
}

}  // namespace

Subcommand AddScores(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand("scores",
                                        "Computes the positional term of attention scores from q and k: Shaw, "
                                        "Transformer-XL, TUPE, DeBERTa, WPR, CoPE or Inkling");
  const auto flags = std::make_shared<ScoresFlags>();
  AddTensorFlag(*app, "-o,--out", &flags->out, "Output file (tensor \"scores\", [B, H, Sq, Sk])");
  AddTensorFlag(*app, "--q", &flags->q, "Query tensor, FP32, FP16 or BF16; .npy, .safetensors or .safetensors:NAME");
  AddTensorFlag(*app, "--k", &flags->k, "Key tensor, as --q; required if the method or --content uses it");
  AddTensorFlag(*app, "--add-to", &flags->add_to, "Scores to add the result to");
  AddInPlaceFlag(*app, &flags->in_place);
  AddFieldFlags(
      *app, kTensors, &flags->request,
      {{"layout",
        "Order of the axes of q and k: batch, sequence, head, dimension; default: from the shapes, if they "
        "leave one",
        nullptr, "bshd|bhsd"},
       {"content", "Whether the result includes q . k"},
       {"scale", "Factor of all products; default: the method's own"},
       {"dtype", "Type of the result; default: q's; with --add-to it is that tensor's type", nullptr, kFloats}});
  flags->model.Add(*app);
  AddRelativeMethodFlags(*app, &flags->method);
  AddGeometryFlags(*app, &flags->geometry);
  AddHeadFlags(*app, &flags->geometry);
  AddMaskFlags(*app, &flags->mask);
  flags->precision.Add(*app);
  return {app, [flags](Session& session) { return RunScores(*flags, session); }};
}

Subcommand AddValues(CLI::App& parent) {
  CLI::App* app =
      parent.add_subcommand("values", "Computes the positional term of the attention output (Shaw) from probabilities");
  const auto flags = std::make_shared<ValuesFlags>();
  AddTensorFlag(*app, "-o,--out", &flags->out, "Output file (tensor \"values\")");
  AddTensorFlag(*app, "--probabilities", &flags->probabilities,
                "Attention probabilities, after softmax: FP32, FP16 or BF16, [B, H, Sq, Sk]");
  AddTensorFlag(*app, "--add-to", &flags->add_to, "Tensor to add the result to: probabilities times v");
  AddInPlaceFlag(*app, &flags->in_place);
  AddFieldFlags(
      *app, kTensors, &flags->request,
      {{"layout",
        "Order of the result's axes: batch, sequence, head, dimension; default: from --add-to, if its shape "
        "leaves one",
        nullptr, "bshd|bhsd"},
       {"dtype", "Type of the result; default: that of the probabilities; with --add-to it is that tensor's type",
        nullptr, kFloats}});
  flags->model.Add(*app);
  AddShawValueFlags(*app, &flags->shaw);
  AddGeometryFlags(*app, &flags->geometry);
  flags->precision.Add(*app);
  return {app, [flags](Session& session) { return RunValues(*flags, session); }};
}

}  // namespace posenc::command
