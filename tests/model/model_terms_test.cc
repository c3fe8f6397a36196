// Score terms in a config.json whose weights come with the request: settings by model type, and refusals.
// relative_golden_test compares with the originals' results.
#include <gtest/gtest.h>

#include <functional>

#include "posenc/model/model.h"
#include "tests/service/call.h"

namespace posenc::model_terms_test {
namespace {

absl::StatusOr<ModelTerms> Read(const std::string& config_json, const std::string& component = "") {
  const auto layers =
      SelectLayer({.config_json = config_json, .component = component, .wanted = Wanted::kTerms}, Limits());
  if (!layers.ok()) return layers.status();
  return *layers->terms;
}

// A config.json of this type with two heads of four channels and these fields.
std::string File(const std::string& model_type, const std::string& fields) {
  return R"({"model_type": ")" + model_type + R"(", "hidden_size": 8, "num_attention_heads": 2)" +
         (fields.empty() ? "" : ", ") + fields + "}";
}

TEST(ModelTerms, DebertaByItsFields) {
  const auto v3 = Read(File("deberta-v2", R"("relative_attention": true, "pos_att_type": "p2c|c2p",
      "max_relative_positions": -1, "max_position_embeddings": 512, "position_buckets": 256, "share_att_key": true,
      "norm_rel_ebd": "layer_norm", "layer_norm_eps": 1e-7, "position_biased_input": false)"));
  ASSERT_THAT(v3, IsOk());
  EXPECT_EQ(v3->heads, 2);
  EXPECT_EQ(v3->head_dim, 4);
  EXPECT_EQ(v3->rows, 512);
  EXPECT_EQ(v3->width, 8);
  const auto& settings = std::get<DebertaSettings>(v3->settings);
  EXPECT_EQ(settings.max_relative_positions, 512);
  EXPECT_EQ(settings.position_buckets, 256);
  EXPECT_TRUE(settings.key && settings.query);
  EXPECT_EQ(settings.layer_norm->epsilon, 1e-7);
  EXPECT_EQ(settings.distance, DebertaDistance::kUnbounded);

  const auto v1 = Read(File("deberta", R"("relative_attention": true, "pos_att_type": ["c2p"],
      "max_relative_positions": 128, "position_buckets": 32, "norm_rel_ebd": "layer_norm")"));
  ASSERT_THAT(v1, IsOk());
  const auto& first = std::get<DebertaSettings>(v1->settings);
  EXPECT_EQ(v1->rows, 256);
  EXPECT_FALSE(first.position_buckets || first.layer_norm || first.query);
  EXPECT_TRUE(first.key);

  const auto narrow = Read(File("deberta-v2", R"("relative_attention": true, "pos_att_type": "p2c",
      "attention_head_size": 3)"));
  ASSERT_THAT(narrow, IsOk());
  EXPECT_EQ(narrow->head_dim, 3);

  const auto sew = Read(File("sew-d", ""));
  ASSERT_THAT(sew, IsOk());
  const auto& defaults = std::get<DebertaSettings>(sew->settings);
  EXPECT_EQ(defaults.position_buckets, 256);
  EXPECT_TRUE(defaults.key && defaults.query && defaults.layer_norm);
}

TEST(ModelTerms, InklingByLayerType) {
  const auto read = [](const std::string& fields) {
    const auto layers = ReadModel({.config_json = "{" + fields + "}", .wanted = Wanted::kTerms}, Limits());
    EXPECT_THAT(layers, IsOk());
    return layers.value_or(std::vector<ModelLayers>());
  };
  const auto of = [](const ModelLayers& layers) { return std::get<InklingSettings>(layers.terms->settings); };
  using testing::ElementsAre;

  const auto defaults = read(R"("model_type": "inkling_text", "num_hidden_layers": 7)");
  ASSERT_EQ(defaults.size(), 2);
  EXPECT_EQ(defaults[0].layer_type, "hybrid_sliding");
  EXPECT_THAT(defaults[0].layer_index, ElementsAre(0, 1, 2, 3, 4, 6));
  EXPECT_THAT(defaults[1].layer_index, ElementsAre(5));
  EXPECT_EQ(defaults[0].terms->width, 512);
  EXPECT_EQ(defaults[1].terms->width, 1024);
  EXPECT_EQ(defaults[1].terms->heads, 64);
  EXPECT_EQ(defaults[1].terms->head_dim, 16);
  EXPECT_EQ(defaults[1].terms->rows, 16);
  EXPECT_FALSE(of(defaults[1]).scaled);  // log_scaling_n_floor is null

  const auto first = read(R"("model_type": "inkling_text", "num_hidden_layers": 3, "local_layer_ids": [1], "d_rel": 4,
      "rel_extent": 6, "sliding_window_size": 5, "swa_num_attention_heads": 3, "num_attention_heads": 2,
      "log_scaling_n_floor": 100, "log_scaling_alpha": 0.5)");
  ASSERT_EQ(first.size(), 2);
  EXPECT_THAT(first[0].layer_index, ElementsAre(1));
  EXPECT_EQ(first[0].terms->width, 5);
  EXPECT_EQ(first[0].terms->heads, 3);
  EXPECT_FALSE(of(first[0]).log_scaling_n_floor);  // full layers only
  EXPECT_THAT(first[1].layer_index, ElementsAre(0, 2));
  EXPECT_EQ(first[1].terms->width, 6);
  EXPECT_EQ(first[1].terms->heads, 2);
  EXPECT_EQ(of(first[1]).log_scaling_n_floor, 100);
  EXPECT_EQ(of(first[1]).log_scaling_alpha, 0.5);
  EXPECT_EQ(of(first[1]).scaled, InklingScaled::kBias);

  const auto second = read(R"("model_type": "inkling2_text", "layer_types": ["hybrid"])");
  ASSERT_EQ(second.size(), 1);
  EXPECT_EQ(of(second[0]).log_scaling_n_floor, 128000);
  EXPECT_EQ(of(second[0]).log_scaling_alpha, 0.1);
  EXPECT_EQ(of(second[0]).scaled, InklingScaled::kStates);
  EXPECT_EQ(second[0].terms->heads, 48);

  const auto loop = read(R"("model_type": "inkling2_loop_text", "layer_types": ["hybrid", "hybrid_sliding"])");
  ASSERT_EQ(loop.size(), 2);
  EXPECT_EQ(loop[0].terms->width, 1024);
  EXPECT_EQ(of(loop[1]).log_scaling_n_floor, 8192);
  EXPECT_EQ(of(loop[1]).scaled, InklingScaled::kStates);
  EXPECT_EQ(loop[1].terms->heads, 24);

  const auto two_names = read(R"("model_type": "inkling_text", "num_hidden_layers": 1, "sliding_window": 5,
      "sliding_window_size": 6)");
  ASSERT_EQ(two_names.size(), 1);
  EXPECT_EQ(two_names[0].terms->width, 5);

  const auto refused = [](const std::string& fields) {
    return ReadModel({.config_json = R"({"model_type": "inkling2_text", )" + fields + "}", .wanted = Wanted::kTerms},
                     {});
  };
  EXPECT_THAT(refused(R"("layer_types": ["hybrid", "full_attention"])"),
              IsInvalid("UNKNOWN_VALUE", "config_json.layer_types[1]"));
  EXPECT_THAT(refused(R"("rel_extent": 0)"), IsInvalid("OUT_OF_RANGE", "config_json.rel_extent"));
  EXPECT_THAT(refused(R"("d_rel": 0)"), IsInvalid("OUT_OF_RANGE", "config_json.d_rel"));
  EXPECT_THAT(refused(R"("log_scaling_n_floor": 0)"), IsInvalid("OUT_OF_RANGE", "config_json.log_scaling_n_floor"));
  EXPECT_THAT(refused(R"("log_scaling_alpha": -1)"), IsInvalid("OUT_OF_RANGE", "config_json.log_scaling_alpha"));
}

TEST(ModelTerms, XlnetAndTransformerXl) {
  const auto xlnet = Read(R"({"model_type": "xlnet", "d_model": 12, "n_head": 3, "d_head": 4, "clamp_len": -1})");
  ASSERT_THAT(xlnet, IsOk());
  EXPECT_EQ(xlnet->heads, 3);
  EXPECT_EQ(xlnet->head_dim, 4);
  EXPECT_EQ(xlnet->width, 12);
  EXPECT_FALSE(std::get<TransformerXlSettings>(xlnet->settings).clamp_len);
  const auto clamped = Read(R"({"model_type": "xlnet", "d_model": 12, "n_head": 3, "clamp_len": 5})");
  ASSERT_THAT(clamped, IsOk());
  EXPECT_EQ(std::get<TransformerXlSettings>(clamped->settings).clamp_len, 5);
  const auto former = Read(R"({"model_type": "transfo-xl", "d_model": 12, "n_head": 3, "d_head": 8})");
  ASSERT_THAT(former, IsOk());
  EXPECT_EQ(std::get<TransformerXlSettings>(former->settings).clamp_len, 1000);
  EXPECT_EQ(former->head_dim, 8);
}

TEST(ModelTerms, ConformersByTheirKindOfPositions) {
  for (const char* relative : {"wav2vec2-conformer", "seamless_m4t", "parakeet_encoder"}) {
    const auto terms = Read(File(relative, ""));
    ASSERT_THAT(terms, IsOk()) << relative;
    EXPECT_EQ(std::get<TransformerXlSettings>(terms->settings).encoding, TransformerXlEncoding::kInterleaved);
    EXPECT_EQ(terms->width, 8);
  }
  EXPECT_THAT(Read(File("vits", R"("window_size": null)")), IsInvalid("UNSUPPORTED", "config_json.window_size"));
  EXPECT_THAT(Read(File("vits", R"("window_size": 0)")), IsInvalid("OUT_OF_RANGE", "config_json.window_size"));
  const auto gemma = Read(R"({"model_type": "gemma3n_audio", "hidden_size": 8, "conf_num_attention_heads": 2})");
  ASSERT_THAT(gemma, IsOk());
  EXPECT_EQ(std::get<TransformerXlSettings>(gemma->settings).encoding, TransformerXlEncoding::kTensor2Tensor);
  EXPECT_FALSE(gemma->has_biases);
  EXPECT_THAT(Read(R"({"model_type": "gemma4_audio", "hidden_size": 8, "num_attention_heads": 2,
                       "attention_context_left": 9})"),
              IsInvalid("UNSUPPORTED", "config_json.attention_context_left"));
  for (const char* keys : {"wav2vec2-bert", "seamless_m4t_v2"}) {
    const auto terms = Read(File(keys, R"("left_max_position_embeddings": 5)"));
    ASSERT_THAT(terms, IsOk()) << keys;
    const auto& shaw = std::get<ShawSettings>(terms->settings);
    EXPECT_EQ(shaw.before, 5);
    EXPECT_EQ(terms->rows, 5 + 8 + 1);
    EXPECT_EQ(shaw.order, ShawOrder::kKeyMinusQuery);
    EXPECT_EQ(shaw.clip, true);
  }
  const auto relative = Read(File("wav2vec2-bert", R"("position_embeddings_type": "relative")"));
  ASSERT_THAT(relative, IsOk());
  EXPECT_TRUE(std::holds_alternative<TransformerXlSettings>(relative->settings));
}

TEST(ModelTerms, RelativeKeysOfBertAndOthers) {
  for (bool query : {false, true}) {
    const auto terms =
        Read(File("roberta", R"("max_position_embeddings": 130, "position_embedding_type": "relative_key)" +
                                 std::string(query ? "_query\"" : "\"")));
    ASSERT_THAT(terms, IsOk());
    const auto& shaw = std::get<ShawSettings>(terms->settings);
    EXPECT_EQ(terms->rows, 259);
    EXPECT_EQ(shaw.order, ShawOrder::kQueryMinusKey);
    EXPECT_EQ(shaw.clip, false);
    EXPECT_EQ(shaw.key_term, query);
    EXPECT_FALSE(terms->has_values);
  }
  const auto nezha = Read(File("nezha", R"("max_relative_position": 64)"));
  ASSERT_THAT(nezha, IsOk());
  EXPECT_TRUE(nezha->has_values);
  EXPECT_EQ(nezha->rows, 129);
  const auto speech = Read(R"({"model_type": "speecht5", "hidden_size": 8, "encoder_attention_heads": 2})");
  ASSERT_THAT(speech, IsOk());
  EXPECT_EQ(speech->rows, 320);
  EXPECT_EQ(std::get<ShawSettings>(speech->settings).before, 160);
}

// The wanted kind selects the part: LLaVA's text for a rotary embedding, a BERT part for relative keys.
TEST(ModelTerms, ThePartThatHasThem) {
  const char blip[] = R"({"model_type": "blip-2", "text_config": {"model_type": "opt"}, "qformer_config": {"model_type":
      "blip_2_qformer", "hidden_size": 8, "num_attention_heads": 2, "position_embedding_type": "relative_key"}})";
  const auto terms = Read(blip);
  ASSERT_THAT(terms, IsOk());
  EXPECT_EQ(terms->rows, 1023);
  // With kAny the text's learned table is an equal candidate.
  EXPECT_THAT(SelectLayer({.config_json = blip, .wanted = Wanted::kAny}, {}), IsInvalid("MISSING", "component"));
}

struct Case {
  const char* model_type;
  const char* fields;
  const char* reason;
  const char* field;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.model_type << " " << c.fields; }

class BadTerms : public testing::TestWithParam<Case> {};

TEST_P(BadTerms, AreRefused) {
  const Case& c = GetParam();
  EXPECT_THAT(Read(File(c.model_type, c.fields)), IsInvalid(c.reason, std::string("config_json.") + c.field));
}

#define ON R"("relative_attention": true, "pos_att_type": "c2p|p2c")"
const Case kFiles[] = {
    {"deberta", R"("pos_att_type": "c2p")", "UNSUPPORTED", "relative_attention"},
    {"deberta-v2", R"("relative_attention": false)", "UNSUPPORTED", "relative_attention"},
    {"deberta-v2", R"("relative_attention": 1)", "OUT_OF_RANGE", "relative_attention"},
    {"deberta-v2", R"("relative_attention": true)", "UNSUPPORTED", "pos_att_type"},
    {"deberta-v2", R"("relative_attention": true, "pos_att_type": "c2p|p2p")", "UNKNOWN_VALUE", "pos_att_type"},
    {"deberta", R"("relative_attention": true, "pos_att_type": ["c2p", "c2p"])", "UNKNOWN_VALUE", "pos_att_type"},
    {"deberta-v2", R"("relative_attention": true, "pos_att_type": 3)", "OUT_OF_RANGE", "pos_att_type"},
    {"deberta-v2", ON R"(, "max_relative_positions": 1.5)", "OUT_OF_RANGE", "max_relative_positions"},
    {"deberta-v2", ON R"(, "position_buckets": "256")", "OUT_OF_RANGE", "position_buckets"},
    {"deberta-v2", ON R"(, "norm_rel_ebd": true)", "OUT_OF_RANGE", "norm_rel_ebd"},
    {"xlnet", R"("bi_data": true)", "UNSUPPORTED", "bi_data"},
    {"xlnet", R"("attn_type": "both")", "UNKNOWN_VALUE", "attn_type"},
    {"transfo-xl", R"("attn_type": 2)", "UNSUPPORTED", "attn_type"},
    {"bert", "", "UNSUPPORTED", "position_embedding_type"},
    {"bert", R"("position_embedding_type": "relative")", "UNSUPPORTED", "position_embedding_type"},
    {"bert", R"("position_embedding_type": 7)", "OUT_OF_RANGE", "position_embedding_type"},
    {"wav2vec2-conformer", R"("position_embeddings_type": "rotary")", "UNSUPPORTED", "position_embeddings_type"},
    {"wav2vec2-conformer", R"("position_embeddings_type": "relative_key")", "UNSUPPORTED", "position_embeddings_type"},
    {"wav2vec2-bert", R"("position_embeddings_type": null)", "UNSUPPORTED", "position_embeddings_type"},
    {"seamless_m4t_v2", R"("position_embeddings_type": "relative")", "UNSUPPORTED", "position_embeddings_type"},
    {"llama", "", "UNSUPPORTED", "model_type"},
    {"t5", "", "UNSUPPORTED", "model_type"},
    {"unheard_of", "", "UNSUPPORTED", "model_type"},
};
INSTANTIATE_TEST_SUITE_P(Files, BadTerms, testing::ValuesIn(kFiles));

TEST(ModelTerms, HeadsMustBeSaid) {
  EXPECT_THAT(Read(R"({"model_type": "deberta", "hidden_size": 8, "relative_attention": true, "pos_att_type": "c2p"})"),
              IsInvalid("MISSING", "config_json.head_dim"));
}

v1::Tensor Zeros(std::vector<int64_t> shape) {
  int64_t count = 1;
  for (int64_t size : shape) count *= size;
  return MakeTensor(DType::kFP32, std::move(shape), std::vector<double>(count));
}
v1::Projection Weights(std::vector<int64_t> shape) {
  v1::Projection projection;
  *projection.mutable_weight() = Zeros(std::move(shape));
  projection.set_layout(v1::WEIGHT_LAYOUT_OUTPUT_BY_INPUT);
  return projection;
}

using Change = std::function<void(v1::RelativeScoresRequest&)>;

// Calls with a DeBERTa v2 config.json and its weights, after `change`.
absl::StatusOr<v1::RelativeScoresResponse> Deberta(const Change& change = nullptr) {
  v1::RelativeScoresRequest request;
  request.set_layout(v1::LAYOUT_BHSD);
  request.set_content(true);
  request.set_dtype(v1::DATA_TYPE_FP32);
  *request.mutable_q() = Zeros({1, 2, 3, 4});
  *request.mutable_k() = Zeros({1, 2, 3, 4});
  request.mutable_hints()->set_return_plan(true);
  v1::Deberta& deberta = *request.mutable_method()->mutable_deberta();
  *deberta.mutable_relative_embeddings() = Zeros({16, 8});
  *deberta.mutable_key() = Weights({8, 8});
  *deberta.mutable_layer_norm()->mutable_weight() = Zeros({8});
  *deberta.mutable_layer_norm()->mutable_bias() = Zeros({8});
  deberta.mutable_model()->set_config_json(File("deberta-v2", R"("relative_attention": true, "pos_att_type": ["c2p"],
      "position_buckets": 8, "max_relative_positions": 64, "norm_rel_ebd": "layer_norm", "layer_norm_eps": 1e-6)"));
  if (change) change(request);
  return Call(request);
}
v1::Deberta& Of(v1::RelativeScoresRequest& r) { return *r.mutable_method()->mutable_deberta(); }

TEST(FilledFromModel, TheAnswerHoldsTheSettings) {
  const auto response = Deberta();
  ASSERT_THAT(response, IsOk());
  const v1::Deberta& plan = response->info().plan().relative().deberta();
  EXPECT_EQ(plan.position_buckets(), 8);
  EXPECT_EQ(plan.max_relative_positions(), 64);
  EXPECT_EQ(plan.distance(), v1::DEBERTA_DISTANCE_UNBOUNDED);
  EXPECT_EQ(plan.layer_norm().epsilon(), 1e-6);
  EXPECT_FALSE(plan.has_query() || plan.has_model());
  EXPECT_GT(response->info().notes_size(), 0);
  // The plan, sent back, is a complete request.
  const auto again = Deberta([&](auto& r) { Of(r) = plan; });
  ASSERT_THAT(again, IsOk());
  EXPECT_EQ(again->info().plan_fingerprint(), response->info().plan_fingerprint());
}

TEST(FilledFromModel, WhatSaysTheSameIsNoConflict) {
  EXPECT_THAT(Deberta([](auto& r) {
                Of(r).set_position_buckets(8);
                Of(r).set_max_relative_positions(64);
                Of(r).set_distance(v1::DEBERTA_DISTANCE_UNBOUNDED);
                Of(r).mutable_layer_norm()->set_epsilon(1e-6);
              }),
              IsOk());
}

TEST(FilledFromModel, SomeOfTheHeads) {
  const auto half = [](std::optional<int64_t> start) {
    return Deberta([start](auto& r) {
      *r.mutable_q() = Zeros({1, 1, 3, 4});
      *r.mutable_k() = Zeros({1, 1, 3, 4});
      if (start) r.mutable_geometry()->set_head_start(*start);
    });
  };
  EXPECT_THAT(half(1), IsOk());
  EXPECT_THAT(half(2), IsInvalid("MISMATCH", "q.shape"));
  EXPECT_THAT(half(std::nullopt), IsInvalid("MISMATCH", "q.shape"));
}

struct Misuse {
  const char* name;
  const char* reason;
  const char* field;
  Change change;
};
void PrintTo(const Misuse& misuse, std::ostream* out) { *out << misuse.name; }

class Misused : public testing::TestWithParam<Misuse> {};

TEST_P(Misused, IsRefused) { EXPECT_THAT(Deberta(GetParam().change), IsInvalid(GetParam().reason, GetParam().field)); }

using R = v1::RelativeScoresRequest;
#define DEBERTA "method.deberta."
const Misuse kMisuses[] = {
    {"buckets", "CONFLICT", DEBERTA "position_buckets", [](R& r) { Of(r).set_position_buckets(16); }},
    {"positions", "CONFLICT", DEBERTA "max_relative_positions", [](R& r) { Of(r).set_max_relative_positions(512); }},
    {"distance", "CONFLICT", DEBERTA "distance", [](R& r) { Of(r).set_distance(v1::DEBERTA_DISTANCE_CLAMPED); }},
    {"epsilon", "CONFLICT", DEBERTA "layer_norm.epsilon", [](R& r) { Of(r).mutable_layer_norm()->set_epsilon(1e-7); }},
    {"no_norm", "MISSING", DEBERTA "layer_norm", [](R& r) { Of(r).clear_layer_norm(); }},
    {"no_key", "MISSING", DEBERTA "key", [](R& r) { Of(r).clear_key(); }},
    {"query", "CONFLICT", DEBERTA "query",
     [](R& r) {
       *Of(r).mutable_query() = Weights({8, 8});
     }},
    {"no_table", "MISMATCH", DEBERTA "relative_embeddings.shape",
     [](R& r) {
       *Of(r).mutable_relative_embeddings() = Zeros({1, 8});
     }},
    {"long_table", "MISMATCH", DEBERTA "relative_embeddings.shape",
     [](R& r) {
       *Of(r).mutable_relative_embeddings() = Zeros({18, 8});
     }},
    {"wide_table", "MISMATCH", DEBERTA "relative_embeddings.shape",
     [](R& r) {
       *Of(r).mutable_relative_embeddings() = Zeros({16, 6});
     }},
    {"other_heads", "MISMATCH", "q.shape",
     [](R& r) {
       *r.mutable_q() = Zeros({1, 4, 3, 4});
     }},
    {"other_channels", "MISMATCH", "q.shape",
     [](R& r) {
       *r.mutable_q() = Zeros({1, 2, 3, 8});
     }},
    {"other_method", "CONFLICT", "method.shaw.model.config_json",
     [](R& r) {
       const v1::ModelConfig model = Of(r).model();
       *r.mutable_method()->mutable_shaw()->mutable_model() = model;
     }},
    {"no_file", "MISSING", DEBERTA "model.config_json", [](R& r) { Of(r).mutable_model()->clear_config_json(); }},
    {"other_part", "UNKNOWN_VALUE", DEBERTA "model.component",
     [](R& r) { Of(r).mutable_model()->set_component("vision"); }},
    {"pairing", "NOT_READ", DEBERTA "model.input_pairing",
     [](R& r) { Of(r).mutable_model()->set_input_pairing(v1::PAIRING_HALF_SPLIT); }},
    {"diffusers", "UNSUPPORTED", DEBERTA "model.config_json._class_name",
     [](R& r) { Of(r).mutable_model()->set_config_json(R"({"_class_name": "FluxTransformer2DModel"})"); }},
};
INSTANTIATE_TEST_SUITE_P(Requests, Misused, testing::ValuesIn(kMisuses),
                         [](const auto& instance) { return std::string(instance.param.name); });

// Calls with an XLNet of one head of four channels, after `change`.
absl::Status Xlnet(const std::function<void(R&, v1::TransformerXl&)>& change) {
  R request;
  request.set_layout(v1::LAYOUT_BHSD);
  request.set_content(true);
  request.set_dtype(v1::DATA_TYPE_FP32);
  *request.mutable_q() = Zeros({1, 1, 3, 4});
  *request.mutable_k() = Zeros({1, 1, 3, 4});
  v1::TransformerXl& xl = *request.mutable_method()->mutable_transformer_xl();
  *xl.mutable_position() = Weights({4, 4});
  *xl.mutable_position_bias() = Zeros({1, 4});
  *xl.mutable_content_bias() = Zeros({1, 4});
  xl.mutable_model()->set_config_json(R"({"model_type": "xlnet", "d_model": 4, "n_head": 1, "clamp_len": 2})");
  change(request, xl);
  return Call(request).status();
}

TEST(FilledFromModel, XlnetsBiasesAndWidth) {
  EXPECT_THAT(Xlnet([](R&, auto&) {}), IsOk());
  EXPECT_THAT(Xlnet([](R& r, auto& xl) {
                r.set_content(false);
                r.clear_k();
                xl.clear_content_bias();
              }),
              IsOk());
  EXPECT_THAT(Xlnet([](R&, auto& xl) { xl.clear_content_bias(); }),
              IsInvalid("MISSING", "method.transformer_xl.content_bias"));
  EXPECT_THAT(Xlnet([](R&, auto& xl) { xl.clear_position_bias(); }),
              IsInvalid("MISSING", "method.transformer_xl.position_bias"));
  EXPECT_THAT(Xlnet([](R&, auto& xl) {
                *xl.mutable_position() = Weights({4, 6});
              }),
              IsInvalid("MISMATCH", "method.transformer_xl.position.weight.shape"));
  EXPECT_THAT(Xlnet([](R&, auto& xl) { xl.set_clamp_len(3); }),
              IsInvalid("CONFLICT", "method.transformer_xl.clamp_len"));
  EXPECT_THAT(Xlnet([](R&, auto& xl) { xl.set_encoding(v1::TRANSFORMER_XL_ENCODING_INTERLEAVED); }),
              IsInvalid("CONFLICT", "method.transformer_xl.encoding"));
}

absl::Status Values(const std::string& config_json, int64_t rows) {
  v1::RelativeValuesRequest request;
  request.set_layout(v1::LAYOUT_BHSD);
  request.set_dtype(v1::DATA_TYPE_FP32);
  *request.mutable_probabilities() = Zeros({1, 2, 3, 3});
  *request.mutable_shaw()->mutable_table() = Zeros({rows, 4});
  request.mutable_shaw()->mutable_model()->set_config_json(config_json);
  return Call(request).status();
}

TEST(FilledFromModel, ValuesOfModelsThatHaveThem) {
  EXPECT_THAT(Values(File("vits", R"("window_size": 2)"), 7), IsOk());  // with a row of zeros on either side
  const std::string nezha = File("nezha", R"("max_relative_position": 2)");
  EXPECT_THAT(Values(nezha, 5), IsOk());
  EXPECT_THAT(Values(nezha, 7), IsInvalid("MISMATCH", "shaw.table.shape"));
  EXPECT_THAT(
      Values(File("wav2vec2-bert", R"("left_max_position_embeddings": 2, "right_max_position_embeddings": 2)"), 5),
      IsInvalid("UNSUPPORTED", "shaw.model.config_json"));
}

// No q has as many heads or channels as would overflow.
TEST(FilledFromModel, HugeNumbersAreRefused) {
  EXPECT_FALSE(Deberta([](R& r) {
                 Of(r).mutable_model()->set_config_json(
                     R"({"model_type": "deberta", "hidden_size": 1099511627776, "num_attention_heads": 1,
                         "relative_attention": true, "pos_att_type": "c2p", "max_relative_positions": 1099511627776})");
               }).ok());
}

TEST(ExplainedTerms, AreSettingsWithoutWeights) {
  v1::ExplainRequest request;
  request.mutable_model()->set_config_json(File("deberta", ON));
  const auto response = Call(request);
  ASSERT_THAT(response, IsOk());
  const v1::Deberta& deberta = response->layers(0).info().plan().relative().deberta();
  EXPECT_TRUE(deberta.has_key() && deberta.has_query());
  EXPECT_FALSE(deberta.has_relative_embeddings() || deberta.key().has_weight());
  EXPECT_EQ(deberta.max_relative_positions(), 512);
}

}  // namespace
}  // namespace posenc::model_terms_test
