#include <fmt/format.h>

#include "posenc/base/checks.h"
#include "posenc/base/interruption.h"
#include "posenc/base/memory_account.h"
#include "posenc/mapping/read.h"
#include "posenc/rotary/position_segments.h"
#include "posenc/rotary/positions.h"

namespace posenc::wire {
namespace {

// Reads ids [S] or [B, S], with one more dimension for the axes if `dimension` says so. The result has the axes first.
absl::StatusOr<PositionIds> ReadIds(const Reader& reader, const v1::Tensor& tensor, AxisDimension dimension) {
  PositionIds result;
  if (dimension == AxisDimension::kUnspecified && tensor.shape_size() == 3) {
    return InvalidArgument("MISSING", "axis_dimension", "",
                           "must be given for ids with three dimensions: AXIS_DIMENSION_FIRST or AXIS_DIMENSION_LAST");
  }
  if (dimension == AxisDimension::kUnspecified || dimension == AxisDimension::kNone) {
    POSENC_ASSIGN_OR_RETURN(result.ids, reader.Numbers("ids", tensor));
    return result;
  }
  POSENC_ASSIGN_OR_RETURN(TensorShape shape, reader.Shape("ids", tensor));
  if (shape.rank() != 2 && shape.rank() != 3) {
    return InvalidArgument("MISMATCH", "ids.shape", ToString(shape.shape),
                           "must have one or two dimensions, plus one for the axes");
  }
  const bool first = dimension == AxisDimension::kFirst;
  const auto of_axes = first ? shape.shape.begin() : shape.shape.end() - 1;
  result.axes = *of_axes;
  if (result.axes > kMaxAxes) {
    return InvalidArgument("OUT_OF_RANGE", fmt::format("ids.shape[{}]", of_axes - shape.shape.begin()),
                           fmt::format("{}", result.axes), fmt::format("must be at most {} axes", kMaxAxes));
  }
  shape.shape.erase(of_axes);
  POSENC_ASSIGN_OR_RETURN(std::vector<double> values, reader.Values("ids", tensor));
  Matrix<double>& ids = result.ids;
  ids.shared = shape.rank() == 1;
  ids.rows = ids.shared ? 1 : shape.shape[0];
  ids.columns = shape.shape.back();
  if (first) {
    ids.values = std::move(values);
    return result;
  }
  const size_t tokens = result.axes == 0 ? 0 : values.size() / result.axes;
  ids.values.reserve(values.size());
  for (int64_t axis = 0; axis < result.axes; ++axis) {
    for (size_t token = 0; token < tokens; ++token) {
      InterruptionPointOfStep(static_cast<int64_t>(ids.values.size()) + 1);
      ids.values.push_back(values[token * result.axes + axis]);
    }
  }
  return result;
}

absl::StatusOr<PositionGrid> ReadGrid(const v1::PositionGrid& message, const Limits& limits) {
  PositionGrid grid{{message.size().begin(), message.size().end()},
                    {message.start().begin(), message.start().end()},
                    {message.step().begin(), message.step().end()}};
  if (grid.size.empty()) return InvalidArgument("MISSING", "size", "", "must be given: one size per axis");
  const auto axes = static_cast<int64_t>(grid.size.size());
  if (axes > kMaxAxes) {
    return InvalidArgument("OUT_OF_RANGE", "size", fmt::format("{} values", axes),
                           fmt::format("must be at most {} axes", kMaxAxes));
  }
  for (int64_t k = 0; k < axes; ++k) {
    POSENC_RETURN_IF_ERROR(CheckCount(fmt::format("size[{}]", k), grid.size[k], limits));
  }
  if (grid.start.empty()) grid.start.resize(grid.size.size(), 0.0);
  if (grid.step.empty()) grid.step.resize(grid.size.size(), 1.0);
  for (const auto& [name, values] : {std::pair{"start", &grid.start}, {"step", &grid.step}}) {
    if (values->size() != grid.size.size()) {
      return InvalidArgument("MISMATCH", name, fmt::format("{} values", values->size()),
                             fmt::format("must be {}, one per size, or none", grid.size.size()));
    }
  }
  return grid;
}

absl::StatusOr<PositionSegment> ReadSegment(const v1::PositionSegment& segment, const Limits& limits) {
  switch (segment.kind_case()) {
    case v1::PositionSegment::KIND_NOT_SET: break;
    case v1::PositionSegment::kLine: {
      const v1::PositionLine& line = segment.line();
      POSENC_RETURN_IF_ERROR(CheckCount("line.count", line.count(), limits));
      return PositionLine{line.count(), line.start(), line.has_step() ? line.step() : 1.0};
    }
    case v1::PositionSegment::kGrid: {
      auto grid = ReadGrid(segment.grid(), limits);
      if (!grid.ok()) return Within("grid", grid.status());
      return *std::move(grid);
    }
  }
  return InvalidArgument("MISSING", "kind", "", "must be given: line or grid");
}

absl::StatusOr<PositionSegments> ReadSegments(const v1::PositionSegments& message, const Limits& limits) {
  PositionSegments result;
  for (int n = 0; n < message.segment_size(); ++n) {
    if (n % 4096 == 0) InterruptionPoint();
    auto segment = ReadSegment(message.segment(n), limits);
    if (!segment.ok()) return Within(fmt::format("segments.segment[{}]", n), segment.status());
    result.segments.push_back(*std::move(segment));
  }
  return result;
}

absl::StatusOr<Positions> Read(const Reader& reader, const v1::Positions& message) {
  Positions positions;
  if (message.axis_dimension() != v1::AXIS_DIMENSION_UNSPECIFIED) {
    POSENC_ASSIGN_OR_RETURN(positions.axis_dimension, (Choose<v1::AxisDimension, AxisDimension>(
                                                          "axis_dimension", message.axis_dimension(),
                                                          {{v1::AXIS_DIMENSION_NONE, AxisDimension::kNone},
                                                           {v1::AXIS_DIMENSION_FIRST, AxisDimension::kFirst},
                                                           {v1::AXIS_DIMENSION_LAST, AxisDimension::kLast}})));
  }
  switch (message.source_case()) {
    case v1::Positions::SOURCE_NOT_SET: break;
    case v1::Positions::kOffset: positions.source = OffsetPositions{message.offset()}; break;
    case v1::Positions::kOffsets:
      positions.source = PerSequenceOffsets{{message.offsets().offset().begin(), message.offsets().offset().end()}};
      break;
    case v1::Positions::kIds: {
      POSENC_ASSIGN_OR_RETURN(positions.source, ReadIds(reader, message.ids(), positions.axis_dimension));
      break;
    }
    case v1::Positions::kTokens:
    case v1::Positions::kLatents:
      return InvalidArgument("UNSUPPORTED", message.has_tokens() ? "tokens" : "latents", "",
                             "must be ids: descriptions are read by ApplyRotary and GenerateTable");
    case v1::Positions::kSegments: {
      POSENC_ASSIGN_OR_RETURN(positions.source, ReadSegments(message.segments(), reader.limits));
      break;
    }
  }
  if (message.has_cu_seqlens()) {
    POSENC_ASSIGN_OR_RETURN(const TensorShape shape, reader.Shape("cu_seqlens", message.cu_seqlens()));
    if (shape.rank() == 1) POSENC_RETURN_IF_ERROR(CheckSequences(shape.shape[0] - 1, reader.limits));
    POSENC_ASSIGN_OR_RETURN(positions.cu_seqlens, ReadBounds(reader, message.cu_seqlens()));
  }
  if (message.scaling_length_rule() != v1::SCALING_LENGTH_RULE_UNSPECIFIED) {
    POSENC_ASSIGN_OR_RETURN(positions.scaling_length_rule,
                            (Choose<v1::ScalingLengthRule, ScalingLengthRule>(
                                "scaling_length_rule", message.scaling_length_rule(),
                                {{v1::SCALING_LENGTH_RULE_PER_SEQUENCE, ScalingLengthRule::kPerSequence},
                                 {v1::SCALING_LENGTH_RULE_WHOLE_BATCH, ScalingLengthRule::kWholeBatch},
                                 {v1::SCALING_LENGTH_RULE_GIVEN, ScalingLengthRule::kGiven}})));
  }
  positions.seq_len.assign(message.seq_len().begin(), message.seq_len().end());
  if (message.has_cache_index()) positions.cache_index = message.cache_index();
  return positions;
}

}  // namespace

absl::StatusOr<std::vector<int64_t>> ReadBounds(const Reader& reader, const v1::Tensor& tensor) {
  POSENC_ASSIGN_OR_RETURN(const TensorShape shape, reader.Shape("cu_seqlens", tensor));
  if (shape.rank() != 1 || (shape.dtype != DType::kINT32 && shape.dtype != DType::kINT64)) {
    return InvalidArgument("MISMATCH", "cu_seqlens",
                           fmt::format("{} {}", posenc::Name(shape.dtype), ToString(shape.shape)),
                           "must be INT32 or INT64 [N+1]");
  }
  POSENC_ASSIGN_OR_RETURN(const std::vector<double> values, reader.Values("cu_seqlens", tensor));
  std::vector<int64_t> bounds;
  bounds.reserve(values.size());
  for (const double value : values) {
    InterruptionPointOfStep(static_cast<int64_t>(bounds.size()) + 1);
    bounds.push_back(static_cast<int64_t>(value));
  }
  return bounds;
}

absl::StatusOr<Positions> Reader::ReadPositions(const v1::Positions& message, std::string_view field) const {
  const LargeBlocksMayBeRefused scope;
  auto positions = Read(*this, message);
  if (!positions.ok()) return Within(field, positions.status());
  return positions;
}

absl::StatusOr<int64_t> CountRows(std::string_view field, const Positions& positions, std::optional<int64_t> count,
                                  const Limits& limits) {
  std::optional<int64_t> rows;
  if (count) POSENC_RETURN_IF_ERROR(CheckCount("count", *count, limits));
  if (const auto* ids = std::get_if<PositionIds>(&positions.source)) {
    if (!ids->ids.shared && ids->ids.rows != 1) {
      return InvalidArgument("MISMATCH", fmt::format("{}.{}", field, ids->field),
                             fmt::format("{} sequences", ids->ids.rows), "must be [rows] or [1, rows]");
    }
    rows = ids->ids.columns;
  } else if (const auto* segments = std::get_if<PositionSegments>(&positions.source)) {
    POSENC_ASSIGN_OR_RETURN(rows, Count(fmt::format("{}.segments", field), *segments, limits));
  } else if (!count) {
    return InvalidArgument("MISSING", "count", "", fmt::format("must be given with {}.offset", field));
  }
  if (rows && count && *count != *rows) {
    return InvalidArgument("MISMATCH", "count", fmt::format("{}", *count),
                           fmt::format("must be {}, the number of {}", *rows, field));
  }
  return rows ? *rows : *count;
}

}  // namespace posenc::wire
