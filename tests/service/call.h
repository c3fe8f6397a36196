// Answers a request in this process: what a server does with it, without gRPC.
#pragma once

#include <gmock/gmock.h>

#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/base/status.h"
#include "posenc/service/operations.h"
#include "tests/reference/scalar_format.h"

namespace posenc {

inline v1::ApplyRotaryResponse ResponseTo(const v1::ApplyRotaryRequest&) { return {}; }
inline v1::GenerateTableResponse ResponseTo(const v1::GenerateTableRequest&) { return {}; }
inline v1::GenerateEmbeddingResponse ResponseTo(const v1::GenerateEmbeddingRequest&) { return {}; }
inline v1::GenerateBiasResponse ResponseTo(const v1::GenerateBiasRequest&) { return {}; }
inline v1::AddBiasResponse ResponseTo(const v1::AddBiasRequest&) { return {}; }
inline v1::RelativeScoresResponse ResponseTo(const v1::RelativeScoresRequest&) { return {}; }
inline v1::RelativeValuesResponse ResponseTo(const v1::RelativeValuesRequest&) { return {}; }
inline v1::AnalyzeResponse ResponseTo(const v1::AnalyzeRequest&) { return {}; }
inline v1::ExplainResponse ResponseTo(const v1::ExplainRequest&) { return {}; }
inline v1::PositionsResponse ResponseTo(const v1::PositionsRequest&) { return {}; }
inline v1::CompareResponse ResponseTo(const v1::CompareRequest&) { return {}; }
inline v1::DiagnoseResponse ResponseTo(const v1::DiagnoseRequest&) { return {}; }
inline v1::DiagnoseBiasResponse ResponseTo(const v1::DiagnoseBiasRequest&) { return {}; }

// Uses a pool of its own if none is given.
template <class Request>
auto Call(const Request& request, const wire::CallContext& context = {}, WorkPool* pool = nullptr)
    -> absl::StatusOr<decltype(ResponseTo(request))> {
  const wire::InMessage payloads;
  auto response = ResponseTo(request);
  auto job = wire::Prepare(request, payloads, context, &response);
  if (!job.ok()) return job.status();
  std::optional<WorkPool> own;
  if (pool == nullptr) pool = &own.emplace(2);
  if (job->decide) {
    if (absl::Status status = job->decide(*pool, NeverCancelled); !status.ok()) return status;
  }
  std::vector<std::vector<std::byte>> outputs;
  std::vector<std::byte*> buffers;
  for (const wire::Output& output : job->outputs) buffers.push_back(outputs.emplace_back(output.bytes).data());
  if (!job->run) return response;
  if (absl::Status status = job->run(payloads, buffers, *pool, NeverCancelled); !status.ok()) return status;
  for (size_t n = 0; n < outputs.size(); ++n) {
    job->outputs[n].tensor->set_data(outputs[n].data(), outputs[n].size());
  }
  return response;
}

inline v1::DataType Wire(DType dtype) {
  switch (dtype) {
    case DType::kFP32: return v1::DATA_TYPE_FP32;
    case DType::kFP16: return v1::DATA_TYPE_FP16;
    case DType::kBF16: return v1::DATA_TYPE_BF16;
    case DType::kFP64: return v1::DATA_TYPE_FP64;
    case DType::kINT32: return v1::DATA_TYPE_INT32;
    case DType::kINT64: return v1::DATA_TYPE_INT64;
    case DType::kBOOL: return v1::DATA_TYPE_BOOL;
  }
  __builtin_unreachable();
}

// Converts elements of a floating-point type to bytes, each rounded once, and back.
inline std::string Pack(DType dtype, const std::vector<double>& values) {
  std::string bytes(values.size() * SizeOf(dtype), '\0');
  auto* element = reinterpret_cast<std::byte*>(bytes.data());
  for (double value : values) {
    reference::Encode(dtype, value, element);
    element += SizeOf(dtype);
  }
  return bytes;
}

inline std::vector<double> Unpack(DType dtype, std::string_view bytes) {
  std::vector<double> values(bytes.size() / SizeOf(dtype));
  const auto* element = reinterpret_cast<const std::byte*>(bytes.data());
  for (double& value : values) {
    value = reference::Decode(dtype, element);
    element += SizeOf(dtype);
  }
  return values;
}

inline v1::Tensor MakeTensor(DType dtype, std::vector<int64_t> shape, const std::vector<double>& values) {
  v1::Tensor tensor;
  tensor.set_dtype(Wire(dtype));
  tensor.mutable_shape()->Assign(shape.begin(), shape.end());
  tensor.set_data(Pack(dtype, values));
  return tensor;
}

// Makes a tensor of INT32, INT64 or BOOL.
template <class T>
v1::Tensor MakeTensor(DType dtype, std::vector<int64_t> shape, const std::vector<T>& values) {
  v1::Tensor tensor;
  tensor.set_dtype(Wire(dtype));
  tensor.mutable_shape()->Assign(shape.begin(), shape.end());
  tensor.set_data(std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)));
  return tensor;
}

inline DType TypeOf(const v1::Tensor& tensor) {
  for (DType dtype : {DType::kFP32, DType::kFP16, DType::kBF16, DType::kFP64, DType::kINT32, DType::kINT64}) {
    if (Wire(dtype) == tensor.dtype()) return dtype;
  }
  return DType::kBOOL;
}
inline std::vector<double> ValuesOf(const v1::Tensor& tensor) { return Unpack(TypeOf(tensor), tensor.data()); }
inline std::vector<int64_t> ShapeOf(const v1::Tensor& tensor) { return {tensor.shape().begin(), tensor.shape().end()}; }

// The status itself, or the status in a StatusOr.
inline const absl::Status& StatusOf(const absl::Status& status) { return status; }
template <class T>
const absl::Status& StatusOf(const absl::StatusOr<T>& result) {
  return result.status();
}

// Matches an error with this code, reason and field.
MATCHER_P3(FailsWith, code, reason, field, "") {
  const absl::Status& status = StatusOf(arg);
  const ErrorDetails details = DetailsOf(status);
  *result_listener << status << " with reason " << details.reason << ", field " << details.field;
  // What error.proto promises of every error about a request.
  const bool says_all = !details.value.empty() && details.limit.starts_with("must ") &&
                        (details.reason == "MALFORMED" || (details.value == "absent") == (details.reason == "MISSING"));
  if (!says_all)
    *result_listener << ", whose value is \"" << details.value << "\" and limit \"" << details.limit << "\"";
  return status.code() == code && details.reason == reason && details.field == field && says_all;
}
MATCHER_P2(IsInvalid, reason, field, "") {
  return testing::ExplainMatchResult(FailsWith(absl::StatusCode::kInvalidArgument, reason, field), arg,
                                     result_listener);
}
MATCHER(IsOk, "") {
  *result_listener << StatusOf(arg);
  return StatusOf(arg).ok();
}

}  // namespace posenc
