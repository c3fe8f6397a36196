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
  return TooLarge("tokens", fmt::format("{} positions more", values),
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
  while (end < size() && kind(end) == kind(n)) ++end;
  return end;
}

void Sequence::Count(int64_t begin, int64_t end, double start) {
  for (size_t axis = 0; axis < result_.axes.size(); ++axis) {
    for (int64_t n = begin; n < end; ++n) id(axis, n) = start + static_cast<double>(n - begin);
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
    for (int64_t n = 0; n < size(); ++n) largest = std::max(largest, id(axis, n));
  }
  return largest;
}

std::string Sequence::Place(int64_t begin, int64_t end) const {
  if (begin >= end) return fmt::format("of sequence {}", number_);
  return fmt::format("of sequence {}, tokens {} to {}", number_, index_[begin] - first_, index_[end - 1] - first_);
}

absl::Status Sequence::CheckKinds(TokenKind last) const {
  for (int64_t n = 0; n < size(); ++n) {
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

GridQueue::GridQueue(std::string_view field, std::string_view what, const std::optional<std::vector<PatchGrid>>& grids)
    : field_(field), what_(what), grids_(grids.value_or(std::vector<PatchGrid>())) {}

std::string GridQueue::FieldOfLast() const { return fmt::format("{}[{}]", field_, next_ - 1); }

absl::StatusOr<PatchGrid> GridQueue::Take(const Sequence& sequence, int64_t begin, int64_t end) {
  if (next_ < static_cast<int64_t>(grids_.size())) return grids_[next_++];
  return InvalidArgument(
      "MISMATCH", field_, fmt::format("{} grids", grids_.size()),
      fmt::format("must have a grid for each {}: there is none for that {}", what_, sequence.Place(begin, end)));
}

absl::StatusOr<PatchGrid> GridQueue::TakeMerged(const Sequence& sequence, int64_t begin, int64_t end, int64_t merge_t,
                                                int64_t merge) {
  POSENC_ASSIGN_OR_RETURN(const PatchGrid grid, Take(sequence, begin, end));
  if (grid.t % merge_t != 0 || grid.h % merge != 0 || grid.w % merge != 0) {
    return InvalidArgument("MISMATCH", FieldOfLast(), ToString(grid),
                           fmt::format("must be multiples of {}, the patches that the model merges",
                                       ToString(PatchGrid{merge_t, merge, merge})));
  }
  return PatchGrid{grid.t / merge_t, grid.h / merge, grid.w / merge};
}

absl::Status GridQueue::CheckSpan(const Sequence& sequence, int64_t begin, int64_t end, int64_t expected) const {
  if (end - begin == expected) return absl::OkStatus();
  return InvalidArgument(
      "MISMATCH", FieldOfLast(), ToString(grids_[next_ - 1]),
      fmt::format("must stand for as many tokens as its span has: it stands for {}, the span {} has {}", expected,
                  sequence.Place(begin, end), end - begin));
}

absl::Status GridQueue::CheckAllTaken() const {
  if (next_ == static_cast<int64_t>(grids_.size())) return absl::OkStatus();
  return InvalidArgument("MISMATCH", field_, fmt::format("{} grids", grids_.size()),
                         fmt::format("must have one for each {}: the tokens have {}", what_, next_));
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

absl::Status Requires(std::string_view field, std::string_view why) {
  return InvalidArgument("MISSING", field, "", fmt::format("must be given: {}", why));
}

}  // namespace posenc
