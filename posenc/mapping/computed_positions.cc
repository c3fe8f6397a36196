#include "posenc/mapping/computed_positions.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "posenc/mapping/token_description.h"
#include "posenc/positions/select.h"

namespace posenc::wire {
namespace {

// Names the field of the description, or of the file: such fields begin with config_json.
absl::Status InFileOr(std::string_view description, const absl::Status& status) {
  return Within(DetailsOf(status).field.starts_with(kConfigJson) ? "model" : description, status);
}

absl::StatusOr<ComputedPositions> Compute(const Reader& reader, std::shared_ptr<const ParsedConfig> file,
                                          const SelectedRule& selected, const v1::TokenDescription& message) {
  auto tokens = ReadTokens(reader, message);
  if (!tokens.ok()) return Within("tokens", tokens.status());
  auto counted = CountPositions(*selected.rule, selected.model, *tokens, reader.limits);
  if (!counted.ok()) return InFileOr("tokens", counted.status());
  return ComputedPositions{std::move(file), selected.rule, selected.model, *std::move(tokens), *std::move(counted)};
}

absl::StatusOr<ComputedPositions> ComputeLatents(const Reader& reader, std::shared_ptr<const ParsedConfig> file,
                                                 const std::string& component, const v1::LatentDescription& message) {
  if (!component.empty()) {
    return InvalidArgument("UNKNOWN_VALUE", "model.component", component,
                           "must be absent: a diffusers file has no parts");
  }
  const ConfigObject whole(std::string(kConfigJson), file->tree);
  auto rule = SelectLatentRule(whole);
  if (!rule.ok()) return Within("model", rule.status());
  auto latents = ReadLatents(reader, message);
  if (!latents.ok()) return Within("latents", latents.status());
  auto counted = CountLatents(**rule, whole, *latents, reader.limits);
  if (!counted.ok()) return InFileOr("latents", counted.status());
  TokenDescription tokens;
  tokens.length = counted->tokens;
  return ComputedPositions{std::move(file), &(*rule)->rule, whole, std::move(tokens), *std::move(counted)};
}

absl::Status CheckModel(const v1::ModelConfig& model) {
  if (model.layer_case() != v1::ModelConfig::LAYER_NOT_SET) {
    return InvalidArgument("NOT_READ", model.has_layer_type() ? "model.layer_type" : "model.layer_index", "",
                           "must be absent: all layers have the same positions");
  }
  if (model.input_pairing() != v1::PAIRING_UNSPECIFIED || model.output_pairing() != v1::PAIRING_UNSPECIFIED) {
    return InvalidArgument("NOT_READ", "model.input_pairing", "", "must be absent: positions do not depend on it");
  }
  return absl::OkStatus();
}

// The class of a diffusers file whose latents have positions; empty for other files.
std::string LatentClassOf(const nlohmann::json& file) {
  const auto name = ConfigObject(std::string(kConfigJson), file).String("_class_name");
  return name.ok() && *name && FindLatentRule(**name) != nullptr ? **name : "";
}

// `request` is a message with the members of the oneof of PositionsRequest.
template <class Message>
absl::StatusOr<ComputedPositions> ByModel(const Reader& reader, const v1::ModelConfig& model, const Message& message) {
  if (!model.gguf().empty()) {
    return InvalidArgument("UNSUPPORTED", "model.gguf", "", "must be a config.json: a GGUF does not name its class");
  }
  POSENC_ASSIGN_OR_RETURN(const ModelSource source, ReadModelSource(model, "model"));
  auto parsed = ParseConfigJson(source.config_json, reader.limits);
  if (!parsed.ok()) return Within("model", parsed.status());
  if (message.has_latents()) {
    return ComputeLatents(reader, *std::move(parsed), source.component, message.latents());
  }
  if (const std::string name = LatentClassOf((*parsed)->tree); !name.empty()) {
    return InvalidArgument("UNSUPPORTED", "tokens", "",
                           fmt::format("must be absent: {} has the positions of latents.grid_thw", name));
  }
  auto selected = SelectPositionRule((*parsed)->tree, source.component);
  if (!selected.ok()) return Within("model", selected.status());
  return Compute(reader, *parsed, *selected, message.tokens());
}

}  // namespace

absl::StatusOr<ComputedPositions> ComputePositions(const Reader& reader, const v1::PositionsRequest& request) {
  if (!request.has_latents() && !request.has_tokens()) {
    return InvalidArgument("MISSING", "input", "", "must be given: tokens or latents");
  }
  if (request.has_model()) {
    POSENC_RETURN_IF_ERROR(CheckModel(request.model()));
    return ByModel(reader, request.model(), request);
  }
  if (request.has_latents()) {
    return InvalidArgument("MISSING", "model", "", "must be given with latents: a config.json of diffusers");
  }
  static const nlohmann::json& kEmpty = *new nlohmann::json(nlohmann::json::object());
  const ConfigObject none(std::string(kConfigJson), kEmpty);
  return Compute(reader, nullptr, {&PlainPositions(), none}, request.tokens());
}

absl::StatusOr<Positions> ReadPositionsOf(const Reader& reader, const v1::RotarySource& rotary,
                                          const v1::Positions& message, IdsFor ids_for) {
  if (!message.has_tokens() && !message.has_latents()) return reader.ReadPositions(message);
  if (reader.plan_source == PlanSource::kCacheOnly) return WouldBlock();  // reading the file takes time
  const std::string_view field = message.has_tokens() ? "positions.tokens" : "positions.latents";
  if (!rotary.has_model()) {
    return InvalidArgument("UNSUPPORTED", field, "", "must be ids or an offset unless rotary is a model's config.json");
  }
  if (message.axis_dimension() != v1::AXIS_DIMENSION_UNSPECIFIED || message.has_cu_seqlens()) {
    return InvalidArgument("NOT_READ", message.has_cu_seqlens() ? "positions.cu_seqlens" : "positions.axis_dimension",
                           "", fmt::format("must be absent with {}", field));
  }
  auto computed = ByModel(reader, rotary.model(), message);
  if (!computed.ok()) {
    const std::string of = DetailsOf(computed.status()).field;
    return Within(of.starts_with("model") ? "rotary" : "positions", computed.status());
  }
  v1::Positions rest = message;
  rest.clear_source();
  POSENC_ASSIGN_OR_RETURN(Positions positions, reader.ReadPositions(rest));
  const TokenDescription& tokens = computed->tokens;
  const bool one_row = tokens.sequences == 1 && (ids_for == IdsFor::kTable || !tokens.bounds.empty());
  PositionIds ids{.ids = {std::move(computed->counted.ids), tokens.sequences, tokens.length, one_row},
                  .axes = static_cast<int64_t>(computed->counted.axes.size()),
                  .field = message.has_tokens() ? "tokens" : "latents"};
  positions.axis_dimension = ids.axes == 1 ? AxisDimension::kNone : AxisDimension::kFirst;
  positions.source = std::move(ids);
  if (!tokens.bounds.empty()) positions.cu_seqlens = tokens.bounds;
  return positions;
}

}  // namespace posenc::wire
