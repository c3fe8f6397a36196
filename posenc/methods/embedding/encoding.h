// Absolute encodings: what generate_embedding.cc knows of a method. Encode() turns a method's settings into an
// Encoding; each method has a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/base/dtype.h"
#include "posenc/base/fingerprint.h"
#include "posenc/base/limits.h"
#include "posenc/exact/arithmetic.h"
#include "posenc/settings/settings.h"

namespace posenc {

// Rows of D elements, checked and planned: what is left is to evaluate them. Thread-safe.
class Encoding {
 public:
  virtual ~Encoding() = default;

  // D.
  virtual int64_t dim() const = 0;
  // Where the rows stand, for methods whose settings say it; the others leave it to the request's positions.
  virtual std::optional<Positions> OwnPositions() const { return std::nullopt; }
  // INVALID_ARGUMENT, without a field, for a position at which there is no row.
  virtual absl::Status CheckPosition(double) const { return absl::OkStatus(); }
  // Writes the rows at so many positions: [count, D] of FP32, FP16, BF16 or FP64; `out` needs no alignment.
  virtual void Fill(const double* positions, size_t count, DType dtype, std::byte* out) const = 0;
  // All that the rows depend on, beside the method's name and the arithmetic.
  virtual void AddTo(Fingerprint& fingerprint) const = 0;
};

using EncodingOr = absl::StatusOr<std::unique_ptr<const Encoding>>;

// Positions of methods that number their rows themselves: 0 .. rows-1.
Positions RowNumbers(int64_t rows);
// Valid tokens are counted from 0 in each sequence, padding stands at -1.
Positions CountValid(const Matrix<uint8_t>& valid);

// What a method may add to positions: the sum is one in float64.
inline constexpr int64_t kLargestShift = int64_t{1} << 52;

// Checks that several methods share, beside posenc/base/checks.h. `name` is the field's.
absl::Status CheckShift(std::string_view name, int64_t shift);
absl::Status CheckDim(int64_t dim, int64_t least, int64_t divisor, const Limits& limits);
// That nothing has overflowed; the field is where to look for the cause.
absl::Status CheckAllFinite(std::string_view name, const std::vector<double>& numbers);
absl::Status NotRead(std::string_view name, std::string_view owner);

// Sinusoidal absolute encodings (arXiv:1706.03762), in the conventions of proto/posenc/v1/embedding.proto.

// Fills in defaults; INVALID_ARGUMENT for what the convention does not read or cannot take. token_valid is not looked
// at.
absl::Status Complete(SinusoidalSettings& settings, const Limits& limits);

// w_k for k = 0 .. floor(dim/2)-1, of completed settings. In float32 and float64 by the chain of the convention's own
// code: 1/(max^(2k/D)) for interleaved and halves, min*exp(k * -(ln(max/min)/(n-1))) for tensor2tensor and fairseq.
std::vector<double> SinusoidalFrequencies(Frequencies arithmetic, const SinusoidalSettings& settings);

EncodingOr Encode(SinusoidalSettings settings, Frequencies arithmetic, const Limits& limits);

// Learned absolute encodings: rows of the caller's table.

// A row without a scale is converted once. With one, kExact rounds the real product once to the answer's type; the
// others round element, scale and product to their own type first.
EncodingOr Encode(LearnedSettings settings, Frequencies arithmetic, const Limits& limits);

// The timestep embedding of diffusion models, as diffusers computes it (get_timestep_embedding).

// kExact: the frequency is scale * max_period^(-k/(dim/2 - shift)), rounded once to float64. Otherwise diffusers'
// chain: w = exp(-ln(max_period) * k / (dim/2 - shift)), angle = scale * (t * w), each operation rounded.
EncodingOr Encode(TimestepSettings settings, Frequencies arithmetic, const Limits& limits);

// Sines and cosines of the coordinates of a 2-D or 3-D grid, in the conventions of proto/posenc/v1/embedding.proto.

// kExact: the distance of two neighbouring cells (diffusers: base_size / (size * interpolation_scale), elsewhere 1) is
// part of the frequency, which is rounded once to float64. Otherwise the originals' chain: the coordinate in float32,
// frequency and angle in the arithmetic's type.
EncodingOr Encode(GridSettings settings, Frequencies arithmetic, const Limits& limits);

// Fourier features (arXiv:2006.10739): sin and cos of 2 pi B x, for the caller's B and points x.

// kExact: each entry is the sine or cosine of the real number 2 pi (B x), rounded once. Otherwise the chain of the
// original's code: x_j times fl(2 pi), products with B summed from the first on, each operation rounded.
EncodingOr Encode(FourierSettings settings, Frequencies arithmetic, const Limits& limits);

}  // namespace posenc
