#include "posenc/methods/embedding/encoding.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "posenc/base/interruption.h"
#include "posenc/base/memory_account.h"
#include "posenc/base/status.h"

namespace posenc {

Positions RowNumbers(int64_t rows) { return Positions{PositionSegments{{PositionLine{rows, 0.0, 1.0}}}, {}, {}, {}}; }

Positions CountValid(const Matrix<uint8_t>& valid) {
  const LargeBlocksMayBeRefused scope;
  Matrix<double> ids{{}, valid.rows, valid.columns, false};
  ids.values.reserve(valid.values.size());
  for (int64_t b = 0; b < valid.rows && valid.columns > 0; ++b) {  // zero columns allow any number of rows
    double next = 0;
    for (int64_t s = 0; s < valid.columns; ++s) {
      InterruptionPointOfStep(static_cast<int64_t>(ids.values.size()));
      ids.values.push_back(valid.row(b)[s] ? next++ : -1);
    }
  }
  return Positions{PositionIds{std::move(ids)}, {}, {}, {}};
}

absl::Status CheckShift(std::string_view name, int64_t shift) {
  if (shift >= -kLargestShift && shift <= kLargestShift) return absl::OkStatus();
  return InvalidArgument("OUT_OF_RANGE", name, fmt::format("{}", shift), "must be at most 2^52 in magnitude");
}

absl::Status CheckDim(int64_t dim, int64_t least, int64_t divisor, const Limits& limits) {
  if (dim < least || dim % divisor != 0) {
    return InvalidArgument("OUT_OF_RANGE", "dim", fmt::format("{}", dim),
                           divisor == 1 ? fmt::format("must be at least {}", least)
                                        : fmt::format("must be at least {} and divisible by {}", least, divisor));
  }
  if (dim <= limits.max_rotary_dim) return absl::OkStatus();
  return InvalidArgument("OUT_OF_RANGE", "dim", fmt::format("{}", dim),
                         fmt::format("must be at most {}", limits.max_rotary_dim));
}

absl::Status CheckAllFinite(std::string_view name, const std::vector<double>& numbers) {
  if (std::all_of(numbers.begin(), numbers.end(), [](double x) { return std::isfinite(x); })) return absl::OkStatus();
  return InvalidArgument("OUT_OF_RANGE", name, "",
                         "must be smaller: frequencies or coordinates overflow in this arithmetic");
}

absl::Status NotRead(std::string_view name, std::string_view owner) {
  return InvalidArgument("NOT_READ", name, "", fmt::format("must be absent: only {} reads it", owner));
}

}  // namespace posenc
