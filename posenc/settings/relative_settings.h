// Settings of relative-position terms that depend on q, k or absolute positions: the messages of
// proto/posenc/v1/relative.proto in plain C++. settings.h has the other messages.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "posenc/settings/settings.h"

namespace posenc {

struct Projection {
  std::optional<Matrix<float>> weight;  // [H*d, width]
  std::vector<float> bias;              // [H*d] or empty
};

struct LayerNorm {
  std::vector<float> weight, bias;  // [width]
  std::optional<double> epsilon;
  POSENC_FIELDS(weight, bias, epsilon);
};

enum class ShawOrder { kKeyMinusQuery, kQueryMinusKey };

struct ShawSettings {
  Matrix<float> table;  // [rows, d]
  ShawOrder order = ShawOrder::kKeyMinusQuery;
  std::optional<bool> clip;
  bool key_term = false;
  std::optional<int64_t> before;
  POSENC_FIELDS(table, order, clip, key_term, before);
};

enum class TransformerXlEncoding { kHalves, kInterleaved, kTensor2Tensor };

struct TransformerXlSettings {
  Projection position;
  std::optional<Matrix<float>> position_bias, content_bias;  // [H, d]
  std::optional<int64_t> clamp_len;
  TransformerXlEncoding encoding = TransformerXlEncoding::kHalves;
  POSENC_FIELDS(position, position_bias, content_bias, clamp_len, encoding);
};

enum class TupeCls { kTied, kUntied, kUntiedWithoutBias };

struct TupeSettings {
  Matrix<float> position_embeddings;  // [positions, width]
  std::optional<LayerNorm> layer_norm;
  Projection query, key;
  std::optional<T5Settings> relative_bias;
  std::optional<BiasTable> relative_bias_table;
  TupeCls cls = TupeCls::kTied;
  POSENC_FIELDS(position_embeddings, layer_norm, query, key, relative_bias);
};

enum class DebertaDistance { kUnbounded, kClamped };

struct DebertaSettings {
  Matrix<float> relative_embeddings;  // [2 span, width]
  std::optional<LayerNorm> layer_norm;
  std::optional<Projection> key, query;
  std::optional<int64_t> position_buckets;
  int64_t max_relative_positions = 0;
  DebertaDistance distance = DebertaDistance::kUnbounded;
  POSENC_FIELDS(relative_embeddings, layer_norm, key, query, position_buckets, max_relative_positions, distance);
};

enum class Wavelet { kRicker, kGaussian, kMorlet, kHaar };
enum class WprChannels { kShiftFastest, kScaleFastest };
enum class WprDistance { kQueryMinusKey, kKeyMinusQuery };

struct WprSettings {
  Wavelet wavelet = Wavelet::kRicker;
  std::optional<int64_t> scales;
  std::optional<int64_t> first_exponent;
  WprChannels channels = WprChannels::kShiftFastest;
  WprDistance distance = WprDistance::kQueryMinusKey;
  std::optional<double> morlet_frequency;
  POSENC_FIELDS(wavelet, scales, first_exponent, channels, distance, morlet_frequency);
};

struct CopeSettings {
  Matrix<float> position_embeddings;  // [P, d]
  POSENC_FIELDS(position_embeddings);
};

enum class InklingScaled { kBias, kStates };

struct InklingSettings {
  Matrix<float> projection;  // [d_rel, extent]
  std::optional<double> log_scaling_alpha;
  std::optional<double> log_scaling_n_floor;
  std::optional<InklingScaled> scaled;
  POSENC_FIELDS(projection, log_scaling_alpha, log_scaling_n_floor, scaled);
};

using RelativeMethod = std::variant<ShawSettings, TransformerXlSettings, TupeSettings, DebertaSettings, WprSettings,
                                    CopeSettings, InklingSettings>;

}  // namespace posenc
