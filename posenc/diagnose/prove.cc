#include "posenc/diagnose/prove.h"

#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <numbers>

#include "posenc/base/status.h"
#include "posenc/diagnose/blocks.h"
#include "posenc/diagnose/compute_rows.h"
#include "posenc/diagnose/pairs.h"
#include "posenc/kernels/convert.h"

namespace posenc::diagnose {
namespace {

std::vector<DType> ComputeTypes(const Rows& rows) {
  const DType before = rows.before_dtype, after = rows.after_dtype;
  if (before == after) return {before};
  std::vector<DType> types = {before, after};
  if (before != DType::kFP32 && after != DType::kFP32) types.push_back(DType::kFP32);
  return types;
}

// The elements of a block that are not equal. By head row of the block: whether one is beyond the tolerance, the number
// of all that are not equal, whether one is a number where NaN was computed, and whether too few pairs are evidence.
// within_row: Misfits::within_row.
struct Unequal {
  Unequal(int64_t rows, int64_t width) : beyond(rows), count(rows), undefined(rows), unclear(rows), within_row(width) {}
  int64_t misfits = 0, flips = 0;
  std::vector<uint8_t> beyond, count, undefined, unclear, within_row;
};

// Finds the elements of a block that differ by more than the tolerance.
class MisfitFinder {
 public:
  MisfitFinder(const Candidate& candidate, DType table_type, const CandidateTable& table, const Rows& rows,
               int64_t offset, const Tolerance* tolerance, const std::vector<uint8_t>* only)
      : table_(table),
        rows_(rows),
        tolerance_(tolerance),
        only_(only),
        pair_of_(rows.width, -1),
        partner_of_(rows.width),
        turns_(std::max(1, candidate.turns)) {
    const RotarySettings& settings = candidate.settings;
    const Pairing output = *settings.output_pairing;
    const PairLayout layout{*settings.input_pairing, output, 2 * static_cast<int64_t>(table.pairs()), offset,
                            settings.half_split_parts};
    for (int64_t k = 0; k < static_cast<int64_t>(table.pairs()); ++k) {
      const int64_t a = layout.First(output, k), b = layout.Second(output, k);
      pair_of_[a] = pair_of_[b] = k;
      partner_of_[a] = b;
      partner_of_[b] = a;
    }
    switch (rows.after_dtype) {
      case DType::kFP64: mantissa_bits_ = 52, least_exponent_ = -1022; break;
      case DType::kFP32: mantissa_bits_ = 23, least_exponent_ = -126; break;
      case DType::kFP16: mantissa_bits_ = 10, least_exponent_ = -14; break;
      default: mantissa_bits_ = 7, least_exponent_ = -126; break;
    }
    if (tolerance == nullptr || !tolerance->flips) return;
    // A table of the tensor's type rounds its entries to these units, if an attention factor makes them 1 or more.
    if (table_type == DType::kBF16) of_entry_ = 0x1p-7;
    if (table_type == DType::kFP16) of_entry_ = 0x1p-10;
    switch (candidate.fault) {
      case TableFault::kTableBF16: of_entry_ = 0x1p-7; break;
      case TableFault::kTableFP16: of_entry_ = 0x1p-10; break;
      case TableFault::kTableE4M3: of_entry_ = 0x1p-4; break;
      case TableFault::kTableE5M2: of_entry_ = 0x1p-3; break;
      case TableFault::kTableInt8: of_entry_ = 1.0 / 127; break;
      case TableFault::kInvFreqBF16:
      case TableFault::kAnglesBF16: of_angle_ = 0x1p-7; break;
      case TableFault::kInvFreqFP16:
      case TableFault::kAnglesFP16: of_angle_ = 0x1p-10; break;
      default: break;
    }
  }

  // Compares the block's rows, of which `first` is the index of the first.
  Unequal Find(const Block& block, int64_t first, const std::vector<std::byte>& ours,
               const std::vector<std::byte>& theirs) const {
    const size_t bytes = rows_.width * SizeOf(rows_.after_dtype);
    std::vector<double> a(rows_.width), b(rows_.width);
    Unequal found(block.tokens * block.heads, rows_.width);
    Bounds bounds;
    for (size_t row = 0; row < found.count.size(); ++row) {
      const std::byte *our = ours.data() + row * bytes, *their = theirs.data() + row * bytes;
      if (only_ != nullptr && !(*only_)[first + static_cast<int64_t>(row)]) continue;
      if (std::memcmp(our, their, bytes) == 0) continue;
      Convert(rows_.after_dtype, DType::kFP64, our, a.data(), a.size());
      Convert(rows_.after_dtype, DType::kFP64, their, b.data(), b.size());
      const int64_t token = block.token + static_cast<int64_t>(row) / block.heads;
      if (token != bounds.token) bounds = BoundsOf(token);
      std::vector<int64_t> beyond, flips, no_evidence;
      for (int64_t e = 0; e < rows_.width; ++e) {
        if (a[e] == b[e]) continue;
        if (std::isnan(a[e])) {  // the input does not say what number to expect
          found.undefined[row] |= !std::isnan(b[e]);
          continue;
        }
        found.count[row] = static_cast<uint8_t>(std::min(found.count[row] + 1, 255));
        const double off = std::fabs(a[e] - b[e]);
        const auto [usual, flipped] = Allowed(bounds, a, e);
        if (off <= usual) continue;
        const bool is_evidence = pair_of_[e] < 0 || bounds.phase_error[pair_of_[e]] < kLargestPhaseError;
        (!is_evidence ? no_evidence : off <= flipped ? flips : beyond).push_back(e);
      }
      // Where other pairs do not fit, nothing vouches for these.
      if (!no_evidence.empty() && (!beyond.empty() || bounds.may_fit_by_chance)) {
        found.unclear[row] = beyond.empty();
        beyond.insert(beyond.end(), no_evidence.begin(), no_evidence.end());
      }
      if (static_cast<double>(flips.size()) > bounds.most_flips) {
        beyond.insert(beyond.end(), flips.begin(), flips.end());
      } else {
        found.flips += static_cast<int64_t>(flips.size());
      }
      found.misfits += static_cast<int64_t>(beyond.size());
      for (const int64_t e : beyond) found.beyond[row] = found.within_row[e] = 1;
    }
    return found;
  }

 private:
  static constexpr double kLargestPhaseError = 0.5;  // radians

  // The tolerance of one token.
  struct Bounds {
    int64_t token = -1;
    std::vector<double> phase_error;  // largest error of each pair's angle, in radians
    bool may_fit_by_chance = false;   // random angles would be within the errors in more than one token of 10,000
    double most_flips = 0;            // most roundings of the fault that may flip
  };
  Bounds BoundsOf(int64_t token) const {
    constexpr double kChance = 1e-4;
    Bounds bounds{token, {}, false, std::max<double>(2, static_cast<double>(rows_.width) / 16)};
    double chance = 1, off = 0;
    for (size_t k = 0; k < table_.pairs(); ++k) {
      const double angle = table_.Angle(token, k);
      const double error = turns_ * tolerance_->of_angle * angle;
      bounds.phase_error.push_back(error);
      if (error > 0 && error < kLargestPhaseError) chance *= error / std::numbers::pi;
      // A table's entries flip as often as the phases are off by one of their units.
      if (of_entry_ != 0) off += 2 * std::min(1.0, tolerance_->of_angle * angle / of_entry_);
    }
    bounds.may_fit_by_chance = chance > kChance;
    bounds.most_flips = std::max(bounds.most_flips, 2 * off);
    return bounds;
  }

  // The usual tolerance, and the one for an entry that a fault rounds to the other side.
  std::pair<double, double> Allowed(const Bounds& bounds, const std::vector<double>& row, int64_t e) const {
    if (pair_of_[e] < 0) return {0, 0};  // not rotated, so not rounded
    const double square = row[e] * row[e] + row[partner_of_[e]] * row[partner_of_[e]];
    const bool wide = rows_.after_dtype == DType::kFP32 || rows_.after_dtype == DType::kFP64;
    const double ulp = turns_ * (wide ? tolerance_->wide_ulp : tolerance_->ulp);
    if (!(square > 0) || !std::isfinite(square)) {
      const double least = square == 0 ? LastPlace(least_exponent_) * ulp : 0;
      return {least, least};
    }
    const int exponent = std::max(std::ilogb(square) >> 1, least_exponent_);  // of the norm
    const double norm = std::sqrt(square), error = bounds.phase_error[pair_of_[e]];
    const double usual = ulp * LastPlace(exponent) + (error < kLargestPhaseError ? error * norm : 0);
    const double of_angle = of_angle_ == 0 ? 0 : of_angle_ * table_.Angle(bounds.token, pair_of_[e]);
    return {usual, usual + (of_entry_ + of_angle) * norm};
  }
  double LastPlace(int exponent) const { return std::ldexp(1, exponent - mantissa_bits_); }

  const CandidateTable& table_;
  const Rows& rows_;
  const Tolerance* const tolerance_;
  const std::vector<uint8_t>* const only_;
  std::vector<int64_t> pair_of_, partner_of_;
  int mantissa_bits_ = 0, least_exponent_ = 0;
  const int turns_;
  // Units in the last place of the fault's type: of a table's entry, and of an angle relative to it.
  double of_entry_ = 0, of_angle_ = 0;
};

void AddMisfits(const Unequal& found, const Evidence& evidence, size_t operand, int64_t first_row, Misfits* misfits) {
  const auto copy = [&](const std::vector<uint8_t>& rows, RowSet* all) {
    std::copy(rows.begin(), rows.end(), (*all)[operand].begin() + first_row);
  };
  misfits->elements += found.misfits;
  misfits->flips += found.flips;
  copy(found.count, &misfits->unequal);
  copy(found.beyond, &misfits->rows);
  for (size_t e = 0; e < found.within_row.size(); ++e) misfits->within_row[operand][e] |= found.within_row[e];
  const auto copy_if_any = [&](const std::vector<uint8_t>& rows, RowSet* all) {
    if (std::find(rows.begin(), rows.end(), 1) == rows.end()) return;
    if (all->empty()) *all = NoRows(evidence);
    copy(rows, all);
  };
  copy_if_any(found.undefined, &misfits->undefined);
  copy_if_any(found.unclear, &misfits->unclear);
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
                            const Limits& limits, WorkPool& pool, const Cancellation& cancelled,
                            const Tolerance* tolerance, const RowSet* only) {
  Proof proof;
  if (tolerance != nullptr) {
    proof.misfits.emplace();
    proof.misfits->rows = proof.misfits->unequal = NoRows(evidence);
    for (const Rows& rows : evidence.operands) proof.misfits->within_row.emplace_back(rows.width);
  }
  std::mutex mutex;
  for (size_t operand = 0; operand < evidence.operands.size(); ++operand) {
    POSENC_ASSIGN_OR_RETURN(const CandidateTable table,
                            TableOf(candidate, operand, variant.precision.frequencies, evidence.tokens, limits));
    const Rows& rows = evidence.operands[operand];
    const int64_t offset = candidate.offsets[operand];
    if (offset < 0 || offset + 2 * static_cast<int64_t>(table.pairs()) > rows.width) {
      return absl::FailedPreconditionError("wider than the head");
    }
    const MisfitFinder finder(candidate, TableType(variant.precision, variant.compute[operand]), table, rows, offset,
                              tolerance, only == nullptr ? nullptr : &(*only)[operand]);
    const auto prove_block = [&](const Block& block, int64_t first_row) {
      const std::vector<std::byte> ours = ComputeRows(candidate, variant, table, evidence, operand, block);
      std::vector<std::byte> theirs(ours.size());
      rows.Load(false, block, theirs.data());
      const size_t elements = block.tokens * block.heads * rows.width;
      Comparison comparison;
      const size_t first = comparison.Add(rows.after_dtype, ours.data(), theirs.data(), elements);
      const uint64_t digest = XXH3_64bits_withSeed(ours.data(), ours.size(), first_row * 2 + operand);
      std::optional<Unequal> unequal;
      if (tolerance != nullptr && first < elements) unequal = finder.Find(block, first_row, ours, theirs);
      const std::lock_guard lock(mutex);
      proof.comparison.Merge(comparison);
      proof.digest += digest;
      if (unequal) AddMisfits(*unequal, evidence, operand, first_row, &*proof.misfits);
      if (first == elements) return;
      const int64_t row = first_row + static_cast<int64_t>(first) / rows.width;
      if (proof.first && (proof.first->operand != rows.which || proof.first->row <= row)) return;
      const size_t size = SizeOf(rows.after_dtype);
      proof.first = Difference{rows.which,
                               rows.Index(row / rows.heads, row % rows.heads, static_cast<int64_t>(first) % rows.width),
                               row, ValueOf(rows.after_dtype, ours.data() + first * size),
                               ValueOf(rows.after_dtype, theirs.data() + first * size)};
    };
    // Ours and theirs, ours in another type, and the row that is compared.
    POSENC_RETURN_IF_ERROR(ForEachBlock(rows, pool, cancelled, 3 * sizeof(double), prove_block));
  }
  return proof;
}

}  // namespace posenc::diagnose
