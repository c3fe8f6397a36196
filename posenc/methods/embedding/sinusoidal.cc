#include "posenc/methods/embedding/encoding.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "posenc/base/checks.h"
#include "posenc/base/status.h"
#include "posenc/methods/embedding/sincos_slab.h"
#include "posenc/methods/rope/rope.h"

namespace posenc {
namespace {

template <class A>
Values<A> PaperFormula(const SinusoidalSettings& settings) {
  using E = typename A::Element;
  Values<A> values;
  values.list = ThetaPowers<A>(E(*settings.max_timescale), settings.dim);
  for (E& w : values.list) w = E(1.0) / w;
  return values;
}

template <class A>
Values<A> Tensor2TensorFormula(const SinusoidalSettings& settings) {
  using S = typename A::Scalar;
  using E = typename A::Element;
  const int64_t half = settings.dim / 2;
  const S range = Log(S(*settings.max_timescale) / S(*settings.min_timescale));
  const E step(S(0.0) - range / S(static_cast<double>(std::max<int64_t>(half - 1, 1))));
  Values<A> values;
  for (int64_t k = 0; k < half; ++k) {
    values.list.push_back(E(*settings.min_timescale) * Exp(E(static_cast<double>(k)) * step));
  }
  return values;
}

class SinusoidalEncoding final : public Encoding {
 public:
  SinusoidalEncoding(SinusoidalSettings settings, Frequencies arithmetic)
      : settings_(std::move(settings)),
        arithmetic_(arithmetic),
        inv_freq_(SinusoidalFrequencies(arithmetic, settings_)) {}

  absl::Status CheckFrequencies() const { return CheckAllFinite("max_timescale", inv_freq_); }

  int64_t dim() const override { return settings_.dim; }

  std::optional<Positions> OwnPositions() const override {
    if (!settings_.token_valid) return std::nullopt;
    return CountValid(*settings_.token_valid);  // padding is at -1; Shift() moves it to padding_idx
  }

  void Fill(const double* positions, size_t count, DType dtype, std::byte* out) const override {
    const size_t size = SizeOf(dtype), row = settings_.dim * size;
    const size_t sines_and_cosines = std::min(2 * inv_freq_.size() * size, row);
    std::vector<double> at(positions, positions + count);
    for (double& position : at) position += static_cast<double>(Shift());
    const SinCosOrder order = settings_.convention == SinusoidalConvention::kInterleaved ? SinCosOrder::kInterleaved
                              : settings_.cosines_first                                  ? SinCosOrder::kCosSin
                                                                                         : SinCosOrder::kSinCos;
    auto slab = SinCosSlab::OfPositions(arithmetic_, dtype, at.data(), count, inv_freq_, *settings_.scale);
    if (settings_.convention == SinusoidalConvention::kHalves && settings_.dim % 2 != 0) {
      slab.WriteOdd(out, row);
    } else {
      slab.Write(order, out, row);
    }
    for (size_t r = 0; r < count; ++r, out += row) {
      const bool padding = settings_.padding_idx && at[r] == static_cast<double>(*settings_.padding_idx);
      const size_t kept = padding ? 0 : sines_and_cosines;  // zeroed after it: last element of an odd dim
      std::memset(out + kept, 0, row - kept);
    }
  }

  void AddTo(Fingerprint& fingerprint) const override {
    fingerprint.Add(static_cast<int64_t>(settings_.convention))
        .Add(settings_.dim)
        .Add(Shift())
        .Add(settings_.padding_idx.value_or(-1))
        .Add(*settings_.scale)
        .Add(inv_freq_);
    if (settings_.cosines_first) fingerprint.Add("cosines first");
  }

 private:
  // Returns the number that the convention adds to each position.
  int64_t Shift() const { return settings_.start_index + (settings_.padding_idx ? *settings_.padding_idx + 1 : 0); }

  SinusoidalSettings settings_;
  Frequencies arithmetic_;
  std::vector<double> inv_freq_;
};

}  // namespace

absl::Status Complete(SinusoidalSettings& s, const Limits& limits) {
  const bool fairseq = s.convention == SinusoidalConvention::kFairseq;
  const bool tensor2tensor = s.convention == SinusoidalConvention::kTensor2Tensor;
  const bool halves = s.convention == SinusoidalConvention::kHalves;
  if (!tensor2tensor && s.min_timescale) return NotRead("min_timescale", "SINUSOIDAL_CONVENTION_TENSOR2TENSOR");
  if (!tensor2tensor && s.start_index != 0) return NotRead("start_index", "SINUSOIDAL_CONVENTION_TENSOR2TENSOR");
  if (!tensor2tensor && s.cosines_first) return NotRead("cosines_first", "SINUSOIDAL_CONVENTION_TENSOR2TENSOR");
  if (!fairseq && s.padding_idx) return NotRead("padding_idx", "SINUSOIDAL_CONVENTION_FAIRSEQ");
  if (!fairseq && s.token_valid) return NotRead("token_valid", "SINUSOIDAL_CONVENTION_FAIRSEQ");
  POSENC_RETURN_IF_ERROR(fairseq         ? CheckDim(s.dim, 4, 1, limits)
                         : tensor2tensor ? CheckDim(s.dim, 1, 1, limits)
                         : halves        ? CheckDim(s.dim, 2, 1, limits)
                                         : CheckDim(s.dim, 2, 2, limits));
  if (fairseq && (!s.padding_idx || *s.padding_idx < 0 || *s.padding_idx > kLargestShift)) {
    return InvalidArgument(s.padding_idx ? "OUT_OF_RANGE" : "MISSING", "padding_idx",
                           s.padding_idx ? fmt::format("{}", *s.padding_idx) : "",
                           "must be 0 .. 2^52, the padding token's row, with SINUSOIDAL_CONVENTION_FAIRSEQ");
  }
  POSENC_RETURN_IF_ERROR(CheckShift("start_index", s.start_index));
  if (!s.max_timescale) s.max_timescale = 10000.0;
  if (!s.min_timescale) s.min_timescale = 1.0;
  if (!s.scale) s.scale = 1.0;
  POSENC_RETURN_IF_ERROR(CheckPositive("max_timescale", *s.max_timescale));
  POSENC_RETURN_IF_ERROR(CheckPositive("min_timescale", *s.min_timescale));
  return CheckFinite("scale", *s.scale);
}

std::vector<double> SinusoidalFrequencies(Frequencies arithmetic, const SinusoidalSettings& settings) {
  switch (settings.convention) {
    case SinusoidalConvention::kInterleaved:
    case SinusoidalConvention::kHalves:
      return Evaluate(arithmetic, [&](auto a) { return PaperFormula<decltype(a)>(settings); }).list;
    case SinusoidalConvention::kTensor2Tensor:
    case SinusoidalConvention::kFairseq:
      return Evaluate(arithmetic, [&](auto a) { return Tensor2TensorFormula<decltype(a)>(settings); }).list;
  }
  __builtin_unreachable();
}

EncodingOr Encode(SinusoidalSettings settings, Frequencies arithmetic, const Limits& limits) {
  POSENC_RETURN_IF_ERROR(Complete(settings, limits));
  auto encoding = std::make_unique<SinusoidalEncoding>(std::move(settings), arithmetic);
  POSENC_RETURN_IF_ERROR(encoding->CheckFrequencies());
  return encoding;
}

}  // namespace posenc
