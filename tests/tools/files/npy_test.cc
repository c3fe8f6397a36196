#include "tools/files/npy.h"

#include <unistd.h>

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools/files/temporary_file.h"
#include "tools/files/tensor_file.h"

namespace posenc::npy_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// The prefix that numpy.save of NumPy 1.24 writes: the header is padded to 128 bytes for all small arrays.
std::string NumpyPrefix(std::string dict) {
  dict.append(117 - dict.size(), ' ');
  return std::string("\x93NUMPY\x01\x00\x76\x00", 10) + dict + "\n";
}

// numpy.save of array([[1, -0.5, inf], [0, 2, 3]], float32), NumPy 1.24.
std::string SmallFloats() {
  return NumpyPrefix("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }") +
         std::string("\x00\x00\x80\x3f\x00\x00\x00\xbf\x00\x00\x80\x7f\x00\x00\x00\x00\x00\x00\x00\x40\x00\x00\x40\x40",
                     24);
}

std::string ErrorOf(const std::string& bytes) {
  const std::string path = WriteTemporary("wrong.npy", bytes);
  const auto tensor = ReadTensor(path);
  EXPECT_EQ(tensor.status().code(), absl::StatusCode::kInvalidArgument);
  const std::string message(tensor.status().message());
  EXPECT_THAT(message, testing::StartsWith(path + ": "));
  return message;
}

TEST(Npy, ReadsWhatNumpyWrites) {
  const auto tensor = ReadTensor(WriteTemporary("small.npy", SmallFloats()));
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  EXPECT_EQ(tensor->dtype(), v1::DATA_TYPE_FP32);
  EXPECT_THAT(tensor->shape(), ElementsAre(2, 3));
  EXPECT_EQ(tensor->data(), SmallFloats().substr(128));
}

TEST(Npy, ReadsScalarsBooleansAndEmptyArrays) {
  const auto scalar =
      ReadTensor(WriteTemporary("scalar.npy", NumpyPrefix("{'descr': '<i8', 'fortran_order': False, 'shape': (), }") +
                                                  std::string("\x07\0\0\0\0\0\0\0", 8)));
  ASSERT_TRUE(scalar.ok()) << scalar.status();
  EXPECT_EQ(scalar->shape_size(), 0);
  const auto flags =
      ReadTensor(WriteTemporary("flags.npy", NumpyPrefix("{'descr': '|b1', 'fortran_order': False, 'shape': (2,), }") +
                                                 std::string("\x01\x00", 2)));
  ASSERT_TRUE(flags.ok()) << flags.status();
  EXPECT_EQ(flags->dtype(), v1::DATA_TYPE_BOOL);
  const auto empty = ReadTensor(
      WriteTemporary("empty.npy", NumpyPrefix("{'descr': '<f8', 'fortran_order': False, 'shape': (0, 3), }")));
  ASSERT_TRUE(empty.ok()) << empty.status();
  EXPECT_THAT(empty->shape(), ElementsAre(0, 3));
}

TEST(Npy, ReadsVersionTwo) {
  std::string dict = "{'descr': '<f2', 'fortran_order': False, 'shape': (2,), }";
  dict.append(115 - dict.size(), ' ');
  const auto tensor = ReadTensor(WriteTemporary("two.npy", std::string("\x93NUMPY\x02\x00\x74\x00\x00\x00", 12) + dict +
                                                               "\n" + std::string("\x00\x3c\x00\x40", 4)));
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  EXPECT_EQ(tensor->dtype(), v1::DATA_TYPE_FP16);
  EXPECT_EQ(tensor->data().size(), 4);
}

TEST(Npy, WritesTheBytesThatNumpyWrites) {
  const auto header = MakeNpyHeader({"", v1::DATA_TYPE_FP32, {2, 3}});
  ASSERT_TRUE(header.ok());
  EXPECT_EQ(*header, SmallFloats().substr(0, 128));
  EXPECT_EQ(*MakeNpyHeader({"", v1::DATA_TYPE_FP16, {2}}),
            NumpyPrefix("{'descr': '<f2', 'fortran_order': False, 'shape': (2,), }"));
  EXPECT_EQ(*MakeNpyHeader({"", v1::DATA_TYPE_INT64, {}}),
            NumpyPrefix("{'descr': '<i8', 'fortran_order': False, 'shape': (), }"));
}

TEST(Npy, RefusesBfloat16WithAdvice) {
  const absl::Status status = CheckWritable("out.npy", v1::DATA_TYPE_BF16, 1);
  EXPECT_THAT(std::string(status.message()), HasSubstr("out.npy: NumPy's format has no BF16"));
  EXPECT_THAT(std::string(status.message()), HasSubstr(".safetensors"));
}

TEST(Npy, SaysWhatIsWrong) {
  EXPECT_THAT(ErrorOf(""), HasSubstr("is not a .npy file"));
  EXPECT_THAT(ErrorOf("PK\x03\x04 a zip file"), HasSubstr("is not a .npy file"));
  EXPECT_THAT(ErrorOf(SmallFloats().substr(0, 100)), HasSubstr("truncated within its header"));
  EXPECT_THAT(ErrorOf(SmallFloats().substr(0, 151)), HasSubstr("has 23 bytes of data, but its header says 24"));
  EXPECT_THAT(ErrorOf(SmallFloats() + "x"), HasSubstr("has 25 bytes of data, but its header says 24"));
  EXPECT_THAT(ErrorOf(std::string("\x93NUMPY\x03\x00\x76\x00\x00\x00", 12)), HasSubstr("version 3.0"));
  EXPECT_THAT(ErrorOf(std::string("\x93NUMPY\x02\x00\xff\xff\xff\xff", 12)), HasSubstr("header of 4294967295 bytes"));
  EXPECT_THAT(ErrorOf(std::string("\x93NUMPY\x02\x00\x76\x00", 10)), HasSubstr("truncated within its header"));
}

TEST(Npy, SaysWhichHeaderItCannotUse) {
  // Both by numpy.save, NumPy 1.24.
  EXPECT_THAT(
      ErrorOf(NumpyPrefix("{'descr': '>i4', 'fortran_order': False, 'shape': (2, 2), }") + std::string(16, '\0')),
      HasSubstr("big-endian"));
  EXPECT_THAT(
      ErrorOf(NumpyPrefix("{'descr': '<i4', 'fortran_order': True, 'shape': (2, 2), }") + std::string(16, '\0')),
      HasSubstr("ascontiguousarray"));
  EXPECT_THAT(ErrorOf(NumpyPrefix("{'descr': '<c8', 'fortran_order': False, 'shape': (1,), }") + std::string(8, '\0')),
              HasSubstr("not one of f2, f4, f8, i4, i8, b1"));
  EXPECT_THAT(ErrorOf(NumpyPrefix("{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (1,), }")),
              HasSubstr("not one of f2, f4, f8, i4, i8, b1"));
  EXPECT_THAT(ErrorOf(NumpyPrefix("{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 2), }")),
              HasSubstr("negative"));
  EXPECT_THAT(ErrorOf(NumpyPrefix("{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }")),
              HasSubstr("2^63 bytes"));
  EXPECT_THAT(ErrorOf(NumpyPrefix("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }")),
              HasSubstr("malformed header"));
  EXPECT_THAT(ErrorOf(NumpyPrefix("{'descr': '<f4', 'fortran_order': False, 'shape': (2 3), }")),
              HasSubstr("malformed header"));
  EXPECT_THAT(ErrorOf(NumpyPrefix("{'descr': '<f4', 'fortran_order': False}")), HasSubstr("malformed header"));
}

TEST(Npy, NamesAMissingFileAndAWrongSuffix) {
  const auto missing = ReadTensor("/nowhere/q.npy");
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr("/nowhere/q.npy: cannot open"));
  EXPECT_THAT(std::string(ReadTensor("q.txt").status().message()), HasSubstr("must end in .npy or .safetensors"));
}

TEST(TensorWriter, LeavesTheOldFileUntilItCommits) {
  const std::string path = WriteTemporary("out.npy", "old");
  {
    auto writer = TensorWriter::Create(path, {{"", v1::DATA_TYPE_FP16, {2}}});
    ASSERT_TRUE(writer.ok()) << writer.status();
    ASSERT_TRUE(writer->Write(0, 0, "abcd").ok());
    EXPECT_EQ(Contents(path), "old");
  }
  EXPECT_EQ(Contents(path), "old");
  auto writer = TensorWriter::Create(path, {{"", v1::DATA_TYPE_FP16, {2}}});
  ASSERT_TRUE(writer.ok()) << "what was left behind is in the way: " << writer.status();
  ASSERT_TRUE(writer->Write(0, 2, "cd").ok());
  ASSERT_TRUE(writer->Write(0, 0, "ab").ok());
  ASSERT_TRUE(writer->Commit().ok());
  EXPECT_EQ(Contents(path), NumpyPrefix("{'descr': '<f2', 'fortran_order': False, 'shape': (2,), }") + "abcd");
}

TEST(Npy, RefusesAKeyThatIsGivenTwiceOrUnknown) {
  const std::string twice =
      NumpyPrefix("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'shape': (2,), }") + "12345678";
  EXPECT_THAT(ErrorOf(twice), HasSubstr("'shape' is given twice"));
  const std::string unknown =
      NumpyPrefix("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'shapes': (2,), }") + "1234";
  EXPECT_THAT(ErrorOf(unknown), HasSubstr("has a malformed header"));
}

TEST(TensorWriter, WritesToADeviceAndRefusesADirectory) {
  const std::string path = TemporaryPath("link.npy");
  unlink(path.c_str());
  ASSERT_EQ(symlink("/dev/null", path.c_str()), 0);
  auto writer = TensorWriter::Create(path, {{"", v1::DATA_TYPE_FP16, {2}}});
  ASSERT_TRUE(writer.ok()) << writer.status();
  ASSERT_TRUE(writer->Write(0, 0, "abcd").ok());
  EXPECT_TRUE(writer->Commit().ok());
  EXPECT_FALSE(TensorWriter::Create(testing::TempDir(), {{"", v1::DATA_TYPE_FP16, {2}}}).ok());
}

}  // namespace
}  // namespace posenc::npy_test
