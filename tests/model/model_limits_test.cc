// Files of a few kilobytes that would take much memory or time, or that would be read as something else than they are.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "posenc/gguf/gguf_types.h"
#include "posenc/model/model.h"
#include "posenc/model/rope_block.h"
#include "tests/gguf/gguf_file.h"
#include "tests/service/call.h"

namespace posenc::model_limits_test {
namespace {

using testing::SizeIs;

// Reads a file with a width, heads, and `fields`.
absl::StatusOr<std::vector<ModelLayers>> Read(const std::string& model_type, const std::string& fields) {
  return ReadModel(
      {.config_json = fmt::format(R"({{"model_type": "{}", "hidden_size": 64, "num_attention_heads": 4, {}}})",
                                  model_type, fields),
       .wanted = Wanted::kAny},
      {});
}

TEST(ModelLimits, BlocksHaveNames) {
  for (const char* model_type : {"deepseek_v4", "step3p5", "olmo3", "gemma3_text", "llama", "qwen2_vl_vision"}) {
    for (const char* blocks : {R"({"": null, "a": {}})", R"({"": {}, "a": {}})"}) {
      EXPECT_THAT(Read(model_type, fmt::format(R"("rope_parameters": {})", blocks)),
                  IsInvalid("UNKNOWN_FIELD", "config_json.rope_parameters"))
          << model_type << blocks;
    }
  }
}

TEST(ModelLimits, NumberOfBlocks) {
  const auto read = [](size_t count) {
    std::vector<std::string> blocks;
    for (size_t n = 0; n < count; ++n) blocks.push_back(fmt::format(R"("type{}": {{"rope_theta": 5}})", n));
    return Read("gemma3_text", fmt::format(R"("rope_parameters": {{{}}})", fmt::join(blocks, ", ")));
  };
  EXPECT_THAT(read(kMaxLayerTypes), IsOk());
  EXPECT_THAT(read(kMaxLayerTypes + 1), IsInvalid("OUT_OF_RANGE", "config_json.rope_parameters"));
}

TEST(ModelLimits, NamesThatEachLayerRepeats) {
  const auto read = [](size_t length) {
    return Read("recurrent_gemma",
                fmt::format(R"("num_hidden_layers": 6, "block_types": ["recurrent", "{}"])", std::string(length, 'a')));
  };
  EXPECT_THAT(read(64), IsOk());
  EXPECT_THAT(read(65), IsInvalid("UNKNOWN_VALUE", "config_json.block_types[1]"));
}

TEST(ModelLimits, LayersOfAllStages) {
  const auto read = [](int depth) {
    return Read("swinv2",
                fmt::format(R"("depths": [{}, 99999], "num_heads": [2, 4], "pretrained_window_sizes": [0, 0])", depth));
  };
  EXPECT_THAT(read(1), IsOk());
  EXPECT_THAT(read(2), IsInvalid("OUT_OF_RANGE", "config_json.depths"));
}

TEST(ModelLimits, Notes) {
  std::vector<std::string> thetas, types;
  for (int n = 0; n < 100; ++n) {
    thetas.push_back(std::to_string(10000 + n));
    types.emplace_back(R"("full_attention")");
  }
  const auto layers =
      Read("step3p5", fmt::format(R"("num_hidden_layers": 100, "layer_types": [{}], "rope_theta": [{}])",
                                  fmt::join(types, ", "), fmt::join(thetas, ", ")));
  ASSERT_THAT(layers, IsOk());
  EXPECT_THAT(layers->front().notes, SizeIs(kMostNotes + 1));
  EXPECT_EQ(layers->front().notes.back().code, "MORE_NOTES");
}

TEST(ModelLimits, WidthsOfAGguf) {
  using gguf_file::Number;
  const auto read = [](uint32_t width) {
    return ReadModel({.gguf = WriteGguf(gguf_file::Model("llama", {Number("llama.attention.key_length", width),
                                                                   Number("llama.rope.dimension_count", width)}))},
                     {.max_rotary_dim = 1024});
  };
  EXPECT_THAT(read(1024), IsOk());
  EXPECT_THAT(read(1026), IsInvalid("OUT_OF_RANGE", "gguf.llama.rope.dimension_count"));
}

TEST(ModelLimits, AxesOfDiffusers) {
  const std::vector<int> widths(65, 2);
  EXPECT_THAT(
      ReadModel({.config_json = fmt::format(R"({{"_class_name": "FluxTransformer2DModel", "axes_dims_rope": [{}]}})",
                                            fmt::join(widths, ", "))},
                {}),
      IsInvalid("OUT_OF_RANGE", "config_json.axes_dims_rope"));
}

TEST(ModelLimits, SharesThatNoIntegerHolds) {
  EXPECT_THAT(Read("efficientloftr", R"("partial_rotary_factor": 1e300)"),
              IsInvalid("MISMATCH", "config_json.num_attention_heads"));
  EXPECT_THAT(Read("deepseek_v4", R"("partial_rotary_factor": 1e300)"), IsOk());  // refused as settings
}

TEST(ModelLimits, TermsThatAreSwitchedOffAreNoRotaryEmbedding) {
  EXPECT_THAT(Read("vits", R"("window_size": null)"), IsInvalid("UNSUPPORTED", "config_json.window_size"));
}

}  // namespace
}  // namespace posenc::model_limits_test
