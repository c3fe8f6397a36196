#include "posenc/methods/rope/axes.h"

#include <fmt/format.h>

#include "posenc/base/checks.h"
#include "posenc/base/status.h"
#include "posenc/methods/rope/rope.h"

namespace posenc {
namespace {

// Merges the axes' per-pair values into the order of the pairs: axis after axis, or alternating.
template <class T>
std::vector<T> InOrder(const std::vector<std::vector<T>>& by_axis, bool alternating) {
  std::vector<T> all;
  if (!alternating) {
    for (const std::vector<T>& own : by_axis) all.insert(all.end(), own.begin(), own.end());
    return all;
  }
  for (size_t i = 0; i < by_axis[0].size(); ++i) {
    for (const std::vector<T>& own : by_axis) all.push_back(own[i]);
  }
  return all;
}

}  // namespace

absl::Status Complete(AxialRope& axial, const Limits& limits) {
  if (axial.axes.empty()) return InvalidArgument("MISSING", "axes", "", "must be given: at least one");
  if (static_cast<int64_t>(axial.axes.size()) > kMaxAxes) {
    return InvalidArgument("OUT_OF_RANGE", "axes", fmt::format("{} axes", axial.axes.size()),
                           fmt::format("must be at most {}", kMaxAxes));
  }
  int64_t left = limits.max_rotary_dim;
  for (size_t n = 0; n < axial.axes.size(); ++n) {
    AxialAxis& axis = axial.axes[n];
    if (axis.dim < 2 || axis.dim % 2 != 0 || axis.dim > left) {
      return InvalidArgument(
          "OUT_OF_RANGE", fmt::format("axes[{}].dim", n), fmt::format("{}", axis.dim),
          fmt::format("must be even and at least 2; the sum over all axes must be at most {}", limits.max_rotary_dim));
    }
    left -= axis.dim;
    if (!axis.rope_theta) axis.rope_theta = 10000;
    POSENC_RETURN_IF_ERROR(CheckPositive(fmt::format("axes[{}].rope_theta", n), *axis.rope_theta));
    POSENC_RETURN_IF_ERROR(CheckFinite(fmt::format("axes[{}].frequency_start", n), axis.frequency_start));
    if (axial.alternating && axis.dim != axial.axes[0].dim) {
      return InvalidArgument("MISMATCH", fmt::format("axes[{}].dim", n), fmt::format("{}", axis.dim),
                             fmt::format("must be axes[0].dim, {}, with alternating", axial.axes[0].dim));
    }
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
                    std::vector<std::vector<E>> by_axis;
                    for (const AxialAxis& axis : axial.axes) {
                      by_axis.emplace_back();
                      for (const E& power : ThetaPowers<A>(E(*axis.rope_theta), static_cast<double>(axis.dim),
                                                           axis.dim / 2, axis.frequency_start)) {
                        by_axis.back().push_back(E(1.0) / power);
                      }
                    }
                    return Values<A>{InOrder(by_axis, axial.alternating), {}};
                  })
      .list;
}

std::vector<int64_t> AxialAxes(const AxialRope& axial) {
  std::vector<std::vector<int64_t>> by_axis;
  for (size_t n = 0; n < axial.axes.size(); ++n) {
    by_axis.emplace_back(axial.axes[n].dim / 2, static_cast<int64_t>(n));
  }
  return InOrder(by_axis, axial.alternating);
}

namespace {

constexpr int64_t kT = 0, kH = 1, kW = 2;

absl::Status CheckSections(const std::vector<int64_t>& sections, int64_t pairs) {
  if (static_cast<int64_t>(sections.size()) > kMaxAxes) {
    return InvalidArgument("OUT_OF_RANGE", "mrope_section", fmt::format("{} values", sections.size()),
                           fmt::format("must be at most {}: one per axis of a position", kMaxAxes));
  }
  int64_t left = pairs;
  for (size_t n = 0; n < sections.size(); ++n) {
    if (sections[n] < 0 || sections[n] > left) {
      return InvalidArgument("OUT_OF_RANGE", fmt::format("mrope_section[{}]", n), fmt::format("{}", sections[n]),
                             fmt::format("must be at least 0, and all must sum to rotary_dim/2 = {}", pairs));
    }
    left -= sections[n];
  }
  if (left == 0) return absl::OkStatus();
  return InvalidArgument("MISMATCH", "mrope_section", fmt::format("a sum of {}", pairs - left),
                         fmt::format("must sum to rotary_dim/2 = {}", pairs));
}

// Repeats each axis `times` times its section.
std::vector<int64_t> Contiguous(const std::vector<int64_t>& sections, int64_t times) {
  std::vector<int64_t> axis;
  for (size_t n = 0; n < sections.size(); ++n) axis.insert(axis.end(), times * sections[n], static_cast<int64_t>(n));
  return axis;
}

absl::StatusOr<std::vector<int64_t>> Interleaved(const std::vector<int64_t>& sections, int64_t pairs) {
  for (const int64_t a : {kH, kW}) {
    if (sections[a] > (pairs + 2 - a) / 3) {
      return InvalidArgument("OUT_OF_RANGE", fmt::format("mrope_section[{}]", a), fmt::format("{}", sections[a]),
                             "must be at most every third pair for h and w with MROPE_ORDER_INTERLEAVED");
    }
  }
  std::vector<int64_t> axis;
  for (int64_t j = 0; j < pairs; ++j) axis.push_back(j % 3 != 0 && j < 3 * sections[j % 3] ? j % 3 : kT);
  return axis;
}

absl::StatusOr<std::vector<int64_t>> Ernie(const std::vector<int64_t>& sections, int64_t pairs) {
  if (sections[0] != sections[1]) {
    return InvalidArgument("MISMATCH", "mrope_section[1]", fmt::format("{}", sections[1]),
                           fmt::format("must be {}: MROPE_ORDER_ERNIE gives w as many pairs as h", sections[0]));
  }
  std::vector<int64_t> axis;
  for (int64_t j = 0; j < pairs; ++j) axis.push_back(j >= pairs - sections[2] ? kT : j % 2 == 0 ? kH : kW);
  return axis;
}

}  // namespace

absl::StatusOr<std::vector<int64_t>> MropeAxes(const RopeParameters& p, int64_t pairs) {
  const std::vector<int64_t>& sections = p.mrope_section;
  if (p.mrope_order == MropeOrder::kNone) {
    if (sections.empty()) return std::vector<int64_t>();
    return InvalidArgument("MISSING", "mrope_order", "",
                           "must be given with mrope_section: MROPE_ORDER_CONTIGUOUS (Qwen2-VL), "
                           "MROPE_ORDER_INTERLEAVED (Qwen3-VL), MROPE_ORDER_ERNIE or MROPE_ORDER_ELEMENTS (HunyuanVL)");
  }
  if (sections.empty()) return InvalidArgument("MISSING", "mrope_section", "", "must be given with mrope_order");
  POSENC_RETURN_IF_ERROR(CheckSections(sections, pairs));
  if (p.mrope_order == MropeOrder::kContiguous) return Contiguous(sections, 1);
  if (p.mrope_order == MropeOrder::kElements) return Contiguous(sections, 2);
  if (sections.size() != 3) {
    return InvalidArgument("MISMATCH", "mrope_section", fmt::format("{} values", sections.size()),
                           "must be 3 for this mrope_order");
  }
  return p.mrope_order == MropeOrder::kErnie ? Ernie(sections, pairs) : Interleaved(sections, pairs);
}

}  // namespace posenc
