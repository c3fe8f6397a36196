#include "posenc/positions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "posenc/status.h"

namespace posenc {
namespace {

template <class... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <class... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;

absl::Status CheckBounds(const std::vector<int64_t>& bounds, int64_t tokens) {
  if (bounds.empty() || bounds.front() != 0) {
    return InvalidArgument("OUT_OF_RANGE", "cu_seqlens[0]", bounds.empty() ? "absent" : fmt::format("{}", bounds[0]),
                           "must be 0");
  }
  for (size_t n = 1; n < bounds.size(); ++n) {
    if (bounds[n] < bounds[n - 1]) {
      return InvalidArgument("OUT_OF_RANGE", fmt::format("cu_seqlens[{}]", n), fmt::format("{}", bounds[n]),
                             fmt::format("must not be below its predecessor {}", bounds[n - 1]));
    }
  }
  if (bounds.back() != tokens) {
    return InvalidArgument("MISMATCH", fmt::format("cu_seqlens[{}]", bounds.size() - 1),
                           fmt::format("{}", bounds.back()),
                           fmt::format("must end with the number of tokens {}", tokens));
  }
  return absl::OkStatus();
}

absl::Status CheckRun(std::string_view field, int64_t offset, int64_t count) {
  POSENC_RETURN_IF_ERROR(CheckPosition(field, static_cast<double>(offset)));
  return CheckPosition(field, static_cast<double>(offset) + static_cast<double>(count));
}

}  // namespace

absl::Status CheckPosition(std::string_view field, double position) {
  if (std::abs(position) <= kLargestPosition) return absl::OkStatus();
  return InvalidArgument("OUT_OF_RANGE", field, fmt::format("{}", position),
                         "positions must be finite and at most 2^53 in magnitude");
}

absl::StatusOr<TokenPositions> TokenPositions::Create(Positions positions, const TokenGrid& grid,
                                                      const Limits& limits) {
  TokenPositions result;
  result.sequences_ = grid.sequences;
  result.length_ = grid.length;
  result.packed_ = grid.packed;
  if (positions.cu_seqlens) {
    if (!grid.packed) {
      return InvalidArgument("NOT_READ", "cu_seqlens", "", "is for LAYOUT_THD only");
    }
    POSENC_RETURN_IF_ERROR(CheckBounds(*positions.cu_seqlens, grid.length));
    result.bounds_ = std::move(*positions.cu_seqlens);
    result.sequences_ = static_cast<int64_t>(result.bounds_.size()) - 1;
    if (result.sequences_ > limits.max_sequences) {
      return TooLarge("cu_seqlens", fmt::format("{} sequences", result.sequences_),
                      fmt::format("at most {} (max_sequences)", limits.max_sequences));
    }
  }
  if (const auto* segments = std::get_if<PositionSegments>(&positions.source)) {
    int64_t end = 0;
    result.segment_begin_.push_back(0);
    for (size_t n = 0; n < segments->lines.size(); ++n) {
      const PositionLine& line = segments->lines[n];
      const std::string field = fmt::format("segments.segment[{}].line", n);
      if (line.count < 0 || __builtin_add_overflow(end, line.count, &end)) {
        return InvalidArgument("OUT_OF_RANGE", field + ".count", fmt::format("{}", line.count),
                               "must be at least 0, and the counts' sum below 2^63");
      }
      POSENC_RETURN_IF_ERROR(CheckPosition(field + ".start", line.start));
      POSENC_RETURN_IF_ERROR(CheckPosition(field + ".step", line.start + static_cast<double>(line.count) * line.step));
      result.segment_begin_.push_back(end);
    }
  }
  result.positions_ = std::move(positions);
  POSENC_RETURN_IF_ERROR(result.CheckSource());
  const auto* ids = std::get_if<PositionIds>(&result.positions_.source);
  result.same_for_all_ = !grid.packed && (std::holds_alternative<OffsetPositions>(result.positions_.source) ||
                                          std::holds_alternative<PositionSegments>(result.positions_.source) ||
                                          (ids != nullptr && ids->ids.shared));
  return result;
}

absl::Status TokenPositions::CheckSource() const {
  return std::visit(
      Overloaded{
          [](std::monostate) {
            return InvalidArgument("MISSING", "source", "", "has no default: give offset, offsets, ids or segments");
          },
          [this](const OffsetPositions& source) { return CheckRun("offset", source.offset, length_); },
          [this](const PerSequenceOffsets& source) {
            if (static_cast<int64_t>(source.offsets.size()) != sequences_) {
              return InvalidArgument("MISMATCH", "offsets", fmt::format("{} values", source.offsets.size()),
                                     fmt::format("must be one a sequence: {}", sequences_));
            }
            for (size_t n = 0; n < source.offsets.size(); ++n) {
              POSENC_RETURN_IF_ERROR(CheckRun(fmt::format("offsets.offset[{}]", n), source.offsets[n], length_));
            }
            return absl::OkStatus();
          },
          [this](const PositionIds& source) {
            const Matrix<double>& ids = source.ids;
            if (ids.columns != length_ || (!ids.shared && (packed_ || ids.rows != sequences_))) {
              return InvalidArgument(
                  "MISMATCH", "ids.shape",
                  ids.shared ? fmt::format("[{}]", ids.columns) : fmt::format("[{}, {}]", ids.rows, ids.columns),
                  packed_ ? fmt::format("must be [T] = [{}]", length_)
                          : fmt::format("must be [S] = [{}] or [B, S] = [{}, {}]", length_, sequences_, length_));
            }
            for (size_t n = 0; n < ids.values.size(); ++n) {
              if (!(std::abs(ids.values[n]) <= kLargestPosition)) {
                return CheckPosition(fmt::format("ids[{}]", n), ids.values[n]);
              }
            }
            return absl::OkStatus();
          },
          [this](const PositionSegments&) {
            if (segment_begin_.back() == length_) return absl::OkStatus();
            return InvalidArgument("MISMATCH", "segments", fmt::format("{} positions", segment_begin_.back()),
                                   fmt::format("the counts must sum to {}", length_));
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

void TokenPositions::Fill(int64_t token, int64_t count, double* out) const {
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
                   const double* row = packed_ ? source.ids.values.data() + begin(sequence) : source.ids.row(sequence);
                   std::copy_n(row + within, count, out);
                 },
                 [&](const PositionSegments& source) {
                   int64_t index = packed_ ? token : within;
                   size_t n = SegmentOf(index);
                   for (int64_t s = 0; s < count; ++s, ++index) {
                     while (index >= segment_begin_[n + 1]) ++n;
                     const PositionLine& line = source.lines[n];
                     out[s] = line.start + static_cast<double>(index - segment_begin_[n]) * line.step;
                   }
                 },
             },
             positions_.source);
}

int64_t TokenPositions::LargestPlusOne(int64_t sequence) const {
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
                     consider(*std::max_element(row, row + count));
                   },
                   [&](const PositionSegments& source) {
                     // A line is monotone: its ends within this sequence are enough.
                     int64_t index = packed_ ? first : 0;
                     for (const int64_t end = index + count; index < end;) {
                       const size_t n = SegmentOf(index);
                       const PositionLine& line = source.lines[n];
                       const int64_t stop = std::min(end, segment_begin_[n + 1]);
                       consider(line.start + static_cast<double>(index - segment_begin_[n]) * line.step);
                       consider(line.start + static_cast<double>(stop - 1 - segment_begin_[n]) * line.step);
                       index = stop;
                     }
                   },
               },
               positions_.source);
  }
  return static_cast<int64_t>(largest) + 1;
}

absl::StatusOr<std::vector<int64_t>> TokenPositions::ScalingLengths(const Limits& limits) const {
  const auto& given = positions_.seq_len;
  if (positions_.scaling_length_rule != ScalingLengthRule::kGiven && !given.empty()) {
    return InvalidArgument("NOT_READ", "seq_len", "", "is read with SCALING_LENGTH_RULE_GIVEN only");
  }
  switch (positions_.scaling_length_rule) {
    case ScalingLengthRule::kUnspecified: break;
    case ScalingLengthRule::kGiven: {
      if (given.size() != 1 && static_cast<int64_t>(given.size()) != sequences_) {
        return InvalidArgument("MISMATCH", "seq_len", fmt::format("{} values", given.size()),
                               fmt::format("must be one for all, or one a sequence: {}", sequences_));
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
                        fmt::format("at most {} whose frequencies may differ (max_sequences)", limits.max_sequences));
      }
      std::vector<int64_t> lengths;
      const int64_t distinct = same_for_all_ ? std::min<int64_t>(sequences_, 1) : sequences_;
      for (int64_t n = 0; n < distinct; ++n) lengths.push_back(LargestPlusOne(n));
      if (positions_.scaling_length_rule == ScalingLengthRule::kWholeBatch && lengths.size() > 1) {
        lengths = {*std::max_element(lengths.begin(), lengths.end())};
      }
      if (lengths.empty()) lengths.push_back(1);  // no tokens
      return lengths;
    }
  }
  return InvalidArgument("MISSING", "scaling_length_rule", "",
                         "the frequencies depend on the sequence's length: SCALING_LENGTH_RULE_PER_SEQUENCE, "
                         "_WHOLE_BATCH (as transformers does) or _GIVEN with seq_len");
}

absl::Status TokenPositions::RefuseScalingLength() const {
  if (positions_.scaling_length_rule != ScalingLengthRule::kUnspecified || !positions_.seq_len.empty()) {
    return InvalidArgument("NOT_READ", "scaling_length_rule", "",
                           "the frequencies do not depend on the sequence's length");
  }
  return absl::OkStatus();
}

}  // namespace posenc
