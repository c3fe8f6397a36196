// RoBERTa and its relatives, whose ids are rows of a learned table: padding has row pad_token_id, and the tokens the
// rows after it.
#include <algorithm>
#include <vector>

#include "posenc/base/interruption.h"
#include "posenc/base/status.h"
#include "posenc/model/model_types.h"
#include "posenc/positions/rules.h"

namespace posenc {
namespace {

absl::StatusOr<int64_t> PaddingIdOf(const ConfigObject& model) {
  POSENC_ASSIGN_OR_RETURN(const auto name, model.String("model_type"));
  const ModelType* type = name ? FindModelType(*name) : nullptr;
  LearnedTable table;
  if (type != nullptr && type->learned) table = *type->learned;
  if (!table.reads_padding) return table.padding;
  POSENC_ASSIGN_OR_RETURN(const auto given, model.Integer({"pad_token_id"}));
  return given.value_or(table.padding);
}

}  // namespace

absl::Status CountAfterPadding(const ConfigObject& model, const TokenDescription& tokens, CountedPositions* result) {
  POSENC_ASSIGN_OR_RETURN(const int64_t padding, PaddingIdOf(model));
  const auto id = static_cast<double>(padding);
  for (int64_t n = 0; n < tokens.counted(); ++n) {
    InterruptionPoint();
    // The class adds the cache's whole length.
    double next = id + 1 + static_cast<double>(tokens.cache_length.value_or(0));
    for (int64_t token = tokens.begin(n); token < tokens.begin(n + 1); ++token) {
      InterruptionPointOfStep(token);
      const bool is_padding =
          tokens.has_input_ids ? tokens.input_ids[token] == padding : !tokens.mask.empty() && tokens.mask[token] == 0;
      result->id(0, token) = is_padding ? id : next++;
    }
    result->deltas.push_back(id + 1);
    const int64_t size = tokens.begin(n + 1) - tokens.begin(n);
    if (size > 0) result->spans.push_back({.sequence = n, .begin = 0, .end = size});
  }
  return absl::OkStatus();
}

bool CountsAfterPadding(const ModelType& type) {
  // ProphetNet reads the mask, and gives the last row to all tokens beyond its table.
  return type.learned && type.learned->start == TableStart::kAfterPadding && type.name != "prophetnet";
}

const PositionRule& PaddedTablePositions() {
  static const PositionRule& rule = *new PositionRule{
      .model_type = "roberta",
      .count = CountAfterPadding,
      .reads = {.input_ids = true},
      .sentence = "Tokens are counted from pad_token_id + 1, and padding has pad_token_id: ids are rows of the table.",
      .counts_cache = true,
  };
  return rule;
}

}  // namespace posenc
