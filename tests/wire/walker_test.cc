#include "posenc/wire/walker.h"

#include <algorithm>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "google/protobuf/descriptor.pb.h"
#include "google/protobuf/dynamic_message.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "posenc/base/status.h"
#include "posenc/v1/service.pb.h"
#include "posenc/wire/parse.h"
#include "tests/server/shared_memory/scribbler.h"

namespace posenc::wire::walker_test {
namespace {

using google::protobuf::Message;

constexpr size_t kNoLimit = size_t{1} << 30;

// The bytes in chunks of any size, including empty ones, like a call's slices.
class RandomChunks final : public google::protobuf::io::ZeroCopyInputStream {
 public:
  RandomChunks(const std::string& bytes, std::mt19937_64& random) : bytes_(bytes), random_(random) {}
  bool Next(const void** data, int* size) override {
    if (at_ == bytes_.size()) return false;
    *data = bytes_.data() + at_;
    *size = static_cast<int>(std::min<size_t>(random_() % 8, bytes_.size() - at_));
    at_ += *size;
    return true;
  }
  void BackUp(int count) override { at_ -= count; }
  bool Skip(int) override { return false; }
  int64_t ByteCount() const override { return static_cast<int64_t>(at_); }

 private:
  const std::string& bytes_;
  std::mt19937_64& random_;
  size_t at_ = 0;
};

// Reads messages of one type with protobuf alone and with Stripper.
class BothWays {
 public:
  explicit BothWays(const Message& prototype) : prototype_(prototype), stripper_(prototype.GetDescriptor()) {}

  // Expects both readings to agree. Returns whether the input was legal.
  bool ExpectSame(const std::string& input, std::mt19937_64& random) {
    const std::unique_ptr<Message> plain(prototype_.New());
    const bool legal = plain->ParseFromString(input);

    RandomChunks chunks(input, random);
    const absl::StatusOr<Stripped> stripped = stripper_.Strip(&chunks, kNoLimit);
    const std::unique_ptr<Message> parsed(prototype_.New());
    const bool accepted = stripped.ok() && parsed->ParseFromString(stripped->message);
    EXPECT_EQ(accepted, legal) << stripped.status();
    if (!stripped.ok()) {
      EXPECT_EQ(stripped.status().code(), absl::StatusCode::kInvalidArgument);
      EXPECT_EQ(DetailsOf(stripped.status()).reason, "MALFORMED");
    }
    if (accepted && legal) {
      Resolve(parsed.get(), [&](const Message& holder, const std::string& ticket) {
        if (!ticket.empty()) resolved_.insert(holder.GetDescriptor());
        const ByteRange range = RangeOf(ticket, stripped->ranges);
        return input.substr(range.offset, range.length);
      });
      EXPECT_EQ(Canonical(*parsed), Canonical(*plain));
    }
    return legal;
  }

  const Message& prototype() const { return prototype_; }
  // The types of messages whose bytes were compared.
  const std::set<const google::protobuf::Descriptor*>& resolved() const { return resolved_; }

 private:
  const Message& prototype_;
  const Stripper stripper_;
  std::set<const google::protobuf::Descriptor*> resolved_;
};

bool ExpectSameAsProtobuf(const Message& prototype, const std::string& input, std::mt19937_64& random) {
  return BothWays(prototype).ExpectSame(input, random);
}

// Shapes that the API does not use but protobuf allows: repeated tensors, maps to tensors, recursion.
class OtherShapes {
 public:
  OtherShapes() : pool_(google::protobuf::DescriptorPool::generated_pool()), factory_(&pool_) {
    google::protobuf::FileDescriptorProto file;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
        R"pb(
          name: "other.proto"
          package: "test"
          syntax: "proto3"
          dependency: "posenc/v1/tensor.proto"
          message_type {
            name: "Node"
            field { name: "tensors" number: 3 label: LABEL_REPEATED type: TYPE_MESSAGE type_name: ".posenc.v1.Tensor" }
            field { name: "inner" number: 15 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".test.Node" }
            field {
              name: "named"
              number: 2000
              label: LABEL_REPEATED
              type: TYPE_MESSAGE
              type_name: ".test.Node.NamedEntry"
            }
            field {
              name: "a"
              number: 5
              label: LABEL_OPTIONAL
              type: TYPE_MESSAGE
              type_name: ".posenc.v1.Tensor"
              oneof_index: 0
            }
            field {
              name: "b"
              number: 6
              label: LABEL_OPTIONAL
              type: TYPE_MESSAGE
              type_name: ".posenc.v1.Tensor"
              oneof_index: 0
            }
            field { name: "c" number: 7 label: LABEL_OPTIONAL type: TYPE_BYTES oneof_index: 0 }
            oneof_decl { name: "choice" }
            nested_type {
              name: "NamedEntry"
              field { name: "key" number: 1 label: LABEL_OPTIONAL type: TYPE_INT32 }
              field { name: "value" number: 2 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".posenc.v1.Tensor" }
              options { map_entry: true }
            }
          })pb",
        &file));
    node_ = factory_.GetPrototype(pool_.BuildFile(file)->message_type(0));
  }
  const Message& node() const { return *node_; }

 private:
  google::protobuf::DescriptorPool pool_;
  google::protobuf::DynamicMessageFactory factory_;
  const Message* node_;
};

TEST(Walker, AgreesWithProtobufOnRandomMessages) {
  const OtherShapes other;
  std::vector<BothWays> types;
  for (const Message* request : RequestTypes()) types.emplace_back(*request);
  ASSERT_GT(types.size(), 10u);
  types.emplace_back(other.node());
  int legal = 0, illegal = 0;
  for (uint64_t seed = 1; seed <= 13000 && !testing::Test::HasFailure(); ++seed) {
    BothWays& type = types[seed % types.size()];
    SCOPED_TRACE(testing::Message() << type.prototype().GetTypeName() << ", seed " << seed);
    std::mt19937_64 random(seed);
    std::string input = Scribbler(random, /*wild=*/true).Write(type.prototype().GetDescriptor());
    ++(type.ExpectSame(input, random) ? legal : illegal);

    std::string cut = input.substr(0, random() % (input.size() + 1));
    ++(type.ExpectSame(cut, random) ? legal : illegal);
    for (int flips = 0; flips < 4 && !input.empty(); ++flips) {
      input[random() % input.size()] ^= static_cast<char>(1 << random() % 8);
      ++(type.ExpectSame(input, random) ? legal : illegal);
    }
  }
  // Both outcomes must be frequent, or the comparison would be vacuous.
  EXPECT_GT(legal, 3000);
  EXPECT_GT(illegal, 3000);
  for (const BothWays& type : types) {
    const auto* name = type.prototype().GetDescriptor();
    EXPECT_EQ(type.resolved().contains(v1::Tensor::descriptor()), name != v1::GetServerInfoRequest::descriptor())
        << name->name();
    EXPECT_EQ(type.resolved().contains(v1::TensorChunk::descriptor()),
              name == v1::StreamApplyRotaryRequest::descriptor())
        << name->name();
  }
}

// Unknown fields are refused or accepted alike, before and after the tensors' bytes are taken out.
TEST(Walker, HidesNothingThatIsUnknown) {
  int accepted = 0, refused = 0, with_unknown_hints = 0;
  const std::vector<const Message*> types = RequestTypes();
  for (uint64_t seed = 1; seed <= 3000 && !testing::Test::HasFailure(); ++seed) {
    const Message& prototype = *types[seed % types.size()];
    SCOPED_TRACE(testing::Message() << prototype.GetTypeName() << ", seed " << seed);
    std::mt19937_64 random(seed);
    const std::string input = Scribbler(random, /*wild=*/seed % 4 == 0).Write(prototype.GetDescriptor());
    const std::unique_ptr<Message> plain(prototype.New()), parsed(prototype.New());
    if (!plain->ParseFromString(input)) continue;
    RandomChunks chunks(input, random);
    const auto stripped = Stripper(prototype.GetDescriptor()).Strip(&chunks, kNoLimit);
    ASSERT_TRUE(stripped.ok()) << stripped.status();
    bool regions = false, regions_of_plain = false;
    const absl::Status status = ParseStripped(stripped->message, parsed.get(), &regions);
    EXPECT_EQ(status, RejectUnknown(*plain, &regions_of_plain));
    EXPECT_EQ(regions, regions_of_plain);
    ++(status.ok() ? accepted : refused);
    const size_t size = plain->ByteSizeLong();
    plain->DiscardUnknownFields();
    if (status.ok() && plain->ByteSizeLong() < size) ++with_unknown_hints;
  }
  EXPECT_GT(accepted, 1000);
  EXPECT_GT(refused, 300);
  EXPECT_GT(with_unknown_hints, 100);
}

TEST(Walker, AgreesWithProtobufOnWhatNoSerializerWrites) {
  std::mt19937_64 random(7);
  const auto same = [&random](const std::string& input) {
    return ExpectSameAsProtobuf(v1::ApplyRotaryRequest::default_instance(), input, random);
  };
  using std::string_literals::operator""s;
  EXPECT_TRUE(same(""));
  EXPECT_FALSE(same("\0"s)) << "tag 0";
  EXPECT_FALSE(same("\x02\x00"s)) << "field number 0";
  EXPECT_FALSE(same("\x3c"s)) << "end of a group that did not begin";
  EXPECT_FALSE(same("\x3b\x44"s)) << "end of another group";
  EXPECT_FALSE(same("\x3b"s)) << "group without an end";
  EXPECT_FALSE(same("\x3e"s)) << "wire type 6";
  EXPECT_FALSE(same("\x3f"s)) << "wire type 7";
  EXPECT_FALSE(same("\x3a\x05\x7a\x03"s)) << "length beyond the end";
  EXPECT_FALSE(same("\x3a\x04\x7a\x03\x7a\x02xx"s)) << "length beyond the enclosing message, within the input";
  EXPECT_TRUE(same("\x3a\x82\x80\x80\x80\x00\x7a\x00"s)) << "length padded to five bytes";
  EXPECT_FALSE(same("\x3a\x82\x80\x80\x80\x80\x00\x7a\x00"s)) << "length padded to six";
  EXPECT_FALSE(same("\x3a\x82\x80\x80\x80\x10\x7a\x00"s)) << "length above 4 GiB";
  EXPECT_TRUE(same("\xba\x80\x80\x80\x00\x02\x7a\x00"s)) << "tag padded to five bytes";
  EXPECT_FALSE(same("\xba\x80\x80\x80\x80\x00\x02\x7a\x00"s)) << "tag padded to six";
  EXPECT_TRUE(same("\xba\x80\x80\x80\x70\x02\x7a\x00"s)) << "tag with bits beyond 32, which are dropped";
  EXPECT_TRUE(same("\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f"s)) << "ten bytes of varint";
  EXPECT_FALSE(same("\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x00"s)) << "eleven";
  for (const size_t depth : {99, 100, 101}) {
    const std::string groups = std::string(depth, '\x3b') + std::string(depth, '\x3c');
    EXPECT_EQ(same(groups), depth <= 100) << depth << " groups";
    EXPECT_EQ(same("\x3a"s + static_cast<char>(0x80 | (groups.size() & 0x7f)) + '\x01' + groups), depth <= 99)
        << depth << " groups in a message";
  }
}

TEST(Walker, RefusesDeepGroupsBeforeTheirEnd) {
  const std::string input(1000, '\x3b');
  google::protobuf::io::ArrayInputStream stream(input.data(), static_cast<int>(input.size()));
  const auto stripped = Stripper(v1::ApplyRotaryRequest::descriptor()).Strip(&stream, kNoLimit);
  EXPECT_EQ(DetailsOf(stripped.status()).value, "nested too deeply at byte 101");
}

TEST(Walker, AgreesWithProtobufOnTheDepthOfMessages) {
  const OtherShapes other;
  std::mt19937_64 random(8);
  for (const size_t depth : {99, 100, 101}) {
    std::string input;
    for (size_t i = 0; i < depth; ++i) {
      std::string length;
      for (size_t size = input.size();; size >>= 7) {
        length.push_back(static_cast<char>((size & 0x7f) | (size >= 0x80 ? 0x80 : 0)));
        if (size < 0x80) break;
      }
      input = "\x7a" + length + input;
    }
    EXPECT_EQ(ExpectSameAsProtobuf(other.node(), input, random), depth <= 100) << depth;
  }
}

TEST(Walker, CopiesNoTensorData) {
  v1::ApplyRotaryRequest request;
  request.mutable_q()->mutable_tensor()->set_data(std::string(1 << 20, 'q'));
  request.mutable_k()->mutable_tensor()->set_data(std::string(1 << 20, 'k'));
  request.mutable_positions()->mutable_ids()->set_data(std::string(1 << 20, 'p'));
  const std::string input = request.SerializeAsString();
  google::protobuf::io::ArrayInputStream stream(input.data(), static_cast<int>(input.size()), 4096);
  const auto stripped = Stripper(request.GetDescriptor()).Strip(&stream, 100);
  ASSERT_TRUE(stripped.ok()) << stripped.status();
  EXPECT_EQ(stripped->ranges.size(), 3u);
  EXPECT_LT(stripped->message.size(), 100u);
}

TEST(Walker, TakesTheDataOfOneMoreField) {
  v1::ExplainRequest request;
  request.mutable_model()->set_config_json("0123456789");
  request.mutable_model()->set_component("text");
  const std::string input = request.SerializeAsString();
  google::protobuf::io::ArrayInputStream stream(input.data(), static_cast<int>(input.size()), 3);
  const auto* more = v1::ModelConfig::descriptor()->FindFieldByName("config_json");
  const auto stripped = Stripper(request.GetDescriptor(), more).Strip(&stream, kNoLimit);
  ASSERT_TRUE(stripped.ok()) << stripped.status();
  ASSERT_EQ(stripped->ranges.size(), 1u);
  EXPECT_EQ(input.substr(stripped->ranges[0].offset, stripped->ranges[0].length), "0123456789");
  v1::ExplainRequest parsed;
  ASSERT_TRUE(parsed.ParseFromString(stripped->message));
  EXPECT_EQ(parsed.model().component(), "text");
  EXPECT_EQ(TicketOf(parsed.model().config_json()), 0u);
  EXPECT_EQ(parsed.model().config_json(), TicketText(0));
}

TEST(Walker, LimitsWhatIsCopied) {
  v1::ExplainRequest request;
  request.mutable_model()->set_config_json(std::string(1000, ' '));
  const std::string input = request.SerializeAsString();
  const Stripper stripper(request.GetDescriptor());
  for (const bool fits : {true, false}) {
    google::protobuf::io::ArrayInputStream stream(input.data(), static_cast<int>(input.size()), 64);
    const auto stripped = stripper.Strip(&stream, input.size() - (fits ? 0 : 1));
    if (fits) {
      EXPECT_EQ(stripped.value().message, input) << "explain's model cannot hold a tensor: nothing to rewrite";
    } else {
      EXPECT_EQ(stripped.status().code(), absl::StatusCode::kResourceExhausted);
      EXPECT_EQ(DetailsOf(stripped.status()).reason, "TOO_LARGE");
      EXPECT_THAT(stripped.status().message(), testing::HasSubstr("at most 1005 bytes"));
    }
  }
}

TEST(ParseStripped, ReadsLargeMessagesLikeProtobuf) {
  v1::ExplainRequest request;
  for (int n = 0; n < 20'000; ++n) {
    request.add_seq_len(int64_t{n} * n);
    request.mutable_rotary()->mutable_rope_parameters()->add_short_factor(n);
    if (n % 10 == 0) request.mutable_rotary()->mutable_axial()->add_axes()->set_dim(n);
  }
  // The beginning of each piece moves by one byte.
  for (size_t size = 40'000; size < 40'040; ++size) {
    request.mutable_rotary()->mutable_rope_parameters()->set_rope_type(std::string(size, 'x'));
    const std::string bytes = request.SerializeAsString();
    v1::ExplainRequest parsed;
    EXPECT_TRUE(ParseStripped(bytes, &parsed).ok());
    EXPECT_EQ(Canonical(parsed), Canonical(request)) << size;
    const std::string cut = bytes.substr(0, bytes.size() / 40'040 * size);
    EXPECT_EQ(ParseStripped(cut, &parsed).ok(), parsed.ParseFromString(cut)) << size;
  }
}

TEST(ParseRequest, NamesTheMessageThatIsMalformed) {
  for (const std::string& input : {std::string("\x3a\x05"), std::string("\x0a\x04\x0a\x02\x12\x01")}) {
    google::protobuf::io::ArrayInputStream stream(input.data(), static_cast<int>(input.size()));
    v1::ApplyRotaryRequest request;
    const auto ranges = ParseRequest(Stripper(request.GetDescriptor()), &stream, &request);
    EXPECT_EQ(ranges.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(DetailsOf(ranges.status()).reason, "MALFORMED");
    EXPECT_THAT(ranges.status().message(), testing::HasSubstr("posenc.v1.ApplyRotaryRequest"));
  }
}

}  // namespace
}  // namespace posenc::wire::walker_test
