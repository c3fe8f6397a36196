// Positions: refusals that name field and counts, chunks, packed sequences, prefixes, caches that drop tokens, and
// faults of other systems. tests/conformance compares the ids with the original classes.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "tests/service/call.h"

namespace posenc::positions_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

v1::Tensor Integers(const std::vector<int64_t>& values, std::vector<int64_t> shape = {}) {
  if (shape.empty()) shape = {static_cast<int64_t>(values.size())};
  v1::Tensor tensor;
  tensor.set_dtype(v1::DATA_TYPE_INT64);
  tensor.mutable_shape()->Assign(shape.begin(), shape.end());
  tensor.set_data(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(int64_t));
  return tensor;
}

std::vector<int64_t> ValuesOf(const v1::Tensor& tensor) {
  std::vector<int64_t> values(tensor.data().size() / sizeof(int64_t));
  std::copy_n(tensor.data().data(), tensor.data().size(), reinterpret_cast<char*>(values.data()));
  return values;
}

// Ids of one axis.
std::vector<int64_t> Axis(const v1::Tensor& ids, int64_t axis) {
  const std::vector<int64_t> values = ValuesOf(ids);
  const int64_t size = ids.shape(1) * ids.shape(2);
  return {values.begin() + axis * size, values.begin() + (axis + 1) * size};
}

// Three tokens of text, an image of 2 x 3 merged patches, and two of text.
v1::PositionsRequest Image(const std::string& model_type = "qwen2_vl") {
  v1::PositionsRequest request;
  request.mutable_model()->set_config_json(R"({"model_type": ")" + model_type + "\"}");
  *request.mutable_tokens()->mutable_mm_token_type_ids() = Integers({0, 0, 0, 1, 1, 1, 1, 1, 1, 0, 0});
  *request.mutable_tokens()->mutable_image_grid_thw() = Integers({1, 4, 6}, {1, 3});
  return request;
}

v1::PositionsResponse Answer(const v1::PositionsRequest& request) {
  auto response = Call(request);
  EXPECT_TRUE(response.ok()) << response.status();
  return response.ok() ? *response : v1::PositionsResponse();
}

void ExpectRefused(const v1::PositionsRequest& request, const std::string& reason, const std::string& field,
                   const std::string& words) {
  const auto response = Call(request);
  ASSERT_FALSE(response.ok());
  EXPECT_EQ(DetailsOf(response.status()).reason, reason) << response.status();
  EXPECT_EQ(DetailsOf(response.status()).field, field) << response.status();
  EXPECT_THAT(std::string(response.status().message()), HasSubstr(words));
}

TEST(Positions, OfAnImageAreFrameRowAndColumn) {
  const v1::PositionsResponse answer = Answer(Image());
  EXPECT_THAT(Axis(answer.ids(), 0), ElementsAre(0, 1, 2, 3, 3, 3, 3, 3, 3, 6, 7));
  EXPECT_THAT(Axis(answer.ids(), 1), ElementsAre(0, 1, 2, 3, 3, 3, 4, 4, 4, 6, 7));
  EXPECT_THAT(Axis(answer.ids(), 2), ElementsAre(0, 1, 2, 3, 4, 5, 3, 4, 5, 6, 7));
  EXPECT_THAT(ValuesOf(answer.rope_deltas()), ElementsAre(-3));
  ASSERT_EQ(answer.spans_size(), 3);
  EXPECT_EQ(answer.spans(1).kind(), v1::SPAN_KIND_IMAGE);
  EXPECT_EQ(answer.spans(1).begin(), 3);
  EXPECT_EQ(answer.spans(1).end(), 9);
  EXPECT_EQ(answer.spans(1).grid(), 0);
  EXPECT_EQ(answer.rule(), "qwen2_vl");
}

TEST(Positions, AChunkIsASliceOfTheWhole) {
  const v1::PositionsResponse whole = Answer(Image());
  for (int64_t begin = 0; begin <= 11; ++begin) {
    v1::PositionsRequest request = Image();
    request.set_token_begin(begin);
    request.set_token_count((11 - begin) / 2);
    const v1::PositionsResponse chunk = Answer(request);
    for (int axis = 0; axis < 3; ++axis) {
      const std::vector<int64_t> all = Axis(whole.ids(), axis);
      EXPECT_EQ(Axis(chunk.ids(), axis),
                std::vector<int64_t>(all.begin() + begin, all.begin() + begin + (11 - begin) / 2));
    }
    EXPECT_EQ(chunk.rope_deltas().data(), whole.rope_deltas().data());
  }
  v1::PositionsRequest request = Image();
  request.set_token_begin(12);
  ExpectRefused(request, "OUT_OF_RANGE", "token_begin", "0 .. 11");
}

TEST(Positions, RefusesGridsThatDoNotFitTheTokens) {
  v1::PositionsRequest few = Image();
  *few.mutable_tokens()->mutable_mm_token_type_ids() = Integers({1, 1, 1, 1, 1, 1, 0, 1, 0, 0, 0});
  ExpectRefused(few, "MISMATCH", "tokens.image_grid_thw", "is 1 grids; must have a grid for each image");
  v1::PositionsRequest many = Image();
  *many.mutable_tokens()->mutable_image_grid_thw() = Integers({1, 4, 6, 1, 2, 2}, {2, 3});
  ExpectRefused(many, "MISMATCH", "tokens.image_grid_thw",
                "is 2 grids; must have a grid for each image: the tokens have 1");
  v1::PositionsRequest span = Image();
  *span.mutable_tokens()->mutable_image_grid_thw() = Integers({1, 4, 4}, {1, 3});
  ExpectRefused(span, "MISMATCH", "tokens.image_grid_thw[0]",
                "stands for 4, the span of sequence 0, tokens 3 to 8 has 6");
  v1::PositionsRequest merge = Image();
  *merge.mutable_tokens()->mutable_image_grid_thw() = Integers({1, 3, 8}, {1, 3});
  ExpectRefused(merge, "MISMATCH", "tokens.image_grid_thw[0]", "must be multiples of [1, 2, 2]");
}

TEST(Positions, RefusesOtherShapesAndUnreadFields) {
  v1::PositionsRequest mask = Image();
  *mask.mutable_tokens()->mutable_attention_mask() = Integers(std::vector<int64_t>(10, 1));
  ExpectRefused(mask, "MISMATCH", "tokens.attention_mask.shape", "is [1, 10]; must be [1, 11]");
  v1::PositionsRequest seconds = Image();
  *seconds.mutable_tokens()->mutable_second_per_grid_ts() = Integers({1});
  ExpectRefused(seconds, "NOT_READ", "tokens.second_per_grid_ts", "qwen2_vl does not read it");
  v1::PositionsRequest audio = Image();
  *audio.mutable_tokens()->mutable_mm_token_type_ids() = Integers({0, 0, 0, 1, 1, 1, 1, 1, 1, 3, 0});
  ExpectRefused(audio, "OUT_OF_RANGE", "tokens.mm_token_type_ids", "must be at most 2 for this model: token 9");
  v1::PositionsRequest unknown = Image("nobody_knows");
  ExpectRefused(unknown, "UNSUPPORTED", "model.config_json.model_type", "must be a model type whose rule is known");
  v1::PositionsRequest large;
  large.mutable_tokens()->set_length(int64_t{1} << 30);
  const auto refused = Call(large);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted) << refused.status();
}

TEST(Positions, PaddingIsNotCounted) {
  v1::PositionsRequest request;
  *request.mutable_tokens()->mutable_attention_mask() = Integers({0, 0, 1, 1, 1, 1, 1, 0, 0, 0}, {2, 5});
  const v1::PositionsResponse answer = Answer(request);
  EXPECT_THAT(ValuesOf(answer.ids()), ElementsAre(0, 0, 0, 1, 2, 0, 1, 0, 0, 0));
  EXPECT_THAT(ValuesOf(answer.rope_deltas()), ElementsAre(0, 0));
  EXPECT_EQ(answer.rule(), "");
}

TEST(Positions, EachPackedSequenceIsCountedOnItsOwn) {
  v1::PositionsRequest request = Image();
  *request.mutable_tokens()->mutable_cu_seqlens() = Integers({0, 2, 11});
  const v1::PositionsResponse answer = Answer(request);
  EXPECT_THAT(Axis(answer.ids(), 2), ElementsAre(0, 1, 0, 1, 2, 3, 1, 2, 3, 4, 5));
  EXPECT_THAT(ValuesOf(answer.rope_deltas()), ElementsAre(0, -3));
}

TEST(Positions, TextContinuesAfterAPrefix) {
  v1::PositionsRequest request;
  request.mutable_model()->set_config_json(R"({"model_type": "qwen2_vl"})");
  request.mutable_tokens()->set_cache_length(11);
  request.mutable_tokens()->set_length(2);
  ExpectRefused(request, "MISSING", "tokens.rope_deltas", "must be given");
  *request.mutable_tokens()->mutable_rope_deltas() = Integers({-3});
  EXPECT_THAT(Axis(Answer(request).ids(), 1), ElementsAre(8, 9));
}

TEST(Positions, GlmImageContinuesAtItsDecodeIds) {
  v1::PositionsRequest request;
  request.mutable_model()->set_config_json(R"({"model_type": "glm_image"})");
  request.mutable_tokens()->set_length(1);
  request.mutable_tokens()->set_cache_length(8);
  *request.mutable_tokens()->mutable_rope_deltas() = Integers({0});
  ExpectRefused(request, "UNSUPPORTED", "tokens.cache_length", "must be absent: glm_image decodes at decode_ids");
}

TEST(Positions, OfRobertaFollowItsPadding) {
  v1::PositionsRequest request;
  request.mutable_model()->set_config_json(R"({"model_type": "xlm-roberta", "pad_token_id": 1})");
  *request.mutable_tokens()->mutable_input_ids() = Integers({1, 7, 7, 1, 7});
  EXPECT_THAT(ValuesOf(Answer(request).ids()), ElementsAre(1, 2, 3, 1, 4));
  EXPECT_THAT(ValuesOf(Answer(request).rope_deltas()), ElementsAre(2));
  EXPECT_EQ(Answer(request).rule(), "roberta");
  request.mutable_tokens()->clear_input_ids();
  *request.mutable_tokens()->mutable_attention_mask() = Integers({1, 1, 0}, {1, 3});
  EXPECT_THAT(ValuesOf(Answer(request).ids()), ElementsAre(2, 3, 1));
  request.mutable_tokens()->clear_attention_mask();
  request.mutable_tokens()->set_length(2);
  request.mutable_tokens()->set_cache_length(5);
  EXPECT_THAT(ValuesOf(Answer(request).ids()), ElementsAre(7, 8));
  *request.mutable_tokens()->mutable_rope_deltas() = Integers({0});
  ExpectRefused(request, "NOT_READ", "tokens.rope_deltas", "must be absent");
}

TEST(Positions, OfATextPartLikeRobertaFollowItsPadding) {
  v1::PositionsRequest request;
  request.mutable_model()->set_config_json(
      R"({"model_type": "clap", "text_config": {"model_type": "clap_text_model", "pad_token_id": 3}})");
  request.mutable_tokens()->set_length(2);
  EXPECT_THAT(ValuesOf(Answer(request).ids()), ElementsAre(4, 5));
  request.mutable_model()->set_component("text");
  EXPECT_THAT(ValuesOf(Answer(request).ids()), ElementsAre(4, 5));
}

TEST(Positions, PackedTokensAreCountedByTheirBoundaries) {
  v1::PositionsRequest request;
  *request.mutable_tokens()->mutable_cu_seqlens() = Integers({0, 3, 8});
  EXPECT_THAT(ValuesOf(Answer(request).ids()), ElementsAre(0, 1, 2, 0, 1, 2, 3, 4));
  *request.mutable_tokens()->mutable_cu_seqlens() = Integers({0, 3, -1});
  ExpectRefused(request, "OUT_OF_RANGE", "tokens.cu_seqlens[2]", "is -1");
}

TEST(Positions, AsManySequencesAsMaxSequences) {
  v1::PositionsRequest request;
  request.mutable_tokens()->set_length(3);
  request.mutable_tokens()->set_sequences(65537);
  ExpectRefused(request, "TOO_LARGE", "tokens.sequences", "must be at most 65536 (max_sequences)");
  *request.mutable_tokens()->mutable_attention_mask() = Integers(std::vector<int64_t>(65537, 1), {65537, 1});
  request.mutable_tokens()->clear_sequences();
  request.mutable_tokens()->clear_length();
  ExpectRefused(request, "TOO_LARGE", "tokens.attention_mask.shape", "must be at most 65536 (max_sequences)");
}

TEST(Positions, ErrorsNameTheField) {
  v1::PositionsRequest mask;
  mask.mutable_tokens()->set_sequences(2);
  *mask.mutable_tokens()->mutable_attention_mask() = Integers({1, 1, 1});
  ExpectRefused(mask, "MISMATCH", "tokens.attention_mask.shape", "is [1, 3]; must be [2, 3]");
  v1::PositionsRequest flux;
  flux.mutable_model()->set_config_json(R"({"_class_name": "FluxTransformer2DModel"})");
  flux.mutable_tokens()->set_length(3);
  ExpectRefused(flux, "UNSUPPORTED", "tokens",
                "must be absent: FluxTransformer2DModel has the positions of latents.grid_thw");
  v1::PositionsRequest layer = Image();
  layer.mutable_model()->set_layer_type("full_attention");
  ExpectRefused(layer, "NOT_READ", "model.layer_type", "all layers have the same positions");
  v1::PositionsRequest deltas = Image();
  *deltas.mutable_given()->mutable_rope_deltas() = Integers({0});
  ExpectRefused(deltas, "MISSING", "given.ids", "must be given");
}

TEST(Positions, ACacheMayDropAndRenumberTokens) {
  v1::PositionsRequest request;
  request.mutable_tokens()->set_cache_length(9);
  request.mutable_tokens()->set_length(1);
  v1::CacheWindow& window = *request.mutable_tokens()->mutable_cache_window();
  window.set_size(6);
  window.set_sinks(2);
  v1::PositionsResponse answer = Answer(request);
  EXPECT_THAT(ValuesOf(answer.ids()), ElementsAre(9));
  EXPECT_THAT(ValuesOf(answer.key_ids()), ElementsAre(0, 1, 6, 7, 8, 9));
  window.set_renumbers(true);
  answer = Answer(request);
  EXPECT_THAT(ValuesOf(answer.ids()), ElementsAre(5));
  EXPECT_THAT(ValuesOf(answer.key_ids()), ElementsAre(0, 1, 2, 3, 4, 5));
}

// Returns what the comparison of these ids finds.
v1::PositionComparison Compared(v1::PositionsRequest request, const v1::Tensor& ids) {
  *request.mutable_given()->mutable_ids() = ids;
  return Answer(request).comparison();
}

// The answer's ids, each changed by change(axis, token, id).
template <typename Change>
v1::Tensor Changed(const v1::PositionsResponse& answer, const Change& change) {
  std::vector<int64_t> values = ValuesOf(answer.ids());
  const int64_t size = answer.ids().shape(1) * answer.ids().shape(2);
  for (size_t n = 0; n < values.size(); ++n) {
    values[n] = change(static_cast<int64_t>(n) / size, static_cast<int64_t>(n) % size, values[n]);
  }
  return Integers(values, {answer.ids().shape().begin(), answer.ids().shape().end()});
}

TEST(Positions, NamesTheFaultsOfOtherSystems) {
  const v1::PositionsRequest request = Image();
  const v1::PositionsResponse answer = Answer(request);
  EXPECT_TRUE(Compared(request, answer.ids()).same());
  std::vector<int64_t> counters(11);
  std::iota(counters.begin(), counters.end(), 0);
  EXPECT_EQ(Compared(request, Integers(counters, {1, 11})).fault(), v1::POSITION_FAULT_COUNTERS);
  const std::vector<int64_t> rows = Axis(answer.ids(), 1), columns = Axis(answer.ids(), 2);
  const auto exchanged = [&](int64_t axis, int64_t token, int64_t id) {
    return axis == 0 ? id : axis == 1 ? columns[token] : rows[token];
  };
  const v1::PositionComparison comparison = Compared(request, Changed(answer, exchanged));
  EXPECT_EQ(comparison.fault(), v1::POSITION_FAULT_AXES_EXCHANGED);
  EXPECT_THAT(comparison.sentence(), HasSubstr("axes h and w are exchanged"));
  EXPECT_EQ(comparison.token(), 4);
  const auto in_image = [](int64_t token) { return token >= 3 && token < 9; };
  EXPECT_EQ(Compared(request,
                     Changed(answer, [&](int64_t, int64_t token, int64_t id) { return in_image(token) ? id - 3 : id; }))
                .fault(),
            v1::POSITION_FAULT_RESTART);
  EXPECT_EQ(
      Compared(request, Changed(answer, [](int64_t, int64_t token, int64_t id) { return token < 9 ? id : id + 3; }))
          .fault(),
      v1::POSITION_FAULT_SPAN_COUNTED);
  EXPECT_EQ(Compared(request, Changed(answer, [](int64_t, int64_t, int64_t id) { return id + 1; })).fault(),
            v1::POSITION_FAULT_OFFSET);
  EXPECT_EQ(
      Compared(request, Changed(answer, [](int64_t, int64_t token, int64_t id) { return id + token % 2; })).fault(),
      v1::POSITION_FAULT_OTHER);
  v1::PositionsRequest deltas = request;
  *deltas.mutable_given()->mutable_rope_deltas() = Integers({-2});
  const v1::PositionComparison off = Compared(deltas, answer.ids());
  EXPECT_EQ(off.fault(), v1::POSITION_FAULT_DELTA);
  EXPECT_THAT(off.sentence(), HasSubstr("+1 off"));
}

TEST(Positions, AnotherSystemsIdsMayBeOneRow) {
  v1::PositionsRequest request;
  request.mutable_tokens()->set_length(3);
  EXPECT_TRUE(Compared(request, Integers({0, 1, 2})).same());
  request.mutable_tokens()->set_sequences(3);
  *request.mutable_given()->mutable_ids() = Integers({0, 1, 2});
  ExpectRefused(request, "MISMATCH", "given.ids.shape", "is [3]; must be [axes, 3, 3] or [3, 3]");
}

TEST(Positions, NamesPaddingAndSeconds) {
  v1::PositionsRequest padded = Image();
  *padded.mutable_tokens()->mutable_attention_mask() = Integers({0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1});
  EXPECT_EQ(Compared(padded,
                     Changed(Answer(padded), [](int64_t, int64_t token, int64_t id) { return token > 0 ? id + 1 : 0; }))
                .fault(),
            v1::POSITION_FAULT_PADDING_COUNTED);
  v1::PositionsRequest video = Image("qwen2_5_vl");
  video.mutable_tokens()->clear_image_grid_thw();
  *video.mutable_tokens()->mutable_mm_token_type_ids() = Integers({0, 2, 2, 2, 0});
  *video.mutable_tokens()->mutable_video_grid_thw() = Integers({3, 2, 2}, {1, 3});
  v1::Tensor& seconds = *video.mutable_tokens()->mutable_second_per_grid_ts();
  const double two = 2;
  seconds.set_dtype(v1::DATA_TYPE_FP64);
  seconds.add_shape(1);
  seconds.set_data(reinterpret_cast<const char*>(&two), sizeof(two));
  EXPECT_THAT(Axis(Answer(video).ids(), 0), ElementsAre(0, 1, 9, 17, 2));
  v1::PositionsRequest without = video;
  without.mutable_tokens()->clear_second_per_grid_ts();
  EXPECT_EQ(Compared(video, Answer(without).ids()).fault(), v1::POSITION_FAULT_SECONDS_IGNORED);
}

TEST(Positions, OfLatentsFollowTheClass) {
  v1::PositionsRequest request;
  request.mutable_model()->set_config_json(R"({"_class_name": "Flux2Transformer2DModel"})");
  *request.mutable_latents()->mutable_grid_thw() = Integers({1, 1, 2, 1, 1, 1}, {2, 3});
  request.mutable_latents()->set_text_length(2);
  const v1::PositionsResponse answer = Answer(request);
  EXPECT_THAT(Axis(answer.ids(), 0), ElementsAre(0, 0, 0, 0, 10));
  EXPECT_THAT(Axis(answer.ids(), 2), ElementsAre(0, 0, 0, 1, 0));
  EXPECT_THAT(Axis(answer.ids(), 3), ElementsAre(0, 1, 0, 0, 0));
  request.mutable_model()->set_config_json(R"({"_class_name": "WanTransformer3DModel"})");
  ExpectRefused(request, "MISMATCH", "latents.grid_thw", "must be 1 .. 1 grids");
}

TEST(Positions, ARotationTakesTheDescription) {
  const v1::PositionsRequest described = Image();
  v1::GenerateTableRequest request;
  request.mutable_rotary()->mutable_model()->set_config_json(
      R"({"model_type": "qwen2_vl", "text_config": {"model_type": "qwen2_vl_text", "hidden_size": 128,
          "num_attention_heads": 4, "rope_scaling": {"type": "mrope", "mrope_section": [4, 6, 6]}}})");
  request.mutable_rotary()->mutable_model()->set_component("text");
  request.set_dtype(v1::DATA_TYPE_FP32);
  request.set_form(v1::TABLE_FORM_HALF_WIDTH);
  v1::GenerateTableRequest by_ids = request;
  *request.mutable_positions()->mutable_tokens() = described.tokens();
  v1::Tensor ids = Answer(described).ids();
  ids.mutable_shape()->Clear();
  ids.add_shape(3);
  ids.add_shape(11);
  *by_ids.mutable_positions()->mutable_ids() = ids;
  by_ids.mutable_positions()->set_axis_dimension(v1::AXIS_DIMENSION_FIRST);
  const auto ours = Call(request), theirs = Call(by_ids);
  ASSERT_TRUE(ours.ok()) << ours.status();
  ASSERT_TRUE(theirs.ok()) << theirs.status();
  EXPECT_EQ(ours->cos().data(), theirs->cos().data());
  EXPECT_EQ(ours->sin().data(), theirs->sin().data());
}

TEST(Positions, ARotationNamesTheDescription) {
  v1::ApplyRotaryRequest request;
  request.mutable_rotary()->mutable_model()->set_config_json(
      R"({"model_type": "llama", "hidden_size": 8, "num_attention_heads": 1, "num_hidden_layers": 1})");
  request.set_layout(v1::LAYOUT_BSHD);
  v1::Tensor& q = *request.mutable_q()->mutable_tensor();
  q.set_dtype(v1::DATA_TYPE_FP32);
  for (const int64_t side : {1, 7, 1, 8}) q.add_shape(side);
  q.set_data(std::string(7 * 8 * sizeof(float), 0));
  request.mutable_positions()->mutable_tokens()->set_length(9);
  const auto response = Call(request);
  ASSERT_FALSE(response.ok());
  EXPECT_EQ(DetailsOf(response.status()).field, "positions.tokens") << response.status();
}

TEST(Positions, ATableTakesTheIdsOfOneSequence) {
  v1::GenerateTableRequest request;
  request.mutable_rotary()->mutable_model()->set_config_json(
      R"({"model_type": "llama", "hidden_size": 8, "num_attention_heads": 1, "num_hidden_layers": 1})");
  request.set_dtype(v1::DATA_TYPE_FP32);
  request.set_form(v1::TABLE_FORM_HALF_WIDTH);
  *request.mutable_positions()->mutable_ids() = Integers({4, 5, 9}, {1, 1, 3});
  request.mutable_positions()->set_axis_dimension(v1::AXIS_DIMENSION_FIRST);
  const auto by_axes = Call(request);
  ASSERT_TRUE(by_axes.ok()) << by_axes.status();
  *request.mutable_positions()->mutable_ids() = Integers({4, 5, 9});
  request.mutable_positions()->clear_axis_dimension();
  const auto by_row = Call(request);
  ASSERT_TRUE(by_row.ok()) << by_row.status();
  EXPECT_EQ(by_axes->cos().data(), by_row->cos().data());
}

}  // namespace
}  // namespace posenc::positions_test
