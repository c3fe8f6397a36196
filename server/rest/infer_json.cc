#include "server/rest/infer_json.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <utility>
#include <vector>

#include "grpcpp/support/byte_buffer.h"
#include "inference/service.pb.h"
#include "posenc/base/interruption.h"
#include "posenc/base/json_text.h"
#include "posenc/base/status.h"
#include "server/oip/infer_answer.h"
#include "server/rest/json_fields.h"

namespace posenc::server {
namespace {

using inference::InferParameter;
using inference::ModelInferRequest;
using nlohmann::json;

constexpr char kData[] = "data", kBinarySize[] = "binary_data_size", kBinary[] = "binary_data",
               kBinaryOutput[] = "binary_data_output", kRegion[] = "shared_memory_region";
constexpr size_t kMostValues = 10'000;

// A slice of bytes whose owner it keeps.
grpc::Slice Share(absl::Span<const std::byte> bytes, const std::shared_ptr<const void>& owner) {
  return {const_cast<std::byte*>(bytes.data()), bytes.size(),
          [](void* kept) { delete static_cast<std::shared_ptr<const void>*>(kept); },
          new std::shared_ptr<const void>(owner)};
}

// The elements of a left-out array as they are in memory: numbers, true and false in the order of the text.
class Elements {
 public:
  Elements(std::string_view text, std::string path) : text_(text), path_(std::move(path)) {}

  // Returns their bytes. INVALID_ARGUMENT for one that the type cannot hold.
  absl::StatusOr<std::string> AsBytesOf(std::string_view datatype) {
    if (datatype == "FP32") return Read<float>();
    if (datatype == "FP64") return Read<double>();
    if (datatype == "INT32") return Read<int32_t>();
    if (datatype == "INT64") return Read<int64_t>();
    if (datatype == "BOOL") return Read<bool>();
    return InvalidArgument("UNSUPPORTED", path_, datatype,
                           "must be binary (binary_data_size): JSON has elements of BOOL, INT32, INT64, FP32 and FP64");
  }
  int64_t count() const { return count_; }

 private:
  template <typename Element>
  absl::StatusOr<std::string> Read() {
    std::string bytes;
    for (std::string_view token = Next(); !token.empty(); token = Next()) {
      InterruptionPointOfStep(count_);
      Element element;
      if (!Convert(token, &element)) {
        return InvalidArgument("MISMATCH", fmt::format("{}[{}]", path_, count_), token,
                               fmt::format("must be {}", Wanted<Element>()));
      }
      ++count_;
      bytes.append(reinterpret_cast<const char*>(&element), sizeof(element));
    }
    return bytes;
  }
  // The next number, true or false; empty at the end. The text is valid JSON.
  std::string_view Next() {
    constexpr std::string_view kBetween = " \t\r\n,[]";
    const size_t begin = text_.find_first_not_of(kBetween, at_);
    if (begin == std::string_view::npos) return {};
    at_ = std::min(text_.find_first_of(kBetween, begin), text_.size());
    return text_.substr(begin, at_ - begin);
  }
  template <typename Element>
  static bool Convert(std::string_view token, Element* element) {
    if constexpr (std::is_same_v<Element, bool>) {
      *element = token == "true";
      return *element || token == "false";
    } else {
      const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), *element);
      if (end != token.data() + token.size()) return false;
      if (error == std::errc()) return true;
      if constexpr (std::is_floating_point_v<Element>) {
        // Too large, or so small that it is rounded to zero or a subnormal number.
        const std::string text(token);
        *element = std::is_same_v<Element, float> ? std::strtof(text.c_str(), nullptr)
                                                  : static_cast<Element>(std::strtod(text.c_str(), nullptr));
        return std::isfinite(*element);
      }
      return false;
    }
  }
  template <typename Element>
  static std::string Wanted() {
    if (std::is_same_v<Element, bool>) return "true or false";
    if (std::is_same_v<Element, float>) return "a number that FP32 can hold";
    if (std::is_same_v<Element, double>) return "a number that FP64 can hold";
    return fmt::format("an integer that INT{} can hold", 8 * sizeof(Element));
  }

  const std::string_view text_;
  const std::string path_;
  size_t at_ = 0;
  int64_t count_ = 0;
};

class InferReader {
 public:
  InferReader(const SharedBytes& body, size_t json_bytes) : body_(body), used_(json_bytes) {}

  absl::StatusOr<InferJson> Read(std::string_view name, std::string_view version) {
    json tree;
    NumberArrays arrays{.key = kData, .max_values = kMostValues};
    const std::string_view text(reinterpret_cast<const char*>(body_.bytes.data()), used_);
    POSENC_RETURN_IF_ERROR(ParseJson(text, "", &arrays, &tree));
    texts_ = std::move(arrays.texts);
    POSENC_ASSIGN_OR_RETURN(JsonFields fields, JsonFields::Of(tree, ""));
    request_.set_model_name(std::string(name));
    request_.set_model_version(std::string(version));
    POSENC_ASSIGN_OR_RETURN(const std::string same_name, fields.Text("model_name"));  // KServe's clients repeat it
    if (!same_name.empty() && same_name != name) {
      return InvalidArgument("MISMATCH", "model_name", same_name, "must be absent, or the model of the path");
    }
    POSENC_ASSIGN_OR_RETURN(*request_.mutable_id(), fields.Text("id"));
    POSENC_RETURN_IF_ERROR(ReadParameters(&fields, request_.mutable_parameters()));
    POSENC_ASSIGN_OR_RETURN(const auto inputs, fields.Objects("inputs"));
    for (size_t n = 0; n < inputs.size(); ++n) POSENC_RETURN_IF_ERROR(ReadInput(inputs[n], request_.add_inputs()));
    POSENC_ASSIGN_OR_RETURN(const auto outputs, fields.Objects("outputs"));
    for (size_t n = 0; n < outputs.size(); ++n) POSENC_RETURN_IF_ERROR(ReadOutput(outputs[n]));
    POSENC_RETURN_IF_ERROR(fields.RejectOthers());
    if (used_ != body_.bytes.size()) {
      return InvalidArgument("MISMATCH", kWholeRequest,
                             fmt::format("{} bytes behind the JSON", body_.bytes.size() - json_bytes_),
                             fmt::format("must be {}, the sum of binary_data_size", used_ - json_bytes_));
    }
    const auto asked = request_.parameters().find(kBinaryOutput);
    if (asked != request_.parameters().end() && asked->second.bool_param()) forms_.otherwise = OutputForm::kBinary;
    return InferJson{Message(), std::move(forms_)};
  }

 private:
  using Parameters = google::protobuf::Map<std::string, InferParameter>;

  static absl::Status ReadParameters(JsonFields* fields, Parameters* parameters) {
    POSENC_ASSIGN_OR_RETURN(JsonFields given, fields->Object("parameters"));
    for (const auto& [name, value] : given.entries()) {
      InferParameter& parameter = (*parameters)[name];
      if (JsonFields::SetParameter(value, &parameter)) continue;
      if (value.is_number_unsigned()) {
        parameter.set_uint64_param(value.get<uint64_t>());
      } else if (value.is_number_float()) {
        parameter.set_double_param(value.get<double>());
      } else {
        return given.Mismatch(name, "true or false, a number or text");
      }
    }
    return absl::OkStatus();
  }

  absl::Status ReadInput(JsonFields fields, ModelInferRequest::InferInputTensor* input) {
    POSENC_ASSIGN_OR_RETURN(*input->mutable_name(), fields.Text("name"));
    POSENC_ASSIGN_OR_RETURN(*input->mutable_datatype(), fields.Text("datatype"));
    POSENC_ASSIGN_OR_RETURN(const std::vector<int64_t> shape, fields.Integers("shape"));
    input->mutable_shape()->Assign(shape.begin(), shape.end());
    POSENC_RETURN_IF_ERROR(ReadParameters(&fields, input->mutable_parameters()));
    const auto size = input->parameters().find(kBinarySize);
    const bool is_binary = size != input->parameters().end(), in_region = input->parameters().contains(kRegion);
    const json* data = fields.Find(kData);
    POSENC_RETURN_IF_ERROR(fields.RejectOthers());
    if ((data != nullptr) + is_binary + in_region != 1) {
      return InvalidArgument(data == nullptr && !is_binary ? "MISSING" : "CONFLICT", fields.PathOf(kData), "",
                             "must be given, or binary_data_size or shared_memory_region, only one of them");
    }
    if (in_region) return absl::OkStatus();
    if (is_binary) return TakeBinary(fields, size->second);
    if (!data->is_binary()) return fields.Mismatch(kData, "an array of numbers");
    Elements elements(texts_[data->get_binary().subtype()], fields.PathOf(kData));
    POSENC_ASSIGN_OR_RETURN(std::string bytes, elements.AsBytesOf(input->datatype()));
    // Of a shape that overflows the typed request says what is wrong.
    int64_t wanted = 1;
    for (const int64_t size_of_axis : shape) {
      if (size_of_axis < 0 || __builtin_mul_overflow(wanted, size_of_axis, &wanted)) wanted = -1;
      if (wanted < 0) break;
    }
    if (wanted >= 0 && wanted != elements.count()) {
      return InvalidArgument("MISMATCH", fields.PathOf(kData), fmt::format("{} elements", elements.count()),
                             fmt::format("must be {}, the product of shape", wanted));
    }
    AddRaw(grpc::Slice(bytes));
    return absl::OkStatus();
  }

  absl::Status TakeBinary(const JsonFields& fields, const InferParameter& size) {
    const size_t left = body_.bytes.size() - used_;
    if (size.parameter_choice_case() != InferParameter::kInt64Param || size.int64_param() < 0 ||
        static_cast<size_t>(size.int64_param()) > left) {
      return InvalidArgument("OUT_OF_RANGE", fields.PathOf("parameters") + "." + kBinarySize, "",
                             fmt::format("must be an integer from 0 to {}, the bytes that are left of the body", left));
    }
    const auto bytes = static_cast<size_t>(size.int64_param());
    AddRaw(Share(body_.bytes.subspan(used_, bytes), body_.owner));
    used_ += bytes;
    return absl::OkStatus();
  }

  absl::Status ReadOutput(JsonFields fields) {
    auto* const output = request_.add_outputs();
    POSENC_ASSIGN_OR_RETURN(*output->mutable_name(), fields.Text("name"));
    POSENC_RETURN_IF_ERROR(ReadParameters(&fields, output->mutable_parameters()));
    const auto binary = output->parameters().find(kBinary);
    const bool is_binary = binary != output->parameters().end() && binary->second.bool_param();
    forms_.outputs[output->name()] = output->parameters().contains(kRegion) ? OutputForm::kSharedMemory
                                     : is_binary                            ? OutputForm::kBinary
                                                                            : OutputForm::kJson;
    return fields.RejectOthers();
  }

  void AddRaw(grpc::Slice bytes) {
    raw_.emplace_back(Delimited(ModelInferRequest::kRawInputContentsFieldNumber, bytes.size()));
    raw_.push_back(std::move(bytes));
  }
  grpc::ByteBuffer Message() {
    std::vector<grpc::Slice> slices = {grpc::Slice(request_.SerializeAsString())};
    for (grpc::Slice& slice : raw_) slices.push_back(std::move(slice));
    return {slices.data(), slices.size()};
  }

  const SharedBytes& body_;
  size_t used_;  // bytes of the body
  const size_t json_bytes_ = used_;
  std::vector<std::string_view> texts_;
  ModelInferRequest request_;
  std::vector<grpc::Slice> raw_;
  OutputForms forms_;
};

}  // namespace

absl::StatusOr<InferJson> ReadInferJson(std::string_view model_name, std::string_view model_version,
                                        const SharedBytes& body, size_t json_bytes) {
  if (json_bytes > kMostJsonBytes) {
    return TooLarge(
        kWholeRequest, fmt::format("{} bytes of JSON", json_bytes),
        fmt::format("must be at most {}: longer tensors must be binary (binary_data_size)", kMostJsonBytes));
  }
  return InferReader(body, json_bytes).Read(model_name, model_version);
}

}  // namespace posenc::server
