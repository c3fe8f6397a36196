// A port of a rotary embedding, right or wrong, in plain loops that share no code with posenc: frequencies by the
// papers' formulas, rotation row by row.
#pragma once

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "tests/diagnose/diagnose_case.h"

namespace posenc::diagnose {

inline double Rounded(DType dtype, double value) {
  switch (dtype) {
    case DType::kFP32: return static_cast<float>(value);
    case DType::kBF16: return Widen<BFloat16>(Narrow<BFloat16>(static_cast<float>(value)));
    case DType::kFP16: return Widen<Float16>(Narrow<Float16>(static_cast<float>(value)));
    default: return value;
  }
}

// Frequencies by arXiv:2104.09864 (default), 2306.15595 (linear), 2309.00071 (yarn), and Llama 3.1's released code.
inline std::vector<double> PaperFrequencies(const RopeParameters& p, int64_t width) {
  const double pi = 3.14159265358979323846, theta = p.rope_theta.value_or(10000);
  std::vector<double> f(width / 2);
  for (int64_t k = 0; k < width / 2; ++k) {
    f[k] = std::pow(theta, -2.0 * static_cast<double>(k) / p.frequency_dim.value_or(static_cast<double>(width)));
  }
  const double factor = p.factor.value_or(1), length = p.original_max_position_embeddings.value_or(1);
  if (p.rope_type == "linear") {
    for (double& each : f) each /= factor;
  } else if (p.rope_type == "llama3") {
    const double low = *p.low_freq_factor, high = *p.high_freq_factor;
    for (double& each : f) {
      const double turns = length * each / (2 * pi);  // within the original length
      if (turns < low) {
        each /= factor;
      } else if (turns <= high && high > low) {
        const double smooth = (turns - low) / (high - low);
        each = (1 - smooth) * each / factor + smooth * each;
      }
    }
  } else if (p.rope_type == "yarn") {
    const auto dimension = [&](double turns) {
      return static_cast<double>(width) * std::log(length / (turns * 2 * pi)) / (2 * std::log(theta));
    };
    double low = dimension(p.beta_fast.value_or(32)), high = dimension(p.beta_slow.value_or(1));
    if (p.truncate.value_or(true)) low = std::floor(low), high = std::ceil(high);
    low = std::max(low, 0.0), high = std::min(high, static_cast<double>(width - 1));
    if (low == high) high += 0.001;
    for (int64_t k = 0; k < width / 2; ++k) {
      const double ramp = std::clamp((static_cast<double>(k) - low) / (high - low), 0.0, 1.0);
      f[k] = f[k] / factor * ramp + f[k] * (1 - ramp);
    }
  }
  return f;
}

// A port's arithmetic.
enum class Style {
  kExact,    // angles in float64, rounded once
  kFloat32,  // angles and table in float32, rounded once
  kEager,    // as kFloat32, table and each product rounded to the tensor's type
};

// How one head row is rotated.
struct Treatment {
  std::vector<double> inv_freq;
  double position = 0, scale = 1, sign = 1;
  bool interleaved = false, exchanged = false;
  int turns = 1;
  int64_t offset = 0;
  DType round_frequency = DType::kFP64, round_position = DType::kFP64, round_angle = DType::kFP64,
        round_table = DType::kFP64;
  std::function<void(std::vector<double>*)> after = nullptr;  // changes the finished row
};

struct PortCell {
  int operand;  // 0: q, 1: k
  int64_t b, s, h;
};

struct Port {
  int64_t batch = 2, length = 64, q_heads = 3, k_heads = 2, width = 64;
  DType dtype = DType::kFP32;
  Style style = Style::kFloat32;
  std::function<double(int64_t b, int64_t s)> position;  // stated

  int64_t heads(int operand) const { return operand == 0 ? q_heads : k_heads; }
};

inline void RotateRow(const Port& port, const Treatment& t, const std::vector<double>& x, std::vector<double>* y) {
  *y = x;
  const auto pairs = static_cast<int64_t>(t.inv_freq.size());
  const bool eager = port.style == Style::kEager;
  const auto round = [&](double value) { return eager ? Rounded(port.dtype, value) : value; };
  for (int turn = 0; turn < t.turns; ++turn) {
    const std::vector<double> from = *y;
    for (int64_t k = 0; k < pairs; ++k) {
      const double f = Rounded(t.round_frequency, t.inv_freq[k]), p = Rounded(t.round_position, t.position);
      double angle = port.style == Style::kExact ? p * f : static_cast<float>(p) * static_cast<float>(f);
      angle = t.sign * Rounded(t.round_angle, angle);
      double c = std::cos(angle) * t.scale, s = std::sin(angle) * t.scale;
      if (port.style != Style::kExact) c = static_cast<float>(c), s = static_cast<float>(s);
      c = round(Rounded(t.round_table, c)), s = round(Rounded(t.round_table, s));
      if (t.exchanged) std::swap(c, s);
      const int64_t i = t.offset + (t.interleaved ? 2 * k : k), j = i + (t.interleaved ? 1 : pairs);
      (*y)[i] = Rounded(port.dtype, round(from[i] * c) - round(from[j] * s));
      (*y)[j] = Rounded(port.dtype, round(from[j] * c) + round(from[i] * s));
    }
  }
  if (t.after) {
    t.after(y);
    for (double& value : *y) value = Rounded(port.dtype, value);
  }
}

// Evidence of q and k, [B, S, H, D]. `treat` says how each row is rotated.
inline Evidence Rotated(const Port& port, uint64_t seed, const std::function<Treatment(const PortCell&)>& treat) {
  Evidence evidence;
  for (int operand = 0; operand < 2; ++operand) {
    const int64_t heads = port.heads(operand), rows = port.batch * port.length * heads;
    const std::vector<std::byte> before = RandomElements(port.dtype, rows * port.width, seed + operand);
    std::vector<double> x(rows * port.width), y, all;
    Convert(port.dtype, DType::kFP64, before.data(), x.data(), x.size());
    for (int64_t row = 0; row < rows; ++row) {
      const PortCell cell{operand, row / heads / port.length, row / heads % port.length, row % heads};
      const std::vector<double> from(x.begin() + row * port.width, x.begin() + (row + 1) * port.width);
      RotateRow(port, treat(cell), from, &y);
      all.insert(all.end(), y.begin(), y.end());
    }
    std::vector<std::byte> after(before.size());
    Convert(DType::kFP64, port.dtype, all.data(), after.data(), all.size());
    Rows given{.which = operand == 0 ? Operand::kQuery : Operand::kKey,
               .layout = Layout::kBSHD,
               .before_dtype = port.dtype,
               .after_dtype = port.dtype,
               .sequences = port.batch,
               .length = port.length,
               .heads = heads,
               .width = port.width};
    given.before = std::make_shared<OwnedBytes>(before);
    given.after = std::make_shared<OwnedBytes>(std::move(after));
    evidence.operands.push_back(std::move(given));
  }
  evidence.tokens.positions.resize(1);
  for (int64_t b = 0; b < port.batch; ++b) {
    evidence.tokens.bounds.push_back(b * port.length);
    for (int64_t s = 0; s < port.length; ++s) evidence.tokens.positions[0].push_back(port.position(b, s));
  }
  evidence.tokens.bounds.push_back(port.batch * port.length);
  return evidence;
}

}  // namespace posenc::diagnose
