#include "posenc/bias/bias_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "posenc/base/checks.h"
#include "posenc/base/interruption.h"
#include "posenc/base/memory_account.h"
#include "posenc/base/status.h"
#include "posenc/bias/bias_geometry.h"
#include "posenc/kernels/convert.h"
#include "posenc/methods/bias/bias_methods.h"

namespace posenc {
namespace {

// The shape [.., Sq, Sk] with Sq replaced by `queries`.
TensorShape WithQueries(TensorShape shape, int64_t queries) {
  if (shape.rank() >= 2) shape.shape[shape.rank() - 2] = queries;
  return shape;
}

// BLOOM's key positions under a padding mask: valid keys are counted from 0, padded keys have position 0.
Matrix<double> CountValid(const Matrix<uint8_t>& valid) {
  Matrix<double> positions{{}, valid.rows, valid.columns, valid.shared};
  positions.values.reserve(valid.values.size());
  for (int64_t b = 0; b < valid.rows; ++b) {
    double next = 0;
    for (int64_t j = 0; j < valid.columns; ++j) {
      InterruptionPointOfStep(static_cast<int64_t>(positions.values.size()));
      positions.values.push_back(valid.row(b)[j] ? next++ : 0.0);
    }
  }
  return positions;
}

absl::Status CheckForm(const GenerateBias& call, bool has_window) {
  const BiasMethod& method = call.method;
  if (IsIndex(call.form)) {
    if (call.dtype != DType::kINT32) {
      return InvalidArgument("UNSUPPORTED", "dtype", Name(call.dtype), "must be INT32 for an index");
    }
    const bool has_index = has_window || std::holds_alternative<T5Settings>(method.settings);
    if (!has_index) {
      return InvalidArgument("CONFLICT", "form", "BIAS_FORM_INDEX",
                             "must be another form: an index needs t5, swin, swin_v2 or beit");
    }
    if (call.mask) return InvalidArgument("NOT_READ", "mask", "", "must be absent: an index has no mask");
    if (call.geometry.head_start || call.geometry.head_count) {
      return InvalidArgument("NOT_READ", "geometry.head_start", "",
                             "must be absent: an index is the same for every head");
    }
  } else {
    POSENC_RETURN_IF_ERROR(CheckDataType(call.scores ? "scores.dtype" : "dtype", call.dtype));
    if (ReadsTable(method) && !method.table) {
      return InvalidArgument("MISSING", "method.table", "",
                             "must be given: this method reads its values from the model's table");
    }
  }
  if (IsCompact(call.form) && std::holds_alternative<FireSettings>(method.settings)) {
    return InvalidArgument(
        "CONFLICT", "form", "BIAS_FORM_COMPACT",
        "must be another form: a compact bias has one value per distance; FIRE's also depends on the query's position");
  }
  if (IsCompact(call.form) && std::holds_alternative<ForgetGateSettings>(method.settings)) {
    return InvalidArgument(
        "CONFLICT", "form", "BIAS_FORM_COMPACT",
        "must be another form: a compact bias has one value per distance; forget gates differ from token to token");
  }
  if (IsCompact(call.form) && has_window) {
    return InvalidArgument(
        "CONFLICT", "form", "BIAS_FORM_COMPACT",
        "must be another form: a compact bias has one value per distance; a window's depends on two distances");
  }
  return absl::OkStatus();
}

// Fills in the lengths that a window or the scores give.
absl::Status CompleteLengths(const std::optional<WindowTokens>& window, const std::optional<TensorShape>& scores,
                             const Limits& limits, BiasGeometry& g) {
  if (window) {
    if (!std::holds_alternative<std::monostate>(g.query) || g.key_positions) {
      return InvalidArgument("NOT_READ", g.key_positions ? "geometry.key_positions" : "geometry.query", "",
                             "must be absent: not read by window methods: their tokens are in row-major order");
    }
    if (!g.query_length) g.query_length = window->count();
    if (!g.key_length) g.key_length = window->count();
  }
  if (scores) {
    if (!g.query_length) g.query_length = scores->shape[2];
    if (!g.key_length) g.key_length = scores->shape[3];
  }
  for (const auto& [field, length] :
       {std::pair{"geometry.query_length", g.query_length}, {"geometry.key_length", g.key_length}}) {
    if (window && *length != window->count()) {
      return InvalidArgument("MISMATCH", field, fmt::format("{}", *length),
                             fmt::format("must be {}, the tokens of the window", window->count()));
    }
  }
  return CheckLengths(g, limits);
}

// Checks a call with forget gates; fills in the number of keys, and positions that make the queries the last tokens.
absl::Status CompleteForgetGate(const ForgetGateSettings& gates, GenerateBias& call) {
  BiasGeometry& g = call.geometry;
  if (call.precision.frequencies != Frequencies::kExact) {
    return InvalidArgument("UNSUPPORTED", "precision.frequencies", "",
                           "must be EXACT: the published kernels add in an order that depends on their block size");
  }
  if (!call.mask || !call.mask->causal) {
    return InvalidArgument("CONFLICT", "mask.causal", "false", "must be true: forget gates are for causal attention");
  }
  if (!call.mask->prefix_length.empty()) {
    return InvalidArgument("CONFLICT", "mask.prefix_length", "", "must be absent with forget_gate, which is causal");
  }
  if (gates.cu_seqlens && call.mask->query_documents) {
    return InvalidArgument("CONFLICT", "mask.query_documents", "",
                           "must be absent: forget_gate.cu_seqlens gives the sequences");
  }
  if (g.key_positions) {
    return InvalidArgument("NOT_READ", "geometry.key_positions", "",
                           "must be absent: not read by forget_gate: key j is token j of log_gates");
  }
  if (!g.key_length) g.key_length = gates.keys;
  if (*g.key_length != gates.keys) {
    return InvalidArgument("MISMATCH", "geometry.key_length", fmt::format("{}", *g.key_length),
                           fmt::format("must be {}, the tokens of forget_gate.log_gates", gates.keys));
  }
  if (!g.query_length && call.scores) g.query_length = call.scores->shape[2];
  if (g.query_length && std::holds_alternative<std::monostate>(g.query)) {
    if (*g.query_length < 0 || *g.query_length > gates.keys) {
      return InvalidArgument("OUT_OF_RANGE", "geometry.query_length", fmt::format("{}", *g.query_length),
                             fmt::format("must be 0 .. {}, the tokens of forget_gate.log_gates", gates.keys));
    }
    g.query = OffsetPositions{gates.keys - *g.query_length};
  }
  return absl::OkStatus();
}

absl::StatusOr<HeadRange> HeadsOfCall(const GenerateBias& call) {
  if (IsIndex(call.form)) return HeadRange{.start = 0, .count = 1};
  const int64_t all = HeadsOf(call.method).value_or(call.scores ? call.scores->shape[1] : 1);
  return Heads(call.geometry, all);
}

absl::StatusOr<std::optional<int64_t>> BatchOf(const GenerateBias& call, const AlibiSettings* alibi,
                                               const Matrix<double>& slopes) {
  const BiasGeometry& g = call.geometry;
  BatchSize batch;
  POSENC_RETURN_IF_ERROR(CheckBatch(g, call.mask, batch));
  if (alibi != nullptr) {
    batch.See("method.alibi.position_mask", alibi->position_mask);
    POSENC_RETURN_IF_ERROR(CheckColumns("method.alibi.position_mask", alibi->position_mask, *g.key_length));
    if (!slopes.shared) batch.See("method.alibi.given", slopes.rows);
    if (alibi->position_mask && g.key_positions) {
      return InvalidArgument("CONFLICT", "method.alibi.position_mask", "",
                             "must be absent with geometry.key_positions");
    }
  }
  if (const auto* gates = std::get_if<ForgetGateSettings>(&call.method.settings); gates != nullptr && gates->batch) {
    batch.See("method.forget_gate.log_gates", *gates->batch);
  }
  if (call.scores) batch.See("scores", call.scores->shape[0]);
  POSENC_RETURN_IF_ERROR(batch.status());
  return batch.batch();
}

// Sets queries, keys and shape of a bias with one value per distance, or per key.
absl::Status LayOutCompact(const GenerateBias& call, const AlibiSettings* alibi, BiasCells& cells) {
  if (call.mask || cells.batch || !cells.consecutive) {
    return InvalidArgument(
        "CONFLICT", "form", "BIAS_FORM_COMPACT",
        "must be another form: a compact bias cannot have a mask, explicit positions or a batch axis");
  }
  if (alibi != nullptr && IsKeyOnly(alibi->form)) {
    cells.shape.shape = {cells.heads, 1, cells.keys};
  } else {
    const bool empty = cells.queries == 0 || cells.keys == 0;
    if (__builtin_add_overflow(cells.queries, cells.keys, &cells.keys)) {
      cells.keys = std::numeric_limits<int64_t>::max();
    }
    cells.keys = empty ? 0 : cells.keys - 1;
    cells.shape.shape = {cells.keys};
    if (!IsIndex(call.form)) cells.shape.shape.insert(cells.shape.shape.begin(), cells.heads);
  }
  cells.queries = 1;
  return absl::OkStatus();
}

absl::StatusOr<BiasCells> LayOutCells(const GenerateBias& call, const AlibiSettings* alibi,
                                      const Matrix<double>& slopes, const HeadRange& heads) {
  const BiasGeometry& g = call.geometry;
  BiasCells cells{.window = WindowOf(call.method),
                  .heads = heads.count,
                  .head_start = heads.start,
                  .queries = *g.query_length,
                  .keys = *g.key_length};
  POSENC_ASSIGN_OR_RETURN(cells.batch, BatchOf(call, alibi, slopes));
  cells.consecutive = !std::holds_alternative<PositionIds>(g.query) && !g.key_positions;
  cells.shape.dtype = call.dtype;
  if (IsCompact(call.form)) {
    POSENC_RETURN_IF_ERROR(LayOutCompact(call, alibi, cells));
    return cells;
  }
  if (cells.batch) cells.shape.shape.push_back(*cells.batch);
  if (!IsIndex(call.form)) cells.shape.shape.push_back(cells.heads);
  cells.shape.shape.insert(cells.shape.shape.end(), {cells.queries, cells.keys});
  if (call.scores && call.scores->shape != cells.shape.shape) {
    return InvalidArgument("MISMATCH", "scores.shape", ToString(call.scores->shape),
                           fmt::format("must be {}", ToString(cells.shape.shape)));
  }
  return cells;
}

absl::StatusOr<BiasPositions> LayOutPositions(const GenerateBias& call, const AlibiSettings* alibi,
                                              const BiasCells& cells) {
  const BiasGeometry& g = call.geometry;
  const Matrix<double> ends = QueryEnds(g, cells.queries);
  BiasPositions positions;
  Matrix<double>& mask_keys = positions.mask_keys = KeyPositions(g);
  POSENC_RETURN_IF_ERROR(CheckPositions("geometry.query_positions", ends));
  POSENC_RETURN_IF_ERROR(CheckPositions("geometry.key_positions", mask_keys));
  for (int64_t b = 0; call.mask && b < (mask_keys.shared ? 1 : mask_keys.rows); ++b) {
    const double* row = mask_keys.row(b);
    positions.mask_keys_ascend = positions.mask_keys_ascend && std::is_sorted(row, row + mask_keys.columns);
  }
  // Copies the positions only if the mask needs them, too.
  const auto take = [&call, &mask_keys] { return call.mask ? mask_keys : std::move(mask_keys); };
  if (alibi != nullptr && IsKeyOnly(alibi->form)) {
    positions.query_origin = alibi->form == AlibiForm::kMpt ? static_cast<double>(*g.key_length - 1) : 0.0;
    positions.keys = alibi->position_mask ? CountValid(*alibi->position_mask) : take();
  } else if (IsCompact(call.form)) {
    // Entry n is for the distance j - i = n - (Sq - 1); queries start at the offset.
    positions.query_origin = ends.values.front() + static_cast<double>(*g.query_length - 1);
    positions.keys = Line(0, cells.keys);
  } else {
    positions.keys = cells.window ? WindowKeys(cells.window->window, cells.window->cls) : take();
  }
  return positions;
}

// Finds the values of all distances between queries and keys.
absl::Status LayOutDistances(const GenerateBias& call, const BiasCells& cells, const BiasPositions& positions,
                             const Limits& limits, BiasSources& sources) {
  const Matrix<double> ends =
      positions.query_origin ? Constant(*positions.query_origin, 1) : QueryEnds(call.geometry, cells.queries);
  POSENC_RETURN_IF_ERROR(CheckWhole("geometry.query_positions", ends));
  POSENC_RETURN_IF_ERROR(CheckWhole("geometry.key_positions", positions.keys));
  const auto [first, last] = Range(ends, positions.keys);
  const Frequencies arithmetic = call.precision.frequencies;
  const double largest = LargestDistance(call.method);
  if (first < -largest || last > largest) {
    return InvalidArgument("OUT_OF_RANGE", "geometry.query_positions", fmt::format("distances {} .. {}", first, last),
                           fmt::format("must be at most {} in magnitude", largest));
  }
  const double cost = CostOf(arithmetic, call.method, first, last);
  if (cost > static_cast<double>(limits.max_bias_values)) {
    return TooLarge("geometry", fmt::format("distances {} .. {}: {} values", first, last, cost),
                    fmt::format("must be at most {} (max_bias_values)", limits.max_bias_values));
  }
  if (const auto* fire = std::get_if<FireSettings>(&call.method.settings)) {
    sources.fire = std::make_shared<const FireRows>(arithmetic, *fire,
                                                    static_cast<int64_t>(std::max(std::abs(first), std::abs(last))));
    return absl::OkStatus();
  }
  sources.lists.first_distance = static_cast<int64_t>(first);
  const auto count = static_cast<int64_t>(last - first) + 1;
  if (IsIndex(call.form)) {
    sources.buckets =
        T5Buckets(arithmetic, std::get<T5Settings>(call.method.settings), sources.lists.first_distance, count);
  } else {
    sources.lists.values = DistanceValues(arithmetic, call.method, sources.lists.first_distance, count);
  }
  return absl::OkStatus();
}

// Adds up the gates. Sequences that are packed hide each other's keys, like documents.
absl::Status LayOutForgetGate(const ForgetGateSettings& gates, const GenerateBias& call, const BiasCells& cells,
                              BiasSources& sources) {
  const Matrix<double> ends = QueryEnds(call.geometry, cells.queries);
  POSENC_RETURN_IF_ERROR(CheckWhole("geometry.query_positions", ends));
  const auto [first, last] = std::minmax_element(ends.values.begin(), ends.values.end());
  if (*first < 0 || *last > static_cast<double>(gates.keys - 1)) {
    return InvalidArgument("OUT_OF_RANGE", "geometry.query_positions", fmt::format("{} .. {}", *first, *last),
                           fmt::format("must be 0 .. {}, tokens of forget_gate.log_gates", gates.keys - 1));
  }
  sources.forget_gate = std::make_shared<const ForgetGateRows>(gates);
  if (gates.cu_seqlens) sources.key_sequences = SequencesOf(Line(0, cells.keys), *gates.cu_seqlens);
  return absl::OkStatus();
}

}  // namespace

void RoundTo(DType dtype, std::vector<double>& values) {
  constexpr size_t kTogether = 4096;
  float floats[kTogether];
  for (size_t begin = 0; begin < values.size(); begin += kTogether) {
    InterruptionPointOfStep(static_cast<int64_t>(begin));
    const size_t count = std::min(kTogether, values.size() - begin);
    double* const some = values.data() + begin;
    std::transform(some, some + count, floats, [](double value) { return static_cast<float>(value); });
    RoundTo(dtype, floats, count);
    std::copy_n(floats, count, some);
  }
}

Matrix<double> Constant(double value, int64_t count) { return {std::vector<double>(count, value), 1, count, true}; }

Matrix<double> SequencesOf(Matrix<double> positions, const std::vector<int64_t>& cu_seqlens) {
  constexpr int64_t kStep = 16;  // of a search, in steps of nanoseconds
  int64_t steps = 0;
  for (double& position : positions.values) {
    InterruptionPointOfStep(kStep * steps++);
    const auto next = std::upper_bound(cu_seqlens.begin(), cu_seqlens.end(), static_cast<int64_t>(position));
    position = static_cast<double>(next - cu_seqlens.begin());
  }
  return positions;
}

absl::StatusOr<BiasLayout> LayOutBias(GenerateBias given, const Limits& limits, BiasGeneration::Extent extent) {
  const LargeBlocksMayBeRefused scope;
  BiasLayout layout{.call = std::move(given)};
  GenerateBias& call = layout.call;
  POSENC_RETURN_IF_ERROR(Within("method", Complete(call.method, limits)));
  const std::optional<WindowTokens> window = WindowOf(call.method);
  POSENC_RETURN_IF_ERROR(CheckForm(call, window.has_value()));
  if (call.scores) {
    if (call.scores->rank() != 4) {
      return InvalidArgument("MISMATCH", "scores.shape", ToString(call.scores->shape), "must be [B, H, Sq, Sk]");
    }
    POSENC_RETURN_IF_ERROR(ByteSize("scores", *call.scores, limits).status());
  }
  const auto* const gates = std::get_if<ForgetGateSettings>(&call.method.settings);
  if (gates != nullptr) POSENC_RETURN_IF_ERROR(CompleteForgetGate(*gates, call));
  POSENC_RETURN_IF_ERROR(CompleteLengths(window, call.scores, limits, call.geometry));
  POSENC_ASSIGN_OR_RETURN(const HeadRange heads, HeadsOfCall(call));
  auto* const alibi = std::get_if<AlibiSettings>(&call.method.settings);
  BiasSources& sources = layout.sources;
  if (alibi != nullptr) sources.slopes = AlibiSlopes(call.precision.frequencies, *alibi);
  POSENC_ASSIGN_OR_RETURN(layout.cells, LayOutCells(call, alibi, sources.slopes, heads));
  const TensorShape& shape = layout.cells.shape;
  POSENC_ASSIGN_OR_RETURN(int64_t bytes, ByteSize("answer", shape, limits));
  if (extent == BiasGeneration::Extent::kTiles && !shape.empty()) {
    POSENC_ASSIGN_OR_RETURN(bytes, ByteSize("answer", WithQueries(shape, 1), limits));
  }
  POSENC_RETURN_IF_ERROR(CheckOutput(bytes, limits));
  if (shape.empty()) return layout;

  // Positions are laid out last, when the answer's limit bounds their size.
  POSENC_ASSIGN_OR_RETURN(layout.positions, LayOutPositions(call, alibi, layout.cells));
  if (alibi != nullptr && alibi->bias_dtype && *alibi->bias_dtype != DType::kFP32) {
    RoundTo(*alibi->bias_dtype, sources.slopes.values);
    if (alibi->future_slopes) RoundTo(*alibi->bias_dtype, alibi->future_slopes->values);
    RoundTo(*alibi->bias_dtype, layout.positions.keys.values);
  }
  if (IsOfWholeDistances(call.method)) {
    POSENC_RETURN_IF_ERROR(LayOutDistances(call, layout.cells, layout.positions, limits, sources));
  }
  if (gates != nullptr) POSENC_RETURN_IF_ERROR(LayOutForgetGate(*gates, call, layout.cells, sources));
  if (window && !IsIndex(call.form)) sources.lists.values = WindowTable(call.precision.frequencies, call.method);
  return layout;
}

}  // namespace posenc
