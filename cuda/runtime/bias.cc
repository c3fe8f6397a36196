#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

#include "cuda/launch.h"
#include "cuda/runtime/calls.h"
#include "cuda/runtime/copies.h"
#include "cuda/runtime/device_table.h"
#include "cuda/runtime/error.h"

namespace posenc::cuda {
namespace {

// Uploads the part of a given bias that cells read, from the lowest index to the highest. Returns the device address
// that index 0 has (it may lie outside of that part).
const float* UploadRows(Arrays& arrays, const posenc_bias& work) {
  if (work.bias == nullptr) return nullptr;
  const int64_t last_row = static_cast<int64_t>(work.queries - 1) * work.bias_stride;
  const int64_t lowest = std::min<int64_t>(last_row, 0);
  const int64_t highest = std::max<int64_t>(last_row, 0) + static_cast<int64_t>(work.keys - 1);
  const float* const rows = arrays.Upload(work.bias + lowest, static_cast<uint64_t>(highest - lowest + 1));
  return rows - lowest;
}

std::vector<Query<double>> QueriesOf(const posenc_bias& work) {
  std::vector<Query<double>> queries(work.queries);
  for (uint64_t i = 0; i < work.queries; ++i) {
    Query<double>& query = queries[i];
    if (work.query_positions != nullptr) query.position = work.query_positions[i];
    if (work.mask_query_positions != nullptr) {
      SetBounds({work.window_left, work.window_right, work.causal != 0, work.prefix_end}, work.mask_query_positions[i],
                query);
    }
    if (work.query_documents != nullptr) query.document = work.query_documents[i];
  }
  return queries;
}

// Returns true if the cells may be computed from float instead of double (cuda/elements/bias.h).
bool FitsFloat(const posenc_bias& work, const std::vector<Query<double>>& queries) {
  const auto is_float = [](double value) { return static_cast<float>(value) == value; };
  const auto are_floats = [&](const double* keys) {
    return keys == nullptr || std::all_of(keys, keys + work.keys, is_float);
  };
  constexpr double kIntegers = 0x1p24;  // float holds all integers up to this
  const bool gathers =
      work.values == nullptr || (std::floor(work.first) == work.first &&
                                 std::fabs(work.first) + static_cast<double>(work.value_count) <= kIntegers);
  return gathers && are_floats(work.key_positions) && are_floats(work.mask_key_positions) &&
         are_floats(work.key_documents) && std::all_of(queries.begin(), queries.end(), [&](const auto& query) {
           return is_float(query.position) && is_float(query.lowest) && is_float(query.highest) &&
                  is_float(query.document);
         });
}

template <class Real>
Query<Real> As(const Query<double>& query) {
  return {static_cast<Real>(query.position), static_cast<Real>(query.lowest), static_cast<Real>(query.highest),
          static_cast<Real>(query.document)};
}
template <class Real>
Real As(double number) {
  return static_cast<Real>(number);
}

// Uploads `count` numbers or queries as Real. Returns null if `from` is null.
template <class Real, class T>
auto UploadAs(Arrays& arrays, const T* from, uint64_t count) {
  std::vector<decltype(As<Real>(*from))> converted;
  if (from != nullptr)
    std::transform(from, from + count, std::back_inserter(converted), [](const T& value) { return As<Real>(value); });
  return arrays.Upload(converted.data(), converted.size());
}

template <class Real>
void BiasFrom(Device& device, const posenc_bias& work, const std::vector<Query<double>>& queries) {
  const uint64_t bytes = work.queries * work.keys * SizeOf(work.dtype);
  const bool out_staged = work.out.device == nullptr;
  const bool scores_staged = work.scores.device == nullptr && work.scores.pieces != nullptr;
  if (out_staged) CheckPieces(work.out, bytes);
  if (scores_staged) CheckPieces(work.scores, bytes);

  const Device::Lease slot = device.Borrow();
  Arrays arrays(*slot);
  BiasArguments<Real> arguments = {};
  arguments.dtype = static_cast<posenc_dtype>(work.dtype);
  arguments.bias_dtype = static_cast<posenc_dtype>(work.bias_dtype);
  arguments.rounding = static_cast<posenc_rounding>(work.rounding);
  arguments.queries = work.queries;
  arguments.keys = work.keys;
  arguments.values = arrays.Upload(work.values, work.value_count);
  arguments.value_count = work.value_count;
  arguments.first = static_cast<Real>(work.first);
  arguments.cls_query = work.cls_query != 0;
  arguments.cls_key = work.cls_key != 0;
  arguments.query = UploadAs<Real>(arrays, queries.data(), work.queries);
  arguments.key_positions = UploadAs<Real>(arrays, work.key_positions, work.keys);
  arguments.past_slope = work.past_slope;
  arguments.future_slope = work.future_slope;
  arguments.bias = UploadRows(arrays, work);
  arguments.bias_stride = work.bias_stride;
  arguments.masked = work.mask_key_positions != nullptr || work.key_documents != nullptr || work.key_valid != nullptr;
  arguments.mask_key_positions = UploadAs<Real>(arrays, work.mask_key_positions, work.keys);
  arguments.key_documents = UploadAs<Real>(arrays, work.key_documents, work.keys);
  arguments.key_valid = arrays.Upload(work.key_valid, work.keys);
  arguments.fill = work.fill;
  arguments.zero_fully_masked_rows = work.zero_fully_masked_rows != 0;

  // Scores from host memory are not uploaded into `out` on the device, which must stay unchanged if this fails.
  Scratch matrix(*slot, out_staged || scores_staged ? bytes : 0);
  if (scores_staged) UploadPieces(*slot, work.scores, bytes, matrix.data());
  arguments.scores = scores_staged ? matrix.data() : work.scores.device;
  arguments.out = out_staged ? matrix.data() : work.out.device;
  Check(LaunchBias(arguments, slot->stream), "computing a bias");
  if (out_staged) DownloadToStaging(*slot, matrix.data(), bytes);
  slot->Await();
  if (out_staged) StagingToPieces(*slot, work.out);
}

}  // namespace

void Bias(Device& device, const posenc_bias& work) {
  if (work.queries == 0 || work.keys == 0) return;
  const std::vector<Query<double>> queries = QueriesOf(work);
  if (FitsFloat(work, queries)) {
    BiasFrom<float>(device, work, queries);
  } else {
    BiasFrom<double>(device, work, queries);
  }
}

}  // namespace posenc::cuda
