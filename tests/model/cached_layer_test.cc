// CachedLayer() finds a model again by everything that SelectLayer() reads, and by nothing less.
#include <gtest/gtest.h>

#include "posenc/model/model.h"
#include "tests/service/call.h"

namespace posenc::cached_layer_test {
namespace {

const std::string kConfig =
    R"({"model_type": "gemma3_text", "hidden_size": 512, "head_dim": 128, "num_attention_heads": 4,)"
    R"( "num_hidden_layers": 6, "sliding_window_pattern": 6, "rope_theta": 1e6, "rope_local_base_freq": 1e4})";

std::shared_ptr<const ModelLayers> Found(const ModelSource& source, const Limits& limits = {}) {
  const auto found = CachedLayer(source, limits);
  EXPECT_THAT(found, IsOk());
  return found.ok() ? *found : nullptr;
}

TEST(CachedLayer, EqualSourcesShareOneEntry) {
  const ModelSource source{.config_json = kConfig, .layer = uint32_t{0}};
  const auto first = Found(source);
  EXPECT_EQ(Found(source), first);
  EXPECT_EQ(first->layer_type, "sliding_attention");
}

TEST(CachedLayer, EveryFieldOfTheSourceCounts) {
  const ModelSource source{.config_json = kConfig, .layer = uint32_t{0}};
  const auto first = Found(source);
  ModelSource other = source;
  other.config_json += ' ';
  EXPECT_NE(Found(other), first);
  other = source;
  other.layer = uint32_t{5};
  EXPECT_EQ(Found(other)->layer_type, "full_attention");
  other.layer = "full_attention";
  EXPECT_EQ(Found(other)->layer_type, "full_attention");
  other = source;
  other.input_pairing = Pairing::kInterleaved;
  EXPECT_EQ(Found(other)->rotary->input_pairing, Pairing::kInterleaved);
  EXPECT_NE(Found(source)->rotary->input_pairing, Pairing::kInterleaved);
  other = source;
  other.output_pairing = Pairing::kInterleaved;
  EXPECT_EQ(Found(other)->rotary->output_pairing, Pairing::kInterleaved);
}

// Names of equal length that lie on the heap.
TEST(CachedLayer, LayerTypesInTurn) {
  const std::string config = R"({"model_type": "dots3_note_text", "max_position_embeddings": 4096,)"
                             R"( "num_hidden_layers": 6, "qk_rope_head_dim": 16, "qk_nope_head_dim": 16})";
  for (int n = 0; n < 100; ++n) {
    for (const char* type : {"sliding_attention", "indexed_attention"}) {
      EXPECT_EQ(Found({.config_json = config, .layer = std::string(type)})->layer_type, type);
    }
  }
}

TEST(CachedLayer, LimitsApplyToCachedFiles) {
  const ModelSource source{.config_json = kConfig, .layer = uint32_t{0}};
  Found(source);
  EXPECT_THAT(CachedLayer(source, {.max_config_json_bytes = 16}), IsInvalid("OUT_OF_RANGE", "config_json"));
}

TEST(CachedLayer, ErrorsAreNotKept) {
  const ModelSource wrong{.config_json = kConfig, .layer = "chunked_attention"};
  for (int n = 0; n < 2; ++n) EXPECT_THAT(CachedLayer(wrong, {}), IsInvalid("UNKNOWN_VALUE", "layer_type"));
}

TEST(CachedLayer, LargeFilesAreNotKept) {
  const ModelSource source{.config_json = kConfig + std::string(128 << 10, ' '), .layer = uint32_t{0}};
  EXPECT_NE(Found(source), Found(source));
}

}  // namespace
}  // namespace posenc::cached_layer_test
