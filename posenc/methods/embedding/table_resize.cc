#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "posenc/base/status.h"
#include "posenc/base/tensor.h"
#include "posenc/methods/embedding/resized_table.h"

namespace posenc {
namespace {

constexpr int64_t kLongestAxis = 16384;

int64_t Product(const std::vector<int64_t>& lengths) {
  int64_t product = 1;
  for (const int64_t length : lengths) product *= length;
  return product;
}

absl::Status CheckLengths(std::string_view name, const std::vector<int64_t>& lengths, size_t axes) {
  if (lengths.size() != axes) {
    return InvalidArgument("MISMATCH", name, fmt::format("{} lengths", lengths.size()),
                           fmt::format("must be {}, as the mode has axes", axes));
  }
  for (size_t n = 0; n < axes; ++n) {
    if (lengths[n] >= 1 && lengths[n] <= kLongestAxis) continue;
    return InvalidArgument("OUT_OF_RANGE", fmt::format("{}[{}]", name, n), fmt::format("{}", lengths[n]),
                           fmt::format("must be 1 .. {}", kLongestAxis));
  }
  return absl::OkStatus();
}

absl::Status CheckScaleFactors(const TableResize& resize) {
  const std::vector<double>& factors = resize.scale_factor;
  if (factors.empty()) return absl::OkStatus();
  if (resize.align_corners || resize.operations != ResizeOperations::kInterpolate) {
    return InvalidArgument("NOT_READ", "scale_factor", "",
                           "must be absent with align_corners, and with operations other than INTERPOLATE");
  }
  if (factors.size() != resize.target.size()) {
    return InvalidArgument("MISMATCH", "scale_factor", fmt::format("{} factors", factors.size()),
                           fmt::format("must be {}, one per axis", resize.target.size()));
  }
  for (size_t n = 0; n < factors.size(); ++n) {
    const std::string name = fmt::format("scale_factor[{}]", n), value = fmt::format("{}", factors[n]);
    if (!(factors[n] >= 1.0 / kLongestAxis && factors[n] <= kLongestAxis)) {
      return InvalidArgument("OUT_OF_RANGE", name, value, "must be 2^-14 .. 2^14");
    }
    const double length = std::floor(static_cast<double>(resize.source[n]) * factors[n]);
    if (length == static_cast<double>(resize.target[n])) continue;
    return InvalidArgument("MISMATCH", fmt::format("target[{}]", n), fmt::format("{}", resize.target[n]),
                           fmt::format("must be {}, floor(source * scale_factor)", length));
  }
  return absl::OkStatus();
}

absl::Status CheckKernel(const TableResize& resize) {
  const bool nearest = resize.mode == ResizeMode::kNearest, whole = nearest || resize.antialias;
  const auto refuse = [](std::string_view name, std::string_view wanted) {
    return InvalidArgument("NOT_READ", name, "", wanted);
  };
  if (nearest && resize.align_corners) return refuse("align_corners", "must be absent with RESIZE_MODE_NEAREST");
  if (nearest && resize.antialias) return refuse("antialias", "must be absent with RESIZE_MODE_NEAREST");
  if (whole && resize.padding != ResizePadding::kBorder) {
    return refuse("padding", "must be RESIZE_PADDING_BORDER with RESIZE_MODE_NEAREST and with antialias");
  }
  if (whole && resize.operations != ResizeOperations::kInterpolate) {
    return refuse("operations", "must be RESIZE_OPERATIONS_INTERPOLATE with RESIZE_MODE_NEAREST and with antialias");
  }
  if (resize.align_corners && resize.operations == ResizeOperations::kGridSample) {
    return refuse("align_corners", "must be absent with RESIZE_OPERATIONS_GRID_SAMPLE");
  }
  return absl::OkStatus();
}

// Checks the lengths of the table's grid, or takes the only ones that `cells` can have.
absl::Status CompleteSource(TableResize& resize, size_t axes, int64_t cells) {
  if (resize.source.empty()) {
    const auto side = static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(cells))));
    if (axes == 2 && side * side != cells) {
      return InvalidArgument("MISSING", "source", "",
                             fmt::format("must be given: the grid's {} cells are no square", cells));
    }
    resize.source = axes == 2 ? std::vector{side, side} : std::vector{cells};
  }
  POSENC_RETURN_IF_ERROR(CheckLengths("source", resize.source, axes));
  if (Product(resize.source) == cells) return absl::OkStatus();
  return InvalidArgument("MISMATCH", "source", ToString(resize.source),
                         fmt::format("must have {} cells, the table's rows without rows_before and rows_after", cells));
}

}  // namespace

absl::Status Complete(TableResize& resize, int64_t table_rows) {
  const bool plane = resize.mode == ResizeMode::kBilinear || resize.mode == ResizeMode::kBicubic;
  const size_t axes = resize.mode == ResizeMode::kLinear ? 1
                      : plane                            ? 2
                                                         : std::clamp<size_t>(resize.target.size(), 1, 2);
  if (resize.target.empty()) return InvalidArgument("MISSING", "target", "", "must be given");
  POSENC_RETURN_IF_ERROR(CheckLengths("target", resize.target, axes));
  for (const auto& [name, rows] : {std::pair{"rows_before", resize.rows_before}, {"rows_after", resize.rows_after}}) {
    if (rows >= 0 && rows <= table_rows) continue;
    return InvalidArgument("OUT_OF_RANGE", name, fmt::format("{}", rows),
                           fmt::format("must be 0 .. {}, the table's rows", table_rows));
  }
  const int64_t cells = table_rows - resize.rows_before - resize.rows_after;
  if (cells < 1) {
    return InvalidArgument(
        "MISMATCH", "rows_before", fmt::format("{}", resize.rows_before),
        fmt::format("must leave cells: with rows_after, at most {} of the table's rows", table_rows - 1));
  }
  POSENC_RETURN_IF_ERROR(CompleteSource(resize, axes, cells));
  POSENC_RETURN_IF_ERROR(CheckKernel(resize));
  POSENC_RETURN_IF_ERROR(CheckScaleFactors(resize));
  const int64_t block = resize.spatial_merge_size.value_or(1);
  resize.spatial_merge_size = block;
  if (block < 1) {
    return InvalidArgument("OUT_OF_RANGE", "spatial_merge_size", fmt::format("{}", block), "must be at least 1");
  }
  for (size_t n = 0; n < axes; ++n) {
    if (block == 1 || (axes == 2 && resize.target[n] % block == 0)) continue;
    return InvalidArgument("MISMATCH", fmt::format("target[{}]", n), fmt::format("{}", resize.target[n]),
                           axes == 1 ? "must be one of two lengths with spatial_merge_size"
                                     : fmt::format("must be a multiple of spatial_merge_size, {}", block));
  }
  return absl::OkStatus();
}

}  // namespace posenc
