// Interface of the absolute encodings, used by generate_embedding.cc. Encode() turns a method's settings into an
// Encoding; each method has its own .cc file.
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

// A checked encoding that evaluates rows of D elements. Thread-safe.
class Encoding {
 public:
  virtual ~Encoding() = default;

  // Returns D, the elements per row.
  virtual int64_t dim() const = 0;
  // Returns how many steps of nanoseconds a row takes, at least D.
  virtual int64_t steps() const { return dim(); }
  // Returns the positions of all rows, if that is what a request without positions and count means.
  virtual std::optional<PositionLine> AllRows() const { return std::nullopt; }
  // Returns the rows' positions if the method's settings define them; nullopt if the request's positions apply.
  virtual std::optional<Positions> OwnPositions() const { return std::nullopt; }
  // Returns INVALID_ARGUMENT, without a field, if there is no row at the position.
  virtual absl::Status CheckPosition(double) const { return absl::OkStatus(); }
  // Writes the rows at `count` positions: [count, D] of FP32, FP16, BF16 or FP64. `out` needs no alignment.
  virtual void Fill(const double* positions, size_t count, DType dtype, std::byte* out) const = 0;
  // Adds everything that the rows depend on, except the method's name and the arithmetic. Not derived from the
  // settings' field list: most methods add the frequencies instead of the settings that they follow from, so that
  // settings with equal rows have equal fingerprints, and recorded fingerprints have these parts in this order.
  virtual void AddTo(Fingerprint& fingerprint) const = 0;
};

using EncodingOr = absl::StatusOr<std::unique_ptr<const Encoding>>;

// Returns positions 0 .. rows-1, for methods that number their rows themselves.
Positions RowNumbers(int64_t rows);
// Returns positions that count each sequence's valid tokens from 0; padding is at -1.
Positions CountValid(const Matrix<uint8_t>& valid);

// Largest magnitude of a shift that a method adds to positions; the sum is computed in float64.
inline constexpr int64_t kLargestShift = int64_t{1} << 52;

// Checks shared by several methods, besides posenc/base/checks.h. They return INVALID_ARGUMENT; `name` is the field's
// name.
absl::Status CheckShift(std::string_view name, int64_t shift);
absl::Status CheckDim(int64_t dim, int64_t least, int64_t divisor, const Limits& limits);
// Checks that nothing has overflowed; `name` is the field that most likely caused it.
absl::Status CheckAllFinite(std::string_view name, const std::vector<double>& numbers);
absl::Status NotRead(std::string_view name, std::string_view owner);

// Sinusoidal absolute encodings (arXiv:1706.03762), in the conventions of proto/posenc/v1/embedding.proto.

// Fills in defaults. Returns INVALID_ARGUMENT for fields that the convention does not read and for values out of range.
// Does not check the content of token_valid.
absl::Status Complete(SinusoidalSettings& settings, const Limits& limits);

// Returns w_k for k = 0 .. floor(dim/2)-1. Requires completed settings. kFloat32 and kFloat64 use the operations of the
// convention's own code: 1/(max^(2k/D)) for interleaved and halves, min*exp(k * -(ln(max/min)/(n-1))) for tensor2tensor
// and fairseq.
std::vector<double> SinusoidalFrequencies(Frequencies arithmetic, const SinusoidalSettings& settings);

EncodingOr Encode(SinusoidalSettings settings, Frequencies arithmetic, const Limits& limits);

// Learned absolute encodings: rows of the caller's table.

// Without a scale each element is converted once. With a scale, kExact rounds the real product once to the output type;
// other arithmetics first round element, scale and product to their own type.
EncodingOr Encode(LearnedSettings settings, Frequencies arithmetic, const Limits& limits);

// The timestep embedding of diffusion models, as diffusers computes it (get_timestep_embedding).

// kExact: the frequency is scale * max_period^(-k/(dim/2 - shift)), rounded once to float64. Other arithmetics round
// each operation of diffusers' code: w = exp(-ln(max_period) * k / (dim/2 - shift)), angle = scale * (t * w).
EncodingOr Encode(TimestepSettings settings, Frequencies arithmetic, const Limits& limits);

// Sines and cosines of the coordinates of a 2-D or 3-D grid, in the conventions of proto/posenc/v1/embedding.proto.

// kExact: the spacing of adjacent cells (diffusers: base_size / (size * interpolation_scale), otherwise 1) is part of
// the frequency, which is rounded once to float64. Other arithmetics follow the original code: the coordinate in
// float32, frequency and angle in the arithmetic's type.
EncodingOr Encode(GridSettings settings, Frequencies arithmetic, const Limits& limits);

// Fourier features (arXiv:2006.10739): sin and cos of 2 pi B x, for the caller's B and points x.

// kExact: each entry is the sine or cosine of the real number 2 pi (B x), rounded once. Other arithmetics follow the
// original code: x_j times fl(2 pi), products with B summed in order of j, each operation rounded.
EncodingOr Encode(FourierSettings settings, Frequencies arithmetic, const Limits& limits);

}  // namespace posenc
