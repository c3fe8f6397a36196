// How each model type counts positions: one function a family, one row a model type.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "posenc/base/limits.h"
#include "posenc/model/config_json.h"
#include "posenc/model/model_types.h"
#include "posenc/positions/description.h"

namespace posenc {

// Fields of a TokenDescription that only some classes read.
struct ReadFields {
  bool mm_token_type_ids = false, input_ids = false, image_grid_thw = false, video_grid_thw = false,
       second_per_grid_ts = false, audio_seqlens = false, use_audio_in_video = false, images_per_sample = false,
       target_sizes = false, downsample_mode = false, cache_window = false;
};

struct PositionRule {
  // Fills ids, deltas and spans. `model` is the object of the file that has the rule's model_type. Ids at padding are
  // kept as they are.
  using Count = absl::Status (*)(const ConfigObject& model, const TokenDescription& tokens, CountedPositions* result);
  // Names of the axes.
  using Axes = absl::StatusOr<std::vector<std::string>> (*)(const ConfigObject& model);

  std::string_view model_type;  // "": a model that counts tokens one by one
  Count count;
  ReadFields reads;
  std::string_view sentence;
  double padding = 0;                // the id of padding
  bool fractions = false;            // the class computes in float32
  bool delta_skips_padding = false;  // the class takes the padding off its deltas
  bool has_decode_ids = false;       // the class decodes at decode_ids, and not at the count plus a delta
  bool counts_cache = false;         // `count` reads cache_length, and there are no deltas of the cache
  Axes axes = nullptr;               // null: t, h, w
};

absl::StatusOr<std::vector<std::string>> AxesOfHunyuanVl(const ConfigObject& model);

absl::Status CountByGrids(const ConfigObject& model, const TokenDescription& tokens, CountedPositions* result);
absl::Status CountBySeconds(const ConfigObject& model, const TokenDescription& tokens, CountedPositions* result);
absl::Status CountByFrames(const ConfigObject& model, const TokenDescription& tokens, CountedPositions* result);
absl::Status CountByMergedFrames(const ConfigObject& model, const TokenDescription& tokens, CountedPositions* result);
absl::Status CountByPaddedRows(const ConfigObject& model, const TokenDescription& tokens, CountedPositions* result);
absl::Status CountHunyuanVl(const ConfigObject& model, const TokenDescription& tokens, CountedPositions* result);
absl::Status CountGlmImage(const ConfigObject& model, const TokenDescription& tokens, CountedPositions* result);
absl::Status CountMiniCpm(const ConfigObject& model, const TokenDescription& tokens, CountedPositions* result);
absl::Status CountQwen25Omni(const ConfigObject& model, const TokenDescription& tokens, CountedPositions* result);
absl::Status CountQwen25Talker(const ConfigObject& model, const TokenDescription& tokens, CountedPositions* result);
absl::Status CountQwen3Omni(const ConfigObject& model, const TokenDescription& tokens, CountedPositions* result);
absl::Status CountQwen3Talker(const ConfigObject& model, const TokenDescription& tokens, CountedPositions* result);
absl::Status CountAfterPadding(const ConfigObject& model, const TokenDescription& tokens, CountedPositions* result);

// Returns the rows of all model types that do not count tokens one by one.
const std::vector<PositionRule>& PositionRules();
// Returns the row, or null.
const PositionRule* FindPositionRule(std::string_view model_type);
// The rule of models that count tokens one by one.
const PositionRule& PlainPositions();
// The rule of models whose ids are rows of a table that begins with padding (RoBERTa), and which types these are.
const PositionRule& PaddedTablePositions();
bool CountsAfterPadding(const ModelType& type);

// Computes the ids. `model` is not read by PlainPositions. Errors name the field of the description, or of the file.
absl::StatusOr<CountedPositions> CountPositions(const PositionRule& rule, const ConfigObject& model,
                                                const TokenDescription& tokens, const Limits& limits);

}  // namespace posenc
