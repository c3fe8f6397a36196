#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numbers>
#include <utility>
#include <vector>

#include "posenc/base/checks.h"
#include "posenc/base/status.h"
#include "posenc/exact/arithmetic.h"
#include "posenc/methods/embedding/encoding.h"
#include "posenc/methods/embedding/sincos_slab.h"
#include "posenc/settings/settings.h"

namespace posenc {
namespace {

// One axis of DETR's grid (arXiv:2005.12872): angle_k = coordinate / temperature^(k / pairs). The coordinate is
// index + 1, or (index + 1 + offset) / (size + 1e-6) * scale if normalized.
struct DetrAxis {
  int64_t size = 0;
  int64_t pairs = 0;
  double temperature = 0;
  bool normalize = true;
  double scale = 0;
  double offset = 0;

  // Returns the number that is added to an index before division and scaling.
  double shift() const { return normalize ? 1.0 + offset : 1.0; }
};

constexpr double kEpsilon = 1e-6;  // DETR's eps

template <class A>
Values<A> Periods(const DetrAxis& axis) {
  using E = typename A::Element;
  const auto e = [](int64_t n) { return E(static_cast<double>(n)); };
  Values<A> values;
  for (int64_t k = 0; k < axis.pairs; ++k) {
    values.list.push_back(Pow(E(axis.temperature), e(2 * k) / e(2 * axis.pairs)));
  }
  return values;
}

template <class A>
Values<A> RealFrequencies(const DetrAxis& axis) {
  using E = typename A::Element;
  Values<A> values = Periods<A>(axis);
  const E size = E(static_cast<double>(axis.size)) + E(kEpsilon);
  for (E& w : values.list) w = axis.normalize ? E(axis.scale) / size / w : E(1.0) / w;
  return values;
}

template <class E>
std::vector<double> AnglesIn(const DetrAxis& axis, const std::vector<int64_t>& indices,
                             const std::vector<double>& periods) {
  std::vector<double> angles;
  angles.reserve(indices.size() * periods.size());
  const E size = static_cast<E>(axis.size) + static_cast<E>(kEpsilon);
  for (int64_t index : indices) {
    E at = static_cast<E>(index + 1);
    if (axis.normalize) at = (at + static_cast<E>(axis.offset)) / size * static_cast<E>(axis.scale);
    for (double period : periods) angles.push_back(at / static_cast<E>(period));
  }
  return angles;
}

// Returns w_k under kExact, with angle_k = (index + shift) * w_k. Other arithmetics get temperature^(k / pairs), by
// which DetrAngles divides.
std::vector<double> DetrFrequencies(Frequencies arithmetic, const DetrAxis& axis) {
  const bool exact = arithmetic == Frequencies::kExact;
  return Evaluate(arithmetic,
                  [&](auto a) { return exact ? RealFrequencies<decltype(a)>(axis) : Periods<decltype(a)>(axis); })
      .list;
}

// Returns `pairs` angles per index, by DETR's own operations. Requires kFloat32 or kFloat64.
std::vector<double> DetrAngles(Frequencies arithmetic, const DetrAxis& axis, const std::vector<int64_t>& indices,
                               const std::vector<double>& periods) {
  return arithmetic == Frequencies::kFloat32 ? AnglesIn<float>(axis, indices, periods)
                                             : AnglesIn<double>(axis, indices, periods);
}

// One axis of the grid and its columns of a row: `pairs` sines, then `pairs` cosines.
// coordinate = (first + index) / (whole / base_size) / interpolation_scale. DETR interleaves and has its own
// coordinate.
struct Axis {
  int64_t cells;         // cells per step of the index: 1, width, or height * width
  int64_t size;          // the index is taken modulo size
  int64_t first, whole;  // first index and size of the grid that the cells are cropped from; else 0 and size
  int64_t base_size;
  double interpolation_scale;
  int64_t pairs;
  int64_t spread;  // w_k = temperature^(-k / spread)
  std::optional<DetrAxis> detr = {};
  std::vector<double> inv_freq = {};  // from Formula, for DETR from DetrFrequencies
};

// Returns w_k, multiplied by the spacing of adjacent coordinates if with_distance.
template <class A>
Values<A> Formula(double temperature, const Axis& axis, bool with_distance) {
  using E = typename A::Element;
  const auto e = [](int64_t n) { return E(static_cast<double>(n)); };
  const E distance = with_distance ? e(axis.base_size) / e(axis.whole) / E(axis.interpolation_scale) : E(1.0);
  Values<A> values;
  for (int64_t k = 0; k < axis.pairs; ++k) {
    values.list.push_back(distance * (E(1.0) / Pow(E(temperature), e(k) / e(axis.spread))));
  }
  return values;
}

absl::Status CheckSize(std::string_view name, int64_t size) {
  if (size < 1) return InvalidArgument("OUT_OF_RANGE", name, fmt::format("{}", size), "must be at least 1");
  if (static_cast<double>(size) <= kLargestPosition) return absl::OkStatus();
  return InvalidArgument("OUT_OF_RANGE", name, fmt::format("{}", size), "must be at most 2^53");
}

// Checks DETR's settings and fills in their defaults.
absl::Status CompleteDetr(GridSettings& s) {
  constexpr std::string_view kDetr = "GRID_CONVENTION_DETR", kNormalized = "GRID_CONVENTION_DETR with normalize";
  const bool detr = s.convention == GridConvention::kDetr, normalizes = detr && s.normalize.value_or(true);
  if (!detr && s.normalize) return NotRead("normalize", kDetr);
  if (!normalizes && s.scale) return NotRead("scale", kNormalized);
  if (!normalizes && s.offset) return NotRead("offset", kNormalized);
  if (!s.normalize) s.normalize = true;
  if (!s.scale) s.scale = 2 * std::numbers::pi;
  if (!s.offset) s.offset = 0.0;
  constexpr double kMostOffset = 1 << 20;
  if (!(std::abs(*s.offset) <= kMostOffset)) {
    return InvalidArgument("OUT_OF_RANGE", "offset", fmt::format("{}", *s.offset), "must be -2^20 .. 2^20");
  }
  return CheckFinite("scale", *s.scale);
}

absl::Status Complete(GridSettings& s, const Limits& limits) {
  constexpr std::string_view kDiffusers = "GRID_CONVENTION_DIFFUSERS";
  const bool diffusers = s.convention == GridConvention::kDiffusers;
  if (s.rows_first && s.convention != GridConvention::kMae && s.convention != GridConvention::kBigVision) {
    return NotRead("rows_first", "GRID_CONVENTION_MAE and GRID_CONVENTION_BIG_VISION");
  }
  POSENC_RETURN_IF_ERROR(CompleteDetr(s));
  if (!diffusers && s.frames) return NotRead("frames", kDiffusers);
  if (!diffusers && s.interpolation_scale) return NotRead("interpolation_scale", kDiffusers);
  for (const auto& [name, given] :
       {std::pair{"base_size", s.base_size}, {"pos_embed_max_size", s.pos_embed_max_size}}) {
    if ((!diffusers || s.frames) && given) return NotRead(name, "GRID_CONVENTION_DIFFUSERS without frames");
  }
  if (!s.frames && s.temporal_interpolation_scale) return NotRead("temporal_interpolation_scale", "grids with frames");
  POSENC_RETURN_IF_ERROR(s.frames                                     ? CheckDim(s.dim, 16, 16, limits)
                         : s.convention == GridConvention::kBigVision ? CheckDim(s.dim, 8, 4, limits)
                                                                      : CheckDim(s.dim, 4, 4, limits));
  if (!s.temperature) s.temperature = 10000.0;
  if (!s.base_size) s.base_size = 16;
  if (!s.interpolation_scale) s.interpolation_scale = 1.0;
  if (!s.temporal_interpolation_scale) s.temporal_interpolation_scale = 1.0;
  POSENC_RETURN_IF_ERROR(CheckSize("height", s.height));
  POSENC_RETURN_IF_ERROR(CheckSize("width", s.width));
  POSENC_RETURN_IF_ERROR(CheckSize("frames", s.frames.value_or(1)));
  POSENC_RETURN_IF_ERROR(CheckSize("base_size", *s.base_size));
  POSENC_RETURN_IF_ERROR(CheckSize("pos_embed_max_size", s.pos_embed_max_size.value_or(1)));
  if (s.pos_embed_max_size && *s.pos_embed_max_size < std::max(s.height, s.width)) {
    return InvalidArgument("OUT_OF_RANGE", "pos_embed_max_size", fmt::format("{}", *s.pos_embed_max_size),
                           fmt::format("must be at least height and width, {} x {}", s.height, s.width));
  }
  POSENC_RETURN_IF_ERROR(CheckPositive("temperature", *s.temperature));
  POSENC_RETURN_IF_ERROR(CheckPositive("interpolation_scale", *s.interpolation_scale));
  POSENC_RETURN_IF_ERROR(CheckPositive("temporal_interpolation_scale", *s.temporal_interpolation_scale));
  if (s.extra_tokens < 0) {
    return InvalidArgument("OUT_OF_RANGE", "extra_tokens", fmt::format("{}", s.extra_tokens), "must be at least 0");
  }
  int64_t rows = s.height;
  if (__builtin_mul_overflow(rows, s.width, &rows) || __builtin_mul_overflow(rows, s.frames.value_or(1), &rows) ||
      __builtin_add_overflow(rows, s.extra_tokens, &rows) || rows > limits.max_dimension) {
    return InvalidArgument("OUT_OF_RANGE", "height", fmt::format("{}", s.height),
                           fmt::format("must give at most {} rows (max_dimension)", limits.max_dimension));
  }
  return absl::OkStatus();
}

class GridEncoding final : public Encoding {
 public:
  GridEncoding(const GridSettings& s, Frequencies arithmetic) : s_(s), arithmetic_(arithmetic) {
    const int64_t of_time = s.frames ? s.dim / 4 : 0, pairs = (s.dim - of_time) / 4;
    const int64_t spread = s.convention == GridConvention::kBigVision ? pairs - 1 : pairs;
    const bool shrinks = s.convention == GridConvention::kDiffusers && !s.frames;
    const auto in_space = [&](int64_t cells, int64_t size) {
      const int64_t whole = s.pos_embed_max_size.value_or(size);
      return Axis{cells, size,  (whole - size) / 2, whole, shrinks ? *s.base_size : size, *s.interpolation_scale,
                  pairs, spread};
    };
    axes_.reserve(3);
    if (s.frames) {  // time comes first
      axes_.push_back({.cells = s.height * s.width,
                       .size = *s.frames,
                       .first = 0,
                       .whole = *s.frames,
                       .base_size = *s.frames,
                       .interpolation_scale = *s.temporal_interpolation_scale,
                       .pairs = of_time / 2,
                       .spread = of_time / 2});
    }
    axes_.push_back(in_space(1, s.width));
    axes_.push_back(in_space(s.width, s.height));
    const bool detr = s.convention == GridConvention::kDetr, exact = arithmetic == Frequencies::kExact;
    if (s.rows_first || detr) std::swap(axes_[0], axes_[1]);
    for (Axis& axis : axes_) {
      if (detr) {
        axis.detr = {axis.size, pairs, *s.temperature, *s.normalize, *s.scale, *s.offset};
        axis.inv_freq = DetrFrequencies(arithmetic, *axis.detr);
      } else {
        axis.inv_freq =
            Evaluate(arithmetic, [&](auto a) { return Formula<decltype(a)>(*s.temperature, axis, exact); }).list;
      }
    }
  }

  absl::Status CheckNumbers() const {
    for (const Axis& axis : axes_) {
      POSENC_RETURN_IF_ERROR(CheckAllFinite("interpolation_scale", {Coordinate(axis, axis.size - 1)}));
      POSENC_RETURN_IF_ERROR(CheckAllFinite("temperature", axis.inv_freq));
      if (!axis.detr || arithmetic_ == Frequencies::kExact) continue;
      for (double period : axis.inv_freq) POSENC_RETURN_IF_ERROR(CheckAllFinite("temperature", {1 / period}));
      POSENC_RETURN_IF_ERROR(
          CheckAllFinite("scale", DetrAngles(arithmetic_, *axis.detr, {0, axis.size - 1}, axis.inv_freq)));
    }
    return absl::OkStatus();
  }

  int64_t dim() const override { return s_.dim; }

  std::optional<Positions> OwnPositions() const override {
    return RowNumbers(s_.extra_tokens + s_.frames.value_or(1) * s_.height * s_.width);
  }

  void Fill(const double* positions, size_t count, DType dtype, std::byte* out) const override {
    const size_t size = SizeOf(dtype), row = s_.dim * size;
    size_t column = 0;
    for (const Axis& axis : axes_) {
      Slab(axis, positions, count, dtype)
          .Write(axis.detr ? SinCosOrder::kInterleaved : SinCosOrder::kSinCos, out + column * size, row);
      column += 2 * axis.pairs;
    }
    for (size_t r = 0; r < count && positions[r] < static_cast<double>(s_.extra_tokens); ++r) {
      std::memset(out + r * row, 0, row);
    }
  }

  void AddTo(Fingerprint& fingerprint) const override {
    fingerprint.Add(s_.dim).Add(s_.extra_tokens);
    for (const Axis& axis : axes_) {
      if (axis.detr) fingerprint.Add(int64_t{*s_.normalize}).Add(*s_.scale).Add(*s_.offset);
      fingerprint.Add(axis.cells).Add(axis.size).Add(axis.base_size).Add(axis.interpolation_scale).Add(axis.inv_freq);
      // Added for cropped grids only, so that other grids keep their earlier fingerprints.
      if (s_.pos_embed_max_size) fingerprint.Add(axis.first).Add(axis.whole);
    }
  }

 private:
  SinCosSlab Slab(const Axis& axis, const double* rows, size_t count, DType dtype) const {
    std::vector<int64_t> indices(count);
    for (size_t r = 0; r < count; ++r) {
      const int64_t cell = static_cast<int64_t>(rows[r]) - s_.extra_tokens;
      indices[r] = std::max<int64_t>(cell, 0) / axis.cells % axis.size;
    }
    if (axis.detr && arithmetic_ != Frequencies::kExact) {
      const std::vector<double> angles = DetrAngles(arithmetic_, *axis.detr, indices, axis.inv_freq);
      return SinCosSlab::OfAngles(arithmetic_, dtype, angles, axis.pairs);
    }
    std::vector<double> coordinates(count);
    for (size_t r = 0; r < count; ++r) coordinates[r] = Coordinate(axis, indices[r]);
    return SinCosSlab::OfPositions(arithmetic_, dtype, coordinates.data(), count, axis.inv_freq);
  }

  double Coordinate(const Axis& axis, int64_t index) const {
    if (axis.detr) return static_cast<double>(index) + axis.detr->shift();
    if (arithmetic_ == Frequencies::kExact) return static_cast<double>(axis.first + index);
    const double shrink = static_cast<double>(axis.whole) / static_cast<double>(axis.base_size);
    return static_cast<float>(axis.first + index) / static_cast<float>(shrink) /
           static_cast<float>(axis.interpolation_scale);
  }

  GridSettings s_;
  Frequencies arithmetic_;
  std::vector<Axis> axes_;
};

}  // namespace

EncodingOr Encode(GridSettings settings, Frequencies arithmetic, const Limits& limits) {
  POSENC_RETURN_IF_ERROR(Complete(settings, limits));
  auto encoding = std::make_unique<GridEncoding>(settings, arithmetic);
  POSENC_RETURN_IF_ERROR(encoding->CheckNumbers());
  return encoding;
}

}  // namespace posenc
