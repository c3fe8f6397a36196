#include "tools/load/methods.h"

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "posenc/base/status.h"
#include "posenc/v1/service.pb.h"
#include "tools/load/work.h"

namespace posenc::load {

using google::protobuf::Message;

namespace {

// Streaming variants by the name of the unary RPC.
constexpr std::pair<std::string_view, std::string_view> kStreams[] = {
    {"ApplyRotary", "StreamApplyRotary"}, {"GenerateTable", "StreamTable"}, {"GenerateBias", "StreamBias"}};

template <typename Request, void (*kComplete)(const Entry&, int64_t, Request*)>
Method MakeMethod(bool takes_model) {
  const wire::RpcDescription& rpc = wire::RpcOf(*Request::descriptor());
  const auto* const stream = std::find_if(std::begin(kStreams), std::end(kStreams),
                                          [&](const auto& names) { return names.first == rpc.name; });
  return {rpc, stream == std::end(kStreams) ? nullptr : wire::FindRpc(stream->second),
          [](const Entry& entry, int64_t offset, Message* request) {
            kComplete(entry, offset, static_cast<Request*>(request));
          },
          takes_model};
}

v1::DataType DtypeOf(const Entry& entry) {
  v1::DataType dtype = v1::DATA_TYPE_UNSPECIFIED;
  return v1::DataType_Parse("DATA_TYPE_" + absl::AsciiStrToUpper(entry.dtype), &dtype) ? dtype
                                                                                       : v1::DATA_TYPE_UNSPECIFIED;
}

void PutOffset(int64_t offset, v1::Positions* positions) {
  if (positions->source_case() == v1::Positions::SOURCE_NOT_SET) positions->set_offset(offset);
}

void PutModel(const Entry& entry, v1::ModelConfig* model) {
  if (!entry.config_json.empty()) model->set_config_json(entry.config_json);
  if (!entry.gguf.empty()) model->set_gguf(entry.gguf);
}

// Default: a plain rotary embedding over the whole head.
void PutRotary(const Entry& entry, v1::RotarySource* source) {
  if (entry.has_model()) {
    PutModel(entry, source->mutable_model());
  } else if (source->source_case() == v1::RotarySource::SOURCE_NOT_SET) {
    v1::RotarySettings& settings = *source->mutable_settings();
    settings.mutable_rope_parameters()->set_rope_type("default");
    settings.set_rotary_dim(entry.head_dim);
    settings.set_input_pairing(v1::PAIRING_HALF_SPLIT);
  }
}

void PutTensor(const Entry& entry, std::initializer_list<int64_t> shape, v1::Tensor* tensor) {
  tensor->set_dtype(DtypeOf(entry));
  for (const int64_t size : shape) tensor->add_shape(size);
}

void PutHeads(const Entry& entry, int64_t heads, v1::Layout layout, v1::Tensor* tensor) {
  layout == v1::LAYOUT_BHSD ? PutTensor(entry, {entry.batch, heads, entry.tokens, entry.head_dim}, tensor)
                            : PutTensor(entry, {entry.batch, entry.tokens, heads, entry.head_dim}, tensor);
}

void CompleteRotary(const Entry& entry, int64_t offset, v1::ApplyRotaryRequest* request) {
  PutRotary(entry, request->mutable_rotary());
  PutOffset(offset, request->mutable_positions());
  if (request->layout() == v1::LAYOUT_UNSPECIFIED) request->set_layout(v1::LAYOUT_BSHD);
  const auto put = [&](int64_t heads, v1::Tensor* tensor) {
    if (request->layout() == v1::LAYOUT_THD) {
      PutTensor(entry, {entry.batch * entry.tokens, heads, entry.head_dim}, tensor);
    } else {
      PutHeads(entry, heads, request->layout(), tensor);
    }
  };
  put(entry.heads, request->mutable_q()->mutable_tensor());
  if (entry.key_heads > 0) put(entry.key_heads, request->mutable_k()->mutable_tensor());
}

void CompleteTable(const Entry& entry, int64_t offset, v1::GenerateTableRequest* request) {
  PutRotary(entry, request->mutable_rotary());
  PutOffset(offset, request->mutable_positions());
  if (request->positions().has_offset()) request->set_count(entry.tokens);
  request->set_dtype(DtypeOf(entry));
  if (request->form() == v1::TABLE_FORM_UNSPECIFIED) request->set_form(v1::TABLE_FORM_HALF_WIDTH);
}

void CompleteEmbedding(const Entry& entry, int64_t offset, v1::GenerateEmbeddingRequest* request) {
  if (request->method_case() == v1::GenerateEmbeddingRequest::METHOD_NOT_SET) {
    request->mutable_sinusoidal()->set_convention(v1::SINUSOIDAL_CONVENTION_INTERLEAVED);
    request->mutable_sinusoidal()->set_dim(entry.heads * entry.head_dim);
  }
  PutOffset(offset, request->mutable_positions());
  if (request->positions().has_offset()) request->set_count(entry.tokens);
  request->set_dtype(DtypeOf(entry));
}

void PutAlibi(const Entry& entry, v1::BiasMethod* method) {
  if (entry.has_model()) {
    PutModel(entry, method->mutable_model());
  } else if (method->method_case() == v1::BiasMethod::METHOD_NOT_SET) {
    v1::Alibi& alibi = *method->mutable_alibi();
    alibi.set_num_heads(entry.heads);
    alibi.set_rule(v1::ALIBI_SLOPE_RULE_GEOMETRIC);
    alibi.set_form(v1::ALIBI_FORM_SYMMETRIC);
  }
}

void PutGeometry(const Entry& entry, int64_t offset, v1::BiasGeometry* geometry) {
  if (!geometry->has_query_length()) geometry->set_query_length(entry.tokens);
  if (!geometry->has_key_length()) geometry->set_key_length(entry.tokens);
  if (geometry->query_case() == v1::BiasGeometry::QUERY_NOT_SET) geometry->set_query_offset(offset);
}

void PutCells(const Entry& entry, const v1::BiasGeometry& geometry, v1::Tensor* tensor) {
  PutTensor(entry, {entry.batch, entry.heads, geometry.query_length(), geometry.key_length()}, tensor);
}

void CompleteBias(const Entry& entry, int64_t offset, v1::GenerateBiasRequest* request) {
  PutAlibi(entry, request->mutable_method());
  PutGeometry(entry, offset, request->mutable_geometry());
  if (request->form() == v1::BIAS_FORM_UNSPECIFIED) request->set_form(v1::BIAS_FORM_DENSE);
  request->set_dtype(DtypeOf(entry));
}

void CompleteAddBias(const Entry& entry, int64_t offset, v1::AddBiasRequest* request) {
  PutAlibi(entry, request->mutable_method());
  PutGeometry(entry, offset, request->mutable_geometry());
  PutCells(entry, request->geometry(), request->mutable_scores());
}

// Default: wavelets, which need no weights, without the content term.
void CompleteScores(const Entry& entry, int64_t offset, v1::RelativeScoresRequest* request) {
  v1::RelativeMethod& method = *request->mutable_method();
  if (method.method_case() == v1::RelativeMethod::METHOD_NOT_SET) {
    v1::Wpr& wpr = *method.mutable_wpr();
    wpr.set_wavelet(v1::WAVELET_RICKER);
    wpr.set_channels(v1::WPR_CHANNELS_SHIFT_FASTEST);
    wpr.set_distance(v1::WPR_DISTANCE_QUERY_MINUS_KEY);
  }
  if (!request->has_content()) request->set_content(false);
  if (request->layout() == v1::LAYOUT_UNSPECIFIED) request->set_layout(v1::LAYOUT_BSHD);
  PutGeometry(entry, offset, request->mutable_geometry());
  request->set_dtype(DtypeOf(entry));
  PutHeads(entry, entry.heads, request->layout(), request->mutable_q());
  const bool with_k =
      request->content() || method.has_cope() || method.shaw().key_term() || method.deberta().has_query();
  if (with_k) PutHeads(entry, std::max<int64_t>(entry.key_heads, 1), request->layout(), request->mutable_k());
}

// Default: a random table of 33 rows.
void CompleteValues(const Entry& entry, int64_t offset, v1::RelativeValuesRequest* request) {
  v1::Shaw& shaw = *request->mutable_shaw();
  if (!shaw.has_table()) {
    constexpr int64_t kRows = 33;
    v1::Tensor& table = *shaw.mutable_table();
    table.set_dtype(v1::DATA_TYPE_FP32);
    table.add_shape(kRows);
    table.add_shape(entry.head_dim);
    const std::vector<std::byte> numbers =
        RandomNumbers(v1::DATA_TYPE_FP32, sizeof(float) * kRows * static_cast<size_t>(entry.head_dim), 0);
    table.set_data(numbers.data(), numbers.size());
    shaw.set_order(v1::SHAW_ORDER_KEY_MINUS_QUERY);
    shaw.set_clip(true);
  }
  if (request->layout() == v1::LAYOUT_UNSPECIFIED) request->set_layout(v1::LAYOUT_BSHD);
  PutGeometry(entry, offset, request->mutable_geometry());
  request->set_dtype(DtypeOf(entry));
  PutCells(entry, request->geometry(), request->mutable_probabilities());
}

const std::vector<Method>& Methods() {
  static const std::vector<Method> methods = {
      MakeMethod<v1::ApplyRotaryRequest, CompleteRotary>(/*takes_model=*/true),
      MakeMethod<v1::GenerateTableRequest, CompleteTable>(/*takes_model=*/true),
      MakeMethod<v1::GenerateEmbeddingRequest, CompleteEmbedding>(/*takes_model=*/false),
      MakeMethod<v1::GenerateBiasRequest, CompleteBias>(/*takes_model=*/true),
      MakeMethod<v1::AddBiasRequest, CompleteAddBias>(/*takes_model=*/true),
      MakeMethod<v1::RelativeScoresRequest, CompleteScores>(/*takes_model=*/false),
      MakeMethod<v1::RelativeValuesRequest, CompleteValues>(/*takes_model=*/false),
  };
  return methods;
}

}  // namespace

absl::StatusOr<const Method*> FindMethod(const std::string& name) {
  std::vector<std::string> names;
  for (const Method& method : Methods()) {
    if (name == method.rpc.name) return &method;
    names.push_back(method.rpc.name);
  }
  return InvalidArgument("UNKNOWN_VALUE", "method", name, absl::StrCat("must be one of ", absl::StrJoin(names, ", ")));
}

std::vector<v1::Tensor*> InputsOf(Message* request) {
  if (auto* rotary = dynamic_cast<v1::ApplyRotaryRequest*>(request)) {
    std::vector<v1::Tensor*> tensors = {rotary->mutable_q()->mutable_tensor()};
    if (rotary->has_k()) tensors.push_back(rotary->mutable_k()->mutable_tensor());
    return tensors;
  }
  if (auto* bias = dynamic_cast<v1::AddBiasRequest*>(request)) return {bias->mutable_scores()};
  if (auto* scores = dynamic_cast<v1::RelativeScoresRequest*>(request)) {
    std::vector<v1::Tensor*> tensors = {scores->mutable_q()};
    if (scores->has_k()) tensors.push_back(scores->mutable_k());
    return tensors;
  }
  if (auto* values = dynamic_cast<v1::RelativeValuesRequest*>(request)) {
    return {values->mutable_probabilities()};
  }
  return {};
}

std::vector<v1::Region*> OutputsOf(Message* request) {
  if (auto* rotary = dynamic_cast<v1::ApplyRotaryRequest*>(request)) {
    std::vector<v1::Region*> outputs = {rotary->mutable_q()->mutable_output()};
    if (rotary->has_k()) outputs.push_back(rotary->mutable_k()->mutable_output());
    return outputs;
  }
  if (auto* table = dynamic_cast<v1::GenerateTableRequest*>(request)) {
    return {table->mutable_cos_output(), table->mutable_sin_output()};
  }
  // All other requests have one output field.
  const auto* field = request->GetDescriptor()->FindFieldByName("output");
  return {static_cast<v1::Region*>(request->GetReflection()->MutableMessage(request, field))};
}

}  // namespace posenc::load
