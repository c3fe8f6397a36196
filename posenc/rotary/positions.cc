#include "posenc/rotary/positions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "posenc/base/checks.h"
#include "posenc/base/interruption.h"
#include "posenc/base/memory_account.h"
#include "posenc/base/status.h"

namespace posenc {
namespace {

template <class... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <class... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;

absl::Status CheckRun(std::string_view field, int64_t offset, int64_t count) {
  // In integers: float64 would round an offset above 2^53, also in the message.
  constexpr auto kLargest = static_cast<int64_t>(kLargestPosition);
  if (offset >= -kLargest && offset <= kLargest - count) return absl::OkStatus();
  return InvalidArgument("OUT_OF_RANGE", field, fmt::format("{}", offset),
                         fmt::format("must be from -2^53 to 2^53 - {}, the number of tokens", count));
}

}  // namespace

absl::Status CheckSequences(int64_t sequences, const Limits& limits) {
  if (sequences <= limits.max_sequences) return absl::OkStatus();
  return TooLarge("cu_seqlens", fmt::format("{} sequences", sequences),
                  fmt::format("must be at most {} (max_sequences)", limits.max_sequences));
}

absl::StatusOr<TokenPositions> TokenPositions::Create(Positions positions, const TokenGrid& grid,
                                                      const Limits& limits) {
  const LargeBlocksMayBeRefused scope;
  TokenPositions result;
  result.sequences_ = grid.sequences;
  result.length_ = grid.length;
  result.packed_ = grid.packed;
  if (positions.cu_seqlens) {
    if (!grid.packed) {
      return InvalidArgument("NOT_READ", "cu_seqlens", "", "must be absent without LAYOUT_THD");
    }
    result.sequences_ = static_cast<int64_t>(positions.cu_seqlens->size()) - 1;
    POSENC_RETURN_IF_ERROR(CheckSequences(result.sequences_, limits));
    POSENC_RETURN_IF_ERROR(CheckSequenceBounds("cu_seqlens", *positions.cu_seqlens, grid.length));
    result.bounds_ = std::move(*positions.cu_seqlens);
  }
  result.axes_ = grid.axes;
  if (positions.cache_index) {
    constexpr auto kLargest = static_cast<int64_t>(kLargestPosition);
    if (!grid.reads_cache_index) {
      return InvalidArgument("NOT_READ", "cache_index", fmt::format("{}", *positions.cache_index),
                             "must be absent: the settings do not count by the index in the cache");
    }
    if (*positions.cache_index < 0 || *positions.cache_index > kLargest - grid.length) {
      return InvalidArgument("OUT_OF_RANGE", "cache_index", fmt::format("{}", *positions.cache_index),
                             fmt::format("must be from 0 to 2^53 - {}, the number of tokens", grid.length));
    }
  }
  const auto* ids = std::get_if<PositionIds>(&positions.source);
  if (ids == nullptr && positions.axis_dimension != AxisDimension::kUnspecified) {
    return InvalidArgument("NOT_READ", "axis_dimension", "", "must be absent without ids");
  }
  if (const auto* segments = std::get_if<PositionSegments>(&positions.source)) {
    POSENC_RETURN_IF_ERROR(result.ReadSegments(*segments));
  }
  result.positions_ = std::move(positions);
  POSENC_RETURN_IF_ERROR(result.CheckSource());
  ids = std::get_if<PositionIds>(&result.positions_.source);
  if (ids != nullptr) result.axes_differ_ = ids->axes > 1;
  result.same_for_all_ = !grid.packed && (std::holds_alternative<OffsetPositions>(result.positions_.source) ||
                                          std::holds_alternative<PositionSegments>(result.positions_.source) ||
                                          (ids != nullptr && ids->ids.shared));
  return result;
}

absl::Status TokenPositions::ReadSegments(const PositionSegments& segments) {
  segment_begin_ = {0};
  const auto field = [](size_t n) { return fmt::format("segments.segment[{}]", n); };
  for (size_t n = 0; n < segments.segments.size(); ++n) {
    InterruptionPointOfStep(static_cast<int64_t>(n));
    const PositionSegment& segment = segments.segments[n];
    const bool grid = std::holds_alternative<PositionGrid>(segment);
    const absl::StatusOr<int64_t> count = CheckedCount(segment, axes_);
    if (!count.ok()) return Within(field(n), count.status());
    segment_begin_.push_back(segment_begin_.back());
    if (__builtin_add_overflow(segment_begin_.back(), *count, &segment_begin_.back())) {
      return InvalidArgument("OUT_OF_RANGE", field(n) + (grid ? ".grid.size" : ".line.count"),
                             fmt::format("{} positions", *count), "must be below 2^63 in the sum of all counts");
    }
    axes_differ_ = axes_differ_ || (axes_ > 1 && grid);
  }
  return absl::OkStatus();
}

absl::Status TokenPositions::CheckIds(const PositionIds& source) const {
  const AxisDimension dimension = positions_.axis_dimension;
  if (dimension == AxisDimension::kUnspecified && axes_ > 1) {
    return InvalidArgument(
        "MISSING", "axis_dimension", "",
        fmt::format("must be given for positions with {} axes: AXIS_DIMENSION_NONE (same position on every axis), "
                    "AXIS_DIMENSION_FIRST or AXIS_DIMENSION_LAST",
                    axes_));
  }
  const bool has_axes = dimension == AxisDimension::kFirst || dimension == AxisDimension::kLast;
  if (has_axes && source.axes != axes_) {
    return InvalidArgument("MISMATCH", source.field, fmt::format("{} axes", source.axes),
                           fmt::format("must be {}, the axes of a position", axes_));
  }
  const Matrix<double>& ids = source.ids;
  if (ids.columns != length_ || (!ids.shared && (packed_ || ids.rows != sequences_))) {
    return InvalidArgument(
        "MISMATCH", source.field,
        ids.shared ? fmt::format("[{}]", ids.columns) : fmt::format("[{}, {}]", ids.rows, ids.columns),
        packed_ ? fmt::format("must be [T] = [{}]", length_)
                : fmt::format("must be [S] = [{}] or [B, S] = [{}, {}]", length_, sequences_, length_));
  }
  for (size_t n = 0; n < ids.values.size(); ++n) {
    InterruptionPointOfStep(static_cast<int64_t>(n) + 1);
    if (!(std::abs(ids.values[n]) <= kLargestPosition)) {
      return CheckPosition(fmt::format("ids[{}]", n), ids.values[n]);
    }
  }
  return absl::OkStatus();
}

absl::Status TokenPositions::CheckSource() const {
  return std::visit(
      Overloaded{
          [](std::monostate) {
            return InvalidArgument("MISSING", "source", "", "must be given: offset, offsets, ids or segments");
          },
          [this](const OffsetPositions& source) { return CheckRun("offset", source.offset, length_); },
          [this](const PerSequenceOffsets& source) {
            if (static_cast<int64_t>(source.offsets.size()) != sequences_) {
              return InvalidArgument("MISMATCH", "offsets", fmt::format("{} values", source.offsets.size()),
                                     fmt::format("must be one per sequence: {}", sequences_));
            }
            for (size_t n = 0; n < source.offsets.size(); ++n) {
              InterruptionPointOfStep(static_cast<int64_t>(n));
              const absl::Status status = CheckRun("", source.offsets[n], length_);
              if (!status.ok()) return Within(fmt::format("offsets.offset[{}]", n), status);
            }
            return absl::OkStatus();
          },
          [this](const PositionIds& source) { return CheckIds(source); },
          [this](const PositionSegments&) {
            if (segment_begin_.back() == length_) return absl::OkStatus();
            return InvalidArgument("MISMATCH", "segments", fmt::format("{} positions", segment_begin_.back()),
                                   fmt::format("must sum to {}", length_));
          },
      },
      positions_.source);
}

size_t TokenPositions::SegmentOf(int64_t index) const {
  return std::upper_bound(segment_begin_.begin(), segment_begin_.end(), index) - segment_begin_.begin() - 1;
}

int64_t TokenPositions::SequenceOf(int64_t token) const {
  if (bounds_.empty()) return token / length_;
  return std::upper_bound(bounds_.begin(), bounds_.end(), token) - bounds_.begin() - 1;
}

void TokenPositions::Fill(int64_t token, int64_t count, double* out, int64_t axis) const {
  const int64_t sequence = SequenceOf(token);
  const int64_t within = token - begin(sequence);
  std::visit(Overloaded{
                 [](std::monostate) {},
                 [&](const OffsetPositions& source) {
                   for (int64_t s = 0; s < count; ++s) out[s] = static_cast<double>(source.offset + within + s);
                 },
                 [&](const PerSequenceOffsets& source) {
                   for (int64_t s = 0; s < count; ++s)
                     out[s] = static_cast<double>(source.offsets[sequence] + within + s);
                 },
                 [&](const PositionIds& source) {
                   const int64_t skipped = source.axes > 1 ? axis * source.ids.rows * source.ids.columns : 0;
                   const double* row = packed_ ? source.ids.values.data() + begin(sequence) : source.ids.row(sequence);
                   std::copy_n(row + skipped + within, count, out);
                 },
                 [&](const PositionSegments& source) {
                   int64_t index = packed_ ? token : within;
                   for (const int64_t end = index + count; index < end;) {
                     const size_t n = SegmentOf(index);
                     const int64_t first = index - segment_begin_[n], stop = std::min(end, segment_begin_[n + 1]);
                     FillFrom(source.segments[n], first, stop - index, axis, out);
                     out += stop - index;
                     index = stop;
                   }
                 },
             },
             positions_.source);
}

void TokenPositions::FillIndexes(int64_t token, int64_t count, double* out) const {
  if (!positions_.cache_index) return Fill(token, count, out);
  const int64_t first = *positions_.cache_index + token - begin(SequenceOf(token));
  for (int64_t s = 0; s < count; ++s) out[s] = static_cast<double>(first + s);
}

absl::Status TokenPositions::CheckIndexesNotNegative() const {
  if (positions_.cache_index) return absl::OkStatus();
  const auto check = [](std::string_view field, double position) {
    if (position >= 0) return absl::OkStatus();
    return InvalidArgument("OUT_OF_RANGE", field, fmt::format("{}", position),
                           "must be at least 0: q is multiplied by a factor of the position");
  };
  return std::visit(
      Overloaded{
          [](std::monostate) { return absl::OkStatus(); },
          [&](const OffsetPositions& source) { return check("offset", static_cast<double>(source.offset)); },
          [&](const PerSequenceOffsets& source) {
            for (size_t n = 0; n < source.offsets.size(); ++n) {
              InterruptionPointOfStep(static_cast<int64_t>(n));
              if (source.offsets[n] >= 0) continue;
              return check(fmt::format("offsets.offset[{}]", n), static_cast<double>(source.offsets[n]));
            }
            return absl::OkStatus();
          },
          [&](const PositionIds& source) {
            for (size_t n = 0; n < source.ids.values.size(); ++n) {
              InterruptionPointOfStep(static_cast<int64_t>(n) + 1);
              if (source.ids.values[n] >= 0) continue;
              return check(fmt::format("ids[{}]", n), source.ids.values[n]);
            }
            return absl::OkStatus();
          },
          [&](const PositionSegments& source) {
            for (size_t n = 0; n < source.segments.size(); ++n) {
              InterruptionPointOfStep(static_cast<int64_t>(n));
              const int64_t count = segment_begin_[n + 1] - segment_begin_[n];
              for (const int64_t end : {int64_t{0}, count - 1}) {
                if (count == 0) continue;
                double position;
                FillFrom(source.segments[n], end, 1, 0, &position);
                POSENC_RETURN_IF_ERROR(check(fmt::format("segments.segment[{}]", n), position));
              }
            }
            return absl::OkStatus();
          },
      },
      positions_.source);
}

double TokenPositions::LargestIndex() const {
  const int64_t distinct = same_for_all_ ? std::min<int64_t>(sequences_, 1) : sequences_;
  double largest = 0;
  for (int64_t n = 0; n < distinct; ++n) {
    InterruptionPointOfStep(n);
    const int64_t count = begin(n + 1) - begin(n);
    largest = std::max(largest,
                       positions_.cache_index ? static_cast<double>(*positions_.cache_index + count - 1) : Largest(n));
  }
  return largest;
}

double TokenPositions::Largest(int64_t sequence) const {
  const int64_t first = begin(sequence), count = begin(sequence + 1) - first;
  double largest = 0;
  const auto consider = [&largest](double position) { largest = std::max(largest, position); };
  if (count > 0) {
    std::visit(Overloaded{
                   [](std::monostate) {},
                   [&](const OffsetPositions& source) { consider(static_cast<double>(source.offset + count - 1)); },
                   [&](const PerSequenceOffsets& source) {
                     consider(static_cast<double>(source.offsets[sequence] + count - 1));
                   },
                   [&](const PositionIds& source) {
                     const double* row = packed_ ? source.ids.values.data() + first : source.ids.row(sequence);
                     for (int64_t axis = 0; axis < source.axes; ++axis) {
                       consider(*std::max_element(row, row + count));
                       row += source.ids.rows * source.ids.columns;
                     }
                   },
                   [&](const PositionSegments& source) {
                     int64_t index = packed_ ? first : 0;
                     for (const int64_t end = index + count; index < end;) {
                       const size_t n = SegmentOf(index);
                       const int64_t stop = std::min(end, segment_begin_[n + 1]);
                       consider(LargestOf(source.segments[n], index - segment_begin_[n], stop - index));
                       index = stop;
                     }
                   },
               },
               positions_.source);
  }
  return largest;
}

absl::Status TokenPositions::CheckIndices(int64_t rows) const {
  if (tokens() == 0) return absl::OkStatus();
  const auto check_run = [&](std::string_view field, int64_t offset, int64_t count) {
    if (count == 0) return absl::OkStatus();
    POSENC_RETURN_IF_ERROR(CheckIndex(field, static_cast<double>(offset), rows));
    if (offset + count <= rows) return absl::OkStatus();
    return InvalidArgument("OUT_OF_RANGE", field, fmt::format("{}", offset),
                           fmt::format("must leave {} tokens within the {} rows of given_table", count, rows));
  };
  return std::visit(Overloaded{
                        [](std::monostate) { return absl::OkStatus(); },
                        [&](const OffsetPositions& source) {
                          int64_t longest = bounds_.empty() ? length_ : 0;
                          for (size_t n = 1; n < bounds_.size(); ++n) {
                            longest = std::max(longest, bounds_[n] - bounds_[n - 1]);
                          }
                          return check_run("offset", source.offset, longest);
                        },
                        [&](const PerSequenceOffsets& source) {
                          for (int64_t n = 0; n < sequences_; ++n) {
                            InterruptionPointOfStep(n);
                            const auto status = check_run("", source.offsets[n], begin(n + 1) - begin(n));
                            if (!status.ok()) return Within(fmt::format("offsets.offset[{}]", n), status);
                          }
                          return absl::OkStatus();
                        },
                        [&](const PositionIds& source) {
                          for (size_t n = 0; n < source.ids.values.size(); ++n) {
                            InterruptionPointOfStep(static_cast<int64_t>(n) + 1);
                            if (CheckIndex("", source.ids.values[n], rows).ok()) continue;
                            return CheckIndex(fmt::format("ids[{}]", n), source.ids.values[n], rows);
                          }
                          return absl::OkStatus();
                        },
                        [&](const PositionSegments& source) { return posenc::CheckIndices(source, rows); },
                    },
                    positions_.source);
}

absl::StatusOr<std::vector<int64_t>> TokenPositions::ScalingLengths(const Limits& limits) const {
  const auto& given = positions_.seq_len;
  if (positions_.scaling_length_rule != ScalingLengthRule::kGiven && !given.empty()) {
    return InvalidArgument("NOT_READ", "seq_len", "", "must be absent without SCALING_LENGTH_RULE_GIVEN");
  }
  switch (positions_.scaling_length_rule) {
    case ScalingLengthRule::kUnspecified: break;
    case ScalingLengthRule::kGiven: {
      if (static_cast<int64_t>(given.size()) > limits.max_sequences) {
        return TooLarge("seq_len", fmt::format("{} values", given.size()),
                        fmt::format("must be at most {} (max_sequences)", limits.max_sequences));
      }
      if (given.empty() && sequences_ == 0) return std::vector<int64_t>{1};  // no tokens
      if (given.size() != 1 && static_cast<int64_t>(given.size()) != sequences_) {
        return InvalidArgument("MISMATCH", "seq_len", fmt::format("{} values", given.size()),
                               fmt::format("must be one for all sequences, or one per sequence: {}", sequences_));
      }
      for (size_t n = 0; n < given.size(); ++n) {
        if (given[n] < 1 || static_cast<double>(given[n]) > kLargestPosition) {
          return InvalidArgument("OUT_OF_RANGE", fmt::format("seq_len[{}]", n), fmt::format("{}", given[n]),
                                 "must be 1 .. 2^53");
        }
      }
      return given;
    }
    case ScalingLengthRule::kPerSequence:
    case ScalingLengthRule::kWholeBatch: {
      if (sequences_ > limits.max_sequences) {
        return TooLarge("sequences", fmt::format("{}", sequences_),
                        fmt::format("must be at most {} if frequencies depend on the sequence's length (max_sequences)",
                                    limits.max_sequences));
      }
      std::vector<int64_t> lengths;
      const int64_t distinct = same_for_all_ ? std::min<int64_t>(sequences_, 1) : sequences_;
      for (int64_t n = 0; n < distinct; ++n) {
        if (n % 256 == 0) InterruptionPoint();
        lengths.push_back(LargestPlusOne(n));
      }
      if (positions_.scaling_length_rule == ScalingLengthRule::kWholeBatch && lengths.size() > 1) {
        lengths = {*std::max_element(lengths.begin(), lengths.end())};
      }
      if (lengths.empty()) lengths.push_back(1);  // no tokens
      return lengths;
    }
  }
  return InvalidArgument("MISSING", "scaling_length_rule", "",
                         "must be given, because the frequencies depend on the sequence's length: "
                         "SCALING_LENGTH_RULE_PER_SEQUENCE, SCALING_LENGTH_RULE_WHOLE_BATCH (as transformers does) or "
                         "SCALING_LENGTH_RULE_GIVEN with seq_len");
}

absl::Status TokenPositions::RefuseScalingLength() const {
  if (positions_.scaling_length_rule != ScalingLengthRule::kUnspecified || !positions_.seq_len.empty()) {
    return InvalidArgument("NOT_READ", "scaling_length_rule", "",
                           "must be absent: the frequencies do not depend on the sequence's length");
  }
  return absl::OkStatus();
}

}  // namespace posenc
