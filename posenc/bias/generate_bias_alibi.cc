// BiasGeneration's methods for ALiBi.
#include <algorithm>
#include <cstddef>
#include <vector>

#include "posenc/bias/generate_bias.h"
#include "posenc/kernels/distance_bias.h"
#include "posenc/methods/bias/bias_methods.h"

namespace posenc {

void BiasGeneration::SetSlopes(int64_t b, int64_t head, DistanceBias* work) const {
  const AlibiSettings& settings = *alibi();
  work->bias_dtype = settings.bias_dtype.value_or(DType::kFP32);
  work->past_slope = work->future_slope = static_cast<float>(slopes_.row(b)[head]);
  switch (settings.form) {
    case AlibiForm::kBloom:
    case AlibiForm::kMpt: break;
    case AlibiForm::kSymmetric: work->future_slope = -work->past_slope; break;
    case AlibiForm::kCausal: work->future_slope = 0; break;
    case AlibiForm::kAsymmetric: work->future_slope = -static_cast<float>(settings.future_slopes->row(b)[head]); break;
  }
}

// If ALiBi's rows repeat, each head's values are computed once: one row for all queries, or one value per distance.
BiasGeneration::ValueLists BiasGeneration::LayAlibi(const QueryRows& rows) const {
  const bool one_row = IsKeyOnly(alibi()->form);
  // Whether positions are consecutive in float64, too, which skips integers above 2^53.
  const auto exact = [](const Matrix<double>& line) {
    return line.values.back() - line.values.front() == static_cast<double>(line.columns - 1);
  };
  const bool by_distance = consecutive_ && alibi()->bias_dtype.value_or(DType::kFP32) == DType::kFP32 &&
                           exact(rows.positions) && exact(key_positions_);
  const bool shared = slopes_.shared && key_positions_.shared && rows.positions.shared &&
                      (!alibi()->future_slopes || alibi()->future_slopes->shared);
  // From this many queries and keys on, the lists are so much smaller than the answer that they need no own limit.
  constexpr int64_t kWorthwhile = 8;
  if (!shared || !(one_row || by_distance) || std::min(rows.count, keys_) < kWorthwhile) return {};
  ValueLists lists;
  std::vector<double> line;
  if (!one_row) {
    const double first = key_positions_.values.front();
    line.resize(rows.count + keys_ - 1);
    for (size_t i = 0; i < line.size(); ++i) line[i] = first + static_cast<double>(i);
    lists.first_distance = static_cast<int64_t>(first - rows.positions.values.back());
  }
  const std::vector<double>& keys = one_row ? key_positions_.values : line;
  lists.row_shift = one_row ? 0 : -1;
  const auto columns = static_cast<int64_t>(keys.size());
  lists.values = {std::vector<float>(heads_ * columns), heads_, columns, false};
  DistanceBias work{.dtype = DType::kFP32, .queries = 1, .keys = keys.size()};
  work.query_positions = one_row ? &rows.positions.values.front() : &rows.positions.values.back();
  work.key_positions = keys.data();
  for (int64_t head = 0; head < heads_; ++head) {
    SetSlopes(0, head_start_ + head, &work);
    work.out = reinterpret_cast<std::byte*>(lists.values.values.data() + head * columns);
    posenc::Run(work, 0, 1);
  }
  return lists;
}

}  // namespace posenc
