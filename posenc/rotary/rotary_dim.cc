#include "posenc/rotary/rotary_dim.h"

#include <fmt/format.h>

#include "posenc/base/status.h"
#include "posenc/methods/rope/axial.h"
#include "posenc/methods/rope/methods.h"

namespace posenc {
namespace {

struct NamedWidth {
  std::string_view field;
  int64_t dim;
};

// Rotary width that the frequencies imply; nullopt if they imply none.
std::optional<NamedWidth> OwnWidth(const RotarySettings& settings) {
  if (const auto* given = std::get_if<GivenFrequencies>(&settings.frequencies)) {
    return NamedWidth{"given_frequencies.inv_freq", 2 * static_cast<int64_t>(given->inv_freq.size())};
  }
  if (const auto* axial = std::get_if<AxialRope>(&settings.frequencies))
    return NamedWidth{"axial.axes", AxialWidth(*axial)};
  if (const auto* table = std::get_if<GivenTable>(&settings.frequencies)) {
    return NamedWidth{"given_table.cos.shape", 2 * table->width};
  }
  return std::nullopt;
}

// partial_rotary_factor if it narrows the width. Null if absent, or if the rope_type's formula reads it itself.
const double* PartialFactor(const RotarySettings& settings) {
  const auto* parameters = std::get_if<RopeParameters>(&settings.frequencies);
  if (parameters == nullptr || !parameters->partial_rotary_factor) return nullptr;
  const RopeMethod* method = FindRopeMethod(parameters->rope_type);
  if (method != nullptr && Reads(*method, "partial_rotary_factor")) return nullptr;
  return &*parameters->partial_rotary_factor;
}

}  // namespace

absl::StatusOr<int64_t> RotaryDim(const RotarySettings& settings, const Limits& limits) {
  if (settings.rotary_dim && settings.head_dim) {
    return InvalidArgument("CONFLICT", "rotary_dim", "", "give rotary_dim or head_dim, not both");
  }
  const double* partial = PartialFactor(settings);
  if (settings.rotary_dim && partial != nullptr) {
    return InvalidArgument("CONFLICT", "rope_parameters.partial_rotary_factor", "", "is read with head_dim only");
  }
  const std::optional<NamedWidth> own = OwnWidth(settings);
  NamedWidth width{"rotary_dim", 0};
  if (settings.rotary_dim) {
    width.dim = *settings.rotary_dim;
  } else if (settings.head_dim) {
    width = {"head_dim", *settings.head_dim};
    if (width.dim < 1 || width.dim > limits.max_rotary_dim) {
      return InvalidArgument("OUT_OF_RANGE", width.field, fmt::format("{}", width.dim),
                             fmt::format("must be 1 .. {}", limits.max_rotary_dim));
    }
    if (partial != nullptr) {
      width.dim = static_cast<int64_t>(static_cast<double>(width.dim) * *partial);
      if (*partial != 1) width.field = "head_dim * partial_rotary_factor";
    }
  } else if (own) {
    width = *own;
  } else {
    return InvalidArgument("MISSING", "rotary_dim", "", "give rotary_dim or head_dim");
  }
  if (width.dim < 2 || width.dim % 2 != 0 || width.dim > limits.max_rotary_dim) {
    return InvalidArgument("OUT_OF_RANGE", width.field, fmt::format("{}", width.dim),
                           fmt::format("the rotary width must be even, 2 .. {}", limits.max_rotary_dim));
  }
  if (own && own->dim != width.dim) {
    return InvalidArgument("MISMATCH", own->field, fmt::format("a width of {}", own->dim),
                           fmt::format("must be the rotary width {}", width.dim));
  }
  return width.dim;
}

}  // namespace posenc
