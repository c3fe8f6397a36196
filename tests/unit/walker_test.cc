#include "wire/walker.h"

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "google/protobuf/descriptor.pb.h"
#include "google/protobuf/dynamic_message.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "posenc/status.h"
#include "posenc/v1/service.pb.h"
#include "wire/parse.h"

namespace posenc::wire::walker_test {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr size_t kNoLimit = size_t{1} << 30;

// The bytes in chunks that end anywhere, empty ones among them, as a call's slices do.
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

// Puts the bytes that the tickets stand for into the message.
void Resolve(const std::string& input, const std::vector<ByteRange>& ranges, Message* message) {
  if (message->GetDescriptor() == v1::Tensor::descriptor()) {
    v1::Tensor tensor;  // a dynamic message cannot be cast
    tensor.ParseFromString(message->SerializeAsString());
    const ByteRange range = RangeOf(tensor.data(), ranges);
    tensor.set_data(input.substr(range.offset, range.length));
    message->ParseFromString(tensor.SerializeAsString());
    return;
  }
  const Reflection& reflection = *message->GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(*message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    if (!field->is_repeated()) {
      Resolve(input, ranges, reflection.MutableMessage(message, field));
      continue;
    }
    for (int i = 0; i < reflection.FieldSize(*message, field); ++i) {
      Resolve(input, ranges, reflection.MutableRepeatedMessage(message, field, i));
    }
  }
}

std::string Canonical(const Message& message) {
  std::string bytes;
  google::protobuf::io::StringOutputStream output(&bytes);
  google::protobuf::io::CodedOutputStream coded(&output);
  coded.SetSerializationDeterministic(true);
  EXPECT_TRUE(message.SerializePartialToCodedStream(&coded));
  coded.Trim();
  return bytes;
}

// Whether both ways agree on the input; says whether it was legal.
bool ExpectSameAsProtobuf(const Message& prototype, const std::string& input, std::mt19937_64& random) {
  const std::unique_ptr<Message> plain(prototype.New());
  const bool legal = plain->ParseFromString(input);

  const Stripper stripper(prototype.GetDescriptor());
  RandomChunks chunks(input, random);
  const absl::StatusOr<Stripped> stripped = stripper.Strip(&chunks, kNoLimit);
  const std::unique_ptr<Message> parsed(prototype.New());
  const bool accepted = stripped.ok() && parsed->ParseFromString(stripped->message);
  EXPECT_EQ(accepted, legal) << stripped.status();
  if (!stripped.ok()) {
    EXPECT_EQ(stripped.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(DetailsOf(stripped.status()).reason, "MALFORMED");
  }
  if (accepted && legal) {
    Resolve(input, stripped->ranges, parsed.get());
    EXPECT_EQ(Canonical(*parsed), Canonical(*plain));
  }
  return legal;
}

// Wire bytes of a message type as no serializer writes them: fields in any order, many times, with the wrong wire type,
// unknown ones, groups, padded varints.
class Scribbler {
 public:
  explicit Scribbler(std::mt19937_64& random) : random_(random) {}

  std::string Write(const Descriptor* type, int depth) {
    std::string out;
    for (size_t n = Below(type == v1::Tensor::descriptor() ? 4 : 6); n > 0; --n) {
      if (Below(8) == 0) {
        Unknown(&out, depth);
      } else {
        Field(type->field(static_cast<int>(Below(type->field_count()))), &out, depth);
      }
    }
    return out;
  }

 private:
  size_t Below(size_t bound) { return random_() % bound; }
  std::string Bytes(size_t bound) {
    std::string bytes(Below(bound), '\0');
    for (char& c : bytes) c = static_cast<char>('a' + Below(26));
    return bytes;
  }
  void Varint(uint64_t value, std::string* out) {
    for (; value >= 0x80; value >>= 7) out->push_back(static_cast<char>(value | 0x80));
    if (Below(20) == 0) {  // padded
      out->push_back(static_cast<char>(value | 0x80));
      value = 0;
    }
    out->push_back(static_cast<char>(value));
  }
  void Tag(uint64_t number, uint64_t wire_type, std::string* out) { Varint(number << 3 | wire_type, out); }
  void LengthDelimited(int number, const std::string& bytes, std::string* out) {
    Tag(number, 2, out);
    Varint(bytes.size(), out);
    out->append(bytes);
  }

  void Field(const FieldDescriptor* field, std::string* out, int depth) {
    const int number = field->number();
    if (Below(16) == 0) return Anything(number, out, depth);
    switch (field->type()) {
      case FieldDescriptor::TYPE_MESSAGE:
        return LengthDelimited(number, depth > 6 ? "" : Write(field->message_type(), depth + 1), out);
      case FieldDescriptor::TYPE_BYTES:
      case FieldDescriptor::TYPE_STRING: return LengthDelimited(number, Bytes(40), out);
      case FieldDescriptor::TYPE_DOUBLE:
        if (Below(2) == 0) return LengthDelimited(number, std::string(8 * Below(3), 'd'), out);
        Tag(number, 1, out);
        out->append("8 bytes.");
        return;
      default: Tag(number, 0, out); return Varint(Below(4) == 0 ? random_() : Below(12), out);
    }
  }

  void Anything(int number, std::string* out, int depth) {
    switch (Below(5)) {
      case 0: Tag(number, 0, out); return Varint(random_() >> Below(64), out);
      case 1:
        Tag(number, 1, out);
        out->append("12345678");
        return;
      case 2: return LengthDelimited(number, Bytes(10), out);
      case 3:
        Tag(number, 5, out);
        out->append("1234");
        return;
      default:
        Tag(number, 3, out);
        if (depth < 6) Unknown(out, depth + 1);
        // A tensor within a group is not one.
        if (Below(2) == 0) LengthDelimited(15, Bytes(10), out);
        Tag(Below(20) == 0 ? number + 1 : number, 4, out);
    }
  }
  void Unknown(std::string* out, int depth) { Anything(static_cast<int>(100 + Below(5000)), out, depth); }

  std::mt19937_64& random_;
};

// What the API has not, but protobuf does: repeated tensors, maps to tensors, recursion.
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
  const Message* prototypes[] = {
      &v1::ApplyRotaryRequest::default_instance(),       &v1::AddBiasRequest::default_instance(),
      &v1::GenerateEmbeddingRequest::default_instance(), &v1::StreamTableRequest::default_instance(),
      &v1::ExplainRequest::default_instance(),           &other.node()};
  int legal = 0, illegal = 0;
  for (uint64_t seed = 1; seed <= 6000 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    const Message& prototype = *prototypes[seed % std::size(prototypes)];
    std::string input = Scribbler(random).Write(prototype.GetDescriptor(), 0);
    ++(ExpectSameAsProtobuf(prototype, input, random) ? legal : illegal);

    std::string cut = input.substr(0, random() % (input.size() + 1));
    ++(ExpectSameAsProtobuf(prototype, cut, random) ? legal : illegal);
    for (int flips = 0; flips < 4 && !input.empty(); ++flips) {
      input[random() % input.size()] ^= static_cast<char>(1 << random() % 8);
      ++(ExpectSameAsProtobuf(prototype, input, random) ? legal : illegal);
    }
  }
  // Neither side of the comparison may be vacuous.
  EXPECT_GT(legal, 3000);
  EXPECT_GT(illegal, 3000);
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
    EXPECT_EQ(same(std::string(depth, '\x3b') + std::string(depth, '\x3c')), depth <= 100) << depth << " groups";
  }
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
