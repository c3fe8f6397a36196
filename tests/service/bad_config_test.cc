// Untrusted config.json files: each is refused with its reason and its field, at once.
#include <gtest/gtest.h>

#include <functional>

#include "posenc/model/model.h"
#include "tests/reference/golden.h"
#include "tests/service/call.h"

namespace posenc::bad_config_test {
namespace {

// Requests a table with this file, like a client.
absl::Status Use(const std::string& config_json, const std::function<void(v1::ModelConfig&)>& choose = nullptr) {
  v1::GenerateTableRequest request;
  request.mutable_rotary()->mutable_model()->set_config_json(config_json);
  if (choose) choose(*request.mutable_rotary()->mutable_model());
  request.mutable_positions()->set_offset(0);
  request.set_count(1);
  request.set_dtype(v1::DATA_TYPE_FP32);
  request.set_form(v1::TABLE_FORM_HALF_WIDTH);
  return Call(request).status();
}

// A Llama with this scaling block.
std::string WithBlock(const std::string& block) {
  return R"({"model_type": "llama", "head_dim": 64, "max_position_embeddings": 8192, "rope_scaling": )" + block + "}";
}

#define MODEL "rotary.model."
#define FILE_FIELD MODEL "config_json."
#define BLOCK FILE_FIELD "rope_scaling."

TEST(BadConfig, TextThatIsNotOneJsonObject) {
  const std::string good = golden::ReadText("configs/llama-3.1-8b.json");
  ASSERT_THAT(Use(good), IsOk());
  EXPECT_THAT(Use(""), IsInvalid("MISSING", MODEL "config_json"));
  for (const std::string& text : {good + "}", std::string("[]"), std::string("null"), std::string("{'model_type': 1}"),
                                  std::string("\x80\xff\0x", 4)}) {
    SCOPED_TRACE(Quote(text));
    EXPECT_THAT(Use(text), IsInvalid("MALFORMED", MODEL "config_json"));
  }
  for (const std::string& text : {std::string("{\"model_type\": NaN}"), std::string("{\"model_type\": \"\xc3\x28\"}"),
                                  std::string("{\"model_type\": ")}) {
    EXPECT_THAT(Use(text), IsInvalid("MALFORMED", FILE_FIELD "model_type"));
  }
  for (size_t length = 0; length < good.size(); length += 7) EXPECT_FALSE(Use(good.substr(0, length)).ok()) << length;
}

TEST(BadConfig, TooLargeTooDeepOrTwice) {
  EXPECT_THAT(Use(std::string(5 << 20, ' ')), IsInvalid("OUT_OF_RANGE", MODEL "config_json"));
  for (const std::string open : {"[", "{\"a\":"}) {
    std::string nested = "{\"x\": ";
    for (int n = 0; n < 10000; ++n) nested += open;
    EXPECT_EQ(DetailsOf(Use(nested)).reason, "MALFORMED");
  }
  EXPECT_THAT(Use(R"({"model_type": "llama", "rope_theta": 1e4, "rope_theta": 1e6, "head_dim": 64})"),
              IsInvalid("MALFORMED", FILE_FIELD "rope_theta"));
  EXPECT_THAT(Use(WithBlock(R"({"type": "linear", "factor": 2, "factor": 4})")),
              IsInvalid("MALFORMED", BLOCK "factor"));
  EXPECT_THAT(Use(WithBlock(R"({"type": "linear", "factor": 1e400})")), IsInvalid("MALFORMED", BLOCK "factor"));
}

struct Case {
  const char* config_json;
  const char* reason;
  const char* field;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.config_json; }

class BadBlock : public testing::TestWithParam<Case> {};

TEST_P(BadBlock, IsRefused) {
  EXPECT_THAT(Use(WithBlock(GetParam().config_json)), IsInvalid(GetParam().reason, GetParam().field));
}

#define YARN R"("type": "yarn", "original_max_position_embeddings": 4096)"
#define LLAMA3 R"("type": "llama3", "original_max_position_embeddings": 8192)"
const Case kBlocks[] = {
    {R"("linear")", "OUT_OF_RANGE", FILE_FIELD "rope_scaling"},
    {R"([1])", "OUT_OF_RANGE", FILE_FIELD "rope_scaling"},
    {R"({"type": "linear", "factor": "8"})", "OUT_OF_RANGE", BLOCK "factor"},
    {R"({"type": "linear", "factor": true})", "OUT_OF_RANGE", BLOCK "factor"},
    {R"({"type": "linear", "factor": 0})", "OUT_OF_RANGE", BLOCK "factor"},
    {R"({"type": "linear", "factor": -2})", "OUT_OF_RANGE", BLOCK "factor"},
    {R"({"type": "linear"})", "MISSING", BLOCK "factor"},
    {R"({"type": "linear", "factor": 2, "beta_fast": 32})", "NOT_READ", BLOCK "beta_fast"},
    {R"({"type": "linear", "factor": 2, "bets_fast": 32})", "UNKNOWN_FIELD", BLOCK "bets_fast"},
    {R"({"type": "linear", "factor": 2, "longrope_branch": 1})", "UNKNOWN_FIELD", BLOCK "longrope_branch"},
    {R"({"type": "linear", "factor": 2, "llama_4_scaling_beta": 1})", "UNKNOWN_FIELD", BLOCK "llama_4_scaling_beta"},
    {R"({"type": "linear", "factor": 2, "": 1})", "UNKNOWN_FIELD", BLOCK ""},
    {R"({"type": "mrope", "factor": 2})", "UNKNOWN_VALUE", BLOCK "type"},
    {R"({"type": 3, "factor": 2})", "OUT_OF_RANGE", BLOCK "type"},
    {R"({"type": "linear", "rope_type": "dynamic", "factor": 2})", "CONFLICT", BLOCK "type"},
    {"{" YARN R"(, "factor": 4, "attention_factor": -1})", "OUT_OF_RANGE", BLOCK "attention_factor"},
    {"{" YARN R"(, "factor": 4, "truncate": 1})", "OUT_OF_RANGE", BLOCK "truncate"},
    {"{" YARN R"(, "factor": 4, "rope_theta": 0})", "OUT_OF_RANGE", BLOCK "rope_theta"},
    {"{" LLAMA3 R"(, "factor": 8, "low_freq_factor": 4, "high_freq_factor": 1})", "OUT_OF_RANGE",
     BLOCK "high_freq_factor"},
    {"{" LLAMA3 R"(, "factor": 8, "low_freq_factor": 1})", "MISSING", BLOCK "high_freq_factor"},
    {R"({"type": "longrope", "factor": 8, "short_factor": [1, 2], "long_factor": [1, 2]})", "MISMATCH",
     BLOCK "short_factor"},
    {R"({"type": "longrope", "factor": 8, "short_factor": [1, "2"], "long_factor": [1, 2]})", "OUT_OF_RANGE",
     BLOCK "short_factor[1]"},
    {R"({"type": "longrope", "factor": 8, "short_factor": 1, "long_factor": [1, 2]})", "OUT_OF_RANGE",
     BLOCK "short_factor"},
};
INSTANTIATE_TEST_SUITE_P(Blocks, BadBlock, testing::ValuesIn(kBlocks));

class BadFile : public testing::TestWithParam<Case> {};

TEST_P(BadFile, IsRefused) { EXPECT_THAT(Use(GetParam().config_json), IsInvalid(GetParam().reason, GetParam().field)); }

const Case kFiles[] = {
    {R"({"model_type": "llama", "head_dim": 0})", "OUT_OF_RANGE", FILE_FIELD "head_dim"},
    {R"({"model_type": "llama", "head_dim": -64})", "OUT_OF_RANGE", FILE_FIELD "head_dim"},
    {R"({"model_type": "llama", "head_dim": 1e9})", "OUT_OF_RANGE", FILE_FIELD "head_dim"},
    {R"({"model_type": "llama", "head_dim": 63})", "OUT_OF_RANGE", FILE_FIELD "head_dim"},
    {R"({"model_type": "llama", "head_dim": "64"})", "OUT_OF_RANGE", FILE_FIELD "head_dim"},
    {R"({"model_type": "llama", "hidden_size": 4096})", "MISSING", FILE_FIELD "head_dim"},
    {R"({"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 0})", "MISSING", FILE_FIELD "head_dim"},
    {R"({"model_type": "phi", "head_dim": 64, "partial_rotary_factor": 0.33})", "OUT_OF_RANGE",
     FILE_FIELD "partial_rotary_factor"},
    {R"({"model_type": "llama", "head_dim": 64, "rope_theta": 0})", "OUT_OF_RANGE", FILE_FIELD "rope_theta"},
    {R"({"model_type": "llama", "head_dim": 64, "rope_theta": true})", "OUT_OF_RANGE", FILE_FIELD "rope_theta"},
    {R"({"model_type": "llama", "head_dim": 64, "num_hidden_layers": 1000000})", "OUT_OF_RANGE",
     FILE_FIELD "num_hidden_layers"},
    {R"({"model_type": "llama", "head_dim": 4, "rope_scaling": {"type": "dynamic", "factor": 2}})", "MISSING",
     FILE_FIELD "max_position_embeddings"},
    {R"({"model_type": "llama", "head_dim": 4, "rope_scaling": {"type": "linear", "factor": 2},
         "rope_parameters": {"type": "linear", "factor": 4}})",
     "CONFLICT", FILE_FIELD "rope_scaling"},
    {R"({"model_type": 5, "head_dim": 64})", "OUT_OF_RANGE", FILE_FIELD "model_type"},
    {R"({"head_dim": 64, "rope_theta": 10000})", "MISSING", MODEL "input_pairing"},
    {R"({"model_type": "bloom", "n_head": 8})", "UNSUPPORTED", MODEL "config_json"},
    {R"({"model_type": "smollm3", "head_dim": 64, "num_hidden_layers": 4, "no_rope_layers": [1, 0]})", "MISMATCH",
     FILE_FIELD "no_rope_layers"},
};
INSTANTIATE_TEST_SUITE_P(Files, BadFile, testing::ValuesIn(kFiles));

TEST(BadConfig, LayersThatDifferMustBeChosen) {
  const std::string gemma = golden::ReadText("configs/gemma-3-1b-it.json");
  const absl::Status status = Use(gemma);
  EXPECT_THAT(status, IsInvalid("MISSING", MODEL "layer_type"));
  EXPECT_THAT(DetailsOf(status).limit,
              testing::AllOf(testing::HasSubstr("sliding_attention"), testing::HasSubstr("full_attention")));
  const auto type = [](const char* name) { return [name](v1::ModelConfig& m) { m.set_layer_type(name); }; };
  EXPECT_THAT(Use(gemma, type("full_attention")), IsOk());
  EXPECT_THAT(Use(gemma, type("linear_attention")), IsInvalid("UNKNOWN_VALUE", MODEL "layer_type"));
  EXPECT_THAT(Use(gemma, [](v1::ModelConfig& m) { m.set_layer_index(25); }), IsOk());
  EXPECT_THAT(Use(gemma, [](v1::ModelConfig& m) { m.set_layer_index(26); }),
              IsInvalid("OUT_OF_RANGE", MODEL "layer_index"));
}

TEST(BadConfig, ComponentsAndPairings) {
  const std::string llama = golden::ReadText("configs/llama-2-7b.json");
  EXPECT_THAT(Use(llama, [](v1::ModelConfig& m) { m.set_component("vision"); }),
              IsInvalid("UNKNOWN_VALUE", MODEL "component"));
  EXPECT_THAT(Use(golden::ReadText("configs/gemma-3-4b-it.json"),
                  [](v1::ModelConfig& m) { m.set_component("text"), m.set_layer_index(0); }),
              IsOk());
  EXPECT_THAT(Use(R"({"model_type": "unheard_of", "head_dim": 64})",
                  [](v1::ModelConfig& m) { m.set_input_pairing(v1::PAIRING_HALF_SPLIT); }),
              IsInvalid("UNSUPPORTED", FILE_FIELD "model_type"));
}

// A caller's list never causes unbounded work or messages.
TEST(BadConfig, HundredThousandLayerTypes) {
  std::string types;
  for (int n = 0; n < 100000; ++n) types += (n == 0 ? "\"" : ",\"") + std::to_string(n) + "\"";
  EXPECT_THAT(Use(R"({"model_type": "gemma3_text", "layer_types": [)" + types + "]}"),
              IsInvalid("UNKNOWN_VALUE", FILE_FIELD "layer_types[0]"));
  std::string blocks;
  for (int n = 0; n < 20000; ++n)
    blocks += (n == 0 ? "\"" : ",\"") + std::to_string(n) + R"(":{"rope_type":"default"})";
  EXPECT_THAT(Use(R"({"model_type": "llama", "head_dim": 64, "rope_parameters": {)" + blocks + "}}"),
              IsInvalid("OUT_OF_RANGE", FILE_FIELD "rope_parameters"));
}

// A caller's text in an error is truncated and escaped.
TEST(BadConfig, ErrorsStaySmallAndPrintable) {
  const std::string key(100000, '\n');
  const absl::Status status =
      Use(WithBlock("{\"type\": \"linear\", \"factor\": 2, \"" + std::string(50000, 'x') + "\": 1}"));
  EXPECT_EQ(DetailsOf(status).reason, "UNKNOWN_FIELD");
  EXPECT_LE(status.message().size(), 1024u);
  EXPECT_LE(DetailsOf(status).field.size(), 256u);
  const std::string type = std::string(400, 'y') + "\\u20ac";
  std::string types;
  for (int n = 0; n < 16; ++n) types += (n == 0 ? "\"" : ",\"") + type + std::to_string(n) + "\"";
  const absl::Status listed = Use(R"({"model_type": "cohere2", "head_dim": 64, "layer_types": [)" + types + "]}");
  EXPECT_EQ(DetailsOf(listed).reason, "UNKNOWN_VALUE");
  EXPECT_LE(listed.message().size(), 1024u);
  EXPECT_LE(DetailsOf(listed).limit.size(), 1024u);
}

}  // namespace
}  // namespace posenc::bad_config_test
