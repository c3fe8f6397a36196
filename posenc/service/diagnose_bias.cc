#include <memory>
#include <optional>

#include <fmt/format.h>

#include "posenc/base/memory_account.h"
#include "posenc/diagnose/bias.h"
#include "posenc/mapping/bias_method.h"
#include "posenc/mapping/bias_source.h"
#include "posenc/mapping/read.h"
#include "posenc/methods/bias/bias.h"
#include "posenc/service/diagnosis.h"
#include "posenc/service/operations.h"

namespace posenc::wire {
namespace {

constexpr EnumPairs<v1::BiasMaskKind, diagnose::MaskKind> kMaskKinds = {
    {v1::BIAS_MASK_KIND_NONE, diagnose::MaskKind::kNone},     {v1::BIAS_MASK_KIND_KEYS, diagnose::MaskKind::kKeys},
    {v1::BIAS_MASK_KIND_CAUSAL, diagnose::MaskKind::kCausal}, {v1::BIAS_MASK_KIND_WINDOW, diagnose::MaskKind::kWindow},
    {v1::BIAS_MASK_KIND_PREFIX, diagnose::MaskKind::kPrefix}, {v1::BIAS_MASK_KIND_OTHER, diagnose::MaskKind::kOther}};
constexpr EnumPairs<v1::BiasFollows, diagnose::Follows> kFollows = {
    {v1::BIAS_FOLLOWS_NOTHING, diagnose::Follows::kNothing},
    {v1::BIAS_FOLLOWS_DISTANCE, diagnose::Follows::kDistance},
    {v1::BIAS_FOLLOWS_KEY, diagnose::Follows::kKey},
    {v1::BIAS_FOLLOWS_BOTH, diagnose::Follows::kBoth}};

absl::StatusOr<std::optional<diagnose::AskedBias>> ReadExpected(const Reader& reader,
                                                                const v1::DiagnoseBiasRequest& request) {
  if (!request.has_expected()) {
    for (const auto& [given, field] : {std::pair(request.has_head_start(), "head_start"),
                                       {request.has_precision(), "precision"},
                                       {request.has_mask(), "mask"},
                                       {request.up_to_softmax(), "up_to_softmax"}}) {
      if (given) return InvalidArgument("NOT_READ", field, "", "must be absent without expected");
    }
    return std::nullopt;
  }
  POSENC_ASSIGN_OR_RETURN(ResolvedBias resolved,
                          ResolveBias(reader, request.expected(), request.precision(), "expected"));
  diagnose::AskedBias asked{.method = std::move(resolved.method), .precision = resolved.precision};
  asked.of_model = request.expected().has_model() || request.expected().swin_v2().has_model();
  if (request.has_head_start()) asked.head_start = request.head_start();
  if (request.has_mask()) {
    POSENC_ASSIGN_OR_RETURN(asked.mask, ReadMaskWithoutFill(reader, request.mask()));
  }
  asked.up_to_softmax = request.up_to_softmax();
  return asked;
}

// Shape of the bias as [B, H, Sq, Sk]; B is 1 if the tensor has three axes.
absl::StatusOr<TensorShape> ReadShape(const Reader& reader, const v1::DiagnoseBiasRequest& request) {
  if (!request.has_bias()) return InvalidArgument("MISSING", "bias", "", "must be given");
  POSENC_ASSIGN_OR_RETURN(TensorShape shape, reader.Shape("bias", request.bias()));
  if (shape.dtype != DType::kFP64 && shape.dtype != DType::kFP32 && shape.dtype != DType::kFP16 &&
      shape.dtype != DType::kBF16) {
    return InvalidArgument("UNSUPPORTED", "bias.dtype", posenc::Name(shape.dtype), "must be FP64, FP32, FP16 or BF16");
  }
  if (shape.rank() != 3 && shape.rank() != 4) {
    return InvalidArgument("MISMATCH", "bias.shape", ToString(shape.shape), "must be [H, Sq, Sk] or [B, H, Sq, Sk]");
  }
  if (shape.rank() == 3) shape.shape.insert(shape.shape.begin(), 1);
  return shape;
}

void Write(const diagnose::FoundMask& mask, v1::MeasuredMask* message) {
  message->set_kind(Name(mask.kind, kMaskKinds));
  message->set_fill(mask.fill);
  message->set_highest_fill(mask.highest_fill);
  message->set_cells(mask.cells);
  message->set_offset(mask.offset);
  message->set_window(mask.window);
  message->set_prefix(mask.prefix);
  message->set_padded_keys(mask.padded_keys);
}

template <class Message>
void WriteIndex(const diagnose::Cell& cell, Message* message) {
  for (const int64_t index : {cell.b, cell.h, cell.i, cell.j}) message->add_index(index);
}

void Write(const diagnose::BiasExplanation& explanation, const diagnose::BiasEvidence& evidence,
           v1::BiasExplanation* message) {
  message->set_sentence(explanation.sentence);
  WriteBiasMethod(explanation.method, message->mutable_method());
  const BiasGeometry& geometry = explanation.geometry;
  message->mutable_geometry()->set_query_length(*geometry.query_length);
  message->mutable_geometry()->set_key_length(*geometry.key_length);
  if (const auto* offset = std::get_if<OffsetPositions>(&geometry.query)) {
    message->mutable_geometry()->set_query_offset(offset->offset);
  }
  if (HeadsOf(explanation.method) != evidence.heads()) {
    message->mutable_geometry()->set_head_start(*geometry.head_start);
    message->mutable_geometry()->set_head_count(*geometry.head_count);
  }
  WritePrecision(explanation.precision, message->mutable_precision());
  const diagnose::Comparison& comparison = explanation.comparison;
  message->set_elements(static_cast<int64_t>(comparison.elements()));
  message->set_equal_elements(static_cast<int64_t>(comparison.equal()));
  message->set_equal_share(comparison.share());
  message->set_worst_ulp(comparison.worst());
  message->set_median_ulp(comparison.median());
  if (explanation.first) {
    v1::FirstDifference* first = message->mutable_first_difference();
    WriteIndex(explanation.first->cell, first);
    first->set_computed(explanation.first->computed);
    first->set_given(explanation.first->given);
  }
  message->set_same_as(static_cast<int32_t>(explanation.same_as));
  message->set_expected(explanation.asked);
}

void Write(const diagnose::BiasDiagnosis& diagnosis, const diagnose::BiasEvidence& evidence,
           v1::DiagnoseBiasResponse* response) {
  const diagnose::BiasStructure& structure = diagnosis.structure;
  response->set_sentence(diagnosis.sentence);
  Write(structure.mask, response->mutable_mask());
  response->set_follows(Name(structure.follows, kFollows));
  if (structure.follows == diagnose::Follows::kBoth) {
    for (const diagnose::Cell& cell : {structure.contradiction->first, structure.contradiction->second}) {
      v1::BiasCell* message = response->add_contradiction();
      WriteIndex(cell, message);
      std::vector<double> row(evidence.keys());
      evidence.Load(cell.b, cell.h, cell.i, row.data());
      message->set_value(row[cell.j]);
    }
  }
  for (const auto& explanation : diagnosis.explanations) Write(explanation, evidence, response->add_explanations());
  WriteUndecided(diagnosis.undecided, response);
  WriteVerdict(diagnosis.verdict, response->mutable_verdict());
  response->set_compared_as(Name(diagnose::ComparedAs(evidence.bias.dtype), kDataTypes));
}

absl::Status WriteValues(const diagnose::BiasStructure& structure, const Limits& limits, v1::Tensor* tensor) {
  const auto heads = static_cast<int64_t>(structure.values.size());
  const auto count = static_cast<int64_t>(structure.values[0].size());
  POSENC_RETURN_IF_ERROR(CheckOutput(heads * count * static_cast<int64_t>(sizeof(double)), limits));
  const LargeBlocksMayBeRefused scope;
  Matrix<double> values{.rows = heads, .columns = count, .shared = false};
  values.values.reserve(heads * count);
  for (const auto& head : structure.values) values.values.insert(values.values.end(), head.begin(), head.end());
  WriteMatrix(values, tensor);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Job> Prepare(const v1::DiagnoseBiasRequest& request, const Payloads& payloads, const Limits& limits,
                            v1::DiagnoseBiasResponse* response) {
  const Reader reader{payloads, limits};
  POSENC_ASSIGN_OR_RETURN(const int32_t most, MostExplanations(request));
  diagnose::BiasEvidence evidence;
  POSENC_ASSIGN_OR_RETURN(evidence.bias, ReadShape(reader, request));
  if (request.has_query_offset()) evidence.query_offset = request.query_offset();
  POSENC_ASSIGN_OR_RETURN(std::optional<diagnose::AskedBias> asked, ReadExpected(reader, request));
  Job job;
  POSENC_ASSIGN_OR_RETURN(const std::optional<double> tolerance, ReadTolerance(request));
  job.decide = [evidence, asked = std::move(asked), tolerance, most, limits, response, &request, &payloads](
                   WorkPool& pool, const Cancellation& cancelled) mutable -> absl::Status {
    const std::vector<std::byte> bytes = CopyOf(payloads, request.bias());
    evidence.data = bytes.data();
    POSENC_ASSIGN_OR_RETURN(const diagnose::BiasDiagnosis diagnosis,
                            diagnose::DiagnoseBias(evidence, asked, most, limits, pool, cancelled, tolerance));
    Write(diagnosis, evidence, response);
    if (!request.return_values() || diagnosis.structure.values.empty()) return absl::OkStatus();
    return WriteValues(diagnosis.structure, limits, response->mutable_values());
  };
  return job;
}

}  // namespace posenc::wire
