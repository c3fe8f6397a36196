// A port of an attention bias, right or wrong, in plain loops that share no code with posenc: slopes, buckets and
// kernels by the papers' formulas, each cell computed in float32 and rounded once to the tensor's type.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "posenc/diagnose/bias.h"
#include "tests/diagnose/diagnose_port.h"

namespace posenc::diagnose {

// ALiBi's released code (arXiv:2108.12409): slopes of the power of two below, then every other one of twice as many.
inline std::vector<double> ReleasedSlopes(int64_t heads, double bias_max = 8, double before = 0) {
  int64_t below = 1;
  while (2 * below <= heads) below *= 2;
  std::vector<double> slopes;
  for (int64_t h = 0; h < heads; ++h) {
    const auto n = static_cast<double>(h < below ? h + 1 : 2 * (h - below) + 1);
    slopes.push_back(
        static_cast<float>(std::exp2(-bias_max * (n - before) / static_cast<double>(h < below ? below : 2 * below))));
  }
  return slopes;
}
// The paper's formula for any number of heads.
inline std::vector<double> PaperSlopes(int64_t heads) {
  std::vector<double> slopes;
  for (int64_t h = 0; h < heads; ++h) {
    slopes.push_back(static_cast<float>(std::exp2(-8.0 * static_cast<double>(h + 1) / static_cast<double>(heads))));
  }
  return slopes;
}

// Buckets of arXiv:1910.10683 as in its released code, with float32 logarithms.
struct BucketRule {
  int64_t buckets = 32, farthest = 128;
  bool bidirectional = true;

  int64_t operator()(int64_t distance) const {
    int64_t n = -distance, base = 0, count = buckets;
    if (bidirectional) {
      count /= 2;
      if (n < 0) base = count;
      n = std::abs(n);
    } else {
      n = std::max<int64_t>(n, 0);
    }
    const int64_t exact = count / 2;
    if (n < exact) return base + n;
    const auto m = static_cast<float>(exact);
    const float part =
        std::log(static_cast<float>(n) / m) / static_cast<float>(std::log(static_cast<double>(farthest) / m));
    return base + std::min(count - 1, exact + static_cast<int64_t>(part * static_cast<float>(count - exact)));
  }
};

enum class BiasForm { kSymmetric, kCausal, kBloom, kMpt, kSigned };

// How a matrix of a bias is computed.
struct BiasTreatment {
  std::vector<double> slopes;  // ALiBi, if not empty
  BiasForm form = BiasForm::kSymmetric;
  std::vector<std::vector<double>> table;  // T5, if not empty: [heads][buckets]
  BucketRule bucket;
  std::vector<double> a, p;  // KERPLE's logarithmic kernel, if not empty
  int64_t shift = 0;         // of the query's position
  bool transposed = false, rounds_steps = false;
  double factor = 1;
  DType round_slopes = DType::kFP64, round_table = DType::kFP64;
  std::function<double(int64_t h, int64_t i, int64_t j, double value)> after = nullptr;
};

struct BiasPort {
  int64_t batch = 2, heads = 8, queries = 24, keys = 24, offset = 0;
  DType dtype = DType::kFP32;
  bool causal = false;

  // The value of a cell; query i stands at position `offset` + i.
  double Value(const BiasTreatment& t, int64_t h, int64_t i, int64_t j) const {
    int64_t query = i + offset + t.shift, key = j;
    if (t.transposed) query = j + offset + t.shift, key = i;
    const int64_t distance = key - query;
    double value = 0;
    if (!t.slopes.empty()) {
      const double slope = static_cast<float>(Rounded(t.round_slopes, t.slopes[h]));
      double steps = 0;
      switch (t.form) {
        case BiasForm::kSymmetric: steps = -static_cast<double>(std::abs(distance)); break;
        case BiasForm::kCausal: steps = static_cast<double>(std::min<int64_t>(distance, 0)); break;
        case BiasForm::kBloom: steps = static_cast<double>(key); break;
        case BiasForm::kMpt: steps = static_cast<double>(key - (keys - 1)); break;
        case BiasForm::kSigned: steps = static_cast<double>(distance); break;
      }
      value = t.rounds_steps ? Rounded(DType::kBF16, Rounded(DType::kBF16, slope) * Rounded(DType::kBF16, steps))
                             : slope * steps;
    } else if (!t.table.empty()) {
      value = Rounded(t.round_table, t.table[h][t.bucket(distance)]);
    } else {
      value = -t.p[h] * std::log1p(t.a[h] * static_cast<double>(std::abs(distance)));
    }
    value = static_cast<float>(value) * t.factor;
    return t.after ? t.after(h, i, j, value) : value;
  }
};

// A bias [B, H, Sq, Sk], made by `treat`, which says how each cell is computed.
class MadeBias {
 public:
  MadeBias(const BiasPort& port, const std::function<const BiasTreatment&(int64_t b, int64_t h, int64_t i)>& treat) {
    std::vector<float> values;
    for (int64_t b = 0; b < port.batch; ++b) {
      for (int64_t h = 0; h < port.heads; ++h) {
        for (int64_t i = 0; i < port.queries; ++i) {
          const BiasTreatment& t = treat(b, h, i);
          for (int64_t j = 0; j < port.keys; ++j) {
            const bool hidden = port.causal && j > i + port.offset;
            values.push_back(hidden ? -std::numeric_limits<float>::infinity()
                                    : static_cast<float>(port.Value(t, h, i, j)) + 0.0F);  // no -0
          }
        }
      }
    }
    bytes.resize(values.size() * SizeOf(port.dtype));
    Convert(DType::kFP32, port.dtype, values.data(), bytes.data(), values.size());
    evidence.bias = {port.dtype, {port.batch, port.heads, port.queries, port.keys}};
    evidence.data = bytes.data();
  }
  MadeBias(const MadeBias&) = delete;

  std::vector<std::byte> bytes;
  BiasEvidence evidence;
};

// The sentence without its remarks, which DiagnoseBiasMask tests.
inline std::string Said(const Verdict& verdict) {
  size_t end = std::string::npos;
  for (const char* remark : {"; softmax removes", "; the table was not", "; the mask was not"}) {
    end = std::min(end, verdict.sentence.find(remark));
  }
  return verdict.sentence.substr(0, end);
}

}  // namespace posenc::diagnose
