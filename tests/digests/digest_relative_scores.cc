// Digests of relative scores: products of rows with columns, sigmoids, and the tables that each method makes.
#include <fmt/format.h>

#include <limits>
#include <optional>

#include "posenc/relative/relative_scores.h"
#include "tests/digests/digest_case.h"
#include "tests/digests/digest_inputs.h"
#include "tests/digests/digest_relative_inputs.h"

namespace posenc {
namespace {

struct ScoresCase {
  std::string method;
  int variant;  // selects the method's options
  DType dtype;
  bool content;
  int64_t heads, key_heads, queries, keys, dim, offset;
  struct Mask {
    bool causal;
    int64_t left;
    double fill;
    bool zero_rows;
  };
  std::optional<Mask> mask = std::nullopt;
  std::optional<Rounding> added = std::nullopt;  // rounding, if added to scores
};

constexpr int64_t kWidth = 6;  // width of tables before projection

// Random streams 1 and 2 are q and k.
LayerNorm Norm() { return {SeededNumbers(8, kWidth), SeededNumbers(9, kWidth), 1e-5}; }

RelativeMethod MethodOf(const ScoresCase& c) {
  const int64_t outputs = c.heads * c.dim;
  if (c.method == "shaw") {
    return ShawSettings{.table = Table(3, 9, c.dim),
                        .order = c.variant % 2 == 0 ? ShawOrder::kKeyMinusQuery : ShawOrder::kQueryMinusKey,
                        .clip = true,
                        .key_term = c.variant < 2};
  }
  if (c.method == "transformer_xl") {
    TransformerXlSettings s = {.position = {Table(3, outputs, kWidth), {}}};
    if (c.variant % 2 == 0) s.position_bias = Table(4, c.heads, c.dim);
    if (c.content) s.content_bias = Table(5, c.heads, c.dim);
    if (c.variant > 1) s.clamp_len = 3;
    return s;
  }
  if (c.method == "tupe") {
    TupeSettings s = {.position_embeddings = Table(3, c.offset + c.queries + c.keys + 1, kWidth),
                      .query = {Table(4, outputs, kWidth), SeededNumbers(5, outputs)},
                      .key = {Table(6, outputs, kWidth), {}},
                      .relative_bias = T5Settings{8, 5, true},
                      .relative_bias_table = Table(7, c.heads, 8),
                      .cls = Turn(c.variant, {TupeCls::kTied, TupeCls::kUntied, TupeCls::kUntiedWithoutBias})};
    if (c.variant != 1) s.layer_norm = Norm();
    return s;
  }
  if (c.method == "deberta") {
    DebertaSettings s = {.relative_embeddings = Table(3, 32, kWidth),
                         .max_relative_positions = 16,
                         .distance = c.variant == 1 ? DebertaDistance::kClamped : DebertaDistance::kUnbounded};
    if (c.variant != 1) s.layer_norm = Norm();
    if (c.variant != 2) s.key = Projection{Table(4, outputs, kWidth), SeededNumbers(5, outputs)};
    if (c.variant != 3) s.query = Projection{Table(6, outputs, kWidth), {}};
    if (c.variant != 0) s.position_buckets = 8;
    return s;
  }
  if (c.method == "wpr") {
    return WprSettings{
        .wavelet = Turn(c.variant, {Wavelet::kRicker, Wavelet::kGaussian, Wavelet::kMorlet, Wavelet::kHaar}),
        .scales = 2,
        .first_exponent = c.variant - 1,
        .channels = c.variant % 2 == 0 ? WprChannels::kShiftFastest : WprChannels::kScaleFastest,
        .distance = c.variant < 2 ? WprDistance::kQueryMinusKey : WprDistance::kKeyMinusQuery,
        .morlet_frequency = c.variant == 2 ? std::optional(1.5) : std::nullopt};
  }
  if (c.method == "inkling") {
    InklingSettings s = {.projection = Table(3, c.dim, Turn<int64_t>(c.variant, {1, 6, 20}))};
    if (c.variant == 0) return s;
    s.log_scaling_alpha = 0.5;
    s.log_scaling_n_floor = 3;
    s.scaled = c.variant == 1 ? InklingScaled::kBias : InklingScaled::kStates;
    return s;
  }
  return CopeSettings{Table(3, Turn<int64_t>(c.variant, {1, 2, 4, 50}), c.dim)};
}

Block RunScores(const ScoresCase& c) {
  RelativeScoresCall call = {.method = MethodOf(c), .content = c.content, .dtype = c.dtype};
  call.q = {c.dtype, {1, c.heads, c.queries, c.dim}};
  call.geometry.query = OffsetPositions{c.offset};
  call.geometry.key_length = c.keys;
  const bool reads_keys = c.content || c.method == "cope" || (c.method == "shaw" && c.variant < 2) ||
                          (c.method == "deberta" && c.variant != 3);
  if (reads_keys) call.k = {c.dtype, {1, c.key_heads, c.keys, c.dim}};
  const Block q = Tensor(c.dtype, 1, c.heads * c.queries * c.dim), k = Tensor(c.dtype, 2, c.key_heads * c.keys * c.dim);
  if (c.mask) {
    call.mask.emplace();
    call.mask->causal = c.mask->causal;
    call.mask->window_left = c.mask->left;
    call.mask->fill = c.mask->fill;
    call.mask->zero_fully_masked_rows = c.mask->zero_rows;
  }
  Block out(c.heads * c.queries * c.keys * SizeOf(c.dtype), 1);
  if (c.added) {
    call.add_to = TensorShape{c.dtype, {1, c.heads, c.queries, c.keys}};
    call.precision.rounding = *c.added;
    out = Tensor(c.dtype, 10, c.heads * c.queries * c.keys);
  }
  const auto scores = RelativeScores::Create(std::move(call), {});
  EXPECT_TRUE(scores.ok()) << scores.status();
  if (!scores.ok()) return Block(0);
  WorkPool pool(1);
  const absl::Status status =
      scores->WriteScores({q.data(), k.data(), c.added ? out.data() : nullptr, out.data()}, pool, NeverCancelled);
  EXPECT_TRUE(status.ok()) << status;
  return out;
}

// Cases with hidden cells, and with terms added to scores, in rows of whole vectors and others.
void AddMasked(std::vector<ScoresCase>* inputs) {
  for (const char* method : {"shaw", "transformer_xl", "tupe", "deberta", "wpr", "cope"}) {
    for (const DType dtype : kTensorTypes) {
      for (const bool masked : {false, true}) {
        for (const bool added : {false, true}) {
          const size_t n = inputs->size();
          ScoresCase c = {method,
                          static_cast<int>(n % 3),  // a cast, because GCC 12 for Arm confuses a list with TupeCls'
                          dtype,
                          n % 5 < 2,
                          2,
                          1,
                          Turn<int64_t>(n, {3, 1, 7, 2, 5}),
                          Turn<int64_t>(n, {40, 70, 33, 12, 64, 9, 131}),
                          Turn<int64_t>(n, {4, 8, 2}),
                          Turn<int64_t>(n, {0, 4, 50, 11, 3})};
          if (masked) {
            c.mask = {n % 4 < 2, Turn<int64_t>(n, {5, 1000, 0, 40, 20}),
                      Turn(n, {-std::numeric_limits<double>::infinity(), -10000.0, 0.0}), n % 7 < 3};
          }
          if (added) c.added = Turn(n / 4, {Rounding::kOnce, Rounding::kEachOperation});
          inputs->push_back(c);
        }
      }
    }
  }
}

std::string WordsOf(const ScoresCase& c) {
  std::string words = fmt::format(
      "method={} variant={} dtype={} content={:d} heads={} key_heads={} queries={} keys={} dim={} offset={}", c.method,
      c.variant, Name(c.dtype), c.content, c.heads, c.key_heads, c.queries, c.keys, c.dim, c.offset);
  if (c.mask) {
    words += fmt::format(" causal={:d} left={} fill={} zero_rows={:d}", c.mask->causal, c.mask->left, c.mask->fill,
                         c.mask->zero_rows);
  }
  if (c.added) words += fmt::format(" added={}", Name(*c.added));
  return words;
}

std::vector<Case> ScoresCases() {
  std::vector<ScoresCase> inputs;
  for (const char* method : {"shaw", "transformer_xl", "tupe", "deberta", "wpr", "cope"}) {
    for (const bool content : {false, true}) {
      for (int variant = 0; variant < 4; ++variant) {
        const size_t n = inputs.size();
        if (variant == 3 && method == std::string("tupe")) continue;
        const int64_t key_heads = Turn<int64_t>(n, {1, 2}), queries = Turn<int64_t>(n, {3, 1, 7});
        inputs.push_back({method, variant, Turn(n, {DType::kFP32, DType::kBF16, DType::kFP16}), content, 2 * key_heads,
                          key_heads, queries, Turn<int64_t>(n, {5, 9, 12, 17}), Turn<int64_t>(n, {4, 8, 2}),
                          Turn<int64_t>(n, {0, 4, 11})});
      }
    }
  }
  // More columns than four of the widest vectors, in q and k.
  inputs.push_back({"shaw", 0, DType::kFP32, true, 1, 1, 33, 290, 3, 150});
  AddMasked(&inputs);
  for (int variant = 0; variant < 3; ++variant) {
    for (const DType dtype : {DType::kFP32, DType::kBF16, DType::kFP16}) {
      inputs.push_back({"inkling", variant, dtype, false, 2, 1, 7, 19, 4, 9});
    }
  }
  std::vector<Case> cases;
  for (const ScoresCase& c : inputs) cases.push_back({WordsOf(c), [c] { return RunScores(c); }});
  return cases;
}

}  // namespace

TEST_P(DigestTest, RelativeScores) { Check("relative_scores", ScoresCases()); }

}  // namespace posenc
