#include "posenc/methods/embedding/grid_detr.h"

namespace posenc {
namespace {

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

}  // namespace

std::vector<double> DetrFrequencies(Frequencies arithmetic, const DetrAxis& axis) {
  const bool exact = arithmetic == Frequencies::kExact;
  return Evaluate(arithmetic,
                  [&](auto a) { return exact ? RealFrequencies<decltype(a)>(axis) : Periods<decltype(a)>(axis); })
      .list;
}

std::vector<double> DetrAngles(Frequencies arithmetic, const DetrAxis& axis, const std::vector<int64_t>& indices,
                               const std::vector<double>& periods) {
  return arithmetic == Frequencies::kFloat32 ? AnglesIn<float>(axis, indices, periods)
                                             : AnglesIn<double>(axis, indices, periods);
}

}  // namespace posenc
