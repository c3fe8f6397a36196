// BiasGeneration's methods that write cells.
#include <algorithm>
#include <cstring>
#include <vector>

#include "posenc/bias/bias_mask.h"
#include "posenc/bias/generate_bias.h"
#include "posenc/kernels/distance_bias.h"
#include "posenc/methods/bias/bias_methods.h"

namespace posenc {
namespace {

// `work` restricted to query rows [begin, end).
DistanceBias RowsOf(DistanceBias work, size_t begin, size_t end) {
  const size_t bytes = begin * work.keys * SizeOf(work.dtype);
  const auto shift = [](auto& pointer, auto by) {
    if (pointer != nullptr) pointer += by;
  };
  work.queries = end - begin;
  shift(work.query_positions, begin);
  work.cls_query = work.cls_query && begin == 0;
  shift(work.bias, static_cast<ptrdiff_t>(begin) * work.bias_stride);
  shift(work.mask_query_positions, begin);
  shift(work.query_documents, begin);
  shift(work.scores, bytes);
  shift(work.out, bytes);
  return work;
}

void RunRows(const DistanceBias& work, size_t begin, size_t end, Device* device) {
  if (device == nullptr || !device->Run(RowsOf(work, begin, end))) posenc::Run(work, begin, end);
}

}  // namespace

void BiasGeneration::RunIndex(const QueryRows& rows, int64_t b, size_t begin, size_t end, std::byte* out) const {
  std::vector<int32_t> row(keys_);
  const double* keys = key_positions_.row(b);
  const double first = FirstDistance();
  for (size_t query = begin; query < end; ++query) {
    const double position = rows.positions.row(b)[query];
    for (int64_t j = 0; j < keys_; ++j) row[j] = static_cast<int32_t>(keys[j] - position - first);
    if (!window_) {
      for (int32_t& entry : row) entry = buckets_[entry];
    } else if (window_->cls) {
      const auto last = static_cast<int32_t>(Displacements(window_->window)) + 2;
      if (rows.first + query == 0) std::fill(row.begin(), row.end(), last - 2);
      row[0] = rows.first + query == 0 ? last : last - 1;
    }
    std::memcpy(out + query * row.size() * sizeof(int32_t), row.data(), row.size() * sizeof(int32_t));
  }
}

void BiasGeneration::RunMatrix(const QueryRows& rows, int64_t matrix, size_t begin, size_t end, const std::byte* scores,
                               std::byte* out, Device* device) const {
  const int64_t b = matrix / heads_, head = head_start_ + matrix % heads_;
  const bool bias_in_dtype = call_.precision.table_dtype == TableDtype::kTensor;
  DistanceBias work{
      .dtype = call_.dtype,
      .rounding = bias_in_dtype ? Rounding::kEachOperation : call_.precision.rounding,
      .queries = static_cast<size_t>(rows.count),
      .keys = static_cast<size_t>(keys_),
      .scores = scores,
      .out = out,
      .large = rows.large,
  };
  if (call_.mask) {
    SetMask(*call_.mask, b, &work);
    work.mask_keys_ascend = mask_keys_ascend_;
    work.mask_query_positions = rows.mask_positions.row(b);
    if (work.query_documents != nullptr) work.query_documents += rows.first;
    work.mask_key_positions = mask_key_positions_.row(b);
  }
  const ValueLists& lists = alibi() != nullptr ? rows.alibi : lists_;
  if (alibi() != nullptr && lists.values.values.empty()) {
    work.query_positions = rows.positions.row(b);
    work.key_positions = key_positions_.row(b);
    SetSlopes(b, head, &work);
  }
  if (fire_ != nullptr) {
    std::vector<float> row(keys_);
    work.bias = row.data();
    for (size_t query = begin; query < end; ++query) {
      const double* position = rows.positions.row(b) + query;
      fire_->Fill(head, rows.normalisers[position - rows.positions.values.data()], *position, key_positions_.row(b),
                  row.size(), row.data());
      posenc::Run(work, query, query + 1);
    }
    return;
  }
  if (lists.values.values.empty()) return RunRows(work, begin, end, device);  // linear in the distance, or no bias

  // ALiBi's lists hold only this call's heads; other methods' lists hold all heads.
  const float* values = lists.values.row(alibi() != nullptr ? head - head_start_ : head);
  if (!Gathers(lists)) {
    work.bias = values;
    if (lists.row_shift != 0) {
      work.bias += static_cast<int64_t>(key_positions_.row(b)[0] - rows.positions.row(b)[0]) - lists.first_distance;
    }
    work.bias_stride = lists.row_shift;
  } else {
    work.values = values;
    work.value_count = lists.values.columns;
    work.first = FirstDistance();
    work.query_positions = rows.positions.row(b);
    work.key_positions = key_positions_.row(b);
    work.cls_key = window_ && window_->cls;
    work.cls_query = work.cls_key && rows.first == 0;
  }
  RunRows(work, begin, end, device);
}

absl::Status BiasGeneration::Run(int64_t first, int64_t count, const std::byte* scores, std::byte* out, WorkPool& pool,
                                 const Cancellation& cancelled, Device* device) const {
  if (shape_.empty()) return absl::OkStatus();
  if (!IsForDevices()) device = nullptr;
  const QueryRows rows = LayRows(first, count);
  const size_t row = keys_ * SizeOf(call_.dtype);
  const size_t slab = std::max<size_t>((device == nullptr ? size_t{256} << 10 : device->slab_bytes()) / row, 1);
  return pool.ParallelFor(batch_.value_or(1) * heads_ * count, slab, cancelled, [&](size_t begin, size_t end) {
    while (begin < end) {
      const size_t matrix = begin / count, top = matrix * count, stop = std::min<size_t>(end, top + count);
      std::byte* to = out + top * row;
      if (IsIndex()) {
        RunIndex(rows, static_cast<int64_t>(matrix), begin - top, stop - top, to);
      } else {
        RunMatrix(rows, static_cast<int64_t>(matrix), begin - top, stop - top,
                  scores == nullptr ? nullptr : scores + top * row, to, device);
      }
      begin = stop;
    }
  });
}

}  // namespace posenc
