#include "transport/slices.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace posenc::transport {
namespace {

// "abcdefgh" in slices of 3, 0, 4 and 1 bytes.
std::vector<grpc::Slice> Slices() {
  std::vector<grpc::Slice> slices;
  static char letters[] = "abcdefgh";
  for (const auto& [begin, size] : {std::pair(0, 3), {3, 0}, {3, 4}, {7, 1}}) {
    slices.emplace_back(
        letters + begin, size, [](void*) {}, nullptr);
  }
  return slices;
}

std::string Rest(SliceStream* stream) {
  std::string rest;
  const void* data;
  for (int size; stream->Next(&data, &size);) rest.append(static_cast<const char*>(data), size);
  return rest;
}

// As protobuf's own streams do at every byte.
TEST(SliceStream, SkipsAndBacksUp) {
  const std::vector<grpc::Slice> slices = Slices();
  for (int skipped = 0; skipped <= 8; ++skipped) {
    SliceStream stream(slices);
    EXPECT_TRUE(stream.Skip(skipped)) << skipped;
    EXPECT_EQ(stream.ByteCount(), skipped);
    EXPECT_EQ(Rest(&stream), std::string("abcdefgh").substr(skipped));
    EXPECT_EQ(stream.ByteCount(), 8);
    EXPECT_TRUE(stream.Skip(0));
    EXPECT_FALSE(stream.Skip(1)) << "the end";
    stream.BackUp(1);
    EXPECT_EQ(Rest(&stream), "h");
  }
}

TEST(SliceStream, CannotSkipBeyondTheEnd) {
  const std::vector<grpc::Slice> slices = Slices();
  SliceStream stream(slices);
  EXPECT_FALSE(stream.Skip(9));
}

}  // namespace
}  // namespace posenc::transport
