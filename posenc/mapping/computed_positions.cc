#include "posenc/mapping/computed_positions.h"

#include <nlohmann/json.hpp>

#include "posenc/mapping/token_description.h"
#include "posenc/positions/select.h"

namespace posenc::wire {
namespace {

absl::StatusOr<ComputedPositions> Compute(const Reader& reader, const PositionRule& rule, const ConfigObject& model,
                                          const v1::TokenDescription& message) {
  auto tokens = ReadTokens(reader, message);
  if (!tokens.ok()) return Within("tokens", tokens.status());
  auto counted = CountPositions(rule, model, *tokens, reader.limits);
  if (!counted.ok()) {
    // An error of the file's field begins with config_json.
    const bool of_file = DetailsOf(counted.status()).field.starts_with(kConfigJson);
    return Within(of_file ? "model" : "tokens", counted.status());
  }
  return ComputedPositions{*std::move(counted), tokens->sequences, tokens->length, rule.model_type, rule.sentence};
}

absl::Status CheckModel(const v1::ModelConfig& model) {
  if (model.layer_case() != v1::ModelConfig::LAYER_NOT_SET) {
    return InvalidArgument("NOT_READ", "model.layer", "", "must be absent: all layers have the same positions");
  }
  if (model.input_pairing() != v1::PAIRING_UNSPECIFIED || model.output_pairing() != v1::PAIRING_UNSPECIFIED) {
    return InvalidArgument("NOT_READ", "model.input_pairing", "", "must be absent: positions do not depend on it");
  }
  if (!model.gguf().empty()) {
    return InvalidArgument("UNSUPPORTED", "model.gguf", "", "must be a config.json: a GGUF does not name its class");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ComputedPositions> ComputePositions(const Reader& reader, const v1::PositionsRequest& request) {
  switch (request.input_case()) {
    case v1::PositionsRequest::INPUT_NOT_SET:
      return InvalidArgument("MISSING", "input", "", "must be given: tokens or latents");
    case v1::PositionsRequest::kLatents:
      return InvalidArgument("UNSUPPORTED", "latents", "", "must be absent in this release");
    case v1::PositionsRequest::kTokens: break;
  }
  static const nlohmann::json& kEmpty = *new nlohmann::json(nlohmann::json::object());
  const ConfigObject none(std::string(kConfigJson), kEmpty);
  if (!request.has_model()) return Compute(reader, PlainPositions(), none, request.tokens());
  POSENC_RETURN_IF_ERROR(CheckModel(request.model()));
  POSENC_ASSIGN_OR_RETURN(const ModelSource source, ReadModelSource(request.model(), "model"));
  auto parsed = ParseConfigJson(source.config_json, reader.limits);
  if (!parsed.ok()) return Within("model", parsed.status());
  auto selected = SelectPositionRule((*parsed)->tree, source.component);
  if (!selected.ok()) return Within("model", selected.status());
  return Compute(reader, *selected->rule, selected->model, request.tokens());
}

}  // namespace posenc::wire
