// The layout of a bias: all that is known about its cells before any is computed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/base/limits.h"
#include "posenc/bias/generate_bias.h"
#include "posenc/methods/bias/bias.h"
#include "posenc/methods/bias/fire.h"
#include "posenc/methods/bias/forget_gate.h"

namespace posenc {

// The matrices to write: one per batch row and head.
struct BiasCells {
  std::optional<WindowTokens> window;
  std::optional<int64_t> batch;  // B; absent if all batch rows are the same
  int64_t heads = 0;             // heads of this call, from head_start on; 1 in the index forms
  int64_t head_start = 0;
  int64_t queries = 0;       // rows of one matrix as written
  int64_t keys = 0;          // columns of one matrix as written
  bool consecutive = false;  // queries and keys have consecutive positions: no gathering
  TensorShape shape;         // of the whole bias
};

struct BiasPositions {
  std::optional<double> query_origin;  // for the distance, if all queries have this position
  Matrix<double> keys;                 // for the distance; token numbers in a window
  Matrix<double> mask_keys;            // for the mask
  bool mask_keys_ascend = true;
};

// Values of all cells, if one list per head holds them.
struct ValueLists {
  BiasTable values;            // [H, n]: indexed by distance - first_distance, by table row, or a single row
  ptrdiff_t row_shift = -1;    // offset from one query's slice of values to the next one's; 0: all share one row
  int64_t first_distance = 0;  // distance of the first value
};

// Sources of the cells' values, by method.
struct BiasSources {
  Matrix<double> slopes;         // ALiBi
  ValueLists lists;              // all methods except ALiBi
  std::vector<int32_t> buckets;  // T5 in the index forms, from lists.first_distance on
  std::shared_ptr<const FireRows> fire;
  std::shared_ptr<const ForgetGateRows> forget_gate;
  Matrix<double> key_sequences;  // forget gates with cu_seqlens: the number of each key's sequence
};

// Immutable once made.
struct BiasLayout {
  GenerateBias call;  // completed
  BiasCells cells;
  BiasPositions positions;  // empty, like the sources' lists, if the shape is empty
  BiasSources sources;

  const AlibiSettings* alibi() const { return std::get_if<AlibiSettings>(&call.method.settings); }
};

inline bool IsIndex(BiasForm form) { return form == BiasForm::kIndex || form == BiasForm::kCompactIndex; }
inline bool IsCompact(BiasForm form) { return form == BiasForm::kCompact || form == BiasForm::kCompactIndex; }

// Returns the number of each position's sequence among those that cu_seqlens delimits.
Matrix<double> SequencesOf(Matrix<double> positions, const std::vector<int64_t>& cu_seqlens);

// Rounds the values to dtype and back.
void RoundTo(DType dtype, std::vector<double>& values);

// A row of `count` equal values.
Matrix<double> Constant(double value, int64_t count);

// With kTiles, only one query's row must fit the output limit.
absl::StatusOr<BiasLayout> LayOutBias(GenerateBias call, const Limits& limits, BiasGeneration::Extent extent);

}  // namespace posenc
