#include "tools/posenc/test_vectors.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <set>

#include <google/protobuf/util/json_util.h>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "posenc/base/status.h"
#include "posenc/base/version.h"
#include "posenc/kernels/convert.h"
#include "tools/files/random.h"

namespace posenc {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kHeads = 2;
// Largest difference of a correct float32 port from a rotated element, relative to the norm of the element's pair. A
// cosine and a sine in float32 are each wrong by up to one unit in the last place, as is each of the three operations.
constexpr double kTolerance = 0x4p-24;
// Training length if the settings have none: the first one of most models.
constexpr int64_t kUnknownLength = 4096;

constexpr std::pair<DType, v1::DataType> kFloatTypes[] = {
    {DType::kFP32, v1::DATA_TYPE_FP32}, {DType::kBF16, v1::DATA_TYPE_BF16}, {DType::kFP16, v1::DATA_TYPE_FP16}};

// Returns "bf16" for DATA_TYPE_BF16, "hf_eager" for PRECISION_PRESET_HF_EAGER.
std::string ShortName(const std::string& name, std::string_view prefix) {
  return absl::AsciiStrToLower(name.substr(prefix.size()));
}
std::string NameOf(v1::DataType dtype) { return ShortName(v1::DataType_Name(dtype), "DATA_TYPE_"); }

Json ToJsonObject(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string text;
  (void)google::protobuf::util::MessageToJsonString(message, &text, options);
  return Json::parse(text);
}

template <typename T>
v1::Tensor MakeTensor(v1::DataType dtype, std::initializer_list<int64_t> shape, const std::vector<T>& values) {
  v1::Tensor tensor;
  tensor.set_dtype(dtype);
  for (const int64_t size : shape) tensor.add_shape(size);
  tensor.set_data(values.data(), values.size() * sizeof(T));
  return tensor;
}

// Returns numbers in [-4, 4) that are multiples of 2^-21, which float32 represents exactly.
std::vector<float> RandomNumbers(uint64_t seed, int64_t count) {
  std::vector<float> numbers(count);
  for (int64_t n = 0; n < count; ++n) {
    const auto random = static_cast<int64_t>(RandomAt(seed, n) >> 40);
    numbers[n] = static_cast<float>(random - (int64_t{1} << 23)) * 0x1p-21f;
  }
  return numbers;
}

int64_t LengthOf(const v1::RotarySettings& settings) {
  double length = settings.max_position_embeddings();
  if (settings.rope_parameters().has_original_max_position_embeddings()) {
    length = settings.rope_parameters().original_max_position_embeddings();
  }
  return length >= 1 && length < 0x1p40 ? static_cast<int64_t>(length) : kUnknownLength;
}

int64_t AxesOf(const v1::RotarySettings& settings) {
  if (settings.has_axial()) return settings.axial().axes_size();
  if (settings.has_given_frequencies()) {
    int64_t last = 0;
    for (const int64_t axis : settings.given_frequencies().axis()) last = std::max(last, axis);
    return last + 1;
  }
  return std::max(1, settings.rope_parameters().mrope_section_size());
}

// Returns the elements of a head row, including those that a partial embedding does not rotate.
int64_t HeadDim(const v1::AnswerInfo& info) {
  const double factor = info.plan().rotary().rope_parameters().partial_rotary_factor();
  if (!(factor > 0 && factor < 1)) return info.rotary_dim();
  return std::max<int64_t>(info.rotary_dim(), std::llround(static_cast<double>(info.rotary_dim()) / factor));
}

class Maker {
 public:
  Maker(Backend& backend, uint64_t seed) : backend_(backend), seed_(seed) {}

  // Adds the vectors of one group of layers, and of one sequence length if the frequencies depend on it.
  absl::Status Add(const v1::LayerExplanation& layer, std::optional<int64_t> seq_len,
                   const std::vector<std::pair<std::string, v1::Precision>>& precisions) {
    const v1::AnswerInfo& info = layer.info();
    v1::RotarySettings settings = info.plan().rotary();
    prefix_ = layer.layer_type().empty() ? "" : layer.layer_type() + "/";
    if (settings.has_query_scale()) {  // the vectors are of the rotation
      vectors_.metadata[prefix_ + "left_out"] = Json{{"query_scale", ToJsonObject(settings.query_scale())}}.dump();
      settings.clear_query_scale();
    }
    if (seq_len) absl::StrAppend(&prefix_, "seq_len_", *seq_len, "/");
    vectors_.metadata[prefix_ + "settings"] = ToJsonObject(settings).dump();

    v1::Positions positions = PositionsOf(settings);
    if (seq_len) {
      positions.set_scaling_length_rule(v1::SCALING_LENGTH_RULE_GIVEN);
      positions.add_seq_len(*seq_len);
    }
    Put("positions", positions.ids(), {{"axes", AxesOf(settings)}});
    const auto& inv_freq = info.plan().frequencies(0).inv_freq();
    Put("inv_freq", MakeTensor(v1::DATA_TYPE_FP64, {inv_freq.size()}, std::vector(inv_freq.begin(), inv_freq.end())),
        {{"attention_scaling", info.sequences(0).attention_scaling()}});

    const int64_t tokens = positions.ids().shape(0), head_dim = HeadDim(info);
    const std::vector<float> numbers = RandomNumbers(seed_, tokens * kHeads * head_dim);
    for (const auto& [type, dtype] : kFloatTypes) {
      std::vector<std::byte> bytes(numbers.size() * SizeOf(type));
      Convert(DType::kFP32, type, numbers.data(), bytes.data(), numbers.size());
      inputs_[dtype] = MakeTensor(dtype, {1, tokens, kHeads, head_dim}, bytes);
      Put(absl::StrCat("q.", NameOf(dtype)), inputs_[dtype], {{"layout", "LAYOUT_BSHD"}});
    }
    for (const auto& [name, precision] : precisions) {
      POSENC_RETURN_IF_ERROR(AddTable(name, settings, positions, precision));
      POSENC_RETURN_IF_ERROR(AddRotations(name, settings, positions, precision));
    }
    return absl::OkStatus();
  }

  TestVectors Take() && { return std::move(vectors_); }

 private:
  static v1::Positions PositionsOf(const v1::RotarySettings& settings) {
    const int64_t length = LengthOf(settings), axes = AxesOf(settings);
    // The last position, 2^24 + 1, is an integer that float32 cannot represent.
    const std::set<int64_t> edges = {
        0, 1, 2, 3, length - 1, length, length + 1, 4 * length, 1 << 16, 1 << 20, (int64_t{1} << 24) + 1};
    const std::vector<int64_t> line(edges.begin(), edges.end());
    std::vector<int64_t> ids;
    for (size_t n = 0; n < line.size(); ++n) {
      for (int64_t axis = 0; axis < axes; ++axis) ids.push_back(line[(n + axis) % line.size()]);
    }
    v1::Positions positions;
    const auto tokens = static_cast<int64_t>(line.size());
    if (axes == 1) {
      *positions.mutable_ids() = MakeTensor(v1::DATA_TYPE_INT64, {tokens}, ids);
    } else {
      *positions.mutable_ids() = MakeTensor(v1::DATA_TYPE_INT64, {tokens, axes}, ids);
      positions.set_axis_dimension(v1::AXIS_DIMENSION_LAST);
    }
    return positions;
  }

  void Put(const std::string& name, v1::Tensor tensor, const Json& made) {
    vectors_.metadata[prefix_ + name] = made.dump();
    vectors_.tensors.emplace_back(prefix_ + name, std::move(tensor));
  }

  static Json Made(const char* call, const v1::AnswerInfo& info) {
    return {{"call", call},
            {"precision", ToJsonObject(info.precision())},
            {"plan_fingerprint", absl::BytesToHexString(info.plan_fingerprint())}};
  }

  absl::Status AddTable(const std::string& name, const v1::RotarySettings& settings, const v1::Positions& positions,
                        const v1::Precision& precision) {
    v1::GenerateTableRequest request;
    *request.mutable_rotary()->mutable_settings() = settings;
    *request.mutable_positions() = positions;
    *request.mutable_precision() = precision;
    request.set_dtype(v1::DATA_TYPE_FP32);
    request.set_form(v1::TABLE_FORM_HALF_WIDTH);
    if (settings.has_xpos()) request.set_operand(v1::OPERAND_QUERY);
    POSENC_ASSIGN_OR_RETURN(v1::GenerateTableResponse table, backend_.GenerateTable(request));
    const Json made = Made("GenerateTable", table.info());
    Put("cos." + name, std::move(*table.mutable_cos()), made);
    Put("sin." + name, std::move(*table.mutable_sin()), made);
    return absl::OkStatus();
  }

  absl::Status AddRotations(const std::string& name, const v1::RotarySettings& settings, const v1::Positions& positions,
                            const v1::Precision& precision) {
    for (const auto& [dtype, q] : inputs_) {
      v1::ApplyRotaryRequest request;
      *request.mutable_rotary()->mutable_settings() = settings;
      *request.mutable_positions() = positions;
      *request.mutable_precision() = precision;
      request.set_layout(v1::LAYOUT_BSHD);
      *request.mutable_q()->mutable_tensor() = q;
      POSENC_ASSIGN_OR_RETURN(v1::ApplyRotaryResponse answer, backend_.ApplyRotary(request));
      Json made = Made("ApplyRotary", answer.info());
      made["input"] = absl::StrCat(prefix_, "q.", NameOf(dtype));
      if (dtype == v1::DATA_TYPE_FP32) made["tolerance_of_pair_norm"] = kTolerance;
      Put(absl::StrCat("rotated.", NameOf(dtype), ".", name), std::move(*answer.mutable_q()), made);
    }
    return absl::OkStatus();
  }

  Backend& backend_;
  const uint64_t seed_;
  TestVectors vectors_;
  std::string prefix_;
  std::map<v1::DataType, v1::Tensor> inputs_;
};

absl::StatusOr<v1::ExplainResponse> Explain(Backend& backend, const v1::RotarySource& source,
                                            const v1::Precision& precision, std::optional<int64_t> seq_len) {
  v1::ExplainRequest request;
  if (source.has_model()) {
    *request.mutable_model() = source.model();
  } else {
    *request.mutable_rotary() = source.settings();
  }
  *request.mutable_precision() = precision;
  if (seq_len) request.add_seq_len(*seq_len);
  return backend.Explain(request);
}

}  // namespace

absl::StatusOr<TestVectors> MakeTestVectors(Backend& backend, const v1::RotarySource& source, uint64_t seed) {
  std::vector<std::pair<std::string, v1::Precision>> precisions;
  for (const auto preset : {v1::PRECISION_PRESET_EXACT, v1::PRECISION_PRESET_F32, v1::PRECISION_PRESET_HF_EAGER,
                            v1::PRECISION_PRESET_VLLM, v1::PRECISION_PRESET_FLUX}) {
    v1::Precision precision;
    precision.set_preset(preset);
    precisions.emplace_back(ShortName(v1::PrecisionPreset_Name(preset), "PRECISION_PRESET_"), precision);
  }
  const v1::Precision& exact = precisions[0].second;

  // If frequencies depend on the sequence's length, make vectors for the training length and for 4 times that.
  std::vector<std::optional<int64_t>> lengths = {std::nullopt};
  POSENC_ASSIGN_OR_RETURN(v1::ExplainResponse explained, Explain(backend, source, exact, std::nullopt));
  for (const v1::LayerExplanation& layer : explained.layers()) {
    if (layer.component() != explained.layers(0).component()) {
      return InvalidArgument("MISSING", "component", "", "must be given: the file has several parts");
    }
    if (layer.info().sequences_size() == 0 || layer.info().sequences(0).seq_len() == 0) continue;
    const int64_t length = LengthOf(layer.info().plan().rotary());
    lengths = {length, 4 * length};
  }

  Maker maker(backend, seed);
  bool any = false;
  for (const std::optional<int64_t> length : lengths) {
    POSENC_ASSIGN_OR_RETURN(explained, Explain(backend, source, exact, length));
    for (const v1::LayerExplanation& layer : explained.layers()) {
      if (!layer.info().rotated() || !layer.info().plan().has_rotary()) continue;
      any = true;
      POSENC_RETURN_IF_ERROR(maker.Add(layer, length, precisions));
    }
  }
  if (!any) return InvalidArgument("UNSUPPORTED", "rotary", "", "has no rotary embedding to make test vectors of");
  TestVectors vectors = std::move(maker).Take();
  vectors.metadata["posenc"] = kVersion;
  vectors.metadata["numerics_version"] = absl::StrCat(explained.layers(0).info().numerics_version());
  vectors.metadata["seed"] = absl::StrCat(seed);
  return vectors;
}

}  // namespace posenc
