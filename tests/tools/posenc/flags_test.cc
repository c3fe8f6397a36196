// Requests made from the words of a command line.
#include "tools/posenc/field_flags.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools/files/temporary_file.h"
#include "tools/posenc/bias_flags.h"
#include "tools/posenc/relative_flags.h"
#include "tools/posenc/request_flags.h"
#include "tools/posenc/session.h"
#include "tools/posenc/values.h"

namespace posenc::command {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Parses the words. Returns the error's text, or "".
std::string Parse(CLI::App& app, std::vector<std::string> words) {
  std::vector<std::string> reversed(words.rbegin(), words.rend());  // CLI11 expects them reversed
  try {
    app.parse(reversed);
  } catch (const CLI::ParseError& error) {
    return error.what();
  }
  return "";
}

absl::StatusOr<v1::RotarySource> Rotary(std::vector<std::string> words) {
  CLI::App app;
  RotaryFlags flags;
  flags.Add(app);
  const std::string error = Parse(app, std::move(words));
  return error.empty() ? flags.Get() : absl::StatusOr<v1::RotarySource>(absl::UnknownError(error));
}

TEST(RotaryFlags, SettingsBecomeTheFieldsOfTheirNames) {
  const auto source = Rotary({"--rope-type", "yarn", "--factor", "4", "--beta-fast", "32.5", "--truncate", "false",
                              "--original-max-position-embeddings", "4096", "--rotary-dim", "64", "--input-pairing",
                              "half-split", "--output-pairing", "INTERLEAVED"});
  ASSERT_TRUE(source.ok()) << source.status();
  v1::RotarySource expected;
  v1::RotarySettings& settings = *expected.mutable_settings();
  settings.mutable_rope_parameters()->set_rope_type("yarn");
  settings.mutable_rope_parameters()->set_factor(4);
  settings.mutable_rope_parameters()->set_beta_fast(32.5);
  settings.mutable_rope_parameters()->set_truncate(false);
  settings.mutable_rope_parameters()->set_original_max_position_embeddings(4096);
  settings.set_rotary_dim(64);
  settings.set_input_pairing(v1::PAIRING_HALF_SPLIT);
  settings.set_output_pairing(v1::PAIRING_INTERLEAVED);
  EXPECT_EQ(source->DebugString(), expected.DebugString());
}

TEST(RotaryFlags, EveryParameterHasAFlag) {
  CLI::App app;
  RotaryFlags flags;
  flags.Add(app);
  const auto* descriptor = v1::RopeParameters::descriptor();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    EXPECT_NE(app.get_option_no_throw(FlagName(descriptor->field(i)->name())), nullptr) << descriptor->field(i)->name();
  }
}

TEST(RotaryFlags, SettingsWithoutAFormula) {
  const auto axial = Rotary({"--axial", "16,56:256,56:10000:0.5", "--input-pairing", "interleaved"});
  ASSERT_TRUE(axial.ok()) << axial.status();
  ASSERT_EQ(axial->settings().axial().axes_size(), 3);
  EXPECT_FALSE(axial->settings().axial().axes(0).has_rope_theta());
  EXPECT_EQ(axial->settings().axial().axes(1).rope_theta(), 256);
  EXPECT_EQ(axial->settings().axial().axes(2).frequency_start(), 0.5);
  EXPECT_FALSE(axial->settings().axial().alternating());
  const auto in_turn =
      Rotary({"--axial", "16,16,alternating", "--input-pairing", "half-split", "--half-split-parts", "2"});
  ASSERT_TRUE(in_turn.ok()) << in_turn.status();
  EXPECT_EQ(in_turn->settings().axial().axes_size(), 2);
  EXPECT_TRUE(in_turn->settings().axial().alternating());
  EXPECT_EQ(in_turn->settings().half_split_parts(), 2);
  const auto xpos = Rotary(
      {"--rope-type", "default", "--centre", "2048", "--mrope-section", "1,2,3", "--mrope-order", "interleaved"});
  ASSERT_TRUE(xpos.ok()) << xpos.status();
  EXPECT_EQ(xpos->settings().xpos().centre(), 2048);
  EXPECT_EQ(xpos->settings().rope_parameters().mrope_order(), v1::MROPE_ORDER_INTERLEAVED);
  EXPECT_THAT(xpos->settings().rope_parameters().mrope_section(), ElementsAre(1, 2, 3));
  const auto given = Rotary({"--given-cos", "1,0.5", "--given-sin", "0,1", "--given-form", "half-width"});
  ASSERT_TRUE(given.ok()) << given.status();
  EXPECT_EQ(given->settings().given_table().form(), v1::TABLE_FORM_HALF_WIDTH);
}

TEST(RotaryFlags, ABlockOfJsonAndFlagsAddUp) {
  const auto source = Rotary({"--rope-parameters", R"({"rope_type": "longrope", "short_factor": [1, 2]})",
                              "--long-factor", "3,4.5", "--head-dim", "4"});
  ASSERT_TRUE(source.ok()) << source.status();
  const v1::RopeParameters& parameters = source->settings().rope_parameters();
  EXPECT_EQ(parameters.rope_type(), "longrope");
  EXPECT_THAT(parameters.short_factor(), ElementsAre(1, 2));
  EXPECT_THAT(parameters.long_factor(), ElementsAre(3, 4.5));
}

TEST(RotaryFlags, ContradictionsAreUsageErrors) {
  const std::string model = WriteTemporary("config.json", "{}");
  const std::vector<std::vector<std::string>> wrong = {
      {},
      {"--model", model, "--rope-theta", "3"},
      {"--model", model, "--rope-parameters", "{}"},
      {"--layer-index", "3", "--rope-type", "default"},
      {"--inv-freq", "1,0.5", "--rope-theta", "3"},
      {"--rope-parameters", R"({"factor": 2})", "--factor", "3"},
      {"--rope-parameters", R"({"short_factor": [2]})", "--short-factor", "3"},
      {"--rope-parameters", R"({"type": "linear"})"},
      {"--axial", "8,8", "--rope-type", "default"},
      {"--axial", "8,8", "--inv-freq", "1"},
      {"--model", model, "--centre", "3"},
  };
  for (const auto& words : wrong) {
    const auto source = Rotary(words);
    EXPECT_TRUE(IsUsageError(source.status())) << testing::PrintToString(words) << source.status();
  }
}

TEST(RotaryFlags, AModelKeepsItsBytesAndTakesThePairing) {
  const std::string model = WriteTemporary("config.json", "{\"a\": \"\xff\"}");
  const auto source = Rotary({"--model", model, "--layer-type", "sliding_attention", "--input-pairing", "interleaved"});
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ(source->model().config_json(), "{\"a\": \"\xff\"}");
  EXPECT_EQ(source->model().layer_type(), "sliding_attention");
  EXPECT_EQ(source->model().input_pairing(), v1::PAIRING_INTERLEAVED);
}

TEST(RotaryFlags, AMissingModelIsNotAUsageError) {
  const auto source = Rotary({"--model", "/nowhere/config.json"});
  EXPECT_TRUE(absl::IsNotFound(source.status())) << source.status();
}

TEST(PrecisionFlags, PresetOrAxes) {
  const auto precision = [](std::vector<std::string> words) -> absl::StatusOr<v1::ExplainRequest> {
    CLI::App app;
    PrecisionFlags flags;
    flags.Add(app);
    EXPECT_EQ(Parse(app, std::move(words)), "");
    v1::ExplainRequest request;
    POSENC_RETURN_IF_ERROR(flags.Put(&request));
    return request;
  };
  EXPECT_FALSE(precision({})->has_precision());
  EXPECT_EQ(precision({"--precision", "hf_eager"})->precision().preset(), v1::PRECISION_PRESET_HF_EAGER);
  const auto axes = precision({"--frequencies", "float64", "--table-dtype", "tensor", "--rounding", "each-operation"});
  EXPECT_EQ(axes->precision().axes().frequencies(), v1::FREQUENCY_ARITHMETIC_FLOAT64);
  EXPECT_EQ(axes->precision().axes().table_dtype(), v1::TABLE_DTYPE_TENSOR);
  EXPECT_EQ(axes->precision().axes().rounding(), v1::ROUNDING_EACH_OPERATION);
  EXPECT_TRUE(IsUsageError(precision({"--precision", "f32", "--rounding", "once"}).status()));
}

TEST(PositionFlags, OneSourceOnly) {
  CLI::App app;
  v1::Positions positions;
  AddPositionFlags(app, PositionKind::kSequences, &positions);
  EXPECT_EQ(Parse(app, {"--offset", "-5", "--cu-seqlens", "0,3,7", "--seq-len", "4096"}), "");
  EXPECT_EQ(positions.offset(), -5);
  EXPECT_EQ(positions.cu_seqlens().dtype(), v1::DATA_TYPE_INT64);
  EXPECT_THAT(positions.cu_seqlens().shape(), ElementsAre(3));
  EXPECT_EQ(positions.cu_seqlens().data().substr(8, 8), std::string("\x03\0\0\0\0\0\0\0", 8));
  CompletePositions(&positions);
  EXPECT_EQ(positions.scaling_length_rule(), v1::SCALING_LENGTH_RULE_GIVEN);

  positions.Clear();
  EXPECT_THAT(Parse(app, {"--offset", "1", "--positions", "0.5,1"}), HasSubstr("give one of them"));
  positions.Clear();
  EXPECT_EQ(Parse(app, {"--offsets", "7,-8"}), "");
  EXPECT_THAT(positions.offsets().offset(), ElementsAre(7, -8));
}

TEST(FieldFlags, SayWhatIsWrongWithAValue) {
  CLI::App app;
  v1::Positions positions;
  v1::ModelConfig model;
  v1::RotarySettings settings;
  AddPositionFlags(app, PositionKind::kSequences, &positions);
  AddFieldFlags(app, "", &model, {{"layer_index", ""}});
  AddFieldFlags(app, "", &settings, {{"input_pairing", ""}});
  EXPECT_THAT(Parse(app, {"--offset", "5x"}), HasSubstr("--offset: \"5x\" is not an integer"));
  EXPECT_THAT(Parse(app, {"--offset", "9223372036854775808"}), HasSubstr("is out of range"));
  EXPECT_THAT(Parse(app, {"--offsets", "1,,2"}), HasSubstr("\"\" is not an integer"));
  positions.Clear();
  EXPECT_THAT(Parse(app, {"--positions", "/nowhere/ids.npy"}), HasSubstr("--positions: /nowhere/ids.npy: cannot open"));
  positions.Clear();
  EXPECT_THAT(Parse(app, {"--positions", "ids.txt"}), HasSubstr("neither a .npy or .safetensors file nor numbers"));
  EXPECT_THAT(Parse(app, {"--layer-index", "-1"}), HasSubstr("not between 0 and"));
  EXPECT_THAT(Parse(app, {"--input-pairing", "neox"}), HasSubstr("is not one of interleaved, half-split"));
  EXPECT_THAT(Parse(app, {"--input-pairing", "unspecified"}), HasSubstr("is not one of"));
}

TEST(FieldFlags, TakeWhatTheyList) {
  CLI::App app;
  v1::GenerateTableRequest request;
  AddFieldFlags(app, "", &request, {{"dtype", "", nullptr, "fp32|fp64"}});
  EXPECT_EQ(app.get_option("--dtype")->get_type_name(), "fp32|fp64");
  EXPECT_EQ(Parse(app, {"--dtype", "FP64"}), "");
  EXPECT_EQ(request.dtype(), v1::DATA_TYPE_FP64);
  EXPECT_THAT(Parse(app, {"--dtype", "int64"}), HasSubstr("\"int64\" is not one of fp32, fp64"));
}

TEST(BiasMethodFlags, OneMethod) {
  const auto bias = [](std::vector<std::string> words) -> absl::StatusOr<v1::BiasMethod> {
    CLI::App app;
    BiasMethodFlags flags;
    flags.Add(app);
    flags.AddTable(app);
    const std::string error = Parse(app, std::move(words));
    return error.empty() ? flags.Get() : absl::UnknownError(error);
  };
  EXPECT_EQ(bias({"--t5-num-buckets", "8", "--table-layout", "heads-by-buckets"})->t5().num_buckets(), 8);
  EXPECT_TRUE(bias({"--nope"})->has_nope());
  EXPECT_EQ(bias({"--nope", "--nope-num-heads", "3"})->nope().num_heads(), 3);
  EXPECT_EQ(bias({"--num-heads", "3"})->alibi().num_heads(), 3);
  EXPECT_EQ(bias({})->method_case(), v1::BiasMethod::METHOD_NOT_SET);
  EXPECT_TRUE(IsUsageError(bias({"--nope", "--num-heads", "3"}).status()));
  EXPECT_TRUE(IsUsageError(bias({"--nope", "--t5-num-buckets", "8"}).status()));
  EXPECT_THAT(std::string(bias({"--t5-num-buckets", "8", "--kerple-a", "1"}).status().message()),
              HasSubstr("--kerple-a: not allowed with flags of t5"));
}

// Every field has a flag, also in nested messages, and a projection has one without a weight.
TEST(RelativeMethodFlags, AllHaveHelp) {
  CLI::App app;
  v1::RelativeMethod method;
  AddRelativeMethodFlags(app, &method);
  for (const CLI::Option* option : app.get_options()) EXPECT_NE(option->get_description(), "") << option->get_name();
  for (const char* flag : {"--tupe-relative-bias-num-buckets", "--deberta-layer-norm-epsilon", "--deberta-key"}) {
    EXPECT_NE(app.get_option_no_throw(flag), nullptr) << flag;
  }
  EXPECT_FALSE(IsSet(method));
}

TEST(RelativeMethodFlags, FieldsOfMessagesWithin) {
  CLI::App app;
  v1::RelativeMethod method;
  AddRelativeMethodFlags(app, &method);
  EXPECT_EQ(Parse(app, {"--deberta-key-weight", "1,2", "--deberta-key-layout", "input-by-output",
                        "--deberta-layer-norm-epsilon", "1e-7", "--deberta-query"}),
            "");
  const v1::Deberta& deberta = method.deberta();
  EXPECT_THAT(deberta.key().weight().shape(), ElementsAre(2));
  EXPECT_EQ(deberta.key().layout(), v1::WEIGHT_LAYOUT_INPUT_BY_OUTPUT);
  EXPECT_EQ(deberta.layer_norm().epsilon(), 1e-7);
  EXPECT_TRUE(deberta.has_query());
  EXPECT_EQ(FirstFlagOf(method), "--deberta-layer-norm-epsilon");
}

TEST(RelativeMethodFlags, OneMethod) {
  for (const std::vector<std::string>& words : {std::vector<std::string>{"--shaw-clip", "true", "--wpr-scales", "2"},
                                                {"--wpr-scales", "2", "--deberta-key"},
                                                {"--deberta-key", "--tupe-key-bias", "1"}}) {
    CLI::App app;
    v1::RelativeMethod method;
    AddRelativeMethodFlags(app, &method);
    EXPECT_THAT(Parse(app, words), HasSubstr("not allowed with flags of ")) << testing::PrintToString(words);
  }
}

TEST(BiasMethodFlags, AllHaveHelp) {
  CLI::App app;
  BiasMethodFlags flags;
  flags.Add(app);
  flags.AddTable(app);
  for (const CLI::Option* option : app.get_options()) EXPECT_NE(option->get_description(), "") << option->get_name();
}

TEST(Values, Segments) {
  const auto segments = ParseSegments("3:0,2:1.5:-0.5");
  ASSERT_TRUE(segments.ok()) << segments.status();
  ASSERT_EQ(segments->segment_size(), 2);
  EXPECT_FALSE(segments->segment(0).line().has_step());
  EXPECT_EQ(segments->segment(1).line().count(), 2);
  EXPECT_EQ(segments->segment(1).line().start(), 1.5);
  EXPECT_EQ(segments->segment(1).line().step(), -0.5);
  for (const char* wrong : {"", "3", "3:0:1:1", "x:0", "3:0,"}) EXPECT_FALSE(ParseSegments(wrong).ok()) << wrong;
}

TEST(Values, Grids) {
  const auto segments = ParseSegments("512:0:0,1x64x48,2x3:1x-5.5:0x1e2");
  ASSERT_TRUE(segments.ok()) << segments.status();
  ASSERT_EQ(segments->segment_size(), 3);
  EXPECT_EQ(segments->segment(0).line().count(), 512);
  EXPECT_THAT(segments->segment(1).grid().size(), ElementsAre(1, 64, 48));
  EXPECT_EQ(segments->segment(1).grid().start_size(), 0);
  EXPECT_THAT(segments->segment(2).grid().start(), ElementsAre(1, -5.5));
  EXPECT_THAT(segments->segment(2).grid().step(), ElementsAre(0, 100));
  for (const char* wrong : {"x", "2x", "2x3:1x", "2x3:1x1:1x1:1"}) EXPECT_FALSE(ParseSegments(wrong).ok()) << wrong;
}

TEST(Values, NumbersBecomeTensors) {
  EXPECT_EQ(ParseTensor("1,2")->dtype(), v1::DATA_TYPE_INT64);
  const auto tensor = ParseTensor("1,0.5");
  EXPECT_EQ(tensor->dtype(), v1::DATA_TYPE_FP64);
  EXPECT_EQ(tensor->data(), std::string("\0\0\0\0\0\0\xf0\x3f\0\0\0\0\0\0\xe0\x3f", 16));
}

}  // namespace
}  // namespace posenc::command
