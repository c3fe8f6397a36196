#include "posenc/methods/axial.h"

#include <fmt/format.h>

#include "posenc/checks.h"
#include "posenc/methods/rope.h"
#include "posenc/status.h"

namespace posenc {

absl::Status Complete(AxialRope& axial, const Limits& limits) {
  if (axial.axes.empty()) return InvalidArgument("MISSING", "axes", "", "give at least one");
  int64_t left = limits.max_rotary_dim;
  for (size_t n = 0; n < axial.axes.size(); ++n) {
    AxialAxis& axis = axial.axes[n];
    if (axis.dim < 2 || axis.dim % 2 != 0 || axis.dim > left) {
      return InvalidArgument(
          "OUT_OF_RANGE", fmt::format("axes[{}].dim", n), fmt::format("{}", axis.dim),
          fmt::format("must be even, at least 2, and all at most {} together", limits.max_rotary_dim));
    }
    left -= axis.dim;
    if (!axis.rope_theta) axis.rope_theta = 10000;
    POSENC_RETURN_IF_ERROR(CheckPositive(fmt::format("axes[{}].rope_theta", n), *axis.rope_theta));
    POSENC_RETURN_IF_ERROR(CheckFinite(fmt::format("axes[{}].frequency_start", n), axis.frequency_start));
  }
  return absl::OkStatus();
}

int64_t AxialWidth(const AxialRope& axial) {
  int64_t width = 0;
  for (const AxialAxis& axis : axial.axes) width += axis.dim;
  return width;
}

std::vector<double> AxialFrequencies(Frequencies arithmetic, const AxialRope& axial) {
  return Evaluate(arithmetic,
                  [&](auto a) {
                    using A = decltype(a);
                    using E = typename A::Element;
                    std::vector<E> all;
                    for (const AxialAxis& axis : axial.axes) {
                      for (const E& power : ThetaPowers<A>(E(*axis.rope_theta), static_cast<double>(axis.dim),
                                                           axis.dim / 2, axis.frequency_start)) {
                        all.push_back(E(1.0) / power);
                      }
                    }
                    return Values<A>{std::move(all), {}};
                  })
      .list;
}

std::vector<int64_t> AxialAxes(const AxialRope& axial) {
  std::vector<int64_t> axes;
  for (size_t n = 0; n < axial.axes.size(); ++n) {
    axes.insert(axes.end(), axial.axes[n].dim / 2, static_cast<int64_t>(n));
  }
  return axes;
}

}  // namespace posenc
