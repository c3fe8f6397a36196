// A bias in tiles of query rows has the bytes of the whole, for every method, mask and geometry that differs by query.
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "tests/service/call.h"

namespace posenc::bias_tiles_test {
namespace {

using Request = v1::GenerateBiasRequest;

constexpr int64_t kQueries = 37, kKeys = 45, kHeads = 4, kBatch = 3;

std::vector<double> Random(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<double> values(count);
  for (double& value : values) value = normal(random);
  return values;
}
v1::Tensor Weights(std::vector<int64_t> shape) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return MakeTensor(DType::kFP32, std::move(shape), Random(count, 7));
}
template <class T>
std::vector<T> Whole(int64_t count, int least, int most) {
  std::mt19937 random(11);
  std::vector<T> values(count);
  for (T& value : values) value = static_cast<T>(std::uniform_int_distribution<int>(least, most)(random));
  return values;
}

Request Plain() {
  Request request;
  request.mutable_geometry()->set_query_length(kQueries);
  request.mutable_geometry()->set_key_length(kKeys);
  request.mutable_geometry()->set_query_offset(kKeys - kQueries);
  request.set_form(v1::BIAS_FORM_DENSE);
  request.set_dtype(v1::DATA_TYPE_FP32);
  return request;
}
Request Alibi(v1::AlibiForm form) {
  Request request = Plain();
  request.mutable_method()->mutable_alibi()->set_num_heads(kHeads);
  request.mutable_method()->mutable_alibi()->set_rule(v1::ALIBI_SLOPE_RULE_POWER_OF_TWO);
  request.mutable_method()->mutable_alibi()->set_form(form);
  return request;
}
Request T5() {
  Request request = Plain();
  request.mutable_method()->mutable_t5()->set_bidirectional(true);
  *request.mutable_method()->mutable_table() = Weights({32, kHeads});
  request.mutable_method()->set_table_layout(v1::BIAS_TABLE_LAYOUT_BUCKETS_BY_HEADS);
  return request;
}
Request Fire() {
  Request request = Plain();
  v1::Fire& fire = *request.mutable_method()->mutable_fire();
  fire.set_c(0.1);
  fire.set_threshold(20);
  *fire.mutable_hidden_weight() = Weights({8});
  *fire.mutable_hidden_bias() = Weights({8});
  *fire.mutable_output_weight() = Weights({kHeads, 8});
  *fire.mutable_output_bias() = Weights({kHeads});
  return request;
}
Request Kerple() {
  Request request = Plain();
  v1::Kerple& kerple = *request.mutable_method()->mutable_kerple();
  kerple.set_kernel(v1::KERPLE_KERNEL_LOG);
  for (int64_t head = 0; head < kHeads; ++head) {
    kerple.add_a(1.5);
    kerple.add_p(0.5 + static_cast<double>(head));
  }
  return request;
}
Request ForgetGate() {
  Request request = Plain();
  v1::ForgetGate& gate = *request.mutable_method()->mutable_forget_gate();
  *gate.mutable_log_gates() = MakeTensor(DType::kFP32, {kHeads, kKeys}, Whole<double>(kHeads * kKeys, -9, 0));
  *gate.mutable_cu_seqlens() = MakeTensor<int64_t>(DType::kINT64, {3}, {0, kKeys - 3, kKeys});
  return request;
}
Request Nope() {
  Request request = Plain();
  request.mutable_method()->mutable_nope();
  return request;
}
Request Swin() {
  Request request = Plain();
  request.clear_geometry();
  request.mutable_method()->mutable_swin()->set_window_height(5);
  request.mutable_method()->mutable_swin()->set_window_width(4);
  *request.mutable_method()->mutable_table() = Weights({63, kHeads});
  request.mutable_method()->set_table_layout(v1::BIAS_TABLE_LAYOUT_BUCKETS_BY_HEADS);
  return request;
}
Request Beit() {
  Request request = Plain();
  request.clear_geometry();
  request.mutable_method()->mutable_beit()->set_window_height(4);
  request.mutable_method()->mutable_beit()->set_window_width(5);
  request.mutable_method()->mutable_beit()->set_table(v1::BEIT_TABLE_PLAIN);
  *request.mutable_method()->mutable_table() = Weights({66, kHeads});
  request.mutable_method()->set_table_layout(v1::BIAS_TABLE_LAYOUT_BUCKETS_BY_HEADS);
  return request;
}

void Positions(Request& r) {
  r.mutable_geometry()->clear_query_offset();
  *r.mutable_geometry()->mutable_query_positions() =
      MakeTensor(DType::kINT64, {kBatch, kQueries}, Whole<int64_t>(kBatch * kQueries, 0, 90));
}
void Offsets(Request& r) {
  for (const int64_t offset : {8, 0, 100}) r.mutable_geometry()->mutable_query_offsets()->add_offset(offset);
}
v1::Mask& MaskOf(Request& r) {
  r.mutable_mask()->set_fill_kind(v1::MASK_FILL_NEGATIVE_INFINITY);
  r.mutable_mask()->set_fully_masked_row(v1::FULLY_MASKED_ROW_ZEROS);
  return *r.mutable_mask();
}
void Causal(Request& r) {
  MaskOf(r).set_causal(true);
  MaskOf(r).set_window_left(9);
}
void Documents(Request& r) {
  *MaskOf(r).mutable_query_documents() =
      MakeTensor(DType::kINT32, {kBatch, kQueries}, Whole<int32_t>(kBatch * kQueries, 0, 2));
  *MaskOf(r).mutable_key_documents() = MakeTensor(DType::kINT32, {kKeys}, Whole<int32_t>(kKeys, 0, 2));
}
void Prefixes(Request& r) {
  MaskOf(r).set_causal(true);
  for (const int64_t length : {0, 20, 45}) MaskOf(r).add_prefix_length(length);
}
void Padding(Request& r) {
  *MaskOf(r).mutable_key_valid() = MakeTensor(DType::kBOOL, {kBatch, kKeys}, Whole<uint8_t>(kBatch * kKeys, 0, 1));
}
void OtherHeads(Request& r) {
  r.mutable_geometry()->set_head_start(1);
  r.mutable_geometry()->set_head_count(2);
}
void SlopesByBatch(Request& r) { *r.mutable_method()->mutable_alibi()->mutable_given() = Weights({kBatch, kHeads}); }
void ValidPositions(Request& r) {
  *r.mutable_method()->mutable_alibi()->mutable_position_mask() =
      MakeTensor(DType::kBOOL, {kBatch, kKeys}, Whole<uint8_t>(kBatch * kKeys, 0, 1));
}
void FalconsBias(Request& r) {
  r.mutable_method()->mutable_alibi()->set_bias_dtype(v1::DATA_TYPE_BF16);
  r.set_dtype(v1::DATA_TYPE_BF16);
}

struct Case {
  const char* name;
  Request request;
  std::vector<void (*)(Request&)> changes = {};
};

std::vector<Case> Cases() {
  const Request symmetric = Alibi(v1::ALIBI_FORM_SYMMETRIC), bloom = Alibi(v1::ALIBI_FORM_BLOOM);
  return {
      {"symmetric", symmetric},
      {"symmetric, one head after another", symmetric, {OtherHeads}},
      {"symmetric at positions", symmetric, {Positions, Causal}},
      {"symmetric at offsets", symmetric, {Offsets, Causal, Prefixes}},
      {"symmetric, slopes by batch row", symmetric, {SlopesByBatch, Documents}},
      {"symmetric in BF16", symmetric, {FalconsBias}},
      {"BLOOM", bloom, {Causal, Padding}},
      {"BLOOM with padding", bloom, {ValidPositions, Documents}},
      {"MPT", Alibi(v1::ALIBI_FORM_MPT), {Causal}},
      {"T5", T5()},
      {"T5 at offsets", T5(), {Offsets, Prefixes, Padding}},
      {"T5 at positions", T5(), {Positions, Documents}},
      {"KERPLE", Kerple(), {Causal, OtherHeads}},
      {"FIRE", Fire(), {Causal}},
      {"FIRE at positions", Fire(), {Positions, Documents}},
      {"forget gates", ForgetGate(), {Causal}},
      {"NoPE", Nope(), {Prefixes, Documents, Padding}},
      {"KERPLE at positions", Kerple(), {Positions}},
      {"Swin", Swin()},
      {"BEiT", Beit()},
  };
}

// Concatenates all tiles. FAILED_PRECONDITION if a tile's shape, row or info is wrong.
absl::StatusOr<std::string> Tiled(const Request& request, int64_t rows_per_tile, const v1::Tensor& whole,
                                  const Limits& limits = {}) {
  const wire::InMessage payloads;
  v1::StreamBiasRequest stream;
  *stream.mutable_bias() = request;
  stream.set_rows_per_tile(rows_per_tile);
  const auto tiles = wire::Prepare(stream, payloads, limits);
  if (!tiles.ok()) return tiles.status();
  WorkPool pool(2);
  std::string bytes = whole.data();
  std::fill(bytes.begin(), bytes.end(), '\x55');
  const int rank = whole.shape_size();
  const int64_t queries = whole.shape(rank - 2);
  const size_t row = SizeOf(TypeOf(whole)) * whole.shape(rank - 1);
  for (int64_t begin = 0; begin < tiles->rows; begin += tiles->rows_per_tile) {
    v1::StreamBiasResponse response;
    const wire::Job job = tiles->tile(begin, &response);
    std::string tile(job.outputs[0].bytes, '\0');
    std::byte* const out = reinterpret_cast<std::byte*>(tile.data());
    if (absl::Status status = job.run(wire::InMessage(), {&out, 1}, pool, NeverCancelled); !status.ok()) return status;
    std::vector<int64_t> shape = ShapeOf(whole);
    shape[rank - 2] = std::min(rows_per_tile, queries - begin);
    if (ShapeOf(response.bias()) != shape || response.row_begin() != begin || response.has_info() != (begin == 0)) {
      return absl::FailedPreconditionError(response.ShortDebugString());
    }
    const size_t part = shape[rank - 2] * row;
    for (size_t matrix = 0; matrix * part < tile.size(); ++matrix) {
      bytes.replace(matrix * queries * row + begin * row, part, tile, matrix * part, part);
    }
  }
  return bytes;
}

TEST(BiasTiles, HaveTheBytesOfTheWhole) {
  for (Case& c : Cases()) {
    SCOPED_TRACE(c.name);
    for (const auto change : c.changes) change(c.request);
    const auto whole = Call(c.request);
    ASSERT_THAT(whole, IsOk());
    for (const int64_t rows : {1, 3, 8, 16, 36, 1000}) {
      const auto tiled = Tiled(c.request, rows, whole->bias());
      ASSERT_THAT(tiled, IsOk());
      EXPECT_TRUE(*tiled == whole->bias().data()) << rows << " rows a tile";
    }
  }
}

TEST(BiasTiles, AreNotBoundByTheLimitOfOneAnswer) {
  const Request request = Alibi(v1::ALIBI_FORM_SYMMETRIC);
  const auto whole = Call(request);
  ASSERT_THAT(whole, IsOk());
  Limits limits;
  limits.max_output_bytes = kHeads * kKeys * 4 * 2;
  EXPECT_FALSE(Call(request, limits).ok());
  const auto tiled = Tiled(request, 2, whole->bias(), limits);
  ASSERT_THAT(tiled, IsOk());
  EXPECT_TRUE(*tiled == whole->bias().data());
  EXPECT_THAT(Tiled(request, 3, whole->bias(), limits).status(),
              FailsWith(absl::StatusCode::kResourceExhausted, "TOO_LARGE", "answer"));
}

absl::StatusOr<wire::TileStream> Prepare(const Request& bias, std::optional<int64_t> rows, const Limits& limits = {}) {
  v1::StreamBiasRequest request;
  *request.mutable_bias() = bias;
  if (rows) request.set_rows_per_tile(*rows);
  return wire::Prepare(request, wire::InMessage(), limits);
}

TEST(BiasTiles, FillAboutAMebibyte) {
  constexpr int64_t kMost = (int64_t{1} << 31) - 1;  // max_dimension
  Request request = Alibi(v1::ALIBI_FORM_SYMMETRIC);
  request.mutable_geometry()->set_query_length(kMost);
  request.mutable_geometry()->set_query_offset(0);
  request.mutable_geometry()->set_key_length(4096);
  auto tiles = Prepare(request, {});
  ASSERT_THAT(tiles, IsOk());
  EXPECT_EQ(tiles->rows, kMost) << "nothing of that size is laid out";
  EXPECT_EQ(tiles->rows_per_tile, (1 << 20) / (kHeads * 4096 * 4));
  request.mutable_geometry()->set_query_length(int64_t{1} << 30);
  request.mutable_geometry()->set_key_length(1 << 20);
  tiles = Prepare(request, {});
  ASSERT_THAT(tiles, IsOk());
  EXPECT_EQ(tiles->rows_per_tile, 1);
  request.mutable_geometry()->set_key_length(1 << 26);
  EXPECT_THAT(Prepare(request, {}), FailsWith(absl::StatusCode::kResourceExhausted, "TOO_LARGE", "bias.answer"));
}

TEST(BiasTiles, OfNothingAreOneWithItsShape) {
  for (const auto& [queries, keys] : {std::pair<int64_t, int64_t>{0, 5}, {int64_t{1} << 30, 0}}) {
    Request request = Nope();
    request.mutable_geometry()->set_query_length(queries);
    request.mutable_geometry()->set_key_length(keys);
    const auto tiles = Prepare(request, {});
    ASSERT_THAT(tiles, IsOk());
    EXPECT_EQ(tiles->RowsAt(0), queries);
    v1::StreamBiasResponse response;
    EXPECT_EQ(tiles->tile(0, &response).outputs[0].bytes, 0u);
    EXPECT_THAT(response.bias().shape(), testing::ElementsAre(1, queries, keys));
  }
}

TEST(BiasTiles, RefuseWhatIsNoTile) {
  const Request request = T5();
  EXPECT_THAT(wire::Prepare(v1::StreamBiasRequest(), wire::InMessage(), Limits()), IsInvalid("MISSING", "bias"));
  EXPECT_THAT(Prepare(request, 0), IsInvalid("OUT_OF_RANGE", "rows_per_tile"));
  for (const v1::BiasForm form : {v1::BIAS_FORM_UNSPECIFIED, v1::BIAS_FORM_COMPACT, v1::BIAS_FORM_INDEX}) {
    Request other = request;
    other.set_form(form);
    EXPECT_THAT(Prepare(other, 1), IsInvalid("UNSUPPORTED", "bias.form"));
  }
  Request output = request;
  output.mutable_output()->set_byte_size(1);
  EXPECT_THAT(Prepare(output, 1), IsInvalid("NOT_READ", "bias.output"));
  Request far = request;
  far.mutable_geometry()->set_query_length(int64_t{1} << 30);
  EXPECT_THAT(Prepare(far, 1), FailsWith(absl::StatusCode::kResourceExhausted, "TOO_LARGE", "bias.geometry"));
  far.mutable_geometry()->set_query_offset(int64_t{1} << 53);
  EXPECT_THAT(Prepare(far, 1), IsInvalid("OUT_OF_RANGE", "bias.geometry.query_positions[1]"));
}

}  // namespace
}  // namespace posenc::bias_tiles_test
