#include "posenc/methods/bias/bias_methods.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "posenc/base/checks.h"
#include "posenc/base/interruption.h"
#include "posenc/base/status.h"
#include "posenc/exact/arithmetic.h"

namespace posenc {
namespace {

// Maps a token to a number whose differences index the bias table: equal displacements have equal differences.
double Number(const Window& window, bool cls, int64_t token) {
  token -= cls ? 1 : 0;
  const int64_t number = token / window.width * (2 * window.width - 1) + token % window.width;
  return static_cast<double>(number);
}

absl::Status CheckWindow(const Window& window, const Limits& limits) {
  for (const auto& [field, size] : {std::pair{"window_height", window.height}, {"window_width", window.width}}) {
    if (size < 1 || size > limits.max_bias_values) {
      return InvalidArgument("OUT_OF_RANGE", field, fmt::format("{}", size),
                             fmt::format("must be 1 .. {} (max_bias_values)", limits.max_bias_values));
    }
  }
  // Each size is limited to less than 2^31, so the product fits.
  const double rows = (2.0 * static_cast<double>(window.height) - 1) * (2.0 * static_cast<double>(window.width) - 1);
  if (rows > static_cast<double>(limits.max_bias_values)) {
    return TooLarge("window_height", fmt::format("{} displacements", rows),
                    fmt::format("must be at most {} (max_bias_values)", limits.max_bias_values));
  }
  return absl::OkStatus();
}

BiasTable Transposed(const std::vector<float>& rows_by_heads, int64_t heads) {
  const auto rows = static_cast<int64_t>(rows_by_heads.size()) / heads;
  BiasTable table{std::vector<float>(rows_by_heads.size()), heads, rows, false};
  for (int64_t n = 0; n < rows; ++n) {
    for (int64_t h = 0; h < heads; ++h) table.values[h * rows + n] = rows_by_heads[n * heads + h];
  }
  return table;
}

// Computes one table row with the network: coordinates are normalised to [-8, 8] and log-spaced, then pass through two
// layers and a sigmoid.
template <class A>
class NetworkFormula {
  using E = typename A::Element;

 public:
  explicit NetworkFormula(const SwinV2Settings& s)
      : sum_bits_(IntegerBits(s.hidden_weight.values) + IntegerBits(s.hidden_bias) +
                  IntegerBits(s.output_weight.values)),
        window_(s.window),
        normaliser_(s.pretrained_window.value_or(s.window)),
        hidden_weight_(s.hidden_weight.values.begin(), s.hidden_weight.values.end()),
        hidden_bias_(s.hidden_bias.begin(), s.hidden_bias.end()),
        output_weight_(s.output_weight.values.begin(), s.output_weight.values.end()) {}

  std::vector<E> operator()(int64_t row) const {
    std::vector<E> heads;
    for (const E& sum : Sums(row)) heads.push_back(E(16.0) * (E(1.0) / (E(1.0) + Exp(E(0.0) - sum))));
    return heads;
  }

 private:
  // The second layer's sum of each head. Large terms may cancel, so they have more bits than the working precision.
  std::vector<E> Sums(int64_t row) const {
    const RealPrecision of_sums(Real::Precision() + sum_bits_);
    const int64_t width = 2 * window_.width - 1;
    const E y = Coordinate(row / width - (window_.height - 1), normaliser_.height);
    const E x = Coordinate(row % width - (window_.width - 1), normaliser_.width);
    std::vector<E> hidden;
    for (size_t n = 0; n < hidden_bias_.size(); ++n) {
      hidden.push_back(Max(E(0.0), hidden_weight_[2 * n] * y + hidden_weight_[2 * n + 1] * x + hidden_bias_[n]));
    }
    std::vector<E> sums;
    for (size_t begin = 0; begin < output_weight_.size(); begin += hidden.size()) {
      InterruptionPoint();
      E sum(0.0);
      for (size_t n = 0; n < hidden.size(); ++n) sum = sum + output_weight_[begin + n] * hidden[n];
      sums.push_back(sum);
    }
    return sums;
  }

  // Bits of the integer parts of the values.
  static int IntegerBits(const std::vector<float>& values) {
    int bits = 0;
    for (const float value : values) bits = std::max(bits, value == 0 ? 0 : std::ilogb(value) + 1);
    return bits;
  }

  static E Coordinate(int64_t displacement, int64_t size) {
    const E normalised = E(static_cast<double>(std::abs(displacement))) / E(static_cast<double>(size - 1)) * E(8.0);
    const E spaced = Log2(normalised + E(1.0)) / E(3.0);  // log2(8)
    return displacement < 0 ? E(0.0) - spaced : spaced;
  }

  int sum_bits_;
  Window window_, normaliser_;
  std::vector<E> hidden_weight_, hidden_bias_, output_weight_;
};

struct Resize {
  Window window;
  const BiasTable& table;
};

// Computes one row of the table [2Wh-1, 2Ww-1]: torch's bilinear interpolation of the same rows read as [2Ww-1, 2Wh-1].
// torch's weights are fractions. Over the real numbers they are whole numbers, and the sum is divided by their sum in
// the end: a result half-way between two float32 then is exact, and does not need MPFR.
template <class A>
class ResizeFormula {
  using E = typename A::Element;

 public:
  explicit ResizeFormula(const Resize& resize) : resize_(resize) {}

  std::vector<E> operator()(int64_t row) const {
    const int64_t height = 2 * resize_.window.height - 1, width = 2 * resize_.window.width - 1;
    const Sample y(row / width, width, height), x(row % width, height, width);
    const auto& table = resize_.table;
    const E all(kOverReals<A> ? static_cast<double>(y.twice_to * x.twice_to) : 1.0);
    // Holds any sum of float32 values, multiples of 2^-149 below 2^128, times whole weights that add up to `all`.
    constexpr mpfr_prec_t kSumBits = 384;
    std::vector<E> heads;
    for (int64_t h = 0; h < table.rows; ++h) {
      if (h % 64 == 0) InterruptionPoint();
      const auto across = [&](int64_t line) {
        const float* values = table.values.data() + h * table.columns + line * height;
        return x.first_weight * E(values[x.first]) + x.second_weight * E(values[x.second]);
      };
      const auto sum = [&] {
        const RealPrecision exact(kSumBits);
        return y.first_weight * across(y.first) + y.second_weight * across(y.second);
      };
      heads.push_back(sum() / all);
    }
    return heads;
  }

 private:
  // Source sample of output pixel n when `from` pixels are resized to `to`: at from/to * (n + 1/2) - 1/2, between two
  // pixels.
  struct Sample {
    Sample(int64_t n, int64_t from, int64_t to)
        : twice_to(2 * to),
          at(std::max<int64_t>(from * (2 * n + 1) - to, 0)),
          first(at / twice_to),
          second(std::min(first + 1, from - 1)),
          whole(kOverReals<A> ? 1.0 : static_cast<double>(twice_to)),
          second_weight(E(static_cast<double>(at % twice_to)) / whole),
          first_weight(E(static_cast<double>(twice_to)) / whole - second_weight) {}
    int64_t twice_to, at, first, second;
    E whole, second_weight, first_weight;
  };

  Resize resize_;
};

}  // namespace

absl::Status Complete(const SwinSettings& s, const Limits& limits) { return CheckWindow(s.window, limits); }

absl::Status Complete(const BeitSettings& s, const Limits& limits) { return CheckWindow(s.window, limits); }

absl::Status Complete(const SwinV2Settings& s, const Limits& limits) {
  POSENC_RETURN_IF_ERROR(CheckWindow(s.window, limits));
  const Window normaliser = s.pretrained_window.value_or(s.window);
  const char* prefix = s.pretrained_window ? "pretrained_" : "";
  for (const auto& [name, size] : {std::pair{"window_height", normaliser.height}, {"window_width", normaliser.width}}) {
    if (size < 2) {
      return InvalidArgument("OUT_OF_RANGE", fmt::format("{}{}", prefix, name), fmt::format("{}", size),
                             "must be at least 2: coordinates are divided by this size minus 1");
    }
  }
  const auto hidden = static_cast<int64_t>(s.hidden_bias.size());
  if (hidden < 1) return InvalidArgument("MISSING", "hidden_bias", "", "must be given: [hidden] with at least 1 value");
  constexpr int64_t kMaxHidden = 4096;  // Swin v2 has 512
  if (hidden > kMaxHidden) {
    return InvalidArgument("OUT_OF_RANGE", "hidden_bias", fmt::format("{} hidden units", hidden),
                           fmt::format("must be at most {}", kMaxHidden));
  }
  if (s.hidden_weight.rows != hidden || s.hidden_weight.columns != 2) {
    return InvalidArgument("MISMATCH", "hidden_weight.shape",
                           fmt::format("[{}, {}]", s.hidden_weight.rows, s.hidden_weight.columns),
                           fmt::format("must be [{}, 2] to match hidden_bias", hidden));
  }
  if (s.output_weight.columns != hidden) {
    return InvalidArgument("MISMATCH", "output_weight.shape",
                           fmt::format("[{}, {}]", s.output_weight.rows, s.output_weight.columns),
                           fmt::format("must be [H, {}] to match hidden_bias", hidden));
  }
  const int64_t heads = s.output_weight.rows;
  if (heads < 1 || heads > limits.max_heads) {
    return InvalidArgument("OUT_OF_RANGE", "output_weight.shape", fmt::format("{} heads", heads),
                           fmt::format("must be 1 .. {}", limits.max_heads));
  }
  constexpr double kProductsOfAValue = 8;  // products that take as long as one logarithm or cosine
  const double values = static_cast<double>(Displacements(s.window)) * static_cast<double>(hidden) *
                        static_cast<double>(heads) / kProductsOfAValue;
  if (values > static_cast<double>(limits.max_bias_values)) {
    return TooLarge(
        "output_weight.shape", fmt::format("{} values", values),
        fmt::format("must be at most {} in displacements times weights / 8 (max_bias_values)", limits.max_bias_values));
  }
  POSENC_RETURN_IF_ERROR(CheckFinite("hidden_weight", s.hidden_weight.values));
  POSENC_RETURN_IF_ERROR(CheckFinite("hidden_bias", s.hidden_bias));
  return CheckFinite("output_weight", s.output_weight.values);
}

int64_t Displacements(const Window& window) { return (2 * window.height - 1) * (2 * window.width - 1); }

Matrix<double> WindowKeys(const Window& window, bool cls) {
  const int64_t tokens = window.height * window.width + (cls ? 1 : 0);
  Matrix<double> numbers{std::vector<double>(tokens), 1, tokens, true};
  for (int64_t n = cls ? 1 : 0; n < tokens; ++n) numbers.values[n] = -Number(window, cls, n);
  return numbers;
}

Matrix<double> WindowQueries(const Window& window, bool cls, int64_t first, int64_t count) {
  Matrix<double> numbers{std::vector<double>(count), 1, count, true};
  for (int64_t n = 0; n < count; ++n) numbers.values[n] = -Number(window, cls, first + n);
  return numbers;
}

// The middle table row belongs to displacement (0, 0).
double WindowFirst(const Window& window) {
  const int64_t middle = Displacements(window) / 2;
  return -static_cast<double>(middle);
}

BiasTable BeitTableAsRead(Frequencies arithmetic, const BeitSettings& s, const BiasTable& table) {
  if (s.table == BeitTable::kPlain || s.window.height == s.window.width) return table;
  const int64_t rows = Displacements(s.window);
  BiasTable resized = table;  // the last three rows (cls) are not resized
  const std::vector<float> values = EvaluateFloats<ResizeFormula>(arithmetic, Resize{s.window, table}, 0, rows);
  for (int64_t n = 0; n < rows; ++n) {
    for (int64_t h = 0; h < table.rows; ++h) resized.values[h * table.columns + n] = values[n * table.rows + h];
  }
  return resized;
}

BiasTable SwinV2Table(Frequencies arithmetic, const SwinV2Settings& s) {
  return Transposed(EvaluateFloats<NetworkFormula>(arithmetic, s, 0, Displacements(s.window)), s.output_weight.rows);
}

}  // namespace posenc
