#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "posenc/kernels/convert.h"
#include "posenc/positions.h"
#include "wire/read.h"

namespace posenc::wire {
namespace {

template <class T>
std::vector<T> ReadAs(const Payloads& payloads, const v1::Tensor& tensor) {
  std::vector<T> values(payloads.Size(tensor) / sizeof(T));
  payloads.CopyTo(tensor, reinterpret_cast<std::byte*>(values.data()));
  return values;
}

// Integers become float64 without loss, or are refused.
template <class T>
absl::StatusOr<std::vector<double>> Widen(std::string_view field, const std::vector<T>& values) {
  std::vector<double> wide;
  wide.reserve(values.size());
  for (T value : values) {
    if constexpr (std::is_same_v<T, int64_t>) {
      constexpr auto kLargest = static_cast<int64_t>(kLargestPosition);
      if (value > kLargest || value < -kLargest) {
        return InvalidArgument("OUT_OF_RANGE", fmt::format("{}[{}]", field, wide.size()), fmt::format("{}", value),
                               "must be at most 2^53 in magnitude");
      }
    }
    wide.push_back(static_cast<double>(value));
  }
  return wide;
}

// One axis: the same for every batch row. Two: [b, n].
template <class T>
absl::StatusOr<Matrix<T>> Shaped(std::string_view field, const TensorShape& shape, std::vector<T> values) {
  if (shape.rank() == 1) return Matrix<T>{std::move(values), 1, shape.shape[0], true};
  if (shape.rank() == 2) return Matrix<T>{std::move(values), shape.shape[0], shape.shape[1], false};
  return InvalidArgument("MISMATCH", fmt::format("{}.shape", field), ToString(shape.shape),
                         "must have one axis or two");
}

}  // namespace

absl::StatusOr<TensorShape> Reader::Shape(std::string_view field, const v1::Tensor& tensor) const {
  TensorShape shape;
  POSENC_ASSIGN_OR_RETURN(shape.dtype, Choose(fmt::format("{}.dtype", field), tensor.dtype(), kDataTypes));
  shape.shape.assign(tensor.shape().begin(), tensor.shape().end());
  POSENC_ASSIGN_OR_RETURN(const int64_t bytes, ByteSize(field, shape, limits));
  const auto given = static_cast<int64_t>(payloads.Size(tensor));
  if (bytes != given) {
    return InvalidArgument(
        "MISMATCH", fmt::format("{}.data", field), fmt::format("{} bytes", given),
        fmt::format("shape {} of {} needs {}", ToString(shape.shape), posenc::Name(shape.dtype), bytes));
  }
  return shape;
}

absl::StatusOr<Matrix<double>> Reader::Numbers(std::string_view field, const v1::Tensor& tensor) const {
  POSENC_ASSIGN_OR_RETURN(const TensorShape shape, Shape(field, tensor));
  absl::StatusOr<std::vector<double>> values;
  switch (shape.dtype) {
    case DType::kINT32: values = Widen(field, ReadAs<int32_t>(payloads, tensor)); break;
    case DType::kINT64: values = Widen(field, ReadAs<int64_t>(payloads, tensor)); break;
    case DType::kFP32: values = Widen(field, ReadAs<float>(payloads, tensor)); break;
    case DType::kFP64: values = ReadAs<double>(payloads, tensor); break;
    default:
      return InvalidArgument("UNSUPPORTED", fmt::format("{}.dtype", field), posenc::Name(shape.dtype),
                             "must be INT32, INT64, FP32 or FP64");
  }
  POSENC_RETURN_IF_ERROR(values.status());
  return Shaped(field, shape, *std::move(values));
}

absl::StatusOr<Matrix<double>> Reader::Integers(std::string_view field, const v1::Tensor& tensor) const {
  if (tensor.dtype() == v1::DATA_TYPE_FP32 || tensor.dtype() == v1::DATA_TYPE_FP64) {
    return InvalidArgument("UNSUPPORTED", fmt::format("{}.dtype", field), v1::DataType_Name(tensor.dtype()),
                           "must be INT32 or INT64");
  }
  return Numbers(field, tensor);
}

absl::StatusOr<Matrix<float>> Reader::Weights(std::string_view field, const v1::Tensor& tensor) const {
  POSENC_ASSIGN_OR_RETURN(const TensorShape shape, Shape(field, tensor));
  if (shape.dtype != DType::kFP32 && shape.dtype != DType::kFP16 && shape.dtype != DType::kBF16) {
    return InvalidArgument("UNSUPPORTED", fmt::format("{}.dtype", field), posenc::Name(shape.dtype),
                           "must be FP32, FP16 or BF16");
  }
  const auto bytes = ReadAs<std::byte>(payloads, tensor);
  std::vector<float> values(bytes.size() / SizeOf(shape.dtype));
  Convert(shape.dtype, DType::kFP32, bytes.data(), values.data(), values.size());
  return Shaped(field, shape, std::move(values));
}

absl::StatusOr<Matrix<uint8_t>> Reader::Flags(std::string_view field, const v1::Tensor& tensor) const {
  POSENC_ASSIGN_OR_RETURN(const TensorShape shape, Shape(field, tensor));
  if (shape.dtype != DType::kBOOL) {
    return InvalidArgument("UNSUPPORTED", fmt::format("{}.dtype", field), posenc::Name(shape.dtype), "must be BOOL");
  }
  std::vector<uint8_t> values = ReadAs<uint8_t>(payloads, tensor);
  for (size_t n = 0; n < values.size(); ++n) {
    if (values[n] > 1) {
      return InvalidArgument("OUT_OF_RANGE", fmt::format("{}[{}]", field, n), fmt::format("{}", values[n]),
                             "a BOOL byte must be 0 or 1");
    }
  }
  return Shaped(field, shape, std::move(values));
}

absl::StatusOr<Positions> Reader::ReadPositions(const v1::Positions& message) const {
  Positions positions;
  switch (message.source_case()) {
    case v1::Positions::SOURCE_NOT_SET: break;
    case v1::Positions::kOffset: positions.source = OffsetPositions{message.offset()}; break;
    case v1::Positions::kOffsets:
      positions.source = PerSequenceOffsets{{message.offsets().offset().begin(), message.offsets().offset().end()}};
      break;
    case v1::Positions::kIds: {
      POSENC_ASSIGN_OR_RETURN(Matrix<double> ids, Numbers("positions.ids", message.ids()));
      positions.source = PositionIds{std::move(ids)};
      break;
    }
    case v1::Positions::kSegments: {
      PositionSegments segments;
      for (const v1::PositionSegment& segment : message.segments().segment()) {
        if (!segment.has_line()) {
          return InvalidArgument("MISSING", fmt::format("positions.segments.segment[{}].kind", segments.lines.size()),
                                 "", "give line");
        }
        const v1::PositionLine& line = segment.line();
        segments.lines.push_back({line.count(), line.start(), line.has_step() ? line.step() : 1.0});
      }
      positions.source = std::move(segments);
      break;
    }
  }
  if (message.has_cu_seqlens()) {
    POSENC_ASSIGN_OR_RETURN(const TensorShape shape, Shape("positions.cu_seqlens", message.cu_seqlens()));
    if (shape.rank() != 1 || (shape.dtype != DType::kINT32 && shape.dtype != DType::kINT64)) {
      return InvalidArgument("MISMATCH", "positions.cu_seqlens",
                             fmt::format("{} {}", posenc::Name(shape.dtype), ToString(shape.shape)),
                             "must be INT32 or INT64 [N+1]");
    }
    if (shape.dtype == DType::kINT64) {
      positions.cu_seqlens = ReadAs<int64_t>(payloads, message.cu_seqlens());
    } else {
      const auto narrow = ReadAs<int32_t>(payloads, message.cu_seqlens());
      positions.cu_seqlens.emplace(narrow.begin(), narrow.end());
    }
  }
  if (message.scaling_length_rule() != v1::SCALING_LENGTH_RULE_UNSPECIFIED) {
    POSENC_ASSIGN_OR_RETURN(positions.scaling_length_rule,
                            (Choose<v1::ScalingLengthRule, ScalingLengthRule>(
                                "positions.scaling_length_rule", message.scaling_length_rule(),
                                {{v1::SCALING_LENGTH_RULE_PER_SEQUENCE, ScalingLengthRule::kPerSequence},
                                 {v1::SCALING_LENGTH_RULE_WHOLE_BATCH, ScalingLengthRule::kWholeBatch},
                                 {v1::SCALING_LENGTH_RULE_GIVEN, ScalingLengthRule::kGiven}})));
  }
  positions.seq_len.assign(message.seq_len().begin(), message.seq_len().end());
  return positions;
}

void WriteShape(const TensorShape& shape, v1::Tensor* tensor) {
  tensor->set_dtype(Name(shape.dtype, kDataTypes));
  tensor->mutable_shape()->Assign(shape.shape.begin(), shape.shape.end());
}

namespace {

template <class T>
void WriteValues(DType dtype, const Matrix<T>& matrix, v1::Tensor* tensor) {
  TensorShape shape{dtype, {matrix.columns}};
  if (!matrix.shared) shape.shape.insert(shape.shape.begin(), matrix.rows);
  WriteShape(shape, tensor);
  tensor->set_data(matrix.values.data(), matrix.values.size() * sizeof(T));
}

}  // namespace

void WriteMatrix(const Matrix<double>& matrix, v1::Tensor* tensor) { WriteValues(DType::kFP64, matrix, tensor); }
void WriteMatrix(const Matrix<float>& matrix, v1::Tensor* tensor) { WriteValues(DType::kFP32, matrix, tensor); }
void WriteMatrix(const Matrix<uint8_t>& matrix, v1::Tensor* tensor) { WriteValues(DType::kBOOL, matrix, tensor); }

}  // namespace posenc::wire
