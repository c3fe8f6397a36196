#include "posenc/methods/embedding/encoding.h"

#include <fmt/format.h>

#include <cstring>

#include "posenc/base/checks.h"
#include "posenc/base/status.h"
#include "posenc/exact/arithmetic.h"
#include "posenc/methods/embedding/sincos_slab.h"

namespace posenc {
namespace {

// Returns factor * exp(-ln(max_period) * k / (half - shift)) for k = 0 .. half-1.
template <class A>
Values<A> Formula(const TimestepSettings& s, double factor) {
  using S = typename A::Scalar;
  using E = typename A::Element;
  const int64_t half = s.dim / 2;
  const E rate(S(0.0) - Log(S(*s.max_period)));
  const E spread(S(static_cast<double>(half)) - S(*s.downscale_freq_shift));
  Values<A> values;
  for (int64_t k = 0; k < half; ++k) {
    values.list.push_back(E(factor) * Exp(rate * E(static_cast<double>(k)) / spread));
  }
  return values;
}

absl::Status Complete(TimestepSettings& s, const Limits& limits) {
  if (!s.max_period) s.max_period = 10000.0;
  if (!s.downscale_freq_shift) s.downscale_freq_shift = 1.0;
  if (!s.scale) s.scale = 1.0;
  POSENC_RETURN_IF_ERROR(CheckDim(s.dim, 1, 1, limits));
  POSENC_RETURN_IF_ERROR(CheckPositive("max_period", *s.max_period));
  POSENC_RETURN_IF_ERROR(CheckFinite("downscale_freq_shift", *s.downscale_freq_shift));
  POSENC_RETURN_IF_ERROR(CheckFinite("scale", *s.scale));
  const int64_t half = s.dim / 2;
  if (half > 0 && *s.downscale_freq_shift == static_cast<double>(half)) {
    return InvalidArgument(
        "OUT_OF_RANGE", "downscale_freq_shift", fmt::format("{}", half),
        fmt::format("must not be floor(dim/2), of dim {}: the formula divides by the difference", s.dim));
  }
  return absl::OkStatus();
}

class TimestepEncoding final : public Encoding {
 public:
  TimestepEncoding(const TimestepSettings& settings, Frequencies arithmetic) : s_(settings), arithmetic_(arithmetic) {
    const bool exact = arithmetic == Frequencies::kExact;
    // Under kExact the scale is part of the frequency; diffusers multiplies the angle by it.
    const double factor = exact ? *s_.scale : 1.0;
    inv_freq_ = Evaluate(arithmetic, [&](auto a) { return Formula<decltype(a)>(s_, factor); }).list;
    scales_angles_ = !exact && *s_.scale != 1.0;
  }

  int64_t dim() const override { return s_.dim; }

  absl::Status CheckFrequencies() const { return CheckAllFinite("downscale_freq_shift", inv_freq_); }

  void Fill(const double* positions, size_t count, DType dtype, std::byte* out) const override {
    const size_t size = SizeOf(dtype), row = s_.dim * size;
    (scales_angles_ ? SinCosSlab::OfAngles(arithmetic_, dtype, Angles(positions, count), inv_freq_.size())
                    : SinCosSlab::OfPositions(arithmetic_, dtype, positions, count, inv_freq_))
        .Write(s_.flip_sin_to_cos ? SinCosOrder::kCosSin : SinCosOrder::kSinCos, out, row);
    if (s_.dim % 2 == 0) return;
    for (size_t r = 0; r < count; ++r) std::memset(out + (r + 1) * row - size, 0, size);
  }

  void AddTo(Fingerprint& fingerprint) const override {
    fingerprint.Add(s_.dim).Add(int64_t{s_.flip_sin_to_cos}).Add(*s_.scale).Add(inv_freq_);
  }

 private:
  std::vector<double> Angles(const double* positions, size_t count) const {
    return arithmetic_ == Frequencies::kFloat32 ? AnglesIn<float>(positions, count)
                                                : AnglesIn<double>(positions, count);
  }
  template <class E>
  std::vector<double> AnglesIn(const double* positions, size_t count) const {
    std::vector<double> angles;
    angles.reserve(count * inv_freq_.size());
    for (size_t r = 0; r < count; ++r) {
      for (double w : inv_freq_) {
        const E angle = static_cast<E>(positions[r]) * static_cast<E>(w);
        angles.push_back(static_cast<E>(*s_.scale) * angle);
      }
    }
    return angles;
  }

  TimestepSettings s_;
  Frequencies arithmetic_;
  std::vector<double> inv_freq_;
  bool scales_angles_ = false;
};

}  // namespace

EncodingOr Encode(TimestepSettings settings, Frequencies arithmetic, const Limits& limits) {
  POSENC_RETURN_IF_ERROR(Complete(settings, limits));
  auto encoding = std::make_unique<TimestepEncoding>(settings, arithmetic);
  POSENC_RETURN_IF_ERROR(encoding->CheckFrequencies());
  return encoding;
}

}  // namespace posenc
