#include <algorithm>

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

}  // namespace

void Bias(Device& device, const posenc_bias& work) {
  if (work.queries == 0 || work.keys == 0) return;
  const uint64_t bytes = work.queries * work.keys * SizeOf(work.dtype);
  const bool out_staged = work.out.device == nullptr;
  const bool scores_staged = work.scores.device == nullptr && work.scores.pieces != nullptr;
  if (out_staged) CheckPieces(work.out, bytes);
  if (scores_staged) CheckPieces(work.scores, bytes);

  const Device::Lease slot = device.Borrow();
  Arrays arrays(*slot);
  BiasArguments arguments = {};
  arguments.dtype = static_cast<posenc_dtype>(work.dtype);
  arguments.bias_dtype = static_cast<posenc_dtype>(work.bias_dtype);
  arguments.rounding = static_cast<posenc_rounding>(work.rounding);
  arguments.queries = work.queries;
  arguments.keys = work.keys;
  arguments.values = arrays.Upload(work.values, work.value_count);
  arguments.value_count = work.value_count;
  arguments.first = work.first;
  arguments.cls_query = work.cls_query != 0;
  arguments.cls_key = work.cls_key != 0;
  arguments.query_positions = arrays.Upload(work.query_positions, work.queries);
  arguments.key_positions = arrays.Upload(work.key_positions, work.keys);
  arguments.past_slope = work.past_slope;
  arguments.future_slope = work.future_slope;
  arguments.bias = UploadRows(arrays, work);
  arguments.bias_stride = work.bias_stride;
  arguments.mask_query_positions = arrays.Upload(work.mask_query_positions, work.queries);
  arguments.mask_key_positions = arrays.Upload(work.mask_key_positions, work.keys);
  arguments.causal = work.causal != 0;
  arguments.prefix_end = work.prefix_end;
  arguments.window_left = work.window_left;
  arguments.window_right = work.window_right;
  arguments.query_documents = arrays.Upload(work.query_documents, work.queries);
  arguments.key_documents = arrays.Upload(work.key_documents, work.keys);
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

}  // namespace posenc::cuda
