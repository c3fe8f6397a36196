#include "posenc/model/rope_block.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "posenc/base/status.h"

namespace posenc {
namespace {

using nlohmann::json;

// Reads `rope_type`, or the old key `type` in its place.
absl::StatusOr<std::optional<std::string>> RopeTypeOf(const ConfigObject& block, const ModelType& model) {
  POSENC_ASSIGN_OR_RETURN(auto type, block.String("type"));
  POSENC_ASSIGN_OR_RETURN(auto rope_type, block.String("rope_type"));
  if (model.mrope != MropeOrder::kNone) {  // Qwen2-VL's name for "default" with an mrope_section
    if (type == "mrope") type = "default";
    if (rope_type == "mrope") rope_type = "default";
  }
  if (model.mrope == MropeOrder::kElements) {  // HunyuanVL's older name
    if (type == "xdrope") type = "dynamic";
    if (rope_type == "xdrope") rope_type = "dynamic";
  }
  if (type && rope_type && *type != *rope_type) {
    return Against(block.Path("rope_type"),
                   InvalidArgument("CONFLICT", block.Path("type"), *type,
                                   fmt::format("must be equal to rope_type, \"{}\", or absent", Quote(*rope_type))));
  }
  return type ? type : rope_type;
}

// True if `other` has the fields of `block` with the same values, apart from their rope_type. null counts as absent.
bool HasFieldsOf(const json& block, const json& other) {
  for (const auto& [key, value] : block.items()) {
    if (value.is_null() || key == "type" || key == "rope_type") continue;
    const auto found = other.find(key);
    if (found == other.end() || *found != value) return false;
  }
  return true;
}

// True for fields of RopeParameters that no config.json has, or that FieldReader does not read.
bool IsOurs(std::string_view name) {
  for (std::string_view ours :
       {"longrope_branch", "frequency_dim", "negate_angle", "mixed_b", "ext_factor", "attn_factor", "freq_factors",
        "max_freq", "mrope_section", "mrope_order", "resonance"}) {
    if (name == ours) return true;
  }
  return false;
}

// Visitor that reads each field of a block into RopeParameters. Keeps the first error in `status`.
struct FieldReader {
  const ConfigObject& block;
  absl::Status status;

  template <class T, class Value>
  void Take(absl::StatusOr<std::optional<T>> value, Value& field) {
    if (!status.ok()) return;
    status = value.status();
    if (value.ok() && value->has_value()) field = **std::move(value);
  }
  void operator()(std::string_view name, std::optional<double>& field) { Take(block.Number({name}), field); }
  void operator()(std::string_view name, std::optional<bool>& field) { Take(block.Bool(name), field); }
  void operator()(std::string_view name, std::vector<double>& field) { Take(block.Numbers(name), field); }
};

constexpr std::string_view kScalingBeta = "llama_4_scaling_beta";
bool HasScalingBeta(const ModelType& type) { return type.query_scale == QueryScaleFunction::kMinistral3; }

bool HasSections(const ModelType& type) {
  return type.mrope != MropeOrder::kNone && !(type.mrope == MropeOrder::kErnie && type.sections.empty());
}

// HunyuanVL's older name of mrope_section.
constexpr std::string_view kOlderSections = "xdrope_section";

// Returns the known block fields of this class that FieldReader does not read.
std::vector<std::string_view> OthersOf(const ModelType& type) {
  std::vector<std::string_view> others = type.rules.block_fields;
  if (HasScalingBeta(type)) others = {kScalingBeta, "max_position_embeddings"};
  if (HasSections(type)) others = {"mrope_section", "mrope_interleaved", "interleaved"};
  if (type.mrope == MropeOrder::kElements) others.push_back(kOlderSections);
  return others;
}

// Reads mrope_section if the class has one.
absl::Status ReadSections(const ConfigObject& block, const ModelType& type, RopeParameters* p) {
  if (!HasSections(type)) return absl::OkStatus();
  POSENC_ASSIGN_OR_RETURN(auto sections, block.Numbers("mrope_section"));
  if (type.mrope == MropeOrder::kElements) {
    POSENC_ASSIGN_OR_RETURN(auto older, block.Numbers(kOlderSections));
    if (sections && older && *sections != *older) {
      return Against(block.Path("mrope_section"),
                     InvalidArgument("CONFLICT", block.Path(kOlderSections), fmt::format("{}", fmt::join(*older, ", ")),
                                     "must be equal to mrope_section"));
    }
    if (!sections) sections = std::move(older);
  }
  if (!sections) return absl::OkStatus();
  constexpr size_t kAxes = 3;
  if (sections->size() != kAxes && type.mrope != MropeOrder::kElements) {
    return InvalidArgument(
        "MISMATCH", block.Path("mrope_section"), fmt::format("{} values", sections->size()),
        fmt::format("must be {} values: model_type \"{}\" has positions of as many axes", kAxes, type.name));
  }
  for (double section : *sections) {
    if (!(section >= 0 && section <= 1e6) || section != std::floor(section)) {
      return InvalidArgument("OUT_OF_RANGE",
                             fmt::format("{}[{}]", block.Path("mrope_section"), p->mrope_section.size()),
                             fmt::format("{}", section), "must be a whole number of pairs, 0 .. 10^6");
    }
    p->mrope_section.push_back(static_cast<int64_t>(section));
  }
  return absl::OkStatus();
}

std::vector<std::string_view> KnownFields(const ModelType& type) {
  std::vector<std::string_view> known = OthersOf(type);
  known.insert(known.end(), {"type", "rope_type"});
  const RopeParameters none;
  VisitFields(none, [&known](std::string_view name, const auto&) {
    if (!IsOurs(name)) known.push_back(name);
  });
  return known;
}

absl::StatusOr<RopeBlock> ReadBlock(const ConfigObject& block, const ModelType& type) {
  RopeBlock result;
  POSENC_ASSIGN_OR_RETURN(const auto rope_type, RopeTypeOf(block, type));
  result.path = block.path();
  result.object = block;
  if (block.Find("rope_type") == nullptr && block.Find("type") != nullptr) result.type_key = "type";
  result.parameters.rope_type = rope_type.value_or("default");
  result.has_factor = block.tree().contains("factor");
  if (HasScalingBeta(type)) {
    POSENC_ASSIGN_OR_RETURN(result.llama_4_scaling_beta, block.Number({kScalingBeta}));
  }
  FieldReader reader{block, absl::OkStatus()};
  VisitFields(result.parameters, [&reader](std::string_view name, auto& field) {
    if constexpr (std::is_invocable_v<FieldReader&, std::string_view, decltype(field)>) {
      if (!IsOurs(name)) reader(name, field);
    }
  });
  POSENC_RETURN_IF_ERROR(reader.status);
  const auto is_null = [&block](std::string_view name) {
    return block.tree().contains(std::string(name)) && block.Find(name) == nullptr;
  };
  result.null_attention_factor = is_null("attention_factor");
  if (is_null("truncate")) result.parameters.truncate = false;  // as Python's None
  for (std::string_view name :
       {"rope_theta", "partial_rotary_factor", "factor", "original_max_position_embeddings", "mrope_section"}) {
    if (is_null(name)) result.nulls.emplace_back(name);
  }
  POSENC_RETURN_IF_ERROR(ReadSections(block, type, &result.parameters));

  const std::vector<std::string_view> known = KnownFields(type);
  for (const auto& [key, value] : block.tree().items()) {
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      return InvalidArgument(
          "UNKNOWN_FIELD", block.Path(key), AsText(value),
          fmt::format("must be absent or a field of rope_type \"{}\"", Quote(result.parameters.rope_type)));
    }
  }
  return result;
}

// A block is nested by layer type if its values are objects (or null: a layer type without rope).
bool IsNested(const json& block) {
  for (const auto& [key, value] : block.items()) {
    if (value.is_object()) return true;
  }
  return false;
}

}  // namespace

absl::StatusOr<RopeBlocks> ReadRopeBlocks(const ConfigObject& config, const ModelType& type) {
  POSENC_ASSIGN_OR_RETURN(auto old_block, config.Object("rope_scaling"));
  POSENC_ASSIGN_OR_RETURN(auto new_block, config.Object("rope_parameters"));
  if (old_block && (old_block->tree().empty() || type.block_in == BlockIn::kRopeParameters))
    old_block.reset();  // as transformers does
  if (old_block && new_block) {
    POSENC_ASSIGN_OR_RETURN(const auto old_type, RopeTypeOf(*old_block, type));
    POSENC_ASSIGN_OR_RETURN(const auto new_type, RopeTypeOf(*new_block, type));
    const json &old_fields = old_block->tree(), &new_fields = new_block->tree();
    if (old_type != new_type || !HasFieldsOf(old_fields, new_fields) || !HasFieldsOf(new_fields, old_fields)) {
      return Against(config.Path("rope_parameters"),
                     InvalidArgument("CONFLICT", config.Path("rope_scaling"), AsText(old_fields),
                                     "must be equal to rope_parameters, or one of the two must be absent"));
    }
  }
  const auto& block = new_block ? new_block : old_block;
  RopeBlocks blocks;
  if (!block) return blocks;
  if (!IsNested(block->tree())) {
    POSENC_ASSIGN_OR_RETURN(RopeBlock read, ReadBlock(*block, type));
    blocks.emplace_back("", std::move(read));
    return blocks;
  }
  const std::vector<std::string_view> known = KnownFields(type);
  std::vector<std::string> beside;
  POSENC_ASSIGN_OR_RETURN(std::optional<bool> truncate, block->Bool("truncate"));
  if (!truncate && block->tree().contains("truncate")) truncate = false;  // as Python's None
  for (const auto& [layer_type, value] : block->tree().items()) {
    if (!value.is_object() && std::find(known.begin(), known.end(), layer_type) != known.end()) {
      if (layer_type != "truncate" && !value.is_null()) beside.push_back(block->Path(layer_type));
      continue;
    }
    if (blocks.size() == kMaxLayerTypes) {
      return InvalidArgument("OUT_OF_RANGE", block->path(), fmt::format("more than {} blocks", kMaxLayerTypes),
                             fmt::format("must name at most {} different layer types", kMaxLayerTypes));
    }
    if (layer_type.empty()) {
      return InvalidArgument("UNKNOWN_FIELD", block->path(), "a block named \"\"", "must name layer types");
    }
    POSENC_ASSIGN_OR_RETURN(const auto nested, block->Object(layer_type));
    if (!nested) {
      blocks.emplace_back(layer_type, std::nullopt);
      continue;
    }
    POSENC_ASSIGN_OR_RETURN(RopeBlock read, ReadBlock(*nested, type));
    blocks.emplace_back(layer_type, std::move(read));
  }
  for (auto& [layer_type, read] : blocks) {
    if (!read) continue;
    read->beside = beside;
    read->truncate_beside = truncate;
  }
  return blocks;
}

}  // namespace posenc
