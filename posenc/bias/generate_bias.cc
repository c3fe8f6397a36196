#include "posenc/bias/generate_bias.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "absl/types/span.h"
#include "posenc/base/caches.h"
#include "posenc/base/interruption.h"
#include "posenc/base/memory_account.h"
#include "posenc/base/status.h"
#include "posenc/bias/bias_geometry.h"
#include "posenc/bias/bias_layout.h"
#include "posenc/bias/bias_mask.h"
#include "posenc/kernels/distance_bias.h"
#include "posenc/methods/bias/bias_methods.h"

namespace posenc {
namespace {

LinearBias AlibiBias(const BiasLayout& layout, int64_t b, int64_t head) {
  const AlibiSettings& settings = *layout.alibi();
  LinearBias bias{.bias_dtype = settings.bias_dtype.value_or(DType::kFP32)};
  bias.past_slope = bias.future_slope = static_cast<float>(layout.sources.slopes.row(b)[head]);
  switch (settings.form) {
    case AlibiForm::kBloom:
    case AlibiForm::kMpt: break;
    case AlibiForm::kSymmetric: bias.future_slope = -bias.past_slope; break;
    case AlibiForm::kCausal: bias.future_slope = 0; break;
    case AlibiForm::kAsymmetric: bias.future_slope = -static_cast<float>(settings.future_slopes->row(b)[head]); break;
  }
  return bias;
}

// If ALiBi's rows repeat, each head's values are computed once: one row for all queries, or one value per distance.
// Returns no values otherwise.
ValueLists AlibiLists(const BiasLayout& layout, const Matrix<double>& query_positions, int64_t queries) {
  const AlibiSettings& alibi = *layout.alibi();
  const Matrix<double>& key_positions = layout.positions.keys;
  const auto [heads, keys] = std::pair{layout.cells.heads, layout.cells.keys};
  const bool one_row = IsKeyOnly(alibi.form);
  // True if positions are consecutive in float64, too, which skips integers above 2^53.
  const auto exact = [](const Matrix<double>& line) {
    return line.values.back() - line.values.front() == static_cast<double>(line.columns - 1);
  };
  const bool by_distance = layout.cells.consecutive && alibi.bias_dtype.value_or(DType::kFP32) == DType::kFP32 &&
                           exact(query_positions) && exact(key_positions);
  const bool shared = layout.sources.slopes.shared && key_positions.shared && query_positions.shared &&
                      (!alibi.future_slopes || alibi.future_slopes->shared);
  // From this many queries and keys on, the lists are so much smaller than the answer that they need no own limit.
  constexpr int64_t kWorthwhile = 8;
  if (!shared || !(one_row || by_distance) || std::min(queries, keys) < kWorthwhile) return {};
  ValueLists lists;
  lists.row_shift = one_row ? 0 : -1;
  const double first_key = key_positions.values.front();
  if (!one_row) lists.first_distance = static_cast<int64_t>(first_key - query_positions.values.back());
  const int64_t columns = one_row ? keys : queries + keys - 1;
  lists.values = {std::vector<float>(heads * columns), heads, columns, false};
  DistanceBias work{.dtype = DType::kFP32, .queries = 1, .keys = static_cast<size_t>(columns)};
  for (int64_t head = 0; head < heads; ++head) {
    LinearBias bias = AlibiBias(layout, 0, layout.cells.head_start + head);
    bias.query_positions = one_row ? &query_positions.values.front() : &query_positions.values.back();
    bias.key_positions = one_row ? key_positions.values.data() : nullptr;
    bias.first_key = first_key;
    work.bias = bias;
    work.out = reinterpret_cast<std::byte*>(lists.values.values.data() + head * columns);
    ComputeDistanceBias(work, 0, 1);
  }
  return lists;
}

// `work` restricted to query rows [begin, end).
DistanceBias RowsOf(DistanceBias work, size_t begin, size_t end) {
  const size_t bytes = begin * work.keys * SizeOf(work.dtype);
  const auto shift = [](auto& pointer, auto by) {
    if (pointer != nullptr) pointer += by;
  };
  work.queries = end - begin;
  if (auto* linear = std::get_if<LinearBias>(&work.bias)) linear->query_positions += begin;
  if (auto* given = std::get_if<GivenBias>(&work.bias)) given->values += static_cast<ptrdiff_t>(begin) * given->stride;
  if (auto* gathered = std::get_if<GatheredBias>(&work.bias)) {
    gathered->query_positions += begin;
    gathered->cls_query = gathered->cls_query && begin == 0;
  }
  shift(work.mask_query_positions, begin);
  shift(work.query_documents, begin);
  shift(work.scores, bytes);
  shift(work.out, bytes);
  return work;
}

size_t RowBytes(const BiasCells& cells) { return cells.keys * SizeOf(cells.shape.dtype); }

// Query rows that are computed without a check for cancellation. A row of one key may be a matrix of its own, which
// takes 100 ns.
size_t CpuSlab(const BiasCells& cells) { return std::clamp<size_t>((size_t{256} << 10) / RowBytes(cells), 1, 4096); }

// Writes the cells of a range of queries. Immutable.
class BiasRows {
 public:
  // The layout must outlive it.
  BiasRows(const BiasLayout& layout, int64_t first, int64_t count)
      : layout_(layout), first_(first), count_(count), query_positions_(QueryPositionsOf()) {
    const GenerateBias& call = layout.call;
    if (call.mask) mask_positions_ = QueryPositions(call.geometry, first, count);
    if (layout.sources.fire != nullptr) normalisers_ = layout.sources.fire->Normalisers(query_positions_.values);
    const auto* gates = std::get_if<ForgetGateSettings>(&call.method.settings);
    if (gates != nullptr && gates->cu_seqlens) query_sequences_ = SequencesOf(query_positions_, *gates->cu_seqlens);
    if (layout.alibi() != nullptr && !IsCompact(call.form)) alibi_ = AlibiLists(layout, query_positions_, count);
    const BiasCells& cells = layout.cells;
    large_ = ExceedsCaches(cells.batch.value_or(1) * cells.heads * count * cells.keys *
                           static_cast<int64_t>(SizeOf(call.dtype)));
  }

  // Writes queries [begin, end) of the range into one matrix, which begins at `out`.
  void Write(int64_t matrix, size_t begin, size_t end, const std::byte* scores, std::byte* out, Device* device) const {
    if (IsIndex(layout_.call.form)) return WriteIndex(matrix, begin, end, out);
    const int64_t b = matrix / layout_.cells.heads;
    const int64_t head = layout_.cells.head_start + matrix % layout_.cells.heads;
    DistanceBias work = UnbiasedWork(b, scores, out);
    if (layout_.sources.fire != nullptr || layout_.sources.forget_gate != nullptr) {
      return WriteQueryByQuery(b, head, begin, end, matrix * count_, work);
    }
    SetBias(b, head, work);
    if (device != nullptr && device->ComputeBias(RowsOf(work, begin, end))) return;
    // A slab that the device declined is several of the CPU's.
    const size_t slab = CpuSlab(layout_.cells);
    for (size_t query = begin; query < end; query += slab) {
      if (query > begin) InterruptionPoint();
      ComputeDistanceBias(work, query, std::min(query + slab, end));
    }
  }

 private:
  // Positions for the distance; token numbers in a window.
  Matrix<double> QueryPositionsOf() const {
    const std::optional<double>& origin = layout_.positions.query_origin;
    const std::optional<WindowTokens>& window = layout_.cells.window;
    Matrix<double> positions = origin   ? Constant(*origin, count_)
                               : window ? WindowQueries(window->window, window->cls, first_, count_)
                                        : QueryPositions(layout_.call.geometry, first_, count_);
    const AlibiSettings* alibi = layout_.alibi();
    if (alibi != nullptr && alibi->bias_dtype && *alibi->bias_dtype != DType::kFP32) {
      RoundTo(*alibi->bias_dtype, positions.values);
    }
    return positions;
  }

  // Distance of the first value in a list that is gathered from.
  double FirstDistance() const {
    const std::optional<WindowTokens>& window = layout_.cells.window;
    return window ? WindowFirst(window->window) : static_cast<double>(layout_.sources.lists.first_distance);
  }

  void WriteIndex(int64_t b, size_t begin, size_t end, std::byte* out) const {
    constexpr size_t kEntriesTogether = 4096;
    const size_t row = layout_.cells.keys;
    for (size_t query = begin; query < end; ++query) {
      for (size_t key = 0; key < row; key += kEntriesTogether) {
        if (key > 0) InterruptionPointOfStep(static_cast<int64_t>(key));
        int32_t entries[kEntriesTogether];
        const size_t count = std::min(kEntriesTogether, row - key);
        FindEntries(b, query, key, {entries, count});
        std::memcpy(out + (query * row + key) * sizeof(int32_t), entries, count * sizeof(int32_t));
      }
    }
  }

  // Finds the entries of a query for the keys from `first_key` on.
  void FindEntries(int64_t b, size_t query, size_t first_key, absl::Span<int32_t> entries) const {
    const std::optional<WindowTokens>& window = layout_.cells.window;
    const double* keys = layout_.positions.keys.row(b) + first_key;
    const double first = FirstDistance(), position = query_positions_.row(b)[query];
    for (size_t j = 0; j < entries.size(); ++j) entries[j] = static_cast<int32_t>(keys[j] - position - first);
    if (!window) {
      for (int32_t& entry : entries) entry = layout_.sources.buckets[entry];
    } else if (window->cls) {
      const auto last = static_cast<int32_t>(Displacements(window->window)) + 2;
      if (first_ + query == 0) std::fill(entries.begin(), entries.end(), last - 2);
      if (first_key == 0) entries[0] = first_ + query == 0 ? last : last - 1;
    }
  }

  // The kernel's arguments for one matrix of all queries, without the bias.
  DistanceBias UnbiasedWork(int64_t b, const std::byte* scores, std::byte* out) const {
    const GenerateBias& call = layout_.call;
    const bool bias_in_dtype = call.precision.table_dtype == TableDtype::kTensor;
    DistanceBias work{
        .dtype = call.dtype,
        .rounding = bias_in_dtype ? Rounding::kEachOperation : call.precision.rounding,
        .queries = static_cast<size_t>(count_),
        .keys = static_cast<size_t>(layout_.cells.keys),
        .scores = scores,
        .out = out,
        .large = large_,
    };
    if (call.mask) {
      SetMask(*call.mask, b, &work);
      work.mask_keys_ascend = layout_.positions.mask_keys_ascend;
      work.mask_query_positions = mask_positions_.row(b);
      if (work.query_documents != nullptr) work.query_documents += first_;
      work.mask_key_positions = layout_.positions.mask_keys.row(b);
    }
    if (!query_sequences_.values.empty()) {  // sequences that are packed hide each other's keys, like documents
      work.query_documents = query_sequences_.row(b);
      work.key_documents = layout_.sources.key_sequences.row(0);
    }
    return work;
  }

  // For methods whose values follow neither from the distance nor from a window. `top` is the number of all matrices'
  // rows before this one's.
  void WriteQueryByQuery(int64_t b, int64_t head, size_t begin, size_t end, int64_t top, DistanceBias& work) const {
    std::vector<float> row(layout_.cells.keys);
    work.bias = GivenBias{row.data()};
    for (size_t query = begin; query < end; ++query) {
      if ((top + query) % 64 == 0) InterruptionPoint();
      const double* position = query_positions_.row(b) + query;
      if (layout_.sources.fire != nullptr) {
        layout_.sources.fire->Fill(head, normalisers_[position - query_positions_.values.data()], *position,
                                   layout_.positions.keys.row(b), row.size(), row.data());
      } else {
        layout_.sources.forget_gate->Fill(b, head, static_cast<int64_t>(*position), row.data());
      }
      ComputeDistanceBias(work, query, query + 1);
    }
  }

  void SetBias(int64_t b, int64_t head, DistanceBias& work) const {
    const bool is_alibi = layout_.alibi() != nullptr;
    const ValueLists& lists = is_alibi ? alibi_ : layout_.sources.lists;
    const double *queries = query_positions_.row(b), *keys = layout_.positions.keys.row(b);
    if (lists.values.values.empty()) {
      if (!is_alibi) return;
      LinearBias bias = AlibiBias(layout_, b, head);
      bias.query_positions = queries;
      bias.key_positions = keys;
      work.bias = bias;
      return;
    }
    // ALiBi's lists hold only this call's heads; other methods' lists hold all heads.
    const float* values = lists.values.row(is_alibi ? head - layout_.cells.head_start : head);
    const std::optional<WindowTokens>& window = layout_.cells.window;
    if (lists.row_shift != 0 && (window || !layout_.cells.consecutive)) {
      const bool cls = window && window->cls;
      work.bias = GatheredBias{.values = values,
                               .value_count = static_cast<size_t>(lists.values.columns),
                               .first = FirstDistance(),
                               .query_positions = queries,
                               .key_positions = keys,
                               .cls_query = cls && first_ == 0,
                               .cls_key = cls};
      return;
    }
    if (lists.row_shift != 0) values += static_cast<int64_t>(keys[0] - queries[0]) - lists.first_distance;
    work.bias = GivenBias{values, lists.row_shift};
  }

  const BiasLayout& layout_;
  const int64_t first_;
  const int64_t count_;
  const Matrix<double> query_positions_;
  Matrix<double> mask_positions_;    // empty without a mask
  Matrix<double> query_sequences_;   // forget gates with cu_seqlens, else empty
  std::vector<double> normalisers_;  // FIRE only
  ValueLists alibi_;
  bool large_ = false;  // the result exceeds the caches
};

}  // namespace

absl::StatusOr<BiasGeneration> BiasGeneration::Create(GenerateBias call, const Limits& limits, Extent extent) {
  POSENC_ASSIGN_OR_RETURN(BiasLayout layout, LayOutBias(std::move(call), limits, extent));
  return BiasGeneration(std::make_shared<const BiasLayout>(std::move(layout)));
}

const TensorShape& BiasGeneration::shape() const { return layout_->cells.shape; }
int64_t BiasGeneration::queries() const { return layout_->cells.queries; }
const BiasMethod& BiasGeneration::method() const { return layout_->call.method; }
const Matrix<double>& BiasGeneration::slopes() const { return layout_->sources.slopes; }

bool BiasGeneration::IsForDevices() const {
  const BiasSources& sources = layout_->sources;
  return !IsIndex(layout_->call.form) && sources.fire == nullptr && sources.forget_gate == nullptr;
}

absl::Status BiasGeneration::WriteRows(int64_t first, int64_t count, const std::byte* scores, std::byte* out,
                                       WorkPool& pool, const Cancellation& cancelled, Device* device) const {
  const BiasCells& cells = layout_->cells;
  if (cells.shape.empty()) return absl::OkStatus();
  if (!IsForDevices()) device = nullptr;
  const BiasRows rows = [&] {
    const LargeBlocksMayBeRefused scope;
    return BiasRows(*layout_, first, count);
  }();
  const size_t row = RowBytes(cells);
  const BiasSources& sources = layout_->sources;
  const bool row_by_row = sources.fire != nullptr || sources.forget_gate != nullptr;
  const size_t slab = device == nullptr ? CpuSlab(cells) : std::max<size_t>(device->slab_bytes() / row, 1);
  return pool.ParallelFor(
      cells.batch.value_or(1) * cells.heads * count, slab, cancelled,
      [&](size_t begin, size_t end) {
        while (begin < end) {
          const size_t matrix = begin / count, top = matrix * count, stop = std::min<size_t>(end, top + count);
          rows.Write(static_cast<int64_t>(matrix), begin - top, stop - top,
                     scores == nullptr ? nullptr : scores + top * row, out + top * row, device);
          begin = stop;
        }
      },
      row_by_row ? cells.keys * static_cast<int64_t>(sizeof(float)) : 0);
}

}  // namespace posenc
