#include "posenc/diagnose/compute_rows.h"

#include <cstring>
#include <utility>

#include "posenc/base/status.h"
#include "posenc/diagnose/pairs.h"
#include "posenc/kernels/convert.h"
#include "posenc/kernels/rotate_pairs.h"

namespace posenc::diagnose {
namespace {

// Computes the rows of a block of one operand.
class BlockWork {
 public:
  BlockWork(const Candidate& candidate, const Variant& variant, const CandidateTable& table, const Evidence& evidence,
            size_t operand, const Block& block)
      : candidate_(candidate),
        precision_(variant.precision),
        compute_(variant.compute[operand]),
        table_(table),
        rows_(evidence.operands[operand]),
        block_(block),
        elements_(block.tokens * block.heads * rows_.width),
        offset_(candidate.offsets[operand]),
        scaled_as_(candidate.scaled_as[operand]) {}

  // Returns the rotated rows in after's type.
  std::vector<std::byte> Compute() {
    Load();
    if (candidate_.turns > 0) MakeTable();
    for (int n = 0; n < candidate_.turns; ++n) {
      if (compute_ == DType::kFP64) {
        RotateDoubles();
      } else {
        Rotate();
      }
    }
    if (compute_ != rows_.after_dtype) {
      scratch_.resize(elements_ * SizeOf(rows_.after_dtype));
      Convert(compute_, rows_.after_dtype, x_.data(), scratch_.data(), elements_);
      x_.swap(scratch_);
    }
    return std::move(x_);
  }

 private:
  void Load() {
    x_.resize(elements_ * SizeOf(rows_.before_dtype));
    rows_.Load(true, block_, x_.data());
    if (compute_ == rows_.before_dtype) return;
    scratch_.resize(elements_ * SizeOf(compute_));
    Convert(rows_.before_dtype, compute_, x_.data(), scratch_.data(), elements_);
    x_.swap(scratch_);
  }

  Operand Which() const {
    if (scaled_as_ != ScaledAs::kOther) return rows_.which;
    return rows_.which == Operand::kKey ? Operand::kQuery : Operand::kKey;
  }

  void MakeTable() {
    const DType type = TableType(precision_, compute_);
    table_type_ = type == DType::kFP64 ? DType::kFP64 : DType::kFP32;
    const size_t entries = block_.tokens * table_.pairs();
    cos_.resize(entries);
    sin_.resize(entries);
    if (type == table_type_) {
      return table_.Compute(block_.token, block_.tokens, type, Which(), Bytes(cos_), Bytes(sin_));
    }
    std::vector<std::byte> narrow(2 * entries * SizeOf(type));
    std::byte* const sines = narrow.data() + entries * SizeOf(type);
    table_.Compute(block_.token, block_.tokens, type, Which(), narrow.data(), sines);
    Convert(type, table_type_, narrow.data(), cos_.data(), entries);
    Convert(type, table_type_, sines, sin_.data(), entries);
  }

  void Rotate() {
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
        .tokens = static_cast<size_t>(block_.tokens),
        .heads = static_cast<size_t>(block_.heads),
        .token_stride = row * block_.heads,
        .head_stride = row,
    };
    RotatePairs(work, 0, block_.tokens);
  }

  void RotateDoubles() {
    const auto pairs = static_cast<int64_t>(table_.pairs());
    const RotarySettings& settings = candidate_.settings;
    const Pairing input = *settings.input_pairing, output = *settings.output_pairing;
    const PairLayout layout{input, output, 2 * pairs, offset_, settings.half_split_parts};
    std::vector<double> y(rows_.width);
    for (int64_t r = 0; r < block_.tokens * block_.heads; ++r) {
      std::byte* const row = x_.data() + r * rows_.width * sizeof(double);
      std::vector<double> x(rows_.width);
      std::memcpy(x.data(), row, x.size() * sizeof(double));
      y = x;
      for (int64_t k = 0; k < pairs; ++k) {
        const double c = cos_[r / block_.heads * pairs + k], s = sin_[r / block_.heads * pairs + k];
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
  const Block block_;
  const size_t elements_;
  const int64_t offset_;
  const ScaledAs scaled_as_;
  DType table_type_ = DType::kFP32;
  std::vector<std::byte> x_, scratch_;
  std::vector<double> cos_, sin_;  // elements of table_type_; sized for FP64
};

}  // namespace

DType TableType(const Precision& precision, DType compute) {
  if (compute == DType::kFP64 || precision.table_dtype == TableDtype::kFloat64) return DType::kFP64;
  return precision.table_dtype == TableDtype::kTensor ? compute : DType::kFP32;
}

absl::StatusOr<CandidateTable> TableOf(const Candidate& candidate, size_t operand, Frequencies arithmetic,
                                       const Tokens& tokens, const Limits& limits) {
  if (candidate.scaled_as[operand] != ScaledAs::kNone) {
    return CandidateTable::Create(candidate, arithmetic, tokens, limits);
  }
  Candidate unscaled = candidate;
  unscaled.settings.xpos.reset();
  return CandidateTable::Create(unscaled, arithmetic, tokens, limits);
}

std::vector<std::byte> ComputeRows(const Candidate& candidate, const Variant& variant, const CandidateTable& table,
                                   const Evidence& evidence, size_t operand, const Block& block) {
  return BlockWork(candidate, variant, table, evidence, operand, block).Compute();
}

}  // namespace posenc::diagnose
