// Files of every known class with one field that is wrong: a refusal names a place that a file can have, not a setting
// that was computed from it, and says value and limit.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>

#include "posenc/model/diffusers_types.h"
#include "posenc/model/model_types.h"
#include "tests/service/call.h"

namespace posenc::refusals_test {
namespace {

using nlohmann::json;
using Names = std::set<std::string>;

// Names of settings, which no class reads from its file.
const Names& Settings() {
  static const Names& names =
      *new Names{"axial", "given_frequencies", "given_table", "t5", "swin", "beit", "swin_v2", "axes"};
  return names;
}

// Returns whether `path` names a field of the file, or one that the file could have.
bool IsOfFile(const json& file, std::string path) {
  const json* node = &file;
  for (char& c : path) {
    if (c == '[' || c == ']') c = '.';
  }
  std::istringstream parts(path);
  for (std::string part; std::getline(parts, part, '.');) {
    if (part.empty()) continue;
    if (node->is_array()) {
      const size_t at = std::stoul(part);
      if (at >= node->size()) return false;
      node = &(*node)[at];
    } else if (!node->is_object()) {
      return false;
    } else if (!node->contains(part)) {
      return !Settings().contains(part);
    } else {
      node = &(*node)[part];
    }
  }
  return true;
}

// Explains the file. Returns whether it was refused.
bool CheckRefusal(const json& file) {
  constexpr std::string_view kFile = "model.config_json";
  v1::ExplainRequest request;
  request.mutable_model()->set_config_json(file.dump());
  v1::ExplainResponse response;
  const absl::Status status = wire::Prepare(request, wire::InMessage(), wire::CallContext(), &response).status();
  if (status.ok()) return false;
  const ErrorDetails details = DetailsOf(status);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << file << status;
  EXPECT_FALSE(details.value.empty()) << file << status;
  EXPECT_TRUE(details.limit.starts_with("must ")) << file << status;
  for (const std::string& field : {details.field, details.other_field}) {
    if (field.starts_with(kFile)) {
      EXPECT_TRUE(IsOfFile(file, field.substr(kFile.size()))) << file << status;
    } else {
      EXPECT_TRUE(field.empty() || field.starts_with("model.")) << file << status;
    }
  }
  EXPECT_FALSE(details.field.empty()) << file << status;
  return true;
}

const std::vector<json>& WrongValues() {
  static const auto& values = *new std::vector<json>{"x", -1, 0, 1.5, true, {1}, json::object(), 1000000000000, 63};
  return values;
}

// Returns how many files were refused.
int CheckAll(const json& base, const Names& fields) {
  int refused = 0;
  for (const std::string& field : fields) {
    if (field.empty()) continue;
    for (const json& value : WrongValues()) {
      json file = base;
      file[field] = value;
      refused += CheckRefusal(file);
    }
  }
  return refused;
}

std::vector<json> Blocks() {
  return {{{"rope_type", "linear"}, {"factor", 2.0}},
          {{"type", "dynamic"}, {"factor", 2.0}},
          {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 64}, {"beta_fast", 32}},
          {{"rope_type", "longrope"}, {"short_factor", {1, 2}}, {"long_factor", {1, 2}}, {"factor", 4}},
          {{"type", "default"}, {"rope_theta", 5.0}, {"mrope_section", {2, 3, 3}}, {"partial_rotary_factor", 0.5}},
          {{"rope_type", "llama3"},
           {"factor", 8.0},
           {"low_freq_factor", 1.0},
           {"high_freq_factor", 4.0},
           {"original_max_position_embeddings", 64}}};
}

int CheckBlocks(const json& base) {
  int refused = 0;
  for (const char* spelling : {"rope_scaling", "rope_parameters"}) {
    for (const json& block : Blocks()) {
      for (const auto& [key, unused] : block.items()) {
        for (const json& value : WrongValues()) {
          json file = base;
          file[spelling] = block;
          file[spelling][key] = value;
          refused += CheckRefusal(file);
        }
      }
    }
  }
  return refused;
}

TEST(Refusals, OfModelTypesNameTheirField) {
  int refused = 0;
  for (const ModelType* type : AllModelTypes()) {
    const json base = {{"model_type", type->name},      {"hidden_size", 64},
                       {"num_attention_heads", 4},      {"num_hidden_layers", 4},
                       {"max_position_embeddings", 64}, {"use_relative_position_bias", true}};
    Names fields = {"hidden_size",
                    "num_attention_heads",
                    "num_heads",
                    "head_dim",
                    "rope_theta",
                    "rope_scaling",
                    "rope_parameters",
                    "partial_rotary_factor",
                    "rotary_dim",
                    "layer_types",
                    "qk_rope_head_dim",
                    "qk_nope_head_dim",
                    "image_size",
                    "patch_size",
                    "window_size",
                    "depths",
                    "embed_dim",
                    "max_position_embeddings",
                    "original_max_position_embeddings",
                    "text_config",
                    "vision_config"};
    for (const std::string_view name :
         {type->head_dim_field, type->hidden_size_field, type->heads_field, type->theta_field, type->partial_field,
          type->rotary_dim_field, type->pattern.field, type->pattern.indices_field}) {
      fields.emplace(name);
    }
    for (const std::string_view name : type->rules.fields) fields.emplace(name);
    if (type->one_stack) {
      for (const std::string_view name :
           {type->one_stack->buckets_field, type->one_stack->distance_field, type->one_stack->rows_field}) {
        fields.emplace(name);
      }
    }
    if (type->sines) fields.emplace(type->sines->width_field);
    refused += CheckAll(base, fields);
    if (type->scheme == Scheme::kRotary || type->scheme == Scheme::kAxial) refused += CheckBlocks(base);
  }
  EXPECT_GT(refused, 10000);
}

// Blocks by layer type under names that other classes use, also in files that do not say how many layers there are.
TEST(Refusals, OfBlocksByLayerTypeNameTheirField) {
  const std::vector<std::vector<const char*>> names = {{"main"},
                                                       {"", "other"},
                                                       {"sliding_attention"},
                                                       {"other", "main"},
                                                       {"main", "compress"},
                                                       {"compress", "full_attention"},
                                                       {"sliding_attention", "full_attention"}};
  const std::vector<json> blocks = {nullptr, json::object(), {{"rope_type", "linear"}, {"factor", 2.0}}};
  const std::vector<json> lists = {nullptr, {"sliding_attention", "full_attention"}, {"other", "other"}};
  int refused = 0;
  for (const ModelType* type : AllModelTypes()) {
    if (type->scheme != Scheme::kRotary && type->scheme != Scheme::kAxial) continue;
    for (const json& count : {json(nullptr), json(2)}) {
      for (const json& list : lists) {
        for (const auto& labels : names) {
          for (const json& first : blocks) {
            json file = {{"model_type", type->name}, {"hidden_size", 64},   {"num_attention_heads", 4},
                         {"head_dim", 16},           {"layer_types", list}, {"num_hidden_layers", count}};
            for (const char* label : labels) file["rope_parameters"][label] = {{"rope_theta", 5.0}};
            file["rope_parameters"][labels[0]] = first;
            refused += CheckRefusal(file);
          }
        }
      }
    }
  }
  EXPECT_GT(refused, 1000);
}

TEST(Refusals, OfDiffusersClassesNameTheirField) {
  int refused = 0;
  for (const DiffusersType& type : DiffusersTypes()) {
    Names fields = {"attention_head_dim",
                    "num_attention_heads",
                    "rope_scaling",
                    "rope_theta",
                    "rope_scale",
                    "patch_size",
                    "sample_size",
                    "interpolation_scale",
                    "pos_embed_max_size",
                    "max_position_embeddings",
                    "original_max_position_embeddings"};
    if (type.rotary) {
      for (const std::string_view name : {type.rotary->widths_field, type.rotary->theta_field, type.rotary->width.field,
                                          type.rotary->width.heads_field, type.rotary->pairing_field}) {
        fields.emplace(name);
      }
    }
    if (type.table) fields.emplace(type.table->rows_field);
    json base = {{"_class_name", type.class_name}};
    if (type.rotary && !type.rotary->only_if.empty()) base[std::string(type.rotary->only_if)] = true;
    if (type.class_name == "OmniGenTransformer2DModel") {
      base["rope_scaling"] = {{"short_factor", std::vector<double>(48, 1)},
                              {"long_factor", std::vector<double>(48, 2)}};
    }
    refused += CheckAll(base, fields);
  }
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace posenc::refusals_test
