#include "tools/files/safetensors.h"

#include <cstdint>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/tools/files/temporary_file.h"
#include "tools/files/tensor_file.h"

namespace posenc::safetensors_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// The layout of https://github.com/huggingface/safetensors#format.
std::string File(const std::string& header, const std::string& data, uint64_t length) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(length >> (8 * i) & 0xff);
  return bytes + header + data;
}
std::string File(const std::string& header, const std::string& data) { return File(header, data, header.size()); }

// Two tensors whose header order differs from their data order.
std::string TwoTensors() {
  return File(R"({"__metadata__":{"format":"pt"},"k":{"dtype":"BF16","shape":[1,2],"data_offsets":[8,12]},)"
              R"("q":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
              "QQQQqqqqKKkk");
}

std::string ErrorOf(const std::string& bytes, const std::string& name = "") {
  const std::string path = WriteTemporary("wrong.safetensors", bytes);
  const auto tensor = ReadTensor(path + (name.empty() ? "" : ":" + name));
  EXPECT_FALSE(tensor.ok());
  const std::string message(tensor.status().message());
  EXPECT_THAT(message, testing::StartsWith(path + ": "));
  return message;
}

std::string OneTensor(const std::string& entry, const std::string& data) { return File("{\"q\":" + entry + "}", data); }

TEST(Safetensors, PicksATensorByName) {
  const std::string path = WriteTemporary("two.safetensors", TwoTensors());
  const auto q = ReadTensor(path + ":q"), k = ReadTensor(path + ":k");
  ASSERT_TRUE(q.ok()) << q.status();
  ASSERT_TRUE(k.ok()) << k.status();
  EXPECT_EQ(q->dtype(), v1::DATA_TYPE_FP32);
  EXPECT_EQ(q->data(), "QQQQqqqq");
  EXPECT_EQ(k->dtype(), v1::DATA_TYPE_BF16);
  EXPECT_THAT(k->shape(), ElementsAre(1, 2));
  EXPECT_EQ(k->data(), "KKkk");
}

TEST(Safetensors, NeedsNoNameForTheOnlyTensor) {
  const auto tensor = ReadTensor(
      WriteTemporary("one.safetensors", OneTensor(R"({"dtype":"I64","shape":[],"data_offsets":[0,8]})", "12345678")));
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  EXPECT_EQ(tensor->dtype(), v1::DATA_TYPE_INT64);
  EXPECT_EQ(tensor->shape_size(), 0);
}

TEST(Safetensors, ListsTheChoices) {
  EXPECT_THAT(ErrorOf(TwoTensors()), HasSubstr("has 2 tensors; append \":NAME\" to choose one of: q, k"));
  EXPECT_THAT(ErrorOf(TwoTensors(), "v"), HasSubstr("has no tensor \"v\"; it has: q, k"));
}

TEST(Safetensors, LetsOtherTypesPassUntilTheyAreAskedFor) {
  const std::string bytes = File(R"({"f8":{"dtype":"F8_E4M3","shape":[3],"data_offsets":[0,3]},)"
                                 R"("q":{"dtype":"F16","shape":[1],"data_offsets":[3,5]}})",
                                 "888qq");
  const auto q = ReadTensor(WriteTemporary("mixed.safetensors", bytes) + ":q");
  ASSERT_TRUE(q.ok()) << q.status();
  EXPECT_EQ(q->data(), "qq");
  EXPECT_THAT(ErrorOf(bytes, "f8"), HasSubstr("has elements of type F8_E4M3"));
}

TEST(Safetensors, WritesSeveralTensorsIntoOneFile) {
  const std::string path = TemporaryPath("out.safetensors");
  v1::Tensor q, k;
  q.set_dtype(v1::DATA_TYPE_BF16);
  q.add_shape(3);
  q.set_data("q1q2q3");
  k.set_dtype(v1::DATA_TYPE_FP32);
  k.add_shape(1);
  k.add_shape(1);
  k.set_data("kkkk");
  ASSERT_TRUE(WriteTensors(path, {{"q", &q}, {"k", &k}}).ok());
  const std::string header = R"({"q":{"dtype":"BF16","shape":[3],"data_offsets":[0,6]},)"
                             R"("k":{"dtype":"F32","shape":[1,1],"data_offsets":[6,10]}})";
  const std::string bytes = Contents(path);
  ASSERT_EQ(bytes.substr(8, header.size()), header);
  EXPECT_EQ((bytes.size() - 10) % 8, 0) << "the data are not aligned";
  const auto read = ReadTensor(path + ":k");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->SerializeAsString(), k.SerializeAsString());
}

TEST(Safetensors, RefusesHeadersThatLie) {
  EXPECT_THAT(ErrorOf(""), HasSubstr("too short"));
  EXPECT_THAT(ErrorOf(File("{}", "", 1000)), HasSubstr("truncated within its header"));
  EXPECT_THAT(ErrorOf(File("{}", "", UINT64_MAX)), HasSubstr("has a header of 18446744073709551615 bytes"));
  EXPECT_THAT(ErrorOf(File("[1]", "")), HasSubstr("not a JSON object"));
  EXPECT_THAT(ErrorOf(File("{\"q\":", "")), HasSubstr("header.q: is the end of the file; must be valid JSON"));
  const std::string deep = "{\"__metadata__\":" + std::string(300000, '[') + std::string(300000, ']') + "}";
  EXPECT_THAT(ErrorOf(File(deep, "")), HasSubstr("must be at most 64 levels deep"));
  EXPECT_THAT(ErrorOf(File("{}", "")), HasSubstr("has 0 tensors"));
}

// A reader that searches the names before each new one takes minutes.
TEST(Safetensors, ReadsManyTensors) {
  constexpr int kTensors = 100000;
  std::string header = "{";
  for (int n = kTensors; n-- > 0;) {
    absl::StrAppend(&header, "\"layers.", n, "\":{\"dtype\":\"BOOL\",\"shape\":[1],\"data_offsets\":[", n, ",", n + 1,
                    "]}", n == 0 ? "}" : ",");
  }
  const std::string path = WriteTemporary("many.safetensors", File(header, std::string(kTensors, '\1')));
  EXPECT_TRUE(ReadTensor(path + ":layers.77777").ok());
}

TEST(Safetensors, RefusesTensorsThatDoNotFit) {
  EXPECT_THAT(ErrorOf(OneTensor(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})", "1234567")),
              HasSubstr("is truncated: has 7 bytes of data, but its header says 8"));
  EXPECT_THAT(ErrorOf(OneTensor(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})", "123456789")),
              HasSubstr("has 9 bytes of data"));
  EXPECT_THAT(ErrorOf(OneTensor(R"({"dtype":"F32","shape":[3],"data_offsets":[0,8]})", "12345678")),
              HasSubstr("data_offsets span 8 bytes, but type and shape need 12"));
  EXPECT_THAT(ErrorOf(OneTensor(R"({"dtype":"F32","shape":[2],"data_offsets":[8,0]})", "12345678")),
              HasSubstr("begin <= end"));
  EXPECT_THAT(ErrorOf(OneTensor(R"({"dtype":"F32","shape":[2],"data_offsets":[0]})", "12345678")),
              HasSubstr("begin <= end"));
  EXPECT_THAT(ErrorOf(OneTensor(R"({"dtype":"F32","shape":[-2],"data_offsets":[0,8]})", "12345678")),
              HasSubstr("shape is not"));
  EXPECT_THAT(ErrorOf(OneTensor(R"({"dtype":"F32","shape":[2.0],"data_offsets":[0,8]})", "12345678")),
              HasSubstr("shape is not"));
  EXPECT_THAT(ErrorOf(OneTensor(R"({"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,8]})", "12345678")),
              HasSubstr("shape is not"));
  EXPECT_THAT(ErrorOf(OneTensor(R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]})", "12345678")),
              HasSubstr("2^63 bytes"));
  EXPECT_THAT(ErrorOf(OneTensor(R"({"shape":[2],"data_offsets":[0,8]})", "12345678")), HasSubstr("no dtype"));
  EXPECT_THAT(ErrorOf(OneTensor("7", "")), HasSubstr("not an object"));
}

TEST(Safetensors, RefusesGapsOverlapsAndRepeatedNames) {
  const auto two = [](const std::string& first, const std::string& second, const std::string& other) {
    return File(R"({"a":{"dtype":"F16","shape":[2],"data_offsets":)" + first + R"(},")" + other +
                    R"(":{"dtype":"F16","shape":[2],"data_offsets":)" + second + "}}",
                "12345678");
  };
  EXPECT_THAT(ErrorOf(two("[0,4]", "[2,6]", "b"), "a"), HasSubstr("a gap or an overlap before tensor \"b\""));
  EXPECT_THAT(ErrorOf(two("[0,4]", "[0,4]", "b"), "a"), HasSubstr("a gap or an overlap"));
  EXPECT_THAT(ErrorOf(two("[4,8]", "[5,9]", "b"), "a"), HasSubstr("a gap or an overlap before tensor \"a\""));
  EXPECT_THAT(ErrorOf(two("[0,4]", "[4,8]", "a"), "a"), HasSubstr("header.a: is given twice"));
}

}  // namespace
}  // namespace posenc::safetensors_test
