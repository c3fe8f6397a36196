#include "posenc/diagnose/prove.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <mutex>

#include "posenc/base/status.h"
#include "posenc/diagnose/candidate_table.h"
#include "posenc/diagnose/pairs.h"
#include "posenc/kernels/convert.h"
#include "posenc/kernels/rotate_pairs.h"

namespace posenc::diagnose {
namespace {

constexpr int64_t kSlabElements = int64_t{1} << 17;

DType TableType(const Precision& precision, DType compute) {
  if (compute == DType::kFP64 || precision.table_dtype == TableDtype::kFloat64) return DType::kFP64;
  return precision.table_dtype == TableDtype::kTensor ? compute : DType::kFP32;
}

// Computes one operand's rows for a slab of tokens.
class Slab {
 public:
  Slab(const Candidate& candidate, const Variant& variant, const CandidateTable& table, const Evidence& evidence,
       size_t operand)
      : candidate_(candidate),
        precision_(variant.precision),
        compute_(variant.compute[operand]),
        table_(table),
        rows_(evidence.operands[operand]),
        offset_(candidate.offsets[operand]),
        scaled_as_(candidate.scaled_as[operand]) {}

  // Returns the rotated rows in after's type. Valid until the next call.
  const std::vector<std::byte>& Compute(int64_t token, int64_t count) {
    const size_t elements = count * rows_.heads * rows_.width;
    Load(token, count, elements);
    MakeTable(token, count);
    if (compute_ == DType::kFP64) {
      RotateDoubles(count);
    } else {
      Rotate(count);
    }
    if (compute_ != rows_.after_dtype) {
      scratch_.resize(elements * SizeOf(rows_.after_dtype));
      Convert(compute_, rows_.after_dtype, x_.data(), scratch_.data(), elements);
      x_.swap(scratch_);
    }
    return x_;
  }

 private:
  void Load(int64_t token, int64_t count, size_t elements) {
    x_.resize(elements * SizeOf(rows_.before_dtype));
    rows_.Load(true, token, count, x_.data());
    if (compute_ == rows_.before_dtype) return;
    scratch_.resize(elements * SizeOf(compute_));
    Convert(rows_.before_dtype, compute_, x_.data(), scratch_.data(), elements);
    x_.swap(scratch_);
  }

  Operand Which() const {
    if (scaled_as_ != ScaledAs::kOther) return rows_.which;
    return rows_.which == Operand::kKey ? Operand::kQuery : Operand::kKey;
  }

  void MakeTable(int64_t token, int64_t count) {
    const DType type = TableType(precision_, compute_);
    table_type_ = type == DType::kFP64 ? DType::kFP64 : DType::kFP32;
    const size_t entries = count * table_.pairs();
    cos_.resize(entries);
    sin_.resize(entries);
    if (type == table_type_) return table_.Compute(token, count, type, Which(), Bytes(cos_), Bytes(sin_));
    std::vector<std::byte> narrow(2 * entries * SizeOf(type));
    std::byte* const sines = narrow.data() + entries * SizeOf(type);
    table_.Compute(token, count, type, Which(), narrow.data(), sines);
    Convert(type, table_type_, narrow.data(), cos_.data(), entries);
    Convert(type, table_type_, sines, sin_.data(), entries);
  }

  void Rotate(int64_t count) {
    const size_t row = rows_.width * SizeOf(compute_);
    const PairRotation work{
        .dtype = compute_,
        .head_dim = static_cast<size_t>(rows_.width),
        .rotary_offset = static_cast<size_t>(offset_),
        .pairs = table_.pairs(),
        .input_pairing = *candidate_.settings.input_pairing,
        .output_pairing = *candidate_.settings.output_pairing,
        .half_split_parts = static_cast<size_t>(candidate_.settings.half_split_parts),
        .rounding = precision_.rounding,
        .table_dtype = table_type_,
        .cos = cos_.data(),
        .sin = sin_.data(),
        .x = x_.data(),
        .y = x_.data(),
        .tokens = static_cast<size_t>(count),
        .heads = static_cast<size_t>(rows_.heads),
        .token_stride = row * rows_.heads,
        .head_stride = row,
    };
    RotatePairs(work, 0, count);
  }

  void RotateDoubles(int64_t count) {
    const auto pairs = static_cast<int64_t>(table_.pairs());
    const RotarySettings& settings = candidate_.settings;
    const Pairing input = *settings.input_pairing, output = *settings.output_pairing;
    const PairLayout layout{input, output, 2 * pairs, offset_, settings.half_split_parts};
    std::vector<double> y(rows_.width);
    for (int64_t r = 0; r < count * rows_.heads; ++r) {
      std::byte* const row = x_.data() + r * rows_.width * sizeof(double);
      std::vector<double> x(rows_.width);
      std::memcpy(x.data(), row, x.size() * sizeof(double));
      y = x;
      for (int64_t k = 0; k < pairs; ++k) {
        const double c = cos_[r / rows_.heads * pairs + k], s = sin_[r / rows_.heads * pairs + k];
        const double x0 = x[layout.First(input, k)], x1 = x[layout.Second(input, k)];
        y[layout.First(output, k)] = x0 * c - x1 * s;
        y[layout.Second(output, k)] = x1 * c + x0 * s;
      }
      std::memcpy(row, y.data(), y.size() * sizeof(double));
    }
  }

  static std::byte* Bytes(std::vector<double>& values) { return reinterpret_cast<std::byte*>(values.data()); }

  const Candidate& candidate_;
  const Precision& precision_;
  const DType compute_;
  const CandidateTable& table_;
  const Rows& rows_;
  const int64_t offset_;
  const ScaledAs scaled_as_;
  DType table_type_ = DType::kFP32;
  std::vector<std::byte> x_, scratch_;
  std::vector<double> cos_, sin_;  // elements of table_type_; sized for FP64
};

std::vector<DType> ComputeTypes(const Rows& rows) {
  const DType before = rows.before_dtype, after = rows.after_dtype;
  if (before == after) return {before};
  std::vector<DType> types = {before, after};
  if (before != DType::kFP32 && after != DType::kFP32) types.push_back(DType::kFP32);
  return types;
}

// The operand's table; without xPos if the operand was not scaled.
absl::StatusOr<CandidateTable> TableOf(const Candidate& candidate, size_t operand, Frequencies arithmetic,
                                       const Tokens& tokens, const Limits& limits) {
  if (candidate.scaled_as[operand] != ScaledAs::kNone) {
    return CandidateTable::Create(candidate, arithmetic, tokens, limits);
  }
  Candidate unscaled = candidate;
  unscaled.settings.xpos.reset();
  return CandidateTable::Create(unscaled, arithmetic, tokens, limits);
}

}  // namespace

std::vector<std::vector<DType>> ComputeTypes(const Evidence& evidence) {
  std::vector<std::vector<DType>> all = {{}};
  for (const Rows& rows : evidence.operands) {
    std::vector<std::vector<DType>> longer;
    for (const std::vector<DType>& types : all) {
      for (DType type : ComputeTypes(rows)) {
        longer.push_back(types);
        longer.back().push_back(type);
      }
    }
    all = std::move(longer);
  }
  return all;
}

absl::StatusOr<Proof> Prove(const Candidate& candidate, const Variant& variant, const Evidence& evidence,
                            const Limits& limits, WorkPool& pool, const Cancellation& cancelled) {
  Proof proof;
  std::mutex mutex;
  for (size_t operand = 0; operand < evidence.operands.size(); ++operand) {
    POSENC_ASSIGN_OR_RETURN(const CandidateTable table,
                            TableOf(candidate, operand, variant.precision.frequencies, evidence.tokens, limits));
    const Rows& rows = evidence.operands[operand];
    const int64_t offset = candidate.offsets[operand], row = rows.heads * rows.width;
    if (offset < 0 || offset + 2 * static_cast<int64_t>(table.pairs()) > rows.width) {
      return absl::FailedPreconditionError("wider than the head");
    }
    const int64_t slab = std::max<int64_t>(1, kSlabElements / row);
    POSENC_RETURN_IF_ERROR(pool.ParallelFor(rows.tokens(), slab, cancelled, [&](size_t begin, size_t end) {
      const auto count = static_cast<int64_t>(end - begin);
      Slab work(candidate, variant, table, evidence, operand);
      const std::vector<std::byte>& ours = work.Compute(static_cast<int64_t>(begin), count);
      std::vector<std::byte> theirs(ours.size());
      rows.Load(false, static_cast<int64_t>(begin), count, theirs.data());
      const size_t elements = count * row;
      Comparison comparison;
      const size_t first = comparison.Add(rows.after_dtype, ours.data(), theirs.data(), elements);
      const uint64_t digest = XXH3_64bits_withSeed(ours.data(), ours.size(), begin * 2 + operand);
      const std::lock_guard lock(mutex);
      proof.comparison.Merge(comparison);
      proof.digest += digest;
      if (first == elements) return;
      const int64_t token = static_cast<int64_t>(begin + first / row), within = static_cast<int64_t>(first % row);
      if (proof.first && (proof.first->operand != rows.which || proof.first->row <= token)) return;
      const size_t size = SizeOf(rows.after_dtype);
      proof.first = Difference{rows.which, rows.Index(token, within / rows.width, within % rows.width), token,
                               ValueOf(rows.after_dtype, ours.data() + first * size),
                               ValueOf(rows.after_dtype, theirs.data() + first * size)};
    }));
  }
  return proof;
}

}  // namespace posenc::diagnose
