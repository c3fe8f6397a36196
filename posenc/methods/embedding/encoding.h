// Absolute encodings: what generate_embedding.cc knows of a method. Each method's header has an Encode() that turns its
// settings into one of these.
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

}  // namespace posenc
