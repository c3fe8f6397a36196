#include "posenc/methods/embedding/encoding.h"

#include <fmt/format.h>

#include <algorithm>

#include "posenc/base/checks.h"
#include "posenc/base/interruption.h"
#include "posenc/base/status.h"
#include "posenc/kernels/sincos_turns.h"
#include "posenc/methods/embedding/sincos_slab.h"

namespace posenc {
namespace {

constexpr double kTwoPi = 6.28318530717958647693;

absl::Status CheckMatrix(std::string_view name, const Matrix<double>& matrix, std::string_view shape) {
  if (matrix.shared) {
    return InvalidArgument("MISMATCH", fmt::format("{}.shape", name), "of rank 1", fmt::format("must be {}", shape));
  }
  return CheckFinite(name, matrix.values);
}

class FourierEncoding final : public Encoding {
 public:
  FourierEncoding(FourierSettings settings, Frequencies arithmetic)
      : s_(std::move(settings)), arithmetic_(arithmetic) {}

  int64_t dim() const override { return 2 * s_.frequencies.rows; }
  int64_t steps() const override { return std::max(dim(), s_.frequencies.rows * s_.frequencies.columns); }

  std::optional<Positions> OwnPositions() const override { return RowNumbers(s_.points.rows); }

  void Fill(const double* positions, size_t count, DType dtype, std::byte* out) const override {
    Slab(s_.points.row(static_cast<int64_t>(positions[0])), count, dtype)
        .Write(SinCosOrder::kSinCos, out, dim() * SizeOf(dtype));
  }

  void AddTo(Fingerprint& fingerprint) const override {
    fingerprint.Add(s_.frequencies.columns).Add(s_.frequencies.values);
  }

 private:
  // Returns the sines and cosines of `count` points, which are contiguous in memory.
  SinCosSlab Slab(const double* points, size_t count, DType dtype) const {
    const size_t pairs = s_.frequencies.rows;
    if (arithmetic_ != Frequencies::kExact) {
      const auto angles =
          arithmetic_ == Frequencies::kFloat32 ? Angles<float>(points, count) : Angles<double>(points, count);
      return SinCosSlab::OfAngles(arithmetic_, dtype, angles, pairs);
    }
    SinCosSlab slab = SinCosSlab::OfValues(dtype, count, pairs);
    const size_t terms = s_.frequencies.columns;
    for (size_t r = 0; r < count; ++r) {
      ComputeSinCosTurns(SinCosTurns{.dtype = dtype,
                                     .factors = s_.frequencies.values.data(),
                                     .point = points + r * terms,
                                     .pairs = pairs,
                                     .terms = terms,
                                     .cos = slab.cosines() + r * pairs * SizeOf(dtype),
                                     .sin = slab.sines() + r * pairs * SizeOf(dtype)});
    }
    return slab;
  }

  template <class E>
  std::vector<double> Angles(const double* points, size_t count) const {
    const size_t terms = s_.frequencies.columns;
    std::vector<double> angles;
    angles.reserve(count * s_.frequencies.rows);
    int64_t products = 0;
    for (size_t r = 0; r < count; ++r, points += terms) {
      for (int64_t i = 0; i < s_.frequencies.rows; ++i) {
        const double* b = s_.frequencies.row(i);
        E sum = 0;
        for (size_t j = 0; j < terms; ++j) {
          InterruptionPointOfStep(++products);
          const E turned = static_cast<E>(kTwoPi) * static_cast<E>(points[j]);
          const E product = turned * static_cast<E>(b[j]);
          sum = j == 0 ? product : sum + product;
        }
        angles.push_back(sum);
      }
    }
    return angles;
  }

  FourierSettings s_;
  Frequencies arithmetic_;
};

}  // namespace

EncodingOr Encode(FourierSettings settings, Frequencies arithmetic, const Limits& limits) {
  POSENC_RETURN_IF_ERROR(CheckMatrix("frequencies", settings.frequencies, "[m, n]"));
  POSENC_RETURN_IF_ERROR(CheckMatrix("points", settings.points, "[S, n]"));
  if (settings.frequencies.rows < 1) {
    return InvalidArgument("OUT_OF_RANGE", "frequencies.shape", "0 rows", "must be at least 1");
  }
  if (settings.frequencies.rows > limits.max_rotary_dim / 2) {
    return InvalidArgument("OUT_OF_RANGE", "frequencies.shape", fmt::format("{} rows", settings.frequencies.rows),
                           fmt::format("must be at most {}, half of max_rotary_dim", limits.max_rotary_dim / 2));
  }
  if (settings.points.columns != settings.frequencies.columns) {
    return InvalidArgument("MISMATCH", "points.shape", fmt::format("{} columns", settings.points.columns),
                           fmt::format("must be {}, as in frequencies", settings.frequencies.columns));
  }
  return std::make_unique<FourierEncoding>(std::move(settings), arithmetic);
}

}  // namespace posenc
