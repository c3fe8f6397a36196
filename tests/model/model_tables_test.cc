// Learned position tables and windows of Swin v2's network in a config.json. The weights come with the request.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "posenc/model/model.h"
#include "posenc/model/model_types.h"
#include "tests/service/call.h"

namespace posenc::model_tables_test {
namespace {

absl::StatusOr<ModelTable> Read(const std::string& config_json, const std::string& component = "") {
  const auto layers =
      SelectLayer({.config_json = config_json, .component = component, .wanted = Wanted::kLearned}, Limits());
  if (!layers.ok()) return layers.status();
  return *layers->table;
}

void ExpectTable(const std::string& config_json, int64_t offset, int64_t rows, int64_t width) {
  const auto table = Read(config_json);
  ASSERT_THAT(table, IsOk()) << config_json;
  EXPECT_EQ(table->offset, offset) << config_json;
  EXPECT_EQ(table->rows, rows) << config_json;
  EXPECT_EQ(table->width, width) << config_json;
}

TEST(ModelTables, ByTheirClass) {
  ExpectTable(R"({"model_type": "bert", "max_position_embeddings": 512, "hidden_size": 768})", 0, 512, 768);
  ExpectTable(R"({"model_type": "gpt2", "n_positions": 1024, "n_embd": 768})", 0, 1024, 768);
  ExpectTable(R"({"model_type": "electra", "max_position_embeddings": 512, "hidden_size": 256, "embedding_size": 128})",
              0, 512, 128);
  ExpectTable(R"({"model_type": "roberta", "max_position_embeddings": 514, "hidden_size": 768, "pad_token_id": 1})", 2,
              514, 768);
  ExpectTable(R"({"model_type": "xlm-roberta", "max_position_embeddings": 514, "hidden_size": 8, "pad_token_id": 4})",
              5, 514, 8);
  ExpectTable(R"({"model_type": "opt", "max_position_embeddings": 2048, "hidden_size": 768})", 2, 2050, 768);
  ExpectTable(R"({"model_type": "bart", "max_position_embeddings": 1024, "d_model": 1024})", 2, 1026, 1024);
  ExpectTable(R"({"model_type": "vit", "image_size": 224, "patch_size": 16, "hidden_size": 768})", 0, 197, 768);
  ExpectTable(R"({"model_type": "internvl_vision", "image_size": [448, 224], "patch_size": [14, 14]})", 0, 513, 1024);
  ExpectTable(R"({"model_type": "lxmert", "num_hidden_layers": {"vision": 5}, "hidden_size": 768})", 0, 512, 768);
  ExpectTable(R"({"model_type": "vivit", "num_frames": 8, "tubelet_size": [2, 32, 16]})", 0, 4 * 7 * 14 + 1, 768);
  ExpectTable(R"({"model_type": "audio-spectrogram-transformer", "max_length": 512})", 0, 12 * 50 + 2, 768);
  ExpectTable(R"({"model_type": "yolos", "num_detection_tokens": 10})", 0, 1 + 32 * 54 + 10, 768);
  ExpectTable(R"({"model_type": "yolos", "image_size": [64, 32]})", 0, 1 + 4 * 2 + 100, 768);
  ExpectTable(R"({"model_type": "hunyuan_vl_vision", "max_image_size": 64})", 0, 4 * 4 + 1, 1152);
  ExpectTable(R"({"model_type": "mpnet", "pad_token_id": 7})", 2, 512, 768);
  ExpectTable(R"({"model_type": "whisper", "max_target_positions": 10, "d_model": 8})", 0, 10, 8);
  ExpectTable(R"({"model_type": "deberta", "max_position_embeddings": 512, "hidden_size": 768})", 0, 512, 768);
}

TEST(ModelTables, AreResizedByTheirClass) {
  const auto resize = [](const std::string& config_json) {
    const auto table = Read(config_json);
    EXPECT_THAT(table, IsOk()) << config_json;
    return table.ok() && table->resize ? *table->resize : TableResize{};
  };
  const TableResize qwen = resize(R"({"model_type": "qwen3_vl_vision", "spatial_merge_size": 4})");
  EXPECT_EQ(qwen.source, (std::vector<int64_t>{48, 48}));
  EXPECT_EQ(qwen.mode, ResizeMode::kBilinear);
  EXPECT_TRUE(qwen.align_corners);
  EXPECT_EQ(qwen.operations, ResizeOperations::kGather);
  EXPECT_EQ(qwen.spatial_merge_size, 4);
  const TableResize yolos = resize(R"({"model_type": "yolos", "image_size": [64, 32]})");
  EXPECT_EQ(yolos.source, (std::vector<int64_t>{4, 2}));
  EXPECT_EQ(yolos.rows_before, 1);
  EXPECT_EQ(yolos.rows_after, 100);
  const TableResize pixio = resize(R"({"model_type": "pixio", "n_cls_tokens": 3})");
  EXPECT_EQ(pixio.rows_before, 3);
  EXPECT_EQ(resize(R"({"model_type": "hunyuan_vl_vision", "interpolate_mode": "bicubic"})").mode, ResizeMode::kBicubic);
  EXPECT_EQ(resize(R"({"model_type": "sam3_lite_text_text_model"})").source, std::vector<int64_t>{77});
  EXPECT_EQ(Read(R"({"model_type": "idefics_vision"})")->resize_added, 0.1);
  EXPECT_FALSE(Read(R"({"model_type": "bert"})")->resize);
  EXPECT_THAT(Read(R"({"model_type": "hunyuan_vl_vision", "interpolate_mode": "area"})"),
              IsInvalid("UNKNOWN_VALUE", "config_json.interpolate_mode"));
  EXPECT_THAT(Read(R"({"model_type": "qwen3_vl_vision", "num_position_embeddings": 2305})"),
              IsInvalid("OUT_OF_RANGE", "config_json.num_position_embeddings"));
  EXPECT_THAT(Read(R"({"model_type": "qwen3_vl_vision", "spatial_merge_size": 0})"),
              IsInvalid("OUT_OF_RANGE", "config_json.spatial_merge_size"));
}

TEST(ModelTables, ThePartThatHasOne) {
  const std::string llava = R"({"model_type": "llava", "text_config": {"model_type": "mistral"}, "vision_config":
      {"model_type": "clip_vision_model", "hidden_size": 1024, "image_size": 336, "patch_size": 14}})";
  ExpectTable(llava, 0, 577, 1024);
  EXPECT_THAT(Read(llava, "text"), IsInvalid("UNSUPPORTED", "component"));
}

TEST(ModelTables, AreRefusedWhereThereAreNone) {
  for (const auto& [file, field] :
       {std::pair{R"({"model_type": "bert", "position_embedding_type": "relative_key"})", "position_embedding_type"},
        {R"({"model_type": "deberta-v2", "position_biased_input": false})", "position_biased_input"},
        {R"({"model_type": "llama"})", "model_type"},
        {R"({"model_type": "sam_vision_model", "use_abs_pos": false})", "use_abs_pos"},
        {R"({"model_type": "marian"})", "model_type"}}) {
    EXPECT_THAT(Read(file), IsInvalid("UNSUPPORTED", std::string("config_json.") + field)) << file;
  }
  EXPECT_THAT(Read(R"({"model_type": "roberta", "pad_token_id": "1"})"),
              IsInvalid("OUT_OF_RANGE", "config_json.pad_token_id"));
  EXPECT_THAT(Read(R"({"model_type": "vit", "image_size": 1099511627776, "patch_size": 1})"),
              IsInvalid("OUT_OF_RANGE", "config_json.image_size"));
  EXPECT_THAT(Read(R"({"model_type": "vivit", "tubelet_size": [2, 0, 16]})"),
              IsInvalid("OUT_OF_RANGE", "config_json.tubelet_size"));
  EXPECT_THAT(Read(R"({"model_type": "vivit", "tubelet_size": [2, 16]})"),
              IsInvalid("OUT_OF_RANGE", "config_json.tubelet_size"));
  EXPECT_THAT(Read(R"({"model_type": "audio-spectrogram-transformer", "time_stride": 0})"),
              IsInvalid("OUT_OF_RANGE", "config_json.time_stride"));
  EXPECT_THAT(Read(R"({"model_type": "vivit", "num_frames": 1000000})"),
              IsInvalid("OUT_OF_RANGE", "config_json.num_frames"));
  EXPECT_THAT(Read(R"({"model_type": "vit", "image_size": 8})"), IsInvalid("OUT_OF_RANGE", "config_json.image_size"));
  EXPECT_THAT(Read(R"({"model_type": "audio-spectrogram-transformer", "max_length": 1000000})"),
              IsInvalid("OUT_OF_RANGE", "config_json.max_length"));
  EXPECT_THAT(Read(R"({"model_type": "audio-spectrogram-transformer", "patch_size": 0})"),
              IsInvalid("OUT_OF_RANGE", "config_json.patch_size"));
  EXPECT_THAT(Read(R"({"model_type": "yolos", "num_detection_tokens": -1})"),
              IsInvalid("OUT_OF_RANGE", "config_json.num_detection_tokens"));
  EXPECT_THAT(Read(R"({"model_type": "audio-spectrogram-transformer", "num_mel_bins": 15})"),
              IsInvalid("OUT_OF_RANGE", "config_json.num_mel_bins"));
}

v1::GenerateEmbeddingRequest Opt(int64_t rows) {
  v1::GenerateEmbeddingRequest request;
  std::vector<double> table(rows);
  for (int64_t n = 0; n < rows; ++n) table[n] = static_cast<double>(n);
  *request.mutable_learned()->mutable_table() = MakeTensor(DType::kFP32, {rows, 1}, table);
  request.mutable_learned()->mutable_model()->set_config_json(
      R"({"model_type": "opt", "max_position_embeddings": 6, "hidden_size": 1})");
  request.mutable_positions()->set_offset(1);
  request.set_count(3);
  request.set_dtype(v1::DATA_TYPE_FP32);
  request.mutable_hints()->set_return_plan(true);
  return request;
}

TEST(LearnedOfModel, RowsStandAtTheOffset) {
  const auto response = Call(Opt(8));
  ASSERT_THAT(response, IsOk());
  EXPECT_EQ(ValuesOf(response->embedding()), (std::vector<double>{3, 4, 5}));
  EXPECT_EQ(response->info().plan().learned().offset(), 2);
  EXPECT_FALSE(response->info().plan().learned().has_table());
}

TEST(LearnedOfModel, WhatSaysOtherwiseIsRefused) {
  EXPECT_THAT(Call(Opt(6)), IsInvalid("MISMATCH", "learned.table.shape"));
  v1::GenerateEmbeddingRequest request = Opt(8);
  request.mutable_learned()->set_offset(2);
  EXPECT_THAT(Call(request), IsOk());
  request.mutable_learned()->set_offset(1);
  EXPECT_THAT(Call(request), IsInvalid("CONFLICT", "learned.offset"));
  request = Opt(8);
  request.mutable_learned()->set_scale(2);
  EXPECT_THAT(Call(request), IsInvalid("CONFLICT", "learned.scale"));
  request = Opt(8);
  request.mutable_learned()->clear_table();
  EXPECT_THAT(Call(request), IsInvalid("MISSING", "learned.table"));
}

// A class needs a default for each number that its file may omit.
TEST(LearnedOfModel, EveryClassSaysItsTable) {
  int count = 0;
  for (const ModelType* type : AllModelTypes()) {
    if (!type->learned) continue;
    ++count;
    const LearnedTable& table = *type->learned;
    EXPECT_GT(table.width, 0) << type->name;
    const bool counted = table.of == TableOf::kPositions || table.of == TableOf::kGrid;
    EXPECT_EQ(table.positions > 0, counted) << type->name;
    EXPECT_EQ(table.patch_size > 0, !counted) << type->name;
    EXPECT_EQ(table.grid_fields[0].empty(), table.of != TableOf::kGrid) << type->name;
    EXPECT_EQ(table.image_size > 0, table.of == TableOf::kImage || table.of == TableOf::kVideo) << type->name;
  }
  EXPECT_GT(count, 50);
}

// A bias of MPNet, whose class always has 32 buckets and whose table may have more rows.
absl::StatusOr<v1::GenerateBiasResponse> MpnetBias(int64_t config_rows, int64_t table_rows) {
  v1::GenerateBiasRequest request;
  request.mutable_method()->mutable_model()->set_config_json(
      fmt::format(R"({{"model_type": "mpnet", "relative_attention_num_buckets": {}}})", config_rows));
  constexpr int64_t kHeads = 2;
  std::vector<double> values;
  for (int64_t row = 0; row < table_rows; ++row) values.insert(values.end(), {1.0 + row, -1.0 - row});
  *request.mutable_method()->mutable_table() = MakeTensor(DType::kFP32, {table_rows, kHeads}, values);
  request.mutable_method()->set_table_layout(v1::BIAS_TABLE_LAYOUT_BUCKETS_BY_HEADS);
  request.mutable_geometry()->set_query_length(40);
  request.mutable_geometry()->set_key_length(40);
  request.set_form(v1::BIAS_FORM_DENSE);
  request.set_dtype(v1::DATA_TYPE_FP32);
  return Call(request);
}

TEST(BiasTables, RowsThatTheClassDoesNotReadMayBeGiven) {
  const auto usual = MpnetBias(32, 32), whole = MpnetBias(64, 64), cut = MpnetBias(64, 32);
  ASSERT_THAT(usual, IsOk());
  ASSERT_THAT(whole, IsOk());
  ASSERT_THAT(cut, IsOk());
  EXPECT_EQ(usual->bias().data(), whole->bias().data());
  EXPECT_EQ(usual->bias().data(), cut->bias().data());
  EXPECT_EQ(whole->info().notes(0).code(), "NOT_USED");
  EXPECT_THAT(MpnetBias(32, 64), IsInvalid("MISMATCH", "method.table.shape"));
  EXPECT_THAT(MpnetBias(64, 48), IsInvalid("MISMATCH", "method.table.shape"));
  EXPECT_THAT(MpnetBias(16, 16), IsInvalid("OUT_OF_RANGE", "method.model.config_json.relative_attention_num_buckets"));
}

constexpr char kSwin[] = R"({"model_type": "swinv2", "image_size": 256, "patch_size": 4, "depths": [2, 2, 6, 2],
    "num_heads": [3, 6, 12, 24], "window_size": 16, "pretrained_window_sizes": [12, 12, 12, 6]})";

TEST(SwinV2OfModel, ByStage) {
  const auto all = ReadModel({.config_json = kSwin}, {});
  ASSERT_THAT(all, IsOk());
  ASSERT_EQ(all->size(), 4u);
  EXPECT_EQ((*all)[3].layer_type, "stage4");
  EXPECT_THAT((*all)[3].layer_index, testing::ElementsAre(10, 11));
  const auto& last = std::get<SwinV2Settings>(*(*all)[3].bias);
  EXPECT_EQ(last.window.height, 8);  // 256/4/8 tokens a side
  EXPECT_EQ(last.pretrained_window->width, 6);
  EXPECT_EQ(std::get<SwinV2Settings>(*(*all)[0].bias).window.width, 16);
  EXPECT_EQ((*all)[0].bias_heads, 3);
}

TEST(SwinV2OfModel, StagesThatAreAlikeAreOne) {
  const auto all =
      ReadModel({.config_json = R"({"model_type": "swin2sr", "depths": [6, 6], "num_heads": [6, 6]})"}, {});
  ASSERT_THAT(all, IsOk());
  ASSERT_EQ(all->size(), 1u);
  EXPECT_EQ((*all)[0].layer_index.size(), 12u);
  const auto& settings = std::get<SwinV2Settings>(*(*all)[0].bias);
  EXPECT_EQ(settings.window.height, 8);
  EXPECT_FALSE(settings.pretrained_window);
}

// The class reads as many numbers as there are stages, and does not miss the others.
TEST(SwinV2OfModel, LongerListsAreReadToTheLastStage) {
  const auto all = ReadModel({.config_json = R"({"model_type": "swinv2", "depths": [2], "num_heads": [3, 6],
      "pretrained_window_sizes": [12, 6, 6]})"},
                             {});
  ASSERT_THAT(all, IsOk());
  ASSERT_EQ(all->size(), 1u);
  EXPECT_THAT((*all)[0].layer_index, testing::ElementsAre(0, 1));
  EXPECT_EQ((*all)[0].bias_heads, 3);
  EXPECT_EQ(std::get<SwinV2Settings>(*(*all)[0].bias).pretrained_window->height, 12);
  std::vector<std::string> unread;
  for (const Note& note : (*all)[0].notes) {
    if (note.code == "NOT_USED") unread.push_back(note.field);
  }
  EXPECT_THAT(unread, testing::ElementsAre("config_json.num_heads", "config_json.pretrained_window_sizes"));
  const auto not_read = ReadModel({.config_json = R"({"model_type": "swin2sr", "depths": [6, 6], "num_heads": [6, 6],
      "pretrained_window_sizes": [12]})"},
                                  {});
  EXPECT_THAT(not_read, IsOk());
}

TEST(SwinV2OfModel, BadFiles) {
  for (const auto& [fields, reason, field] :
       {std::tuple{R"("num_heads": [3, 6])", "MISSING", "depths"},
        {R"("depths": [2, 2], "num_heads": [3])", "MISMATCH", "num_heads"},
        {R"("depths": [2, -2], "num_heads": [3, 6])", "OUT_OF_RANGE", "depths"},
        {R"("depths": [2, 2], "num_heads": [3, 6], "pretrained_window_sizes": [12])", "MISMATCH",
         "pretrained_window_sizes"},
        {R"("depths": [2, 2])", "MISSING", "num_heads"},
        {R"("depths": [1, 1, 1, 1, 1], "num_heads": [3, 6, 3, 6, 3])", "MISSING", "pretrained_window_sizes"},
        {R"("depths": [2, 2], "num_heads": [3, 6], "window_size": 0)", "OUT_OF_RANGE", "window_size"}}) {
    EXPECT_THAT(ReadModel({.config_json = std::string(R"({"model_type": "swinv2", )") + fields + "}"}, {}),
                IsInvalid(reason, std::string("config_json.") + field))
        << fields;
  }
}

v1::GenerateBiasRequest Stage(const std::string& stage, int64_t heads) {
  v1::GenerateBiasRequest request;
  v1::SwinV2Bias& swin = *request.mutable_method()->mutable_swin_v2();
  swin.mutable_model()->set_config_json(kSwin);
  if (!stage.empty()) swin.mutable_model()->set_layer_type(stage);
  *swin.mutable_hidden_weight() = MakeTensor(DType::kFP32, {2, 2}, std::vector<double>{.5, 0, 0, .25});
  *swin.mutable_hidden_bias() = MakeTensor(DType::kFP32, {2}, std::vector<double>{0, 1});
  *swin.mutable_output_weight() = MakeTensor(DType::kFP32, {heads, 2}, std::vector<double>(2 * heads, .125));
  request.set_form(v1::BIAS_FORM_DENSE);
  request.set_dtype(v1::DATA_TYPE_FP32);
  request.mutable_hints()->set_return_plan(true);
  return request;
}

TEST(SwinV2OfModel, FillsTheWindows) {
  const auto response = Call(Stage("stage4", 24));
  ASSERT_THAT(response, IsOk());
  EXPECT_THAT(response->bias().shape(), testing::ElementsAre(24, 64, 64));
  EXPECT_EQ(response->info().plan().bias().swin_v2().window_height(), 8);
  EXPECT_EQ(response->info().plan().bias().swin_v2().pretrained_window_width(), 6);
  EXPECT_EQ(response->info().notes(0).code(), "WINDOW_OF_STAGE");
}

TEST(SwinV2OfModel, WhatSaysOtherwiseIsRefused) {
  EXPECT_THAT(Call(Stage("", 3)), IsInvalid("MISSING", "method.swin_v2.model.layer_type"));
  EXPECT_THAT(Call(Stage("stage5", 3)), IsInvalid("UNKNOWN_VALUE", "method.swin_v2.model.layer_type"));
  EXPECT_THAT(Call(Stage("stage2", 3)), IsInvalid("MISMATCH", "method.swin_v2.output_weight.shape"));
  v1::GenerateBiasRequest request = Stage("stage4", 24);
  const auto swin = [&]() -> v1::SwinV2Bias& { return *request.mutable_method()->mutable_swin_v2(); };
  swin().set_window_height(8);
  EXPECT_THAT(Call(request), IsOk());
  swin().set_window_height(16);
  EXPECT_THAT(Call(request), IsInvalid("CONFLICT", "method.swin_v2.window_height"));
  request = Stage("stage4", 24);
  swin().set_pretrained_window_height(8);
  EXPECT_THAT(Call(request), IsInvalid("CONFLICT", "method.swin_v2.pretrained_window_height"));
  request = Stage("stage4", 24);
  swin().mutable_model()->set_config_json(R"({"model_type": "swin"})");
  EXPECT_THAT(Call(request), IsInvalid("CONFLICT", "method.swin_v2.model.config_json"));
  // A file alone is not a complete method: the network's weights are missing.
  const v1::ModelConfig model = Stage("stage4", 24).method().swin_v2().model();
  request = Stage("stage4", 24);
  *request.mutable_method()->mutable_model() = model;
  EXPECT_THAT(Call(request), IsInvalid("MISSING", "method.swin_v2.hidden_weight"));
}

TEST(ExplainedTables, OffsetsAndWindows) {
  v1::ExplainRequest request;
  request.mutable_model()->set_config_json(R"({"model_type": "opt", "max_position_embeddings": 6, "hidden_size": 1})");
  auto response = Call(request);
  ASSERT_THAT(response, IsOk());
  EXPECT_EQ(response->layers(0).info().plan().learned().offset(), 2);
  request.mutable_model()->set_config_json(kSwin);
  response = Call(request);
  ASSERT_THAT(response, IsOk());
  EXPECT_EQ(response->layers_size(), 4);
  EXPECT_EQ(response->layers(1).info().plan().bias().swin_v2().window_width(), 16);
}

}  // namespace
}  // namespace posenc::model_tables_test
