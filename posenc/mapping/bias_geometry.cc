#include "posenc/mapping/bias_method.h"

#include <limits>

#include "posenc/base/memory_account.h"

namespace posenc::wire {
namespace {

absl::StatusOr<Mask> ReadRules(const Reader& reader, const v1::Mask& message) {
  Mask mask{.fill = -std::numeric_limits<double>::infinity()};
  mask.causal = message.causal();
  if (message.has_window_left()) mask.window_left = message.window_left();
  if (message.has_window_right()) mask.window_right = message.window_right();
  if (message.has_key_valid()) {
    POSENC_ASSIGN_OR_RETURN(mask.key_valid, reader.Flags("key_valid", message.key_valid()));
  }
  if (message.has_query_documents()) {
    POSENC_ASSIGN_OR_RETURN(mask.query_documents, reader.Integers("query_documents", message.query_documents()));
  }
  if (message.has_key_documents()) {
    POSENC_ASSIGN_OR_RETURN(mask.key_documents, reader.Integers("key_documents", message.key_documents()));
  }
  mask.prefix_length.assign(message.prefix_length().begin(), message.prefix_length().end());
  return mask;
}

absl::StatusOr<Mask> ReadMaskFields(const Reader& reader, const v1::Mask& message) {
  POSENC_ASSIGN_OR_RETURN(Mask mask, ReadRules(reader, message));
  switch (message.fill_case()) {
    case v1::Mask::FILL_NOT_SET:
      return InvalidArgument("MISSING", "fill", "", "must be given: fill_kind or fill_value");
    case v1::Mask::kFillValue: mask.fill = message.fill_value(); break;
    case v1::Mask::kFillKind: {
      POSENC_ASSIGN_OR_RETURN(const bool lowest, (Choose<v1::MaskFill, bool>("fill_kind", message.fill_kind(),
                                                                             {{v1::MASK_FILL_NEGATIVE_INFINITY, false},
                                                                              {v1::MASK_FILL_LOWEST_FINITE, true}})));
      if (lowest) mask.fill = LowestFinite{};
      break;
    }
  }
  POSENC_ASSIGN_OR_RETURN(
      mask.zero_fully_masked_rows,
      (Choose<v1::FullyMaskedRow, bool>("fully_masked_row", message.fully_masked_row(),
                                        {{v1::FULLY_MASKED_ROW_FILL, false}, {v1::FULLY_MASKED_ROW_ZEROS, true}})));
  return mask;
}

}  // namespace

absl::StatusOr<BiasGeometry> ReadGeometry(const Reader& reader, const v1::BiasGeometry& message) {
  const LargeBlocksMayBeRefused scope;
  BiasGeometry geometry;
  if (message.has_query_length()) geometry.query_length = message.query_length();
  if (message.has_key_length()) geometry.key_length = message.key_length();
  switch (message.query_case()) {
    case v1::BiasGeometry::QUERY_NOT_SET: break;
    case v1::BiasGeometry::kQueryOffset: geometry.query = OffsetPositions{message.query_offset()}; break;
    case v1::BiasGeometry::kQueryOffsets: {
      const auto& offsets = message.query_offsets().offset();
      geometry.query = PerSequenceOffsets{{offsets.begin(), offsets.end()}};
      break;
    }
    case v1::BiasGeometry::kQueryPositions: {
      POSENC_ASSIGN_OR_RETURN(Matrix<double> ids,
                              reader.Numbers("geometry.query_positions", message.query_positions()));
      geometry.query = PositionIds{std::move(ids)};
      break;
    }
  }
  if (message.has_key_positions()) {
    POSENC_ASSIGN_OR_RETURN(geometry.key_positions, reader.Numbers("geometry.key_positions", message.key_positions()));
  }
  if (message.has_head_start()) geometry.head_start = message.head_start();
  if (message.has_head_count()) geometry.head_count = message.head_count();
  return geometry;
}

absl::StatusOr<Mask> ReadMask(const Reader& reader, const v1::Mask& message) {
  const LargeBlocksMayBeRefused scope;
  auto mask = ReadMaskFields(reader, message);
  if (!mask.ok()) return Within("mask", mask.status());
  return mask;
}

absl::StatusOr<Mask> ReadMaskWithoutFill(const Reader& reader, const v1::Mask& message) {
  const LargeBlocksMayBeRefused scope;
  for (const auto& [given, field] :
       {std::pair(message.fill_case() != v1::Mask::FILL_NOT_SET, "mask.fill"),
        {message.fully_masked_row() != v1::FULLY_MASKED_ROW_UNSPECIFIED, "mask.fully_masked_row"}}) {
    if (given) return InvalidArgument("NOT_READ", field, "", "must be absent: only what the mask hides is compared");
  }
  auto mask = ReadRules(reader, message);
  if (!mask.ok()) return Within("mask", mask.status());
  return mask;
}

}  // namespace posenc::wire
