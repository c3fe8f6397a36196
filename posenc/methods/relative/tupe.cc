#include "posenc/methods/relative/relative_methods.h"

#include <fmt/format.h>

#include "posenc/base/status.h"
#include "posenc/methods/bias/bias_methods.h"

namespace posenc {

absl::Status Complete(TupeSettings& s, const RelativeShape& shape, const Limits& limits) {
  const Matrix<float>& table = s.position_embeddings;
  POSENC_RETURN_IF_ERROR(CheckFinite("position_embeddings", table.values));
  if (s.layer_norm) POSENC_RETURN_IF_ERROR(Within("layer_norm", CheckLayerNorm(*s.layer_norm, table.columns)));
  for (const auto& [field, projection] : {std::pair{"query", &s.query}, {"key", &s.key}}) {
    POSENC_RETURN_IF_ERROR(Within(field, CheckProjection(*projection, table.columns, shape.heads, shape.head_dim)));
    POSENC_RETURN_IF_ERROR(CheckTableSize("position_embeddings", static_cast<double>(table.rows),
                                          projection->weight ? projection->weight->rows : table.columns, limits));
  }
  if (s.relative_bias.has_value() != s.relative_bias_table.has_value()) {
    return InvalidArgument("MISSING", s.relative_bias ? "relative_bias_table" : "relative_bias", "",
                           "must be given: relative_bias and relative_bias_table go together");
  }
  if (!s.relative_bias) {
    if (s.cls != TupeCls::kUntiedWithoutBias) return absl::OkStatus();
    return InvalidArgument("CONFLICT", "cls", "TUPE_CLS_UNTIED_WITHOUT_BIAS",
                           "must be TUPE_CLS_UNTIED without relative_bias");
  }
  POSENC_RETURN_IF_ERROR(Within("relative_bias", Complete(*s.relative_bias)));
  const BiasTable& bias = *s.relative_bias_table;
  if (bias.columns != *s.relative_bias->num_buckets || bias.rows < shape.heads) {
    return InvalidArgument("MISMATCH", "relative_bias_table.shape",
                           fmt::format("{} buckets, {} heads", bias.columns, bias.rows),
                           fmt::format("must be {} buckets and at least {} heads; see relative_bias_table_layout",
                                       *s.relative_bias->num_buckets, shape.heads));
  }
  return CheckFinite("relative_bias_table", bias.values);
}

absl::Status CheckPositions(const TupeSettings& s, const RelativeShape& shape, const Limits&) {
  const int64_t positions = s.position_embeddings.rows - (s.cls == TupeCls::kTied ? 0 : 1);
  if (shape.least_position >= 0 && shape.largest_position < static_cast<double>(positions)) return absl::OkStatus();
  return InvalidArgument("OUT_OF_RANGE", "position_embeddings",
                         fmt::format("positions {} .. {}", shape.least_position, shape.largest_position),
                         fmt::format("must be of as many rows as positions: its {} rows are for 0 .. {}",
                                     s.position_embeddings.rows, positions - 1));
}

absl::StatusOr<RelativeTables> MakeTables(const TupeSettings& s, const RelativeShape& shape, Frequencies arithmetic,
                                          WorkPool& pool, const Cancellation& cancelled) {
  const Matrix<float> table = s.layer_norm ? Normalised(*s.layer_norm, s.position_embeddings) : s.position_embeddings;
  RelativeTables tables;
  POSENC_ASSIGN_OR_RETURN(tables.query_rows, Project(s.query, table, shape.head_dim, pool, cancelled));
  POSENC_ASSIGN_OR_RETURN(tables.key_rows, Project(s.key, table, shape.head_dim, pool, cancelled));
  tables.cls = s.cls != TupeCls::kTied;
  tables.first_row = tables.cls ? 1 : 0;
  tables.cls_without_bias = s.cls == TupeCls::kUntiedWithoutBias;
  if (s.relative_bias) {
    const auto first = static_cast<int64_t>(shape.distances.first), last = static_cast<int64_t>(shape.distances.last);
    tables.row_of_distance = T5Buckets(arithmetic, *s.relative_bias, first, last - first + 1);
    tables.bias = s.relative_bias_table;
  }
  return tables;
}

}  // namespace posenc
