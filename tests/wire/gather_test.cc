#include "posenc/wire/gather.h"

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "posenc/base/status.h"
#include "posenc/v1/service.pb.h"

namespace posenc::wire::gather_test {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

std::string Joined(const Gathered& gathered) {
  std::string bytes;
  for (const Gathered::Piece& piece : gathered.pieces) {
    bytes.append(reinterpret_cast<const char*>(piece.bytes.data()), piece.bytes.size());
  }
  EXPECT_EQ(bytes.size(), gathered.size);
  return bytes;
}

absl::Span<const std::byte> BytesOf(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

// Fills messages of any type by reflection, with tensor sizes around the thresholds.
class Filler {
 public:
  explicit Filler(std::mt19937_64& random) : random_(random) {}

  void Fill(Message* message, int depth) {
    const Reflection& reflection = *message->GetReflection();
    for (int n = 0; n < message->GetDescriptor()->field_count(); ++n) {
      const FieldDescriptor* field = message->GetDescriptor()->field(n);
      if (Below(3) == 0 || (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && depth > 5)) continue;
      for (size_t i = field->is_repeated() ? 1 + Below(40) : 1; i > 0; --i) Set(message, reflection, field, depth);
    }
    if (Below(4) == 0) reflection.MutableUnknownFields(message)->AddVarint(3000, random_());
  }

 private:
  size_t Below(size_t bound) { return random_() % bound; }

  std::string Bytes() {
    constexpr size_t kSizes[] = {0, 1, 127, 128, 3000, 4095, 4096, 4097, 20000, 1 << 21};
    return std::string(kSizes[Below(std::size(kSizes) - (Below(64) == 0 ? 0 : 1))], static_cast<char>('a' + Below(26)));
  }

  void Set(Message* message, const Reflection& reflection, const FieldDescriptor* field, int depth) {
    const bool repeated = field->is_repeated();
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_MESSAGE:
        return Fill(repeated ? reflection.AddMessage(message, field) : reflection.MutableMessage(message, field),
                    depth + 1);
      case FieldDescriptor::CPPTYPE_STRING:
        return repeated ? reflection.AddString(message, field, Bytes()) : reflection.SetString(message, field, Bytes());
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return repeated ? reflection.AddDouble(message, field, 0.5) : reflection.SetDouble(message, field, 0.5);
      case FieldDescriptor::CPPTYPE_INT64:
        return repeated ? reflection.AddInt64(message, field, static_cast<int64_t>(random_()))
                        : reflection.SetInt64(message, field, static_cast<int64_t>(random_()));
      case FieldDescriptor::CPPTYPE_INT32:
        return repeated ? reflection.AddInt32(message, field, 7) : reflection.SetInt32(message, field, 7);
      case FieldDescriptor::CPPTYPE_UINT32:
        return repeated ? reflection.AddUInt32(message, field, 7) : reflection.SetUInt32(message, field, 7);
      case FieldDescriptor::CPPTYPE_BOOL:
        return repeated ? reflection.AddBool(message, field, true) : reflection.SetBool(message, field, true);
      case FieldDescriptor::CPPTYPE_ENUM:
        return repeated ? reflection.AddEnumValue(message, field, 300) : reflection.SetEnumValue(message, field, 300);
      default: FAIL() << field->full_name();
    }
  }

  std::mt19937_64& random_;
};

// Moves the data out of half of the tensors and chunks; views replace it.
void TakeData(Message* message, std::mt19937_64& random, std::vector<std::pair<Message*, std::string>>* taken) {
  const Reflection& reflection = *message->GetReflection();
  if (message->GetDescriptor() == v1::Tensor::descriptor() ||
      message->GetDescriptor() == v1::TensorChunk::descriptor()) {
    if (random() % 2 != 0) return;
    const FieldDescriptor* data = message->GetDescriptor()->FindFieldByName("data");
    taken->emplace_back(message, reflection.GetString(*message, data));
    return reflection.ClearField(message, data);
  }
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(*message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    if (!field->is_repeated()) {
      TakeData(reflection.MutableMessage(message, field), random, taken);
      continue;
    }
    for (int i = 0; i < reflection.FieldSize(*message, field); ++i) {
      TakeData(reflection.MutableRepeatedMessage(message, field, i), random, taken);
    }
  }
}

TEST(Gather, IsWhatProtobufSerializes) {
  const Message* prototypes[] = {
      &v1::ApplyRotaryRequest::default_instance(),       &v1::RelativeScoresRequest::default_instance(),
      &v1::AddBiasRequest::default_instance(),           &v1::GenerateEmbeddingRequest::default_instance(),
      &v1::StreamApplyRotaryRequest::default_instance(), &v1::ExplainResponse::default_instance()};
  size_t views_seen = 0, lent_seen = 0;
  for (uint64_t seed = 1; seed <= 200 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    const std::unique_ptr<Message> message(prototypes[seed % std::size(prototypes)]->New());
    Filler(random).Fill(message.get(), 0);
    const std::string expected = message->SerializeAsString();
    const auto plain = Gather(*message, {});
    ASSERT_TRUE(plain.ok()) << plain.status();
    EXPECT_TRUE(Joined(*plain) == expected);

    std::vector<std::pair<Message*, std::string>> taken;
    TakeData(message.get(), random, &taken);
    std::vector<TensorView> views;
    for (const auto& [tensor, data] : taken) views.push_back({tensor, BytesOf(data)});
    const auto viewed = Gather(*message, views);
    ASSERT_TRUE(viewed.ok()) << viewed.status();
    EXPECT_TRUE(Joined(*viewed) == expected) << views.size() << " views";
    views_seen += views.size();
    for (const Gathered::Piece& piece : viewed->pieces) lent_seen += piece.lent ? 1 : 0;
  }
  EXPECT_GT(views_seen, 150);
  EXPECT_GT(lent_seen, 150);
}

TEST(Gather, CopiesOnlyWhatIsSmall) {
  const std::string beside(kSmallestLent, 'q');
  v1::ApplyRotaryRequest request;
  request.mutable_q()->mutable_tensor()->set_dtype(v1::DATA_TYPE_BF16);
  request.mutable_k()->mutable_tensor()->set_data(std::string(1 << 20, 'k'));
  request.mutable_positions()->mutable_ids()->set_data(std::string(2000, 'p'));
  const TensorView view{&request.q().tensor(), BytesOf(beside)};
  const auto gathered = Gather(request, {view});
  ASSERT_TRUE(gathered.ok()) << gathered.status();
  std::vector<const void*> lent;
  size_t copied = 0;
  for (const Gathered::Piece& piece : gathered->pieces) {
    if (piece.lent) {
      lent.push_back(piece.bytes.data());
    } else {
      copied += piece.bytes.size();
    }
  }
  EXPECT_EQ(lent, (std::vector<const void*>{beside.data(), request.k().tensor().data().data()}));
  EXPECT_LT(copied, 2100);
}

TEST(Gather, RefusesWhatGrpcCannotSend) {
  v1::ApplyRotaryRequest request;
  const std::string some(1, 'x');  // only sizes matter here
  for (const auto& [q, k] : std::vector<std::pair<size_t, size_t>>{{1, size_t{1} << 31}, {1 << 30, 1 << 30}}) {
    const std::vector<TensorView> views = {{request.mutable_q()->mutable_tensor(), {BytesOf(some).data(), q}},
                                           {request.mutable_k()->mutable_tensor(), {BytesOf(some).data(), k}}};
    const auto gathered = Gather(request, views);
    EXPECT_EQ(gathered.status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(DetailsOf(gathered.status()).reason, "TOO_LARGE");
  }
}

}  // namespace
}  // namespace posenc::wire::gather_test
