// The settings in files of diffusers' transformers, by _class_name. The numbers are those of the classes' source;
// scripts/conformance compares tables with the classes themselves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numbers>

#include "posenc/model/diffusers.h"
#include "posenc/model/model.h"
#include "tests/service/call.h"

namespace posenc::model_diffusers_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// `fields` are the file's other fields, beginning with a comma.
absl::StatusOr<ModelLayers> Read(const std::string& class_name, const std::string& fields = "",
                                 Wanted wanted = Wanted::kAny) {
  return SelectLayer({.config_json = R"({"_class_name": ")" + class_name + '"' + fields + "}", .wanted = wanted}, {});
}

std::vector<int64_t> Widths(const ModelLayers& layers) {
  std::vector<int64_t> widths;
  for (const AxialAxis& axis : std::get<AxialRope>(layers.rotary->frequencies).axes) widths.push_back(axis.dim);
  return widths;
}

TEST(Diffusers, AxesDivideWhatTurns) {
  const struct {
    const char* class_name;
    const char* fields;
    std::vector<int64_t> widths;
    double theta;
  } cases[] = {
      {"FluxTransformer2DModel", "", {16, 56, 56}, 10000},
      {"FluxTransformer2DModel", R"(, "axes_dims_rope": [4, 6, 6])", {4, 6, 6}, 10000},
      {"HunyuanVideoTransformer3DModel", "", {16, 56, 56}, 256},
      {"Flux2Transformer2DModel", R"(, "rope_theta": 500)", {32, 32, 32, 32}, 500},
      {"JoyImageEditTransformer3DModel", R"(, "theta": 300, "rope_dim_list": [2, 4, 6])", {2, 4, 6}, 300},
      {"JoyImageEditTransformer3DModel", R"(, "rope_dim_list": null, "num_attention_heads": 32)", {32, 32, 32}, 256},
      {"WanTransformer3DModel", R"(, "attention_head_dim": 40)", {16, 12, 12}, 10000},
      {"WanAnimate2Transformer3DModel", R"(, "dim": 96, "num_heads": 2)", {16, 16, 16}, 10000},
      {"SanaWMTransformer3DModel", "", {40, 36, 36}, 10000},
      {"CogVideoXTransformer3DModel", R"(, "use_rotary_positional_embeddings": true)", {16, 24, 24}, 10000},
      {"CogView4Transformer2DModel", R"(, "attention_head_dim": 128)", {64, 64}, 10000},
      {"AllegroTransformer3DModel", "", {32, 32, 32}, 10000},
      {"LuminaNextDiT2DModel", "", {36, 36}, 10000},
      {"MiniMaxH3Transformer3DModel", R"(, "rope_freq_dim": 4, "rope_theta": 77)", {8, 8, 8}, 77},
  };
  for (const auto& [class_name, fields, widths, theta] : cases) {
    const auto layers = Read(class_name, fields);
    ASSERT_THAT(layers, IsOk()) << class_name;
    EXPECT_EQ(Widths(*layers), widths) << class_name;
    for (const AxialAxis& axis : std::get<AxialRope>(layers->rotary->frequencies).axes) {
      EXPECT_EQ(axis.rope_theta, theta) << class_name;
    }
    EXPECT_EQ(layers->notes.front().code, "RULES");
  }
  EXPECT_EQ(Read("AllegroTransformer3DModel")->rotary->half_split_parts, 3);
  EXPECT_TRUE(std::get<AxialRope>(Read("LuminaNextDiT2DModel")->rotary->frequencies).alternating);
}

TEST(Diffusers, OneAxis) {
  const struct {
    const char* class_name;
    int64_t rotary_dim;
    double theta;
  } cases[] = {{"AceStepTransformer1DModel", 128, 1e6},
               {"LongCatAudioDiTTransformer", 64, 1e5},
               {"MiniMaxMusic3Transformer1DModel", 32, 1e4},
               {"StableAudio3DiTModel", 32, 1e4},
               {"StableAudioDiTModel", 32, 1e4}};
  for (const auto& [class_name, rotary_dim, theta] : cases) {
    const auto layers = Read(class_name);
    ASSERT_THAT(layers, IsOk()) << class_name;
    EXPECT_EQ(layers->rotary->rotary_dim, rotary_dim) << class_name;
    EXPECT_EQ(std::get<RopeParameters>(layers->rotary->frequencies).rope_theta, theta) << class_name;
    EXPECT_EQ(layers->rotary->input_pairing, Pairing::kHalfSplit) << class_name;
  }
}

TEST(Diffusers, Sections) {
  const auto cosmos = Read("Cosmos3OmniTransformer"), ideogram = Read("Ideogram4Transformer2DModel");
  EXPECT_THAT(std::get<RopeParameters>(cosmos->rotary->frequencies).mrope_section, ElementsAre(24, 20, 20));
  EXPECT_THAT(std::get<RopeParameters>(ideogram->rotary->frequencies).mrope_section, ElementsAre(88, 20, 20));
  EXPECT_EQ(std::get<RopeParameters>(ideogram->rotary->frequencies).mrope_order, MropeOrder::kInterleaved);
  const auto scaled = Read("Cosmos3OmniTransformer", R"(, "rope_scaling": {"mrope_section": [32, 16, 16]})");
  EXPECT_THAT(std::get<RopeParameters>(scaled->rotary->frequencies).mrope_section, ElementsAre(32, 16, 16));
  const auto not_read = Read("Ideogram4Transformer2DModel", R"(, "rope_scaling": {"mrope_section": [0, 1, 1]})");
  EXPECT_THAT(std::get<RopeParameters>(not_read->rotary->frequencies).mrope_section, ElementsAre(88, 20, 20));
  // h and w have at most every third pair: Cosmos 3 ignores what is more, the other class fails.
  const auto most = Read("Cosmos3OmniTransformer", R"(, "rope_axes_dim": [0, 60, 5])");
  EXPECT_THAT(std::get<RopeParameters>(most->rotary->frequencies).mrope_section, ElementsAre(38, 21, 5));
  EXPECT_EQ(most->notes.back().code, "NOT_USED");
  EXPECT_EQ(most->notes.back().field, "config_json.rope_axes_dim");
  const auto narrow = Read("Cosmos3OmniTransformer", R"(, "head_dim": 64)");
  EXPECT_THAT(std::get<RopeParameters>(narrow->rotary->frequencies).mrope_section, ElementsAre(11, 11, 10));
  EXPECT_THAT(Read("Ideogram4Transformer2DModel", R"(, "mrope_section": [0, 60, 5])"),
              IsInvalid("MISMATCH", "config_json.mrope_section"));
  EXPECT_THAT(Read("Cosmos3OmniTransformer", R"(, "rope_scaling": {"mrope_section": [24, 20]})"),
              IsInvalid("MISMATCH", "config_json.rope_scaling.mrope_section"));
  EXPECT_THAT(Read("Cosmos3OmniTransformer", R"(, "rope_axes_dim": [24, 20])"),
              IsInvalid("MISMATCH", "config_json.rope_axes_dim"));
}

TEST(Diffusers, OmniGensFactors) {
  const auto omni_gen =
      Read("OmniGenTransformer2DModel", R"(, "hidden_size": 8, "num_attention_heads": 2, "rope_base": 5,
      "rope_scaling": {"type": "su", "short_factor": [1, 2], "long_factor": [3, 4]}, "max_position_embeddings": 64,
      "original_max_position_embeddings": 16)");
  ASSERT_THAT(omni_gen, IsOk());
  const auto& parameters = std::get<RopeParameters>(omni_gen->rotary->frequencies);
  EXPECT_EQ(parameters.rope_type, "longrope");
  EXPECT_EQ(parameters.rope_theta, 5);
  EXPECT_EQ(parameters.original_max_position_embeddings, 16);
  EXPECT_EQ(omni_gen->rotary->max_position_embeddings, 64);
  EXPECT_EQ(omni_gen->rotary->rotary_dim, 4);
  EXPECT_THAT(parameters.long_factor, ElementsAre(3, 4));
  EXPECT_THAT(Read("OmniGenTransformer2DModel", "", Wanted::kRotaryOrBias),
              IsInvalid("MISSING", "config_json.rope_scaling"));
  const auto other = Read("OmniGenTransformer2DModel", R"(, "rope_scaling": {"short_factor": [1], "long_factor": [2],
      "factor": 4, "attention_factor": 9})");
  ASSERT_THAT(other, IsOk());  // the class does not read `factor` and `attention_factor`
  EXPECT_EQ(std::get<RopeParameters>(other->rotary->frequencies).factor, std::nullopt);
  EXPECT_THAT(Read("OmniGenTransformer2DModel", R"(, "rope_scaling": {"short_factor": [1]})"),
              IsInvalid("MISSING", "config_json.rope_scaling.long_factor"));
}

// 2 heads of 10 elements: 10 pairs, one of which does not rotate, and three frequencies per axis.
TEST(Diffusers, LtxsAxesTakeTurns) {
  const char heads[] = R"(, "num_attention_heads": 2, "attention_head_dim": 10)";
  const auto ltx = Read("LTXVideoTransformer3DModel", heads);
  ASSERT_THAT(ltx, IsOk());
  const auto& given = std::get<GivenFrequencies>(ltx->rotary->frequencies);
  EXPECT_THAT(given.axis, ElementsAre(0, 0, 1, 2, 0, 1, 2, 0, 1, 2));
  constexpr double kFirst = std::numbers::pi / 2;
  EXPECT_THAT(given.inv_freq, ElementsAre(0, kFirst, kFirst, kFirst, 100 * kFirst, 100 * kFirst, 100 * kFirst,
                                          10000 * kFirst, 10000 * kFirst, 10000 * kFirst));
  const auto split = Read("LTX2VideoTransformer3DModel", std::string(heads) + R"(, "rope_type": "split")");
  ASSERT_THAT(split, IsOk());
  EXPECT_EQ(split->rotary->half_split_parts, 2);
  EXPECT_EQ(split->rotary->input_pairing, Pairing::kHalfSplit);
  EXPECT_EQ(Read("LTXVideoTransformer3DModel", R"(, "rope_type": "split")")->rotary->input_pairing,
            Pairing::kInterleaved);
  EXPECT_THAT(Read("LTXVideoTransformer3DModel", R"(, "num_attention_heads": 1048576, "attention_head_dim": 1048576)"),
              IsInvalid("OUT_OF_RANGE", "config_json.attention_head_dim"));
  EXPECT_THAT(Read("LTX2VideoTransformer3DModel", R"(, "rope_type": "other")"),
              IsInvalid("UNKNOWN_VALUE", "config_json.rope_type"));
  EXPECT_THAT(Read("LTXVideoTransformer3DModel", R"(, "num_attention_heads": 1, "attention_head_dim": 10)"),
              IsInvalid("OUT_OF_RANGE", "config_json.attention_head_dim"));
}

TEST(Diffusers, SinesOfAGrid) {
  const auto pixart = Read("PixArtTransformer2DModel");
  ASSERT_THAT(pixart, IsOk());
  EXPECT_EQ(pixart->grid->dim, 1152);
  EXPECT_EQ(pixart->grid->base_size, 64);
  EXPECT_EQ(pixart->grid->interpolation_scale, 2);
  EXPECT_EQ(Read("PixArtTransformer2DModel", R"(, "sample_size": 32)")->grid->interpolation_scale, 1);
  EXPECT_EQ(Read("PixArtTransformer2DModel", R"(, "interpolation_scale": 0.5)")->grid->interpolation_scale, 0.5);
  EXPECT_EQ(Read("DiTTransformer2DModel", R"(, "sample_size": 256)")->grid->interpolation_scale, 1);

  const auto sd3 = Read("SD3Transformer2DModel", R"(, "pos_embed_max_size": 192)");
  EXPECT_EQ(sd3->grid->base_size, 64);
  EXPECT_EQ(sd3->grid->pos_embed_max_size, 192);
  EXPECT_EQ(Read("SD3Transformer2DModel", R"(, "pos_embed_max_size": null)")->grid->pos_embed_max_size, std::nullopt);

  const auto cog_video = Read("CogVideoXTransformer3DModel");
  EXPECT_EQ(cog_video->grid->dim, 1920);
  EXPECT_EQ(cog_video->grid->extra_tokens, 226);
  EXPECT_EQ(cog_video->grid->interpolation_scale, 1.875);
  EXPECT_TRUE(cog_video->grid->frames);
  EXPECT_EQ(Read("CogView3PlusTransformer2DModel")->grid->convention, GridConvention::kMae);
}

// The request gives the size and, for a video, the number of frames.
TEST(Diffusers, SizesComeWithTheRequest) {
  v1::GenerateEmbeddingRequest request;
  request.set_dtype(v1::DATA_TYPE_FP32);
  request.mutable_grid()->mutable_model()->set_config_json(
      R"({"_class_name": "CogVideoXTransformer3DModel", "num_attention_heads": 1, "max_text_seq_length": 3})");
  EXPECT_THAT(Call(request), IsInvalid("OUT_OF_RANGE", "grid.height"));
  request.mutable_grid()->set_height(2);
  request.mutable_grid()->set_width(5);
  EXPECT_THAT(Call(request), IsInvalid("OUT_OF_RANGE", "grid.frames"));
  request.mutable_grid()->set_frames(4);
  const auto response = Call(request);
  ASSERT_THAT(response, IsOk());
  EXPECT_THAT(response->embedding().shape(), ElementsAre(3 + 4 * 2 * 5, 64));
}

TEST(Diffusers, WhatTheRequestSaysOtherwiseIsRefused) {
  v1::GenerateEmbeddingRequest request;
  request.set_dtype(v1::DATA_TYPE_FP32);
  auto& grid = *request.mutable_grid();
  grid.mutable_model()->set_config_json(R"({"_class_name": "SD3Transformer2DModel"})");
  grid.set_height(2);
  grid.set_width(2);
  grid.set_temperature(10000);
  grid.set_interpolation_scale(1);
  EXPECT_THAT(Call(request), IsOk());
  grid.set_frames(2);
  EXPECT_THAT(Call(request), IsInvalid("CONFLICT", "grid.frames"));
  grid.clear_frames();
  grid.set_extra_tokens(1);
  EXPECT_THAT(Call(request), IsInvalid("CONFLICT", "grid.extra_tokens"));
}

TEST(Diffusers, TheRequestsPairingCounts) {
  const auto layers = SelectLayer(
      {.config_json = R"({"_class_name": "FluxTransformer2DModel"})", .input_pairing = Pairing::kHalfSplit}, {});
  ASSERT_THAT(layers, IsOk());
  EXPECT_EQ(layers->rotary->input_pairing, Pairing::kHalfSplit);
  EXPECT_EQ(layers->rotary->output_pairing, Pairing::kHalfSplit);
}

TEST(Diffusers, CosmosScalesTheta) {
  const auto cosmos = Read("CosmosTransformer3DModel", R"(, "attention_head_dim": 12, "rope_scale": [4, 1, 9])");
  ASSERT_THAT(cosmos, IsOk());
  std::vector<double> thetas;
  for (const AxialAxis& axis : std::get<AxialRope>(cosmos->rotary->frequencies).axes)
    thetas.push_back(*axis.rope_theta);
  EXPECT_THAT(thetas, ElementsAre(160000, 10000, 810000));  // axes of width 4: theta times the square of the scale
  EXPECT_THAT(Read("CosmosTransformer3DModel", R"(, "attention_head_dim": 6)"),
              IsInvalid("OUT_OF_RANGE", "config_json.attention_head_dim"));
}

TEST(Diffusers, OtherInputs) {
  const auto latte = Read("LatteTransformer3DModel", R"(, "num_attention_heads": 3, "interpolation_scale": 5)");
  ASSERT_THAT(latte, IsOk());
  EXPECT_EQ(latte->sinusoidal->dim, 264);
  EXPECT_EQ(latte->sinusoidal->convention, SinusoidalConvention::kHalves);
  EXPECT_THAT(Read("LatteTransformer3DModel", "", Wanted::kGrid), IsInvalid("MISSING", "config_json.patch_size"));
  const auto cells = Read("LatteTransformer3DModel", R"(, "patch_size": 2, "interpolation_scale": 5)", Wanted::kGrid);
  EXPECT_EQ(cells->grid->base_size, 32);
  EXPECT_EQ(cells->grid->interpolation_scale, 1);  // the class reads no such field
  EXPECT_THAT(Read("TransformerTemporalModel"), IsInvalid("UNSUPPORTED", "config_json.positional_embeddings"));
  EXPECT_THAT(Read("TransformerTemporalModel", R"(, "positional_embeddings": "sinusoidal")"), IsOk());
  EXPECT_THAT(Read("HiDreamImageTransformer2DModel"), IsInvalid("MISSING", "config_json.axes_dims_rope"));

  const auto prior = Read("PriorTransformer", R"(, "additional_embeddings": 3)");
  ASSERT_THAT(prior, IsOk());
  EXPECT_EQ(prior->table->rows, 80);
  EXPECT_EQ(prior->table->width, 2048);
}

TEST(Diffusers, SanaWithoutAScaleHasNoEncoding) {
  for (const char* fields : {"", R"(, "interpolation_scale": null)"}) {
    const auto sana = Read("SanaTransformer2DModel", fields);
    ASSERT_THAT(sana, IsOk());
    EXPECT_FALSE(sana->grid);
    EXPECT_EQ(sana->notes.back().code, "NO_ENCODING");
    EXPECT_EQ(sana->notes.back().field, "config_json.interpolation_scale");
  }
  EXPECT_TRUE(Read("SanaTransformer2DModel", R"(, "interpolation_scale": 2)")->grid);
}

TEST(Diffusers, WhatAFileHasNotIsRefused) {
  EXPECT_THAT(Read("UNet2DConditionModel"), IsInvalid("UNSUPPORTED", "config_json._class_name"));
  EXPECT_THAT(SelectLayer({.config_json = R"({"_class_name": null})"}, {}),
              IsInvalid("MISSING", "config_json._class_name"));
  const auto mochi = Read("MochiTransformer3DModel");
  EXPECT_THAT(mochi, IsInvalid("UNSUPPORTED", "config_json._class_name"));
  EXPECT_THAT(mochi.status().message(), HasSubstr("learned"));
  const auto grid = Read("FluxTransformer2DModel", "", Wanted::kGrid);
  EXPECT_THAT(grid, IsInvalid("UNSUPPORTED", "config_json._class_name"));
  EXPECT_THAT(grid.status().message(), HasSubstr("has a rotary embedding"));
  EXPECT_THAT(Read("LatteTransformer3DModel", "", Wanted::kRotaryOrBias).status().message(),
              HasSubstr("has a sinusoidal grid embedding: GenerateEmbedding.grid; and a sinusoidal embedding"));
  EXPECT_THAT(Read("FluxTransformer2DModel", "", Wanted::kTerms), IsInvalid("UNSUPPORTED", "config_json._class_name"));
  EXPECT_THAT(Read("CogVideoXTransformer3DModel", "", Wanted::kRotaryOrBias),
              IsInvalid("UNSUPPORTED", "config_json.use_rotary_positional_embeddings"));
  EXPECT_THAT(Read("CogVideoXTransformer3DModel", R"(, "use_rotary_positional_embeddings": true)", Wanted::kGrid),
              IsInvalid("UNSUPPORTED", "config_json.use_rotary_positional_embeddings"));
  EXPECT_THAT(Read("SanaTransformer2DModel", "", Wanted::kGrid),
              IsInvalid("MISSING", "config_json.interpolation_scale"));
  EXPECT_THAT(Read("SanaTransformer2DModel", R"(, "interpolation_scale": null)", Wanted::kGrid),
              IsInvalid("UNSUPPORTED", "config_json.interpolation_scale"));
  EXPECT_THAT(Read("FluxTransformer2DModel", R"(, "axes_dims_rope": [16, "56"])"),
              IsInvalid("OUT_OF_RANGE", "config_json.axes_dims_rope[1]"));
  EXPECT_THAT(Read("CosmosTransformer3DModel", R"(, "rope_scale": [2.0])"),
              IsInvalid("MISMATCH", "config_json.rope_scale"));
  EXPECT_THAT(Read("WanTransformer3DModel", R"(, "attention_head_dim": 0)"),
              IsInvalid("OUT_OF_RANGE", "config_json.attention_head_dim"));
  EXPECT_THAT(Read("LongCatAudioDiTTransformer", R"(, "dit_dim": 100)"), IsInvalid("MISMATCH", "config_json.dit_dim"));
  EXPECT_THAT(Read("DiTTransformer2DModel", R"(, "patch_size": 64)"),
              IsInvalid("OUT_OF_RANGE", "config_json.patch_size"));
  EXPECT_THAT(Read("PriorTransformer", R"(, "num_embeddings": 99999999999)"),
              IsInvalid("OUT_OF_RANGE", "config_json.num_embeddings"));
}

}  // namespace
}  // namespace posenc::model_diffusers_test
