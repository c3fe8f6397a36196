#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "cuda/launch.h"
#include "cuda/runtime/calls.h"
#include "cuda/runtime/copies.h"
#include "cuda/runtime/device_table.h"
#include "cuda/runtime/error.h"

namespace posenc::cuda {
namespace {

// A call makes a Query of each. More queries in one slab have less than 16 keys, and are faster on the CPU.
constexpr uint64_t kMostQueries = kSlabBytes / sizeof(Query<double>);

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

Query<double> QueryOf(const posenc_bias& work, uint64_t index) {
  Query<double> query;
  if (work.key_positions != nullptr) query.position = work.query_positions[index];
  if (work.mask_key_positions != nullptr) {
    SetBounds({work.window_left, work.window_right, work.causal != 0, work.prefix_end},
              work.mask_query_positions[index], query);
  }
  if (work.key_documents != nullptr) query.document = work.query_documents[index];
  return query;
}

// Returns true if the cells may be computed from float instead of double (cuda/elements/bias.h).
bool FitsFloat(const posenc_bias& work) {
  const auto is_float = [](double value) { return static_cast<float>(value) == value; };
  for (const double* const keys : {work.key_positions, work.mask_key_positions, work.key_documents}) {
    if (keys != nullptr && !std::all_of(keys, keys + work.keys, is_float)) return false;
  }
  for (uint64_t i = 0; i < work.queries; ++i) {
    const Query<double> query = QueryOf(work, i);
    for (const double value : {query.position, query.lowest, query.highest, query.document}) {
      if (!is_float(value)) return false;
    }
  }
  constexpr double kIntegers = 0x1p24;  // float holds all integers up to this
  return work.values == nullptr || (std::floor(work.first) == work.first &&
                                    std::fabs(work.first) + static_cast<double>(work.value_count) <= kIntegers);
}

template <class Real>
std::vector<Query<Real>> QueriesAs(const posenc_bias& work) {
  std::vector<Query<Real>> queries;
  queries.reserve(work.queries);
  for (uint64_t i = 0; i < work.queries; ++i) {
    const Query<double> query = QueryOf(work, i);
    queries.push_back({static_cast<Real>(query.position), static_cast<Real>(query.lowest),
                       static_cast<Real>(query.highest), static_cast<Real>(query.document)});
  }
  return queries;
}

// Returns an empty vector for null.
template <class Real>
std::vector<Real> KeysAs(const double* keys, uint64_t count) {
  std::vector<Real> converted(keys == nullptr ? 0 : count);
  std::transform(keys, keys + converted.size(), converted.begin(), [](double key) { return static_cast<Real>(key); });
  return converted;
}

template <class Real>
void BiasFrom(Device& device, const posenc_bias& work) {
  const uint64_t bytes = work.queries * work.keys * SizeOf(work.dtype);
  const bool out_staged = work.out.device == nullptr;
  const bool scores_staged = work.scores.device == nullptr && work.scores.pieces != nullptr;
  if (out_staged) CheckPieces(work.out, bytes);
  if (scores_staged) CheckPieces(work.scores, bytes);

  // The device may read these until the lease has ended.
  const auto queries = QueriesAs<Real>(work);
  const auto key_positions = KeysAs<Real>(work.key_positions, work.keys);
  const auto mask_key_positions = KeysAs<Real>(work.mask_key_positions, work.keys);
  const auto key_documents = KeysAs<Real>(work.key_documents, work.keys);
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
  arguments.query = arrays.Upload(queries.data(), queries.size());
  arguments.key_positions = arrays.Upload(key_positions.data(), key_positions.size());
  arguments.past_slope = work.past_slope;
  arguments.future_slope = work.future_slope;
  arguments.bias = UploadRows(arrays, work);
  arguments.bias_stride = work.bias_stride;
  arguments.masked = work.mask_key_positions != nullptr || work.key_documents != nullptr || work.key_valid != nullptr;
  arguments.mask_key_positions = arrays.Upload(mask_key_positions.data(), mask_key_positions.size());
  arguments.key_documents = arrays.Upload(key_documents.data(), key_documents.size());
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
  if (work.queries > kMostQueries) {
    throw Failure(POSENC_UNSUPPORTED, std::to_string(work.queries) + " queries are more than the " +
                                          std::to_string(kMostQueries) + " that one call can have");
  }
  if (FitsFloat(work)) {
    BiasFrom<float>(device, work);
  } else {
    BiasFrom<double>(device, work);
  }
}

}  // namespace posenc::cuda
