#include "posenc/positions/sequences.h"

#include <fmt/format.h>

#include <algorithm>

#include "posenc/base/interruption.h"
#include "posenc/base/status.h"

namespace posenc {

absl::Status CountedPositions::Reserve(int64_t values) {
  if (values <= values_left) {
    values_left -= values;
    return absl::OkStatus();
  }
  return TooLarge(size_field, fmt::format("{} positions more", values),
                  fmt::format("must leave the answer within max_output_bytes: {} positions are left", values_left));
}

Sequence::Sequence(const TokenDescription& tokens, int64_t number, CountedPositions* result)
    : number_(number), first_(tokens.begin(number)), result_(*result) {
  for (int64_t token = first_; token < tokens.begin(number + 1); ++token) {
    InterruptionPointOfStep(token);
    if (!tokens.mask.empty() && tokens.mask[token] == 0) continue;
    index_.push_back(token);
    if (!tokens.kinds.empty()) kinds_.push_back(tokens.kinds[token]);
    if (!tokens.input_ids.empty()) input_ids_.push_back(tokens.input_ids[token]);
  }
}

int64_t Sequence::RunEnd(int64_t n) const {
  int64_t end = n + 1;
  for (; end < size() && kind(end) == kind(n); ++end) InterruptionPointOfStep(end);
  return end;
}

void Sequence::Count(int64_t begin, int64_t end, double start) {
  for (size_t axis = 0; axis < result_.axes.size(); ++axis) {
    for (int64_t n = begin; n < end; ++n) {
      InterruptionPointOfStep(n);
      id(axis, n) = start + static_cast<double>(n - begin);
    }
  }
}

void Sequence::AddSpan(PositionSpan span, int64_t begin, int64_t end) {
  if (begin >= end) return;
  span.sequence = number_;
  span.begin = index_[begin] - first_;
  span.end = index_[end - 1] + 1 - first_;
  result_.spans.push_back(span);
}

double Sequence::Largest() {
  double largest = -1;
  for (size_t axis = 0; axis < result_.axes.size(); ++axis) {
    for (int64_t n = 0; n < size(); ++n) {
      InterruptionPointOfStep(n);
      largest = std::max(largest, id(axis, n));
    }
  }
  return largest;
}

std::string Sequence::Place(int64_t begin, int64_t end) const {
  if (begin >= end) return fmt::format("of sequence {}", number_);
  return fmt::format("of sequence {}, tokens {} to {}", number_, index_[begin] - first_, index_[end - 1] - first_);
}

absl::Status Sequence::CheckKinds(TokenKind last) const {
  for (int64_t n = 0; n < size(); ++n) {
    InterruptionPointOfStep(n);
    if (kind(n) <= last) continue;
    return InvalidArgument("OUT_OF_RANGE", "mm_token_type_ids", fmt::format("{}", static_cast<int>(kind(n))),
                           fmt::format("must be at most {} for this model: token {} of sequence {}",
                                       static_cast<int>(last), index_[n] - first_, number_));
  }
  return absl::OkStatus();
}

absl::Status ForEachSequence(const TokenDescription& tokens, CountedPositions* result,
                             absl::FunctionRef<absl::Status(Sequence& sequence)> rule) {
  for (int64_t number = 0; number < tokens.counted(); ++number) {
    InterruptionPoint();
    Sequence sequence(tokens, number, result);
    POSENC_RETURN_IF_ERROR(rule(sequence));
    const double next = sequence.Largest() + 1, size = static_cast<double>(sequence.size());
    result->deltas.push_back(result->fractions ? static_cast<float>(next) - static_cast<float>(size) : next - size);
  }
  return absl::OkStatus();
}

GridQueue::GridQueue(std::string_view field, std::string_view what, const std::optional<std::vector<PatchGrid>>& grids,
                     bool by_frame)
    : field_(field), what_(what), grids_(grids.value_or(std::vector<PatchGrid>())), by_frame_(by_frame) {}

std::string GridQueue::FieldOfLast() const { return fmt::format("{}[{}]", field_, row_); }

std::string GridQueue::Given() const {
  if (!by_frame_) return fmt::format("{} grids", grids_.size());
  int64_t frames = 0;
  for (const PatchGrid& grid : grids_) frames += grid.t;
  return fmt::format("{} grids with {} frames", grids_.size(), frames);
}

std::string GridQueue::Purpose() const {
  return by_frame_ ? fmt::format("must have a frame for each span of a {}", what_)
                   : fmt::format("must have a grid for each {}", what_);
}

absl::StatusOr<PatchGrid> GridQueue::Take(const Sequence& sequence, int64_t begin, int64_t end) {
  const bool same_row = by_frame_ && row_ >= 0 && frame_ + 1 < grids_[row_].t;
  if (!same_row && row_ + 1 == static_cast<int64_t>(grids_.size())) {
    return InvalidArgument("MISMATCH", field_, Given(),
                           fmt::format("{}: there is none for that {}", Purpose(), sequence.Place(begin, end)));
  }
  frame_ = same_row ? frame_ + 1 : 0;
  row_ += same_row ? 0 : 1;
  ++next_;
  PatchGrid grid = grids_[row_];
  if (by_frame_) grid.t = 1;
  return grid;
}

absl::StatusOr<PatchGrid> GridQueue::TakeMerged(const Sequence& sequence, int64_t begin, int64_t end, int64_t merge_t,
                                                int64_t merge) {
  POSENC_ASSIGN_OR_RETURN(const PatchGrid grid, Take(sequence, begin, end));
  if (grid.t % merge_t != 0 || grid.h % merge != 0 || grid.w % merge != 0) {
    return InvalidArgument("MISMATCH", FieldOfLast(), ToString(grids_[row_]),
                           fmt::format("must be multiples of {}, the patches that the model merges",
                                       ToString(PatchGrid{merge_t, merge, merge})));
  }
  return PatchGrid{grid.t / merge_t, grid.h / merge, grid.w / merge};
}

absl::Status GridQueue::CheckSpan(const Sequence& sequence, int64_t begin, int64_t end, int64_t expected,
                                  int64_t count) const {
  if (count == expected) return absl::OkStatus();
  return InvalidArgument(
      "MISMATCH", FieldOfLast(), ToString(grids_[row_]),
      fmt::format("must stand for as many tokens as its span has: {} stands for {}, the span {} has {}",
                  by_frame_ ? "a frame" : "it", expected, sequence.Place(begin, end), count));
}

absl::Status GridQueue::CheckAllTaken() const {
  const bool frames_left = by_frame_ && row_ >= 0 && frame_ + 1 < grids_[row_].t;
  if (!frames_left && row_ + 1 == static_cast<int64_t>(grids_.size())) return absl::OkStatus();
  return InvalidArgument("MISMATCH", field_, Given(), fmt::format("{}: the tokens have {}", Purpose(), next_));
}

int64_t Cells(const PatchGrid& grid) {
  constexpr int64_t kMost = int64_t{1} << 62;
  int64_t cells;
  if (__builtin_mul_overflow(grid.t, grid.h, &cells) || __builtin_mul_overflow(cells, grid.w, &cells)) return kMost;
  return std::min(cells, kMost);
}

std::string ToString(const PatchGrid& grid) { return fmt::format("[{}, {}, {}]", grid.t, grid.h, grid.w); }

absl::Status CheckSeconds(const TokenDescription& tokens) {
  const size_t videos = tokens.video_grid_thw ? tokens.video_grid_thw->size() : 0;
  if (tokens.second_per_grid_ts->size() == videos) return absl::OkStatus();
  return InvalidArgument("MISMATCH", "second_per_grid_ts", fmt::format("{} values", tokens.second_per_grid_ts->size()),
                         fmt::format("must be as many as video_grid_thw has grids: {}", videos));
}

absl::StatusOr<int64_t> CountInFile(const ConfigObject& object, std::string_view field, int64_t otherwise) {
  POSENC_ASSIGN_OR_RETURN(const auto count, object.Integer({field}));
  if (count == 0) return InvalidArgument("OUT_OF_RANGE", object.Path(field), "0", "must be at least 1");
  return count.value_or(otherwise);
}

absl::Status Requires(std::string_view field, std::string_view why) {
  return InvalidArgument("MISSING", field, "", fmt::format("must be given: {}", why));
}

}  // namespace posenc
