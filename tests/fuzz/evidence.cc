#include "tests/fuzz/evidence.h"

#include <string>

#include "posenc/v1/service.pb.h"
#include "tests/fuzz/message_mutator.h"

namespace posenc::fuzz {
namespace {

using google::protobuf::DynamicCastToGenerated;

// Copies the computed tensor or, of one with as many bytes, a part: some of the heads, tokens or elements.
void Take(const v1::Tensor& computed, v1::Tensor* tensor, Random& random) {
  const std::string& from = computed.data();
  const size_t parts = random.OneIn(2) ? 1 : 1 + random.Below(16);
  if (parts == 1 || from.size() != tensor->data().size()) {
    *tensor = computed;
    return;
  }
  const size_t bytes = from.size() / parts, begin = random.Below(parts) * bytes;
  tensor->mutable_data()->replace(begin, bytes, from, begin, bytes);
}

// Serves the request, half of them after a change.
template <typename Response>
bool Compute(const Answer& answer, google::protobuf::Message* request, Response* response, Random& random) {
  if (random.OneIn(2)) ChangeFields(request, random);
  return answer(*request, response);
}

void SetOperand(const v1::BeforeAndAfter& evidence, v1::RotaryOperand* operand) {
  operand->set_rotary_offset(evidence.rotary_offset());
  *operand->mutable_tensor() = evidence.before();
}

void ComputeRotation(const Answer& answer, v1::DiagnoseRequest* diagnosis, Random& random) {
  v1::RotationEvidence& evidence = *diagnosis->mutable_rotation();
  v1::ApplyRotaryRequest request;
  *request.mutable_rotary() = diagnosis->expected();
  *request.mutable_positions() = diagnosis->positions();
  *request.mutable_precision() = diagnosis->precision();
  request.set_layout(diagnosis->layout());
  request.set_direction(diagnosis->direction());
  if (evidence.has_q()) SetOperand(evidence.q(), request.mutable_q());
  if (evidence.has_k()) SetOperand(evidence.k(), request.mutable_k());
  v1::ApplyRotaryResponse response;
  if (!Compute(answer, &request, &response, random)) return;
  if (response.has_q()) Take(response.q(), evidence.mutable_q()->mutable_after(), random);
  if (response.has_k()) Take(response.k(), evidence.mutable_k()->mutable_after(), random);
}

void ComputeTable(const Answer& answer, v1::DiagnoseRequest* diagnosis, Random& random) {
  v1::TableEvidence& evidence = *diagnosis->mutable_table();
  v1::GenerateTableRequest request;
  *request.mutable_rotary() = diagnosis->expected();
  *request.mutable_positions() = diagnosis->positions();
  *request.mutable_precision() = diagnosis->precision();
  request.set_dtype(evidence.cos().dtype());
  request.set_form(evidence.form());
  if (diagnosis->positions().has_offset() && evidence.cos().shape_size() > 0)
    request.set_count(evidence.cos().shape(0));
  v1::GenerateTableResponse response;
  if (!Compute(answer, &request, &response, random)) return;
  Take(response.cos(), evidence.mutable_cos(), random);
  Take(response.sin(), evidence.mutable_sin(), random);
}

void ComputeFrequencies(const Answer& answer, v1::DiagnoseRequest* diagnosis, Random& random) {
  v1::AnalyzeRequest request;
  *request.mutable_rotary() = diagnosis->expected();
  if (random.OneIn(2)) request.set_seq_len(64);
  v1::AnalyzeResponse response;
  if (!Compute(answer, &request, &response, random)) return;
  v1::Tensor computed;
  computed.set_dtype(random.OneIn(2) ? v1::DATA_TYPE_FP64 : v1::DATA_TYPE_FP32);
  computed.add_shape(response.pairs_size());
  for (const v1::PairAnalysis& pair : response.pairs()) {
    const double wide = pair.inv_freq();
    const auto narrow = static_cast<float>(wide);
    const bool is_wide = computed.dtype() == v1::DATA_TYPE_FP64;
    computed.mutable_data()->append(reinterpret_cast<const char*>(is_wide ? static_cast<const void*>(&wide) : &narrow),
                                    is_wide ? sizeof(wide) : sizeof(narrow));
  }
  Take(computed, diagnosis->mutable_inv_freq(), random);
}

void ComputeBias(const Answer& answer, v1::DiagnoseBiasRequest* diagnosis, Random& random) {
  const v1::Tensor& bias = diagnosis->bias();
  v1::GenerateBiasRequest request;
  *request.mutable_method() = diagnosis->expected();
  *request.mutable_precision() = diagnosis->precision();
  request.set_dtype(bias.dtype());
  request.set_form(v1::BIAS_FORM_DENSE);
  v1::BiasGeometry& geometry = *request.mutable_geometry();
  if (bias.shape_size() == 3) {
    geometry.set_head_count(bias.shape(0));
    geometry.set_query_length(bias.shape(1));
    geometry.set_key_length(bias.shape(2));
  }
  if (diagnosis->has_head_start()) geometry.set_head_start(diagnosis->head_start());
  if (diagnosis->has_query_offset()) geometry.set_query_offset(diagnosis->query_offset());
  request.mutable_mask()->set_causal(random.OneIn(2));
  v1::GenerateBiasResponse response;
  if (Compute(answer, &request, &response, random)) Take(response.bias(), diagnosis->mutable_bias(), random);
}

}  // namespace

void ComputeEvidence(const Answer& answer, google::protobuf::Message* message, Random& random) {
  if (auto* diagnosis = DynamicCastToGenerated<v1::DiagnoseRequest>(message)) {
    if (diagnosis->has_rotation()) ComputeRotation(answer, diagnosis, random);
    if (diagnosis->has_table()) ComputeTable(answer, diagnosis, random);
    if (diagnosis->has_inv_freq()) ComputeFrequencies(answer, diagnosis, random);
  } else if (auto* of_bias = DynamicCastToGenerated<v1::DiagnoseBiasRequest>(message)) {
    ComputeBias(answer, of_bias, random);
  }
}

}  // namespace posenc::fuzz
