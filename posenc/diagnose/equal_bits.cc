#include "posenc/diagnose/equal_bits.h"

#include <algorithm>
#include <limits>

#include "posenc/base/interruption.h"
#include "posenc/diagnose/pairs.h"

namespace posenc::diagnose {
namespace {

// Calls visit(operand, its rows) for every head of every batch row.
template <class Visitor>
void EachHead(const Evidence& evidence, const Visitor& visit) {
  for (size_t n = 0; n < evidence.operands.size(); ++n) {
    const Rows& operand = evidence.operands[n];
    const BatchRows batch(evidence, operand);
    for (const int64_t b : batch.filled()) {
      InterruptionPoint();
      for (int64_t h = 0; h < operand.heads; ++h) {
        std::vector<int64_t> rows;
        for (int64_t t = batch.Begin(b); t < batch.End(b); ++t) rows.push_back(t * operand.heads + h);
        visit(n, rows);
      }
    }
  }
}

}  // namespace

bool BitsCount(const RotationCall& call) { return RoundingOf(call.NarrowestAfter()) > RoundingOf(DType::kFP32); }

uint64_t CountUnequal(const Explanation& explanation, const RowSet& rows) {
  uint64_t count = 0;
  for (size_t n = 0; n < rows.size(); ++n) {
    for (size_t row = 0; row < rows[n].size(); ++row)
      count += rows[n][row] ? explanation.proof.misfits->unequal[n][row] : 0;
  }
  return count;
}

RowSet WithBits(const RotationCall& call, const Explanation& explanation, RowSet rows) {
  if (!BitsCount(call)) return rows;
  constexpr int64_t kNearly = 8;  // rows for each element that is missed
  RowSet kept = rows;
  bool any = false;
  EachHead(call.evidence, [&](size_t n, const std::vector<int64_t>& head) {
    int64_t count = 0, unequal = 0;
    for (const int64_t row : head) {
      if (!rows[n][row]) continue;
      ++count;
      unequal += explanation.proof.misfits->unequal[n][row];
    }
    any |= count > 0 && kNearly * unequal <= count;
    if (count == 0 || unequal < count) return;
    for (const int64_t row : head) kept[n][row] = 0;
  });
  return any ? kept : rows;
}

RowSet Widened(const RotationCall& call, const Explanation& reference, const Explanation& explanation, RowSet rows) {
  constexpr uint64_t kTimes = 2, kFew = 8;  // few must all be explained
  if (!BitsCount(call)) return rows;
  int64_t first = std::numeric_limits<int64_t>::max(), last = -1;  // tokens of a batch row
  EachHead(call.evidence, [&](size_t n, const std::vector<int64_t>& head) {
    for (size_t t = 0; t < head.size(); ++t) {
      if (!rows[n][head[t]]) continue;
      first = std::min(first, static_cast<int64_t>(t));
      last = std::max(last, static_cast<int64_t>(t));
    }
  });
  EachHead(call.evidence, [&](size_t n, const std::vector<int64_t>& head) {
    const Misfits &ours = *explanation.proof.misfits, &asked = *reference.proof.misfits;
    uint64_t found = 0, expected = 0;
    const int64_t end = std::min(last + 1, static_cast<int64_t>(head.size()));
    for (int64_t t = first; t < end; ++t) {
      if (ours.rows[n][head[t]] || (asked.rows[n][head[t]] && !rows[n][head[t]])) return;
      found += ours.unequal[n][head[t]], expected += asked.unequal[n][head[t]];
    }
    if (kTimes * found > expected || (expected < kFew && found > 0)) return;
    for (int64_t t = first; t < end; ++t) rows[n][head[t]] |= asked.unequal[n][head[t]] > ours.unequal[n][head[t]];
  });
  return rows;
}

RowSet UnequalHeads(const RotationCall& call, const Explanation& reference) {
  constexpr double kMany = 0.5, kFew = 0.125;  // of the largest share
  RowSet unequal;
  double most = 0;
  const auto visit = [&](const auto& visitor) {  // visitor(unequal elements a row, operand, rows of the head)
    EachHead(call.evidence, [&](size_t n, const std::vector<int64_t>& rows) {
      double count = 0;
      for (const int64_t row : rows) count += reference.proof.misfits->unequal[n][row];
      visitor(count / static_cast<double>(rows.size()), n, rows);
    });
  };
  for (const auto& rows : reference.proof.misfits->unequal) unequal.emplace_back(rows.size());
  visit([&](double share, size_t, const auto&) { most = std::max(most, share); });
  bool any_few = false, apart = true;
  visit([&](double share, size_t n, const std::vector<int64_t>& rows) {
    any_few |= share <= kFew * most;
    apart &= share <= kFew * most || share >= kMany * most;
    if (share < kMany * most) return;
    for (const int64_t row : rows) unequal[n][row] = 1;
  });
  if (any_few && apart) return unequal;
  for (std::vector<uint8_t>& rows : unequal) std::fill(rows.begin(), rows.end(), 0);
  return unequal;
}

}  // namespace posenc::diagnose
