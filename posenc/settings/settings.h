// Settings of a request in plain C++: the messages of proto/posenc/v1 without protobuf. The .proto files document the
// fields; comments here only add what is specific to the C++ form.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "posenc/base/dtype.h"
#include "posenc/base/modes.h"
#include "posenc/base/tensor.h"
#include "posenc/settings/fields.h"

namespace posenc {

enum class LongropeBranch { kBySeqLen, kShort, kLong };
enum class MropeOrder { kNone, kContiguous, kInterleaved, kErnie, kElements };

// A `rope_parameters` block.
struct RopeParameters {
  std::string rope_type;
  std::optional<double> rope_theta;
  std::optional<double> partial_rotary_factor;
  std::optional<double> factor;
  std::optional<double> original_max_position_embeddings;
  std::optional<double> attention_factor;
  std::optional<double> beta_fast;
  std::optional<double> beta_slow;
  std::optional<double> mscale;
  std::optional<double> mscale_all_dim;
  std::optional<bool> truncate;
  std::optional<double> low_freq_factor;
  std::optional<double> high_freq_factor;
  std::vector<double> short_factor;
  std::vector<double> long_factor;
  std::optional<double> alpha;
  LongropeBranch longrope_branch = LongropeBranch::kBySeqLen;
  std::optional<double> frequency_dim;
  std::optional<bool> negate_angle;
  std::optional<double> mixed_b;
  std::optional<double> ext_factor;
  std::optional<double> attn_factor;
  std::vector<double> freq_factors;
  std::optional<double> max_freq;
  std::vector<int64_t> mrope_section;
  MropeOrder mrope_order = MropeOrder::kNone;
  std::optional<bool> resonance;
  POSENC_FIELDS(rope_theta, partial_rotary_factor, factor, original_max_position_embeddings, attention_factor,
                beta_fast, beta_slow, mscale, mscale_all_dim, truncate, low_freq_factor, high_freq_factor, short_factor,
                long_factor, alpha, longrope_branch, frequency_dim, negate_angle, mixed_b, ext_factor, attn_factor,
                freq_factors, max_freq, mrope_section, mrope_order, resonance);
};

struct GivenFrequencies {
  std::vector<double> inv_freq;
  std::optional<double> attention_scaling;
  std::vector<int64_t> axis;
  std::optional<int64_t> heads;
  std::optional<int64_t> axes;
  POSENC_FIELDS(inv_freq, attention_scaling, axis, heads, axes);
};

struct AxialAxis {
  int64_t dim = 0;
  std::optional<double> rope_theta;
  double frequency_start = 0;
  POSENC_FIELDS(dim, rope_theta, frequency_start);
};
struct AxialRope {
  std::vector<AxialAxis> axes;
  bool alternating = false;
  POSENC_FIELDS(axes, alternating);
};

enum class TableForm { kHalfWidth, kDuplicated, kRepeatInterleaved, kPerElement };

// Cosine and sine tables as received. Shared ownership avoids copying the bytes with the settings.
struct GivenTable {
  DType dtype = DType::kFP32;
  int64_t rows = 0;
  int64_t width = 0;
  TableForm form = TableForm::kHalfWidth;
  std::shared_ptr<const std::vector<std::byte>> cos, sin;  // [rows, heads, width]
  int64_t heads = 1;                                       // more than 1: each head has its own entries
  int64_t sequences = 0;  // more than 0: row b * (rows / sequences) + s is that of token s of sequence b
  int64_t row_width() const { return heads * width; }
};

struct Xpos {
  std::optional<double> scale_base;
  std::optional<double> centre;
  POSENC_FIELDS(scale_base, centre);
};

enum class QueryScaleFunction { kLlama4, kMinistral3, kBeam, kLogn, kInkling };
enum class PositionSource { kPositionIds, kCacheIndex };

struct QueryScale {
  QueryScaleFunction function = QueryScaleFunction::kLlama4;
  std::optional<double> attn_scale;
  std::optional<double> floor_scale;
  std::optional<double> llama_4_scaling_beta;
  std::optional<double> original_max_position_embeddings;
  std::optional<double> seq_length;
  PositionSource position_source = PositionSource::kPositionIds;
  bool rounds_factor = false;
  std::optional<double> log_scaling_alpha;
  std::optional<double> log_scaling_n_floor;
  POSENC_FIELDS(function, attn_scale, floor_scale, llama_4_scaling_beta, original_max_position_embeddings, seq_length,
                position_source, rounds_factor, log_scaling_alpha, log_scaling_n_floor);
};

struct RotarySettings {
  std::variant<std::monostate, RopeParameters, GivenFrequencies, AxialRope, GivenTable> frequencies;
  std::optional<Xpos> xpos;
  std::optional<int64_t> rotary_dim;
  std::optional<int64_t> head_dim;
  std::optional<double> max_position_embeddings;
  std::optional<Pairing> input_pairing;
  std::optional<Pairing> output_pairing;
  int64_t half_split_parts = 1;
  std::optional<QueryScale> query_scale;
  std::optional<Pairing> table_pairing;
  POSENC_FIELDS(xpos, rotary_dim, head_dim, max_position_embeddings, input_pairing, output_pairing, half_split_parts,
                query_scale, table_pairing);
};

enum class TableDtype { kFloat32, kTensor, kFloat64 };

struct Precision {
  Frequencies frequencies = Frequencies::kExact;
  TableDtype table_dtype = TableDtype::kFloat32;
  Rounding rounding = Rounding::kOnce;
};

inline constexpr Precision kExactPrecision = {Frequencies::kExact, TableDtype::kFloat32, Rounding::kOnce};
inline constexpr Precision kF32Precision = {Frequencies::kFloat32, TableDtype::kFloat32, Rounding::kOnce};
inline constexpr Precision kHfEagerPrecision = {Frequencies::kFloat32, TableDtype::kTensor, Rounding::kEachOperation};
inline constexpr Precision kVllmPrecision = {Frequencies::kFloat32, TableDtype::kTensor, Rounding::kOnce};
inline constexpr Precision kFluxPrecision = {Frequencies::kFloat64, TableDtype::kFloat32, Rounding::kOnce};

enum class Direction { kForward, kTranspose, kInverse };
enum class Layout { kBSHD, kBHSD, kTHD };
enum class Operand { kQuery, kKey };

// Numbers with one axis or two: positions [S] or [B, S], slopes [H] or [B, H], flags [B, Sk]. If `shared`, rows is 1
// and that row applies to every batch row.
template <class T>
struct Matrix {
  std::vector<T> values;  // row-major
  int64_t rows = 1;
  int64_t columns = 0;
  bool shared = true;  // given without a batch axis

  const T* row(int64_t b) const { return values.data() + (shared ? 0 : b * columns); }
};

// The smallest and the largest distance, key - query; whole numbers, both inclusive.
struct Distances {
  double first;
  double last;
};

struct OffsetPositions {
  int64_t offset;
};
struct PerSequenceOffsets {
  std::vector<int64_t> offsets;
};
struct PositionIds {
  Matrix<double> ids;                    // [axes, rows, columns]
  int64_t axes = 1;                      // 1 without an axis dimension: the ids then apply to all axes
  std::string_view field = "ids.shape";  // the field that gives their shape, for errors
};
struct PositionLine {
  int64_t count;
  double start;
  double step;
};
struct PositionGrid {
  std::vector<int64_t> size;
  std::vector<double> start, step;  // one per axis, like size
};
using PositionSegment = std::variant<PositionLine, PositionGrid>;
struct PositionSegments {
  std::vector<PositionSegment> segments;
};

enum class AxisDimension { kUnspecified, kNone, kFirst, kLast };
enum class ScalingLengthRule { kUnspecified, kPerSequence, kWholeBatch, kGiven };

struct Positions {
  std::variant<std::monostate, OffsetPositions, PerSequenceOffsets, PositionIds, PositionSegments> source;
  std::optional<std::vector<int64_t>> cu_seqlens;
  ScalingLengthRule scaling_length_rule = ScalingLengthRule::kUnspecified;
  std::vector<int64_t> seq_len;
  AxisDimension axis_dimension = AxisDimension::kUnspecified;
  std::optional<int64_t> cache_index;
};

enum class SinusoidalConvention { kInterleaved, kHalves, kTensor2Tensor, kFairseq };

struct SinusoidalSettings {
  SinusoidalConvention convention = SinusoidalConvention::kInterleaved;
  int64_t dim = 0;
  std::optional<double> max_timescale;
  std::optional<double> min_timescale;
  int64_t start_index = 0;
  std::optional<int64_t> padding_idx;
  std::optional<Matrix<uint8_t>> token_valid;
  std::optional<double> scale;
  bool cosines_first = false;
  POSENC_FIELDS(convention, dim, max_timescale, min_timescale, start_index, padding_idx, scale, cosines_first);
  static constexpr std::string_view kName = "sinusoidal";
};

enum class ResizeMode { kNearest, kLinear, kBilinear, kBicubic };
enum class ResizePadding { kBorder, kZeros };
enum class ResizeOperations { kInterpolate, kGather, kEmbeddingBag, kGridSample };

// Resizes the grid of a learned table, by proto/posenc/v1/embedding.proto's TableResize.
struct TableResize {
  std::vector<int64_t> source;
  std::vector<int64_t> target;
  std::vector<double> scale_factor;
  ResizeMode mode = ResizeMode::kNearest;
  bool align_corners = false;
  bool antialias = false;
  ResizePadding padding = ResizePadding::kBorder;
  ResizeOperations operations = ResizeOperations::kInterpolate;
  int64_t rows_before = 0;
  int64_t rows_after = 0;
  std::optional<int64_t> spatial_merge_size;
  POSENC_FIELDS(source, target, scale_factor, mode, align_corners, antialias, padding, operations, rows_before,
                rows_after, spatial_merge_size);
};

struct LearnedSettings {
  TensorShape table_shape;
  std::vector<std::byte> table;
  int64_t offset = 0;
  std::optional<Matrix<uint8_t>> token_valid;
  std::optional<double> scale;
  std::optional<TableResize> resize;
  POSENC_FIELDS(offset, scale, resize);
  static constexpr std::string_view kName = "learned";
};

struct TimestepSettings {
  int64_t dim = 0;
  std::optional<double> max_period;
  std::optional<double> downscale_freq_shift;
  std::optional<double> scale;
  bool flip_sin_to_cos = false;
  POSENC_FIELDS(dim, max_period, downscale_freq_shift, scale, flip_sin_to_cos);
  static constexpr std::string_view kName = "timestep";
};

enum class GridConvention { kMae, kDiffusers, kBigVision, kDetr };

struct GridSettings {
  GridConvention convention = GridConvention::kMae;
  int64_t dim = 0;
  int64_t height = 0;
  int64_t width = 0;
  std::optional<int64_t> frames;
  std::optional<double> temperature;
  std::optional<int64_t> base_size;
  std::optional<int64_t> pos_embed_max_size;
  std::optional<double> interpolation_scale;
  std::optional<double> temporal_interpolation_scale;
  int64_t extra_tokens = 0;
  bool rows_first = false;
  std::optional<bool> normalize;
  std::optional<double> scale;
  std::optional<double> offset;
  POSENC_FIELDS(convention, dim, height, width, frames, temperature, base_size, pos_embed_max_size, interpolation_scale,
                temporal_interpolation_scale, extra_tokens, rows_first, normalize, scale, offset);
  static constexpr std::string_view kName = "grid";
};

struct FourierSettings {
  Matrix<double> frequencies;  // B: [m, n]
  Matrix<double> points;       // x: [S, n]
  POSENC_FIELDS(frequencies, points);
  static constexpr std::string_view kName = "fourier";
};

// An absolute encoding. posenc/methods/embedding/encoding.h turns each into rows.
using EmbeddingMethod =
    std::variant<SinusoidalSettings, LearnedSettings, TimestepSettings, GridSettings, FourierSettings>;

enum class AlibiSlopeRule { kPowerOfTwo, kGeometric, kMpt };
enum class AlibiForm { kBloom, kMpt, kSymmetric, kCausal, kAsymmetric };

struct GivenSlopes {
  Matrix<double> slopes;
};
struct LogSlopes {
  Matrix<double> log_slopes;
};

struct AlibiSettings {
  int64_t num_heads = 0;
  std::variant<std::monostate, AlibiSlopeRule, GivenSlopes, LogSlopes> slopes;
  AlibiForm form = AlibiForm::kBloom;
  std::optional<double> alibi_bias_max;
  std::optional<Matrix<double>> future_slopes;
  std::optional<Matrix<uint8_t>> position_mask;
  std::optional<DType> bias_dtype;
  POSENC_FIELDS(num_heads, form, alibi_bias_max, future_slopes, position_mask, bias_dtype);
};

struct T5Settings {
  std::optional<int64_t> num_buckets;
  std::optional<int64_t> max_distance;
  std::optional<bool> bidirectional;
  POSENC_FIELDS(num_buckets, max_distance, bidirectional);
};

enum class KerpleKernel { kLog, kPower };

struct KerpleSettings {
  KerpleKernel kernel = KerpleKernel::kLog;
  std::vector<double> a;  // [H]
  std::vector<double> p;
  POSENC_FIELDS(kernel, a, p);
};

enum class SandwichConvention { kPaper, kSnippet };

struct SandwichSettings {
  SandwichConvention convention = SandwichConvention::kPaper;
  int64_t num_heads = 0;
  std::optional<int64_t> dim;
  std::optional<double> base;
  POSENC_FIELDS(convention, num_heads, dim, base);
};

// Attention window of height x width tokens, row-major.
struct Window {
  int64_t height = 0;
  int64_t width = 0;
};

struct SwinSettings {
  Window window;
  POSENC_FIELDS(window);
};

enum class BeitTable { kPlain, kTransformers };

struct BeitSettings {
  Window window;
  BeitTable table = BeitTable::kPlain;
  POSENC_FIELDS(window, table);
};

struct SwinV2Settings {
  Window window;
  std::optional<Window> pretrained_window;
  Matrix<float> hidden_weight;  // [hidden, 2]
  std::vector<float> hidden_bias;
  Matrix<float> output_weight;  // [H, hidden]
  POSENC_FIELDS(window, pretrained_window, hidden_weight, hidden_bias, output_weight);
};

struct FireSettings {
  std::optional<double> c, threshold, epsilon;
  std::vector<float> hidden_weight, hidden_bias;  // [width]
  Matrix<float> output_weight;                    // [H, width]
  std::vector<float> output_bias;                 // [H]
  POSENC_FIELDS(c, threshold, epsilon, hidden_weight, hidden_bias, output_weight, output_bias);
};

struct ForgetGateSettings {
  std::vector<float> log_gates;  // [H, Sk] or [B, H, Sk]
  std::optional<int64_t> batch;  // B
  int64_t num_heads = 0;
  int64_t keys = 0;
  std::optional<std::vector<int64_t>> cu_seqlens;
};

struct NopeSettings {
  std::optional<int64_t> num_heads;
  POSENC_FIELDS(num_heads);
};

// A caller's table of bias values by bucket, transposed to one row per head: [H, buckets].
using BiasTable = Matrix<float>;

struct BiasMethod {
  std::variant<std::monostate, AlibiSettings, T5Settings, KerpleSettings, SandwichSettings, SwinSettings, BeitSettings,
               SwinV2Settings, NopeSettings, FireSettings, ForgetGateSettings>
      settings;
  std::optional<BiasTable> table;
};

struct BiasGeometry {
  std::optional<int64_t> query_length;
  std::optional<int64_t> key_length;
  std::variant<std::monostate, OffsetPositions, PerSequenceOffsets, PositionIds> query;
  std::optional<Matrix<double>> key_positions;
  std::optional<int64_t> head_start;
  std::optional<int64_t> head_count;
};

struct LowestFinite {};

struct Mask {
  bool causal = false;
  std::optional<int64_t> window_left;
  std::optional<int64_t> window_right;
  std::optional<Matrix<uint8_t>> key_valid;
  std::optional<Matrix<double>> query_documents;
  std::optional<Matrix<double>> key_documents;
  std::vector<int64_t> prefix_length;  // empty, one for all, or one per batch row
  std::variant<double, LowestFinite> fill = 0.0;
  bool zero_fully_masked_rows = false;
};

enum class BiasForm { kDense, kCompact, kIndex, kCompactIndex };

// A remark about an answer: not an error, but worth the caller's attention.
struct Note {
  std::string code;
  std::string field;
  std::string message;
};

}  // namespace posenc
