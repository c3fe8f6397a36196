#include "posenc/transport/slices.h"

#include <algorithm>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "posenc/wire/parse.h"
#include "tests/server/shared_memory/scribbler.h"

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

// Skips and backs up at every byte, like protobuf's own streams.
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

TEST(SlicesOf, AreListedAndCounted) {
  grpc::ByteBuffer none;
  EXPECT_EQ(SliceListBytes(&none), 0u);
  EXPECT_FALSE(SlicesOf(&none));
  const std::vector<grpc::Slice> few = Slices(), many(1000, grpc::Slice(std::string(100, 'x')));
  grpc::ByteBuffer short_message(few.data(), 3), message(many.data(), many.size());
  EXPECT_EQ(SliceListBytes(&short_message), 0u);
  EXPECT_EQ(SlicesOf(&short_message)->size(), 3u);
  EXPECT_EQ(SliceListBytes(&message), 48'000u);
  EXPECT_EQ(SlicesOf(&message)->size(), 1000u);
}

// Cuts the bytes into slices of any size, as a transport delivers them. Long slices have their own memory, short ones
// lie in the grpc::Slice itself.
std::vector<grpc::Slice> CutAnywhere(const std::string& bytes, std::mt19937_64& random) {
  const size_t longest = 1 << random() % 8;
  std::vector<grpc::Slice> slices;
  for (size_t at = 0; at < bytes.size();) {
    const size_t size = std::min<size_t>(random() % (longest + 1), bytes.size() - at);
    slices.emplace_back(bytes.data() + at, size);
    at += size;
  }
  while (random() % 2 == 0) slices.emplace_back();
  return slices;
}

// Reads a holder's bytes piece by piece; each read starts where the previous one stopped.
template <typename Holder>
std::string BytesOf(const SlicedPayloads& payloads, const google::protobuf::Message& holder, std::mt19937_64& random) {
  const auto& of = dynamic_cast<const Holder&>(holder);
  std::string bytes;
  while (bytes.size() < payloads.Size(of)) {
    const absl::Span<const std::byte> piece = payloads.From(of, bytes.size());
    if (piece.empty() || piece.size() > payloads.Size(of) - bytes.size()) {
      ADD_FAILURE() << piece.size() << " bytes from " << bytes.size() << " on, of " << payloads.Size(of);
      break;
    }
    bytes.append(reinterpret_cast<const char*>(piece.data()), 1 + random() % piece.size());
  }
  return bytes;
}

// Parses slices into a message and its tensors' bytes, like server and client.
TEST(SlicedPayloads, HaveTheBytesThatProtobufFinds) {
  const std::vector<const google::protobuf::Message*> types = RequestTypes();
  int accepted = 0;
  size_t most_slices = 0;
  std::set<const google::protobuf::Descriptor*> compared;
  for (uint64_t seed = 1; seed <= 6000 && !testing::Test::HasFailure(); ++seed) {
    const google::protobuf::Message& type = *types[seed % types.size()];
    SCOPED_TRACE(testing::Message() << type.GetTypeName() << ", seed " << seed);
    std::mt19937_64 random(seed);
    const std::string input = Scribbler(random, /*wild=*/seed % 4 == 0).Write(type.GetDescriptor());
    std::vector<grpc::Slice> slices = CutAnywhere(input, random);
    most_slices = std::max(most_slices, slices.size());

    const std::unique_ptr<google::protobuf::Message> plain(type.New()), parsed(type.New());
    const bool legal = plain->ParseFromString(input);
    SliceStream to_protobuf(slices);
    EXPECT_EQ(parsed->ParseFromZeroCopyStream(&to_protobuf), legal);
    EXPECT_TRUE(!legal || Canonical(*parsed) == Canonical(*plain)) << "protobuf alone, from slices";

    const wire::Stripper stripper(type.GetDescriptor());
    SliceStream stream(slices);
    bool has_regions = false;
    const bool passes = legal && wire::RejectUnknown(*plain, &has_regions).ok() && !has_regions;
    auto ranges = wire::ParseRequest(stripper, &stream, parsed.get());
    ASSERT_EQ(ranges.ok(), passes) << ranges.status();
    if (!passes) continue;
    ++accepted;
    EXPECT_EQ(stream.ByteCount(), static_cast<int64_t>(input.size()));
    const SlicedPayloads payloads(std::move(slices), *std::move(ranges));
    Resolve(parsed.get(), [&](const google::protobuf::Message& holder, const std::string& ticket) {
      if (!ticket.empty()) compared.insert(holder.GetDescriptor());
      return holder.GetDescriptor() == v1::Tensor::descriptor() ? BytesOf<v1::Tensor>(payloads, holder, random)
                                                                : BytesOf<v1::TensorChunk>(payloads, holder, random);
    });
    EXPECT_EQ(Canonical(*parsed), Canonical(*plain));
  }
  EXPECT_GT(accepted, 2000);
  EXPECT_GT(most_slices, 500u);
  EXPECT_EQ(compared.size(), 2u) << "tensors and chunks";
}

TEST(SlicedPayloads, HaveBytesThatAreAdded) {
  std::vector<grpc::Slice> slices;
  slices.emplace_back("abcdef", 6);
  slices.emplace_back();
  SlicedPayloads payloads(std::move(slices), {{1, 3}});
  v1::Tensor first, second, third;
  first.set_data(wire::TicketText(0));
  second.set_data(payloads.Add(std::string(100, 'x')));
  third.set_data(payloads.Add("yz"));
  EXPECT_EQ(payloads.Add(""), "");
  std::mt19937_64 random(1);
  EXPECT_EQ(BytesOf<v1::Tensor>(payloads, first, random), "bcd");
  EXPECT_EQ(BytesOf<v1::Tensor>(payloads, second, random), std::string(100, 'x'));
  EXPECT_EQ(BytesOf<v1::Tensor>(payloads, third, random), "yz");
  EXPECT_EQ(payloads.count(), 3u);

  SlicedPayloads empty({}, {});
  first.set_data(empty.Add("a"));
  EXPECT_EQ(BytesOf<v1::Tensor>(empty, first, random), "a");
}

}  // namespace
}  // namespace posenc::transport
