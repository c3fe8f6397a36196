// Ranges of head rows, each rotated by itself, have the bytes of the whole call. Invalid ranges are refused.
#include "posenc/service/rotary_stream.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "tests/service/call.h"

namespace posenc::rotary_stream_test {
namespace {

using Request = v1::ApplyRotaryRequest;

v1::Tensor RandomTensor(DType dtype, std::vector<int64_t> shape, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  std::vector<double> values(count);
  for (double& value : values) value = normal(random);
  return MakeTensor(dtype, std::move(shape), values);
}

Request Plain(v1::Layout layout, DType dtype, std::vector<int64_t> q, std::vector<int64_t> k) {
  Request request;
  v1::RotarySettings& settings = *request.mutable_rotary()->mutable_settings();
  settings.mutable_rope_parameters()->set_rope_type("default");
  settings.set_rotary_dim(8);
  settings.set_input_pairing(v1::PAIRING_HALF_SPLIT);
  request.mutable_positions()->set_offset(1000);
  request.set_layout(layout);
  *request.mutable_q()->mutable_tensor() = RandomTensor(dtype, std::move(q), 1);
  request.mutable_q()->set_rotary_offset(1);
  *request.mutable_k()->mutable_tensor() = RandomTensor(dtype, std::move(k), 2);
  return request;
}

Request Header(Request request) {
  request.mutable_q()->mutable_tensor()->clear_data();
  if (request.has_k()) request.mutable_k()->mutable_tensor()->clear_data();
  return request;
}

// Pieces of any size, like gRPC's slices.
class Scattered final : public ByteSource {
 public:
  explicit Scattered(std::string_view bytes) {
    std::mt19937 random(3);
    for (size_t at = 0; at < bytes.size();) {
      const size_t size = std::min<size_t>(1 + random() % 90, bytes.size() - at);
      begins_.push_back(at);
      pieces_.emplace_back(bytes.substr(at, size));
      at += size;
    }
  }
  absl::Span<const std::byte> From(size_t offset) const override {
    const size_t n = std::upper_bound(begins_.begin(), begins_.end(), offset) - begins_.begin() - 1;
    const auto* data = reinterpret_cast<const std::byte*>(pieces_[n].data());
    return absl::Span<const std::byte>(data, pieces_[n].size()).subspan(offset - begins_[n]);
  }

 private:
  std::vector<size_t> begins_;
  std::vector<std::string> pieces_;
};

// Rotates 300 ranges of each operand and compares them with the whole call.
void ExpectRangesAsTheWhole(const Request& request) {
  const auto whole = Call(request);
  ASSERT_THAT(whole, IsOk());
  const auto stream = wire::RotaryStream::Create(Header(request), wire::InMessage(), Limits());
  ASSERT_THAT(stream, IsOk());
  EXPECT_EQ(stream->info().SerializeAsString(), whole->info().SerializeAsString());
  WorkPool pool(2);
  std::mt19937 random(9);
  for (const auto& [operand, input, output] : {std::tuple(v1::OPERAND_QUERY, &request.q().tensor(), &whole->q()),
                                               {v1::OPERAND_KEY, &request.k().tensor(), &whole->k()}}) {
    const int64_t row = stream->RowSize(operand), rows = stream->Size(operand) / row;
    ASSERT_EQ(rows * row, static_cast<int64_t>(input->data().size()));
    for (int n = 0; n < 300; ++n) {
      const int64_t first = static_cast<int64_t>(random() % rows);
      const int64_t count = n == 0 ? rows - first : 1 + static_cast<int64_t>(random() % (rows - first));
      const std::string x = input->data().substr(first * row, count * row);
      std::string y(x.size(), '\0');
      const bool in_place = n % 3 == 0;
      if (in_place) y = x;
      auto* out = reinterpret_cast<std::byte*>(y.data());
      const Scattered scattered(x);
      const ContiguousBytes own(out, y.size());
      const ByteSource& source = in_place ? static_cast<const ByteSource&>(own) : scattered;
      ASSERT_THAT(stream->Rotate(operand, first * row, count * row, source, out, pool, NeverCancelled), IsOk());
      ASSERT_TRUE(y == output->data().substr(first * row, count * row)) << "rows " << first << " + " << count;
    }
  }
}

TEST(RotaryStream, RangesHaveTheBytesOfTheWhole) {
  for (const DType dtype : {DType::kFP32, DType::kBF16}) {
    ExpectRangesAsTheWhole(Plain(v1::LAYOUT_BSHD, dtype, {3, 7, 5, 12}, {3, 7, 2, 9}));
    ExpectRangesAsTheWhole(Plain(v1::LAYOUT_BHSD, dtype, {3, 5, 7, 12}, {3, 2, 7, 9}));
    ExpectRangesAsTheWhole(Plain(v1::LAYOUT_THD, dtype, {21, 5, 12}, {21, 1, 9}));
    ExpectRangesAsTheWhole(Plain(v1::LAYOUT_BSHD, dtype, {1, 700, 3, 64}, {1, 700, 1, 8}));
    ExpectRangesAsTheWhole(Plain(v1::LAYOUT_BHSD, dtype, {2, 3, 600, 64}, {2, 1, 600, 8}));
  }
}

TEST(RotaryStream, EachSequenceKeepsItsPositionsAndItsPlan) {
  Request packed = Plain(v1::LAYOUT_THD, DType::kFP32, {23, 3, 12}, {23, 2, 8});
  *packed.mutable_positions()->mutable_cu_seqlens() =
      MakeTensor(DType::kINT32, {5}, std::vector<int32_t>{0, 4, 4, 20, 23});
  for (const int64_t offset : {5, 0, 70, 3}) packed.mutable_positions()->mutable_offsets()->add_offset(offset);
  ExpectRangesAsTheWhole(packed);

  v1::RotarySettings& settings = *packed.mutable_rotary()->mutable_settings();
  settings.mutable_rope_parameters()->set_rope_type("dynamic");
  settings.mutable_rope_parameters()->set_factor(2);
  settings.set_max_position_embeddings(8);
  packed.mutable_positions()->set_scaling_length_rule(v1::SCALING_LENGTH_RULE_PER_SEQUENCE);
  ExpectRangesAsTheWhole(packed);

  for (const v1::Layout layout : {v1::LAYOUT_BSHD, v1::LAYOUT_BHSD}) {
    Request by_ids = Plain(layout, DType::kFP32, {2, 6, 6, 12}, {2, 6, 6, 12});
    std::vector<int64_t> ids(12);
    for (size_t n = 0; n < ids.size(); ++n) ids[n] = static_cast<int64_t>(n * n);
    *by_ids.mutable_positions()->mutable_ids() = MakeTensor(DType::kINT64, {2, 6}, ids);
    ExpectRangesAsTheWhole(by_ids);
    by_ids.mutable_rotary()->mutable_settings()->mutable_xpos()->set_scale_base(64);
    by_ids.mutable_rotary()->mutable_settings()->mutable_xpos()->set_centre(20);
    ExpectRangesAsTheWhole(by_ids);
    by_ids.mutable_precision()->set_preset(v1::PRECISION_PRESET_HF_EAGER);
    ExpectRangesAsTheWhole(by_ids);
  }
}

v1::RotaryChunk Chunk(v1::Operand operand, int64_t begin) {
  v1::RotaryChunk chunk;
  chunk.set_operand(operand);
  chunk.mutable_rows()->set_byte_offset(begin);
  return chunk;
}

TEST(RotaryStream, RefusesWhatIsNoRange) {
  const Request request = Plain(v1::LAYOUT_BSHD, DType::kFP32, {1, 2, 3, 12}, {1, 2, 1, 8});
  const auto stream = wire::RotaryStream::Create(Header(request), wire::InMessage(), Limits());
  ASSERT_THAT(stream, IsOk());
  constexpr auto kQ = v1::OPERAND_QUERY, kK = v1::OPERAND_KEY;
  EXPECT_THAT(stream->Check(Chunk(kQ, 48), 240), IsOk());
  EXPECT_THAT(stream->Check(Chunk(kK, 0), 64), IsOk());
  EXPECT_THAT(stream->Check(Chunk(v1::OPERAND_UNSPECIFIED, 0), 48), IsInvalid("MISSING", "chunk.operand"));
  EXPECT_THAT(stream->Check(Chunk(kQ, 0), 0), IsInvalid("MISSING", "chunk.rows.data"));
  EXPECT_THAT(stream->Check(Chunk(kQ, -48), 48), IsInvalid("OUT_OF_RANGE", "chunk.rows.byte_offset"));
  EXPECT_THAT(stream->Check(Chunk(kQ, 288), 48), IsInvalid("OUT_OF_RANGE", "chunk.rows.byte_offset"));
  EXPECT_THAT(stream->Check(Chunk(kQ, std::numeric_limits<int64_t>::max()), 48),
              IsInvalid("OUT_OF_RANGE", "chunk.rows.byte_offset"));
  EXPECT_THAT(stream->Check(Chunk(kQ, 32), 48), IsInvalid("MISMATCH", "chunk.rows.byte_offset"));
  EXPECT_THAT(stream->Check(Chunk(kQ, 48), 47), IsInvalid("MISMATCH", "chunk.rows.data"));
  EXPECT_THAT(stream->Check(Chunk(kQ, 240), 96), IsInvalid("OUT_OF_RANGE", "chunk.rows.data"));
  EXPECT_THAT(stream->Check(Chunk(kK, 32), 64), IsInvalid("OUT_OF_RANGE", "chunk.rows.data"));

  Request alone = request;
  alone.clear_k();
  const auto without_k = wire::RotaryStream::Create(Header(alone), wire::InMessage(), Limits());
  ASSERT_THAT(without_k, IsOk());
  EXPECT_THAT(without_k->Check(Chunk(kK, 0), 32), IsInvalid("OUT_OF_RANGE", "chunk.rows.byte_offset"));
}

TEST(RotaryStream, RefusesAHeaderWithBytes) {
  const Request request = Plain(v1::LAYOUT_BSHD, DType::kFP32, {1, 2, 3, 12}, {1, 2, 1, 8});
  const auto create = [](const Request& header) {
    return wire::RotaryStream::Create(header, wire::InMessage(), Limits()).status();
  };
  Request header = Header(request);
  *header.mutable_k() = request.k();
  EXPECT_THAT(create(header), IsInvalid("NOT_READ", "header.k.tensor.data"));
  header = Header(request);
  header.mutable_q()->mutable_tensor()->mutable_region();
  EXPECT_THAT(create(header), IsInvalid("NOT_READ", "header.q.tensor.region"));
  header = Header(request);
  header.mutable_q()->mutable_output();
  EXPECT_THAT(create(header), IsInvalid("NOT_READ", "header.q.output"));
  header = Header(request);
  header.clear_q();
  EXPECT_THAT(create(header), IsInvalid("MISSING", "header.q"));
  header = Header(request);
  header.mutable_q()->mutable_tensor()->mutable_shape()->Set(1, int64_t{1} << 62);
  EXPECT_THAT(create(header), IsInvalid("OUT_OF_RANGE", "header.q.tensor.shape[1]"));
}

TEST(RotaryStream, ATensorMayBeLargerThanAnyMessage) {
  Request header = Header(Plain(v1::LAYOUT_BSHD, DType::kFP32, {1, 1, 3, 12}, {1, 1, 1, 8}));
  for (v1::RotaryOperand* operand : {header.mutable_q(), header.mutable_k()}) {
    operand->mutable_tensor()->mutable_shape()->Set(1, int64_t{1} << 30);
  }
  const auto stream = wire::RotaryStream::Create(header, wire::InMessage(), Limits());
  ASSERT_THAT(stream, IsOk());
  EXPECT_EQ(stream->Size(v1::OPERAND_QUERY), (int64_t{1} << 30) * 3 * 12 * 4);
  WorkPool pool(1);
  std::string row = RandomTensor(DType::kFP32, {12}, 4).data();
  auto* bytes = reinterpret_cast<std::byte*>(row.data());
  const int64_t last = stream->Size(v1::OPERAND_QUERY) - 48;
  EXPECT_THAT(stream->Check(Chunk(v1::OPERAND_QUERY, last), 48), IsOk());
  EXPECT_THAT(stream->Rotate(v1::OPERAND_QUERY, last, 48, ContiguousBytes(bytes, 48), bytes, pool, NeverCancelled),
              IsOk());
}

TEST(RotaryStream, ALayerThatDoesNotRotateReturnsItsInput) {
  Request request = Plain(v1::LAYOUT_BSHD, DType::kFP32, {1, 2, 3, 12}, {1, 2, 1, 8});
  request.mutable_rotary()->mutable_model()->set_config_json(
      R"({"model_type": "smollm3", "hidden_size": 36, "num_attention_heads": 3, "num_hidden_layers": 4,
          "no_rope_layers": [1, 1, 1, 0]})");
  request.mutable_rotary()->mutable_model()->set_layer_index(3);
  const auto whole = Call(request);
  ASSERT_THAT(whole, IsOk());
  ASSERT_FALSE(whole->info().rotated());
  request.mutable_q()->set_rotary_offset(0);
  ExpectRangesAsTheWhole(request);
}

}  // namespace
}  // namespace posenc::rotary_stream_test
