#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "posenc/base/checks.h"
#include "posenc/base/interruption.h"
#include "posenc/base/memory_account.h"
#include "posenc/kernels/convert.h"
#include "posenc/mapping/read.h"

namespace posenc::wire {
namespace {

// Reads the tensor as elements of type From. Calls append(block, values) for one block of them after another, with an
// interruption point between two.
template <class From, class T, class Append>
absl::StatusOr<std::vector<T>> ReadBlocks(const Payloads& payloads, const v1::Tensor& tensor, const Append& append) {
  constexpr size_t kBlock = 65536;
  const TensorBytes bytes(payloads, tensor);
  const size_t count = payloads.Size(tensor) / sizeof(From);
  std::vector<T> values;
  values.reserve(count);
  std::vector<From> block;
  for (size_t begin = 0; begin < count; begin += kBlock) {
    if (begin > 0) InterruptionPoint();
    block.resize(std::min(kBlock, count - begin));
    Copy(bytes, begin * sizeof(From), block.size() * sizeof(From), reinterpret_cast<std::byte*>(block.data()));
    POSENC_RETURN_IF_ERROR(append(block, values));
  }
  return values;
}

// Reads as float64. Returns INVALID_ARGUMENT for integers above 2^53 in magnitude, which could lose digits.
template <class From>
absl::StatusOr<std::vector<double>> Widened(std::string_view field, const Payloads& payloads,
                                            const v1::Tensor& tensor) {
  const auto append = [field](const std::vector<From>& block, std::vector<double>& wide) {
    for (const From value : block) {
      if constexpr (std::is_same_v<From, int64_t>) {
        constexpr auto kLargest = static_cast<int64_t>(kLargestPosition);
        if (value > kLargest || value < -kLargest) {
          return InvalidArgument("OUT_OF_RANGE", fmt::format("{}[{}]", field, wide.size()), fmt::format("{}", value),
                                 "must be at most 2^53 in magnitude");
        }
      }
      wide.push_back(static_cast<double>(value));
    }
    return absl::OkStatus();
  };
  return ReadBlocks<From, double>(payloads, tensor, append);
}

// Reads 16-bit or float32 elements as float32.
template <class From>
absl::StatusOr<std::vector<float>> Converted(DType dtype, const Payloads& payloads, const v1::Tensor& tensor) {
  const auto append = [dtype](const std::vector<From>& block, std::vector<float>& values) {
    const size_t before = values.size();
    values.resize(before + block.size());
    Convert(dtype, DType::kFP32, block.data(), values.data() + before, block.size());
    return absl::OkStatus();
  };
  return ReadBlocks<From, float>(payloads, tensor, append);
}

// Matrix of a tensor [n], shared by all batch rows, or [b, n].
template <class T>
absl::StatusOr<Matrix<T>> Shaped(std::string_view field, const TensorShape& shape, std::vector<T> values) {
  if (shape.rank() == 1) return Matrix<T>{std::move(values), 1, shape.shape[0], true};
  if (shape.rank() == 2) return Matrix<T>{std::move(values), shape.shape[0], shape.shape[1], false};
  return InvalidArgument("MISMATCH", fmt::format("{}.shape", field), ToString(shape.shape),
                         "must have one or two axes");
}

absl::Status NoSharedMemory(std::string_view field) {
  return InvalidArgument("UNSUPPORTED", field, "", "must be absent: shared memory is not available");
}

}  // namespace

absl::StatusOr<TensorShape> Reader::Shape(std::string_view field, const v1::Tensor& tensor) const {
  const LargeBlocksMayBeRefused scope;
  POSENC_ASSIGN_OR_RETURN(TensorShape shape, ShapeOf(field, tensor, limits));
  const int64_t bytes = *ByteSize(field, shape, limits);
  const auto given = static_cast<int64_t>(payloads.Size(tensor));
  if (tensor.has_region() && payloads.At(tensor.region()) == nullptr) return NoSharedMemory(field);
  if (bytes != given) {
    return InvalidArgument(
        "MISMATCH", fmt::format("{}.{}", field, tensor.has_region() ? "region.byte_size" : "data"),
        fmt::format("{} bytes", given),
        fmt::format("must be {2} bytes for shape {0} of {1}", ToString(shape.shape), posenc::Name(shape.dtype), bytes));
  }
  return shape;
}

absl::StatusOr<Output> Reader::Place(std::string_view field, const v1::Region* region, size_t bytes,
                                     v1::Tensor* tensor) const {
  const Output output{tensor, bytes};
  if (region == nullptr) return output;
  if (payloads.At(*region) == nullptr) return NoSharedMemory(field);
  if (static_cast<size_t>(region->byte_size()) != bytes) {
    return InvalidArgument("MISMATCH", fmt::format("{}.byte_size", field), fmt::format("{}", region->byte_size()),
                           fmt::format("must be {}, the bytes of the answer", bytes));
  }
  *tensor->mutable_region() = *region;
  return output;
}

std::vector<std::byte> CopyOf(const Payloads& payloads, const v1::Tensor& tensor) {
  const LargeBlocksMayBeRefused scope;
  std::vector<std::byte> bytes(payloads.Size(tensor));
  payloads.CopyTo(tensor, bytes.data());
  return bytes;
}

absl::StatusOr<std::vector<double>> Reader::Values(std::string_view field, const v1::Tensor& tensor) const {
  const LargeBlocksMayBeRefused scope;
  POSENC_ASSIGN_OR_RETURN(const TensorShape shape, Shape(field, tensor));
  switch (shape.dtype) {
    case DType::kINT32: return Widened<int32_t>(field, payloads, tensor);
    case DType::kINT64: return Widened<int64_t>(field, payloads, tensor);
    case DType::kFP32: return Widened<float>(field, payloads, tensor);
    case DType::kFP64: return Widened<double>(field, payloads, tensor);
    default:
      return InvalidArgument("UNSUPPORTED", fmt::format("{}.dtype", field), posenc::Name(shape.dtype),
                             "must be INT32, INT64, FP32 or FP64");
  }
}

absl::StatusOr<Matrix<double>> Reader::Numbers(std::string_view field, const v1::Tensor& tensor) const {
  POSENC_ASSIGN_OR_RETURN(const TensorShape shape, Shape(field, tensor));
  POSENC_ASSIGN_OR_RETURN(std::vector<double> values, Values(field, tensor));
  return Shaped(field, shape, std::move(values));
}

absl::StatusOr<Matrix<double>> Reader::Integers(std::string_view field, const v1::Tensor& tensor) const {
  if (tensor.dtype() == v1::DATA_TYPE_FP32 || tensor.dtype() == v1::DATA_TYPE_FP64) {
    return InvalidArgument("UNSUPPORTED", fmt::format("{}.dtype", field), v1::DataType_Name(tensor.dtype()),
                           "must be INT32 or INT64");
  }
  return Numbers(field, tensor);
}

absl::StatusOr<std::vector<float>> Reader::WeightValues(std::string_view field, const v1::Tensor& tensor) const {
  const LargeBlocksMayBeRefused scope;
  POSENC_ASSIGN_OR_RETURN(const TensorShape shape, Shape(field, tensor));
  if (shape.dtype != DType::kFP32 && shape.dtype != DType::kFP16 && shape.dtype != DType::kBF16) {
    return InvalidArgument("UNSUPPORTED", fmt::format("{}.dtype", field), posenc::Name(shape.dtype),
                           "must be FP32, FP16 or BF16");
  }
  if (shape.dtype == DType::kFP32) return Converted<float>(shape.dtype, payloads, tensor);
  return Converted<uint16_t>(shape.dtype, payloads, tensor);
}

absl::StatusOr<Matrix<float>> Reader::Weights(std::string_view field, const v1::Tensor& tensor) const {
  POSENC_ASSIGN_OR_RETURN(const TensorShape shape, Shape(field, tensor));
  POSENC_ASSIGN_OR_RETURN(std::vector<float> values, WeightValues(field, tensor));
  return Shaped(field, shape, std::move(values));
}

absl::StatusOr<Matrix<float>> Reader::Weight(std::string_view field, const v1::Tensor& tensor) const {
  POSENC_ASSIGN_OR_RETURN(Matrix<float> weight, Weights(field, tensor));
  if (!weight.shared) return weight;
  return InvalidArgument("MISMATCH", fmt::format("{}.shape", field), fmt::format("[{}]", weight.columns),
                         "must have two axes");
}

absl::StatusOr<std::vector<float>> Reader::WeightVector(std::string_view field, const v1::Tensor& tensor) const {
  POSENC_ASSIGN_OR_RETURN(Matrix<float> weight, Weights(field, tensor));
  if (weight.shared) return std::move(weight.values);
  return InvalidArgument("MISMATCH", fmt::format("{}.shape", field),
                         fmt::format("[{}, {}]", weight.rows, weight.columns), "must have one axis");
}

Matrix<float> Turned(const Matrix<float>& matrix) {
  const LargeBlocksMayBeRefused scope;
  Matrix<float> turned{std::vector<float>(matrix.values.size()), matrix.columns, matrix.rows, false};
  if (matrix.values.empty()) return turned;  // it may have any number of rows without columns
  // A column's elements are a row of the matrix apart, so tiles are read and written while they are in the cache.
  constexpr int64_t kTile = 16;
  int64_t turned_before = 0, next_point = 65536;
  for (int64_t top = 0; top < matrix.rows; top += kTile) {
    for (int64_t left = 0; left < matrix.columns; left += kTile) {
      turned_before += std::min(kTile, matrix.rows - top) * std::min(kTile, matrix.columns - left);
      if (turned_before >= next_point) next_point += 65536, InterruptionPoint();
      for (int64_t column = left; column < std::min(left + kTile, matrix.columns); ++column) {
        for (int64_t row = top; row < std::min(top + kTile, matrix.rows); ++row) {
          turned.values[column * matrix.rows + row] = matrix.values[row * matrix.columns + column];
        }
      }
    }
  }
  return turned;
}

absl::StatusOr<Matrix<uint8_t>> Reader::Flags(std::string_view field, const v1::Tensor& tensor) const {
  const LargeBlocksMayBeRefused scope;
  POSENC_ASSIGN_OR_RETURN(const TensorShape shape, Shape(field, tensor));
  if (shape.dtype != DType::kBOOL) {
    return InvalidArgument("UNSUPPORTED", fmt::format("{}.dtype", field), posenc::Name(shape.dtype), "must be BOOL");
  }
  const auto append = [field](const std::vector<uint8_t>& block, std::vector<uint8_t>& flags) {
    const auto bad = std::find_if(block.begin(), block.end(), [](uint8_t flag) { return flag > 1; });
    if (bad != block.end()) {
      return InvalidArgument("OUT_OF_RANGE", fmt::format("{}[{}]", field, flags.size() + (bad - block.begin())),
                             fmt::format("{}", *bad), "must be 0 or 1, a BOOL byte");
    }
    flags.insert(flags.end(), block.begin(), block.end());
    return absl::OkStatus();
  };
  POSENC_ASSIGN_OR_RETURN(std::vector<uint8_t> values, (ReadBlocks<uint8_t, uint8_t>(payloads, tensor, append)));
  return Shaped(field, shape, std::move(values));
}

void WriteShape(const TensorShape& shape, v1::Tensor* tensor) {
  tensor->set_dtype(Name(shape.dtype, kDataTypes));
  tensor->mutable_shape()->Assign(shape.shape.begin(), shape.shape.end());
}

void WriteData(std::string_view bytes, v1::Tensor* tensor) {
  constexpr size_t kTogether = size_t{1} << 20;
  std::string& data = *tensor->mutable_data();
  data.clear();
  {
    const LargeBlocksMayBeRefused scope;
    data.reserve(bytes.size());
  }
  for (size_t begin = 0; begin < bytes.size(); begin += kTogether) {
    InterruptionPoint();
    data.append(bytes.substr(begin, kTogether));
  }
}

namespace {

template <class T>
void WriteValues(DType dtype, const Matrix<T>& matrix, v1::Tensor* tensor) {
  TensorShape shape{dtype, {matrix.columns}};
  if (!matrix.shared) shape.shape.insert(shape.shape.begin(), matrix.rows);
  WriteShape(shape, tensor);
  WriteData({reinterpret_cast<const char*>(matrix.values.data()), matrix.values.size() * sizeof(T)}, tensor);
}

}  // namespace

void WriteMatrix(const Matrix<double>& matrix, v1::Tensor* tensor) { WriteValues(DType::kFP64, matrix, tensor); }
void WriteMatrix(const Matrix<float>& matrix, v1::Tensor* tensor) { WriteValues(DType::kFP32, matrix, tensor); }
void WriteVector(const std::vector<float>& values, v1::Tensor* tensor) {
  WriteMatrix(Matrix<float>{values, 1, static_cast<int64_t>(values.size()), true}, tensor);
}
void WriteMatrix(const Matrix<uint8_t>& matrix, v1::Tensor* tensor) { WriteValues(DType::kBOOL, matrix, tensor); }

}  // namespace posenc::wire
