// The ONNX format: which operators rotate and by which tables, and what hostile files give.
#include <gtest/gtest.h>

#include "posenc/base/status.h"
#include "posenc/wire/onnx.h"
#include "posenc/wire/onnx_rotary.h"
#include "tests/service/call.h"

namespace posenc::onnx_test {
namespace {

std::string Varint(uint64_t value) {
  std::string text;
  for (; value >= 0x80; value >>= 7) text.push_back(static_cast<char>(value | 0x80));
  text.push_back(static_cast<char>(value));
  return text;
}
std::string Number(int field, uint64_t value) { return Varint(field << 3) + Varint(value); }
std::string Text(int field, const std::string& text) { return Varint(field << 3 | 2) + Varint(text.size()) + text; }
std::string Texts(int field, const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += Text(field, text);
  return all;
}

// Messages of onnx.in.proto.
std::string IntAttribute(const std::string& name, int64_t value) { return Text(5, Text(1, name) + Number(3, value)); }
std::string ReferenceTo(const std::string& name, const std::string& of) {
  return Text(5, Text(1, name) + Text(21, of));
}
std::string GraphAttribute(const std::string& graph) { return Text(5, Text(1, "g") + Text(6, graph)); }
std::string Node(const std::string& op_type, const std::vector<std::string>& inputs,
                 const std::vector<std::string>& outputs, const std::string& more = "",
                 const std::string& domain = "") {
  return Texts(1, inputs) + Texts(2, outputs) + Text(4, op_type) + more + Text(7, domain);
}
std::string FloatTensor(const std::string& name, int64_t rows, int64_t width) {
  return Number(1, rows) + Number(1, width) + Number(2, kOnnxFloat) + Text(8, name) +
         Text(9, std::string(rows * width * 4, '\0'));
}
std::string Nodes(const std::vector<std::string>& nodes) { return Texts(1, nodes); }
std::string Tables() { return Texts(5, {FloatTensor("cos", 4, 2), FloatTensor("sin", 4, 2)}); }
std::string Model(const std::string& graph, const std::string& more = "") {
  return Number(1, 10) + Text(7, graph) + Text(8, Text(1, "") + Number(2, 23)) + more;
}
const std::string kRotary = Node("RotaryEmbedding", {"x", "cos", "sin", "ids"}, {"y"});

// The rotary uses of a file, which must be valid; their origins point into `model`.
std::vector<OnnxUse> UsesOf(const std::string& file, OnnxModel* model) {
  auto read = ReadOnnx(file);
  EXPECT_THAT(read, IsOk());
  if (!read.ok()) return {};
  *model = *std::move(read);
  const auto uses = FindRotary(*model);
  EXPECT_THAT(uses, IsOk());
  return uses.ok() ? uses->uses : std::vector<OnnxUse>();
}

std::string ErrorOf(const std::string& file) {
  const auto model = ReadOnnx(file);
  if (!model.ok()) return std::string(model.status().message());
  const auto uses = FindRotary(*model);
  return std::string(uses.status().message());
}

TEST(Onnx, FindsAnOperatorAndItsTables) {
  OnnxModel model;
  const auto uses = UsesOf(Model(Nodes({Node("MatMul", {"a", "b"}, {"x"}), kRotary}) + Tables()), &model);
  ASSERT_EQ(uses.size(), 1);
  EXPECT_EQ(uses[0].rotation.op_type, "RotaryEmbedding");
  EXPECT_EQ(uses[0].rotation.opset, 23);
  EXPECT_FALSE(uses[0].rotation.interleaved);
  ASSERT_NE(uses[0].cos.tensor, nullptr);
  EXPECT_EQ(uses[0].cos.tensor->name, "cos");
  EXPECT_EQ(uses[0].sin.tensor->dims, (std::vector<int64_t>{4, 2}));
  ASSERT_EQ(uses[0].cos.tensor->raw_data.size(), 1);
  EXPECT_EQ(uses[0].cos.tensor->raw_data[0].size, 32);
}

TEST(Onnx, FieldsMayComeInAnyOrder) {
  OnnxModel model;
  const std::string backwards = Text(7, Tables() + Nodes({kRotary})) + Text(8, Number(2, 24)) + Number(1, 10);
  const auto uses = UsesOf(backwards, &model);
  ASSERT_EQ(uses.size(), 1);
  EXPECT_EQ(uses[0].rotation.opset, 24);
  EXPECT_NE(uses[0].cos.tensor, nullptr);
}

TEST(Onnx, FollowsTablesThroughNodesThatKeepThem) {
  const std::vector<std::string> way = {
      Node("Identity", {"cos"}, {"cos1"}), Node("Cast", {"cos1"}, {"cos2"}, IntAttribute("to", kOnnxFloat16)),
      Node("Gather", {"cos2", "ids"}, {"cos3"}), Node("RotaryEmbedding", {"x", "cos3", "sin"}, {"y"})};
  OnnxModel model;
  const auto uses = UsesOf(Model(Nodes(way) + Tables()), &model);
  ASSERT_EQ(uses.size(), 1);
  ASSERT_NE(uses[0].cos.tensor, nullptr);
  EXPECT_EQ(uses[0].cos.cast_to, kOnnxFloat16);
  EXPECT_FALSE(uses[0].rotation.has_position_ids);
  // A Gather of columns, and a node that computes, are no table.
  const std::string columns = Node("Gather", {"cos", "ids"}, {"c"}, IntAttribute("axis", 1));
  const std::string computed = Node("Cos", {"angles"}, {"c"});
  for (const std::string& node : {columns, computed}) {
    const std::string rotation = Node("RotaryEmbedding", {"x", "c", "sin", "ids"}, {"y"});
    const auto found = UsesOf(Model(Nodes({node, rotation}) + Tables()), &model);
    ASSERT_EQ(found.size(), 1);
    EXPECT_EQ(found[0].cos.tensor, nullptr);
    EXPECT_NE(found[0].cos.not_stored, "");
  }
}

TEST(Onnx, EntersSubgraphsAndFunctions) {
  const std::string branch =
      Nodes({Node("Constant", {}, {"c"}, Text(5, Text(1, "value") + Text(5, FloatTensor("", 4, 2))))}) +
      Texts(12, {Text(1, "c")});
  const std::string chosen = Node("If", {"long"}, {"c"}, GraphAttribute(branch) + GraphAttribute(branch));
  const std::string function =
      Text(1, "Rotate") + Texts(4, {"a", "t"}) + Texts(5, {"b"}) + Texts(6, {"pairing"}) +
      Text(7, Node("RotaryEmbedding", {"a", "t", "t", "ids"}, {"b"}, ReferenceTo("interleaved", "pairing"))) +
      Text(10, "local");
  const std::string call = Node("Rotate", {"x", "c"}, {"y"}, IntAttribute("pairing", 1), "local");
  const std::string loop = Node("Loop", {"n"}, {"o"}, GraphAttribute(Nodes({call})));
  OnnxModel model;
  const auto uses = UsesOf(Model(Nodes({chosen, loop}), Text(25, function)), &model);
  ASSERT_EQ(uses.size(), 2);  // by the tables of both branches
  for (const OnnxUse& use : uses) {
    EXPECT_TRUE(use.rotation.interleaved);
    EXPECT_NE(use.cos.tensor, nullptr);
  }
  EXPECT_NE(uses[0].cos.tensor, uses[1].cos.tensor);
}

TEST(Onnx, ListsOperatorsThatItDoesNotRead) {
  const auto model =
      ReadOnnx(Model(Nodes({Node("MRotaryEmbedding", {"x"}, {"y"}, "", "com.microsoft"),
                            Node("Attention", {"x"}, {"y"}, IntAttribute("do_rotary", 1), "com.microsoft"),
                            Node("Attention", {"x"}, {"y"}, "", "com.microsoft"),
                            Node("GroupQueryAttention", {"x"}, {"y"}, "", "com.microsoft")})));
  ASSERT_THAT(model, IsOk());
  const auto uses = FindRotary(*model);
  ASSERT_THAT(uses, IsOk());
  EXPECT_TRUE(uses->uses.empty());
  EXPECT_EQ(uses->unread.size(), 2);
}

TEST(Onnx, ReadsLittleOfALargeFile) {
  // An initializer of 1 TiB, which is not in memory.
  constexpr uint64_t kData = uint64_t{1} << 40;
  const std::string head =
      Number(1, 1 << 20) + Number(2, kOnnxFloat) + Text(8, "w") + Varint(9 << 3 | 2) + Varint(kData);
  const std::string tensor = Varint(5 << 3 | 2) + Varint(head.size() + kData) + head;
  const std::string tail = Nodes({kRotary}) + Tables();
  const std::string begin = Varint(7 << 3 | 2) + Varint(tensor.size() + kData + tail.size()) + tensor;
  uint64_t most = 0;
  const OnnxSource source{begin.size() + kData + tail.size(), [&](uint64_t offset, uint64_t count) {
                            most = std::max(most, count);
                            std::string bytes(count, '\0');
                            for (uint64_t n = 0; n < count; ++n) {
                              const uint64_t at = offset + n;
                              if (at < begin.size()) bytes[n] = begin[at];
                              if (at >= begin.size() + kData) bytes[n] = tail[at - begin.size() - kData];
                            }
                            return absl::StatusOr<std::string>(bytes);
                          }};
  const auto model = ReadOnnx(source);
  ASSERT_THAT(model, IsOk());
  EXPECT_EQ(model->graph.nodes.size(), 1);
  EXPECT_LE(most, 1 << 16);
}

TEST(Onnx, EveryTruncationNamesAFieldAndAByte) {
  const std::string file = Model(Nodes({kRotary}) + Tables(), Text(25, Text(1, "f")));
  ASSERT_THAT(ReadOnnx(file), IsOk());
  int refused = 0;
  for (size_t size = 0; size < file.size(); ++size) {
    const auto model = ReadOnnx(file.substr(0, size));
    if (model.ok()) continue;  // between two fields
    ++refused;
    const ErrorDetails details = DetailsOf(model.status());
    EXPECT_TRUE(details.field.starts_with("onnx.")) << details.field;
    if (details.reason != "MISSING") {
      EXPECT_NE(details.value.find("at byte"), std::string::npos) << details.value;
    }
  }
  EXPECT_GT(refused, 100);
}

TEST(Onnx, RefusesWhatIsTooDeepTooLongOrNoMessage) {
  std::string deep = Nodes({kRotary});
  for (int n = 0; n < 40; ++n) deep = Nodes({Node("If", {}, {}, GraphAttribute(deep))});
  EXPECT_NE(ErrorOf(Model(deep)).find("must be at most 16 deep"), std::string::npos);
  EXPECT_NE(ErrorOf(Model(Nodes({Node(std::string(5000, 'x'), {}, {})}))).find("must be at most 4096 bytes"),
            std::string::npos);
  EXPECT_NE(ErrorOf(std::string(11, '\xff')).find("must have at most 10 bytes"), std::string::npos);
  EXPECT_NE(ErrorOf(Varint(7 << 3 | 3)).find("must be 0, 1, 2 or 5"), std::string::npos);
  EXPECT_NE(ErrorOf(Varint(0) + Varint(0)).find("field number"), std::string::npos);
  EXPECT_NE(ErrorOf(Number(1, 10)).find("onnx.graph"), std::string::npos);
  EXPECT_NE(ErrorOf(Number(7, 10)).find("must be length-delimited"), std::string::npos);
  std::string nodes;
  for (int n = 0; n < (1 << 18) + 1; ++n) nodes += Text(1, "");
  EXPECT_NE(ErrorOf(Model(nodes)).find("must be at most 262144 nodes"), std::string::npos);
}

TEST(Onnx, RefusesCallsWithoutEnd) {
  const std::string self = Text(1, "F") + Text(7, Node("F", {}, {}, "", "local")) + Text(10, "local");
  EXPECT_NE(ErrorOf(Model(Nodes({Node("F", {}, {}, "", "local")}), Text(25, self))).find("at most 16 deep"),
            std::string::npos);
  // Each function calls the next one 64 times.
  std::string functions;
  for (int n = 0; n < 8; ++n) {
    std::string body;
    for (int k = 0; k < 64; ++k) body += Text(7, Node("F" + std::to_string(n + 1), {}, {}, "", "local"));
    functions += Text(25, Text(1, "F" + std::to_string(n)) + body + Text(10, "local"));
  }
  EXPECT_NE(ErrorOf(Model(Nodes({Node("F0", {}, {}, "", "local")}), functions)).find("at most 1048576 nodes"),
            std::string::npos);
  // Ifs whose branches lead to the If before them, both ways.
  std::string ifs = Nodes({Node("Identity", {"in"}, {"c0"})});
  for (int n = 0; n < 60; ++n) {
    const std::string branch = Texts(12, {Text(1, "c" + std::to_string(n))});
    ifs += Nodes({Node("If", {}, {"c" + std::to_string(n + 1)}, GraphAttribute(branch) + GraphAttribute(branch))});
  }
  ifs += Nodes({Node("RotaryEmbedding", {"x", "c60", "c60", "ids"}, {"y"})});
  EXPECT_NE(ErrorOf(Model(ifs)).find("at most 1048576 nodes"), std::string::npos);
}

}  // namespace
}  // namespace posenc::onnx_test
