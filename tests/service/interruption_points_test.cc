// Loops whose length a small request decides look often enough whether their result is still wanted.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <numeric>

#include "posenc/base/byte_source.h"
#include "posenc/base/checks.h"
#include "posenc/base/interruption.h"
#include "posenc/bias/bias_geometry.h"
#include "posenc/bias/bias_layout.h"
#include "posenc/bias/generate_bias.h"
#include "posenc/embedding/generate_embedding.h"
#include "posenc/kernels/distance_bias.h"
#include "posenc/kernels/dot_products.h"
#include "posenc/kernels/sincos_turns.h"
#include "posenc/mapping/message_fingerprint.h"
#include "posenc/mapping/read.h"
#include "posenc/methods/bias/bias.h"
#include "posenc/methods/bias/bias_methods.h"
#include "posenc/methods/bias/fire.h"
#include "posenc/methods/bias/forget_gate.h"
#include "posenc/methods/embedding/encoding.h"
#include "posenc/methods/relative/relative_methods.h"
#include "posenc/methods/rope/given_table.h"
#include "posenc/model/model.h"
#include "posenc/rotary/positions.h"
#include "posenc/rotary/rotary_plan.h"
#include "posenc/rotary/rotate_pieces.h"
#include "posenc/wire/parse.h"
#include "tests/service/call.h"

namespace posenc::interruption_points_test {
namespace {

constexpr int64_t kMany = 1 << 20;
constexpr int kOften = 16;  // once in 2^16 of kMany fast steps

// Calls work(), or work(cancelled) if it computes in a pool. Returns how often it looked.
template <class Work>
int PointsOf(const Work& work) {
  int points = 0;
  const Cancellation count = [&points] {
    ++points;
    return absl::OkStatus();
  };
  const InterruptionScope scope(&count);
  if constexpr (std::is_invocable_v<Work, Cancellation>) {
    work(count);
  } else {
    work();
  }
  return points;
}

TEST(InterruptionPoints, OfLongGeometries) {
  EXPECT_GE(PointsOf([] { Line(0, kMany); }), kOften);
  EXPECT_GE(PointsOf([] { QueryPositions({.query = OffsetPositions{7}}, 0, kMany); }), kOften);
  const Matrix<double> line = Line(0, kMany);
  EXPECT_GE(PointsOf([&] { EXPECT_THAT(CheckPositions("keys", line), IsOk()); }), kOften);
  EXPECT_GE(PointsOf([&] { EXPECT_THAT(CheckWhole("keys", line), IsOk()); }), kOften);
}

TEST(InterruptionPoints, OfLongConfigFiles) {
  std::string zeros = "0";
  while (zeros.size() < kMany / 4) zeros += "," + zeros;
  ModelSource source{.config_json = fmt::format(R"({{"values": [{}]}})", zeros)};
  EXPECT_GE(PointsOf([&] { EXPECT_THAT(Parse(Limits(), &source), IsOk()); }), kOften);
}

TEST(InterruptionPoints, OfManyHeads) {
  constexpr int64_t kHeads = 4096;
  const KerpleSettings kerple{KerpleKernel::kLog, std::vector<double>(kHeads, 1), std::vector<double>(kHeads, 1)};
  EXPECT_GE(PointsOf([&] { KerpleValues(Frequencies::kExact, kerple, 0, 60); }), 60);
  const BiasTable table{std::vector<float>(kHeads * 18, 1), kHeads, 18, false};
  const BeitSettings beit{.window = {2, 3}, .table = BeitTable::kTransformers};
  EXPECT_GE(PointsOf([&] { BeitTableAsRead(Frequencies::kExact, beit, table); }), 15 * kHeads / 64);
}

TEST(InterruptionPoints, OfManyDistances) {
  EXPECT_GE(PointsOf([] { T5Buckets(Frequencies::kExact, {32, 128, true}, 0, kMany); }), kOften);
  WorkPool pool(1);
  constexpr int64_t kDim = 256;
  EXPECT_GE(PointsOf([&] {
              const WprSettings wpr{.wavelet = Wavelet::kHaar, .scales = 1, .first_exponent = 0};
              const RelativeShape shape{.head_dim = kDim, .distances = {0, kMany / kDim - 1}};
              EXPECT_THAT(MakeTables(wpr, shape, Frequencies::kExact, pool, NeverCancelled), IsOk());
            }),
            kMany / kDim / 64 + kOften);
  EXPECT_GE(PointsOf([&] {
              const DebertaSettings deberta{.relative_embeddings = {{0, 0, 0, 0}, 4, 1}, .max_relative_positions = 2};
              const RelativeShape shape{.head_dim = 1, .distances = {0, kMany - 1}};
              EXPECT_THAT(MakeTables(deberta, shape, Frequencies::kExact, pool, NeverCancelled), IsOk());
            }),
            kOften);
}

TEST(InterruptionPoints, OfManyQueries) {
  const FireRows fire(Frequencies::kExact, {.c = 0.1, .threshold = 512, .epsilon = 0}, 0);
  std::vector<double> positions(kMany);
  EXPECT_GE(PointsOf([&] { fire.Normalisers(positions); }), 2 * kOften);
  std::iota(positions.begin(), positions.end(), -static_cast<double>(kMany));
  const int descending = PointsOf([&] { fire.Normalisers({positions.rbegin(), positions.rend()}); });
  EXPECT_GE(descending, 2 * kOften);
}

TEST(InterruptionPoints, OfOneLongRowOfGates) {
  const ForgetGateSettings gates{.log_gates = std::vector<float>(kMany, -0.5f), .num_heads = 1, .keys = kMany};
  EXPECT_GE(PointsOf([&] { ForgetGateRows rows(gates); }), kOften);
  const std::vector<float> logits(kMany);
  const double products[] = {1, 2};
  std::vector<double> sums(kMany);
  EXPECT_GE(PointsOf([&] { AddCopeRow(logits, products, 1, 2, sums.data()); }), kOften - 1);
}

TEST(InterruptionPoints, OfOneLongRowOfABias) {
  std::vector<double> positions(kMany);
  EXPECT_GE(PointsOf([&] { RoundTo(DType::kBF16, positions); }), kOften);
  const std::vector<uint8_t> valid(kMany, 1);
  const float values[] = {0, 1};
  std::vector<std::byte> out(2 * kMany);
  DistanceBias work{.dtype = DType::kBF16, .queries = 1, .keys = kMany, .out = out.data()};
  work.bias = GatheredBias{values, 2, 0, positions.data(), positions.data()};
  EXPECT_EQ(PointsOf([&] { ComputeDistanceBias(work, 0, 1); }), kOften - 1);
  work.bias = LinearBias{.query_positions = positions.data(), .key_positions = positions.data()};
  work.key_valid = valid.data();
  EXPECT_EQ(PointsOf([&] { ComputeDistanceBias(work, 0, 1); }), kOften - 1);
}

TEST(InterruptionPoints, OfLongCopies) {
  constexpr size_t kMebibyte = size_t{1} << 20;
  const std::vector<std::byte> x(5 * kMebibyte + 4);
  std::vector<std::byte> y(x.size());
  EXPECT_EQ(PointsOf([&] { Copy(ContiguousBytes(x.data(), x.size()), 1, x.size() - 1, y.data()); }), 5);

  v1::Tensor tensor;
  tensor.set_data(std::string(x.size(), 'x'));
  WorkPool pool(1);
  const Cancellation stopped = [n = 3]() mutable { return n-- > 0 ? absl::OkStatus() : absl::CancelledError(); };
  EXPECT_EQ(wire::CopyOperand(wire::InMessage(), tensor, y.data(), pool, stopped).code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(y[3 * kMebibyte - 1], std::byte{'x'});
  EXPECT_EQ(y[3 * kMebibyte], std::byte{0});
}

TEST(InterruptionPoints, OfLargeWeightsOfAPlan) {
  const Matrix<float> weight{std::vector<float>(kMany, 0.5f), 1, kMany, true};
  v1::Tensor tensor;
  EXPECT_GE(PointsOf([&] { wire::WriteMatrix(weight, &tensor); }), 4);  // once in a MiB
  EXPECT_EQ(tensor.data(), std::string(reinterpret_cast<const char*>(weight.values.data()), 4 * kMany));
  Fingerprint in_pieces;
  EXPECT_GE(PointsOf([&] { wire::AddMessage(tensor, in_pieces); }), 4 * kOften);
  EXPECT_EQ(in_pieces.Digest(), Fingerprint().Add(tensor.SerializeAsString()).Digest());

  const Cancellation stopped = [n = 3]() mutable { return n-- > 0 ? absl::OkStatus() : absl::CancelledError(); };
  const InterruptionScope scope(&stopped);
  EXPECT_THROW(wire::AddMessage(tensor, in_pieces), ComputationStopped);
}

// One pair is rotated in the middle of a head row.
TEST(InterruptionPoints, OfOneLongHeadRow) {
  constexpr size_t kElements = size_t{1} << 20, kOffset = kElements / 2;
  std::vector<float> x(kElements), y(kElements);
  std::iota(x.begin(), x.end(), 0.0f);
  const float cos = 0, sin = 1;
  const PairRotation work{.dtype = DType::kFP32,
                          .head_dim = kElements,
                          .rotary_offset = kOffset,
                          .pairs = 1,
                          .input_pairing = Pairing::kInterleaved,
                          .output_pairing = Pairing::kInterleaved,
                          .rounding = Rounding::kOnce,
                          .table_dtype = DType::kFP32,
                          .cos = &cos,
                          .sin = &sin,
                          .x = nullptr,
                          .y = nullptr,
                          .tokens = 1,
                          .heads = 1,
                          .token_stride = 4 * kElements,
                          .head_stride = 4 * kElements};
  const ContiguousBytes bytes(reinterpret_cast<const std::byte*>(x.data()), 4 * kElements);
  EXPECT_EQ(PointsOf([&] { RotatePieces(work, bytes, reinterpret_cast<std::byte*>(y.data()), 0); }), 2);
  std::swap(x[kOffset], x[kOffset + 1]);
  x[kOffset] = -x[kOffset];
  EXPECT_EQ(x, y);
}

v1::Tensor Zeros(v1::DataType dtype, std::vector<int64_t> shape, size_t bytes) {
  v1::Tensor tensor;
  tensor.set_dtype(dtype);
  tensor.mutable_shape()->Assign(shape.begin(), shape.end());
  tensor.set_data(std::string(bytes, '\0'));
  return tensor;
}

TEST(InterruptionPoints, OfLargeTensors) {
  const wire::InMessage payloads;
  const Limits limits;
  const wire::Reader reader{payloads, limits};
  const auto read = [&](v1::DataType dtype, size_t size, auto how) {
    const v1::Tensor tensor = Zeros(dtype, {kMany}, kMany * size);
    EXPECT_GE(PointsOf([&] { EXPECT_THAT((reader.*how)("t", tensor), IsOk()); }), kOften - 1);
  };
  read(v1::DATA_TYPE_INT32, 4, &wire::Reader::Values);
  read(v1::DATA_TYPE_INT64, 8, &wire::Reader::Values);
  read(v1::DATA_TYPE_FP32, 4, &wire::Reader::Values);
  read(v1::DATA_TYPE_FP64, 8, &wire::Reader::Values);
  read(v1::DATA_TYPE_FP32, 4, &wire::Reader::WeightValues);
  read(v1::DATA_TYPE_BF16, 2, &wire::Reader::WeightValues);
  read(v1::DATA_TYPE_BOOL, 1, &wire::Reader::Flags);
  const Matrix<float> matrix{std::vector<float>(kMany), kMany / 64, 64, false};
  EXPECT_GE(PointsOf([&] { wire::Turned(matrix); }), kOften);
  EXPECT_GE(PointsOf([&] { EXPECT_THAT(CheckFinite("t", matrix.values), IsOk()); }), kOften);
  BiasMethod t5{.settings = T5Settings{kMany / 1024, 4096, false}, .table = BiasTable(matrix)};
  t5.table->rows = 1024, t5.table->columns = kMany / 1024;
  EXPECT_GE(PointsOf([&] { EXPECT_THAT(Complete(t5, limits), IsOk()); }), kOften);
}

TEST(InterruptionPoints, NoneBeforeTooManyGatesAreRefused) {
  v1::ExplainRequest request;
  *request.mutable_bias()->mutable_forget_gate()->mutable_log_gates() =
      Zeros(v1::DATA_TYPE_BF16, {8, kMany}, 8 * kMany * 2);
  EXPECT_EQ(PointsOf([&] {
              EXPECT_THAT(Call(request),
                          FailsWith(absl::StatusCode::kResourceExhausted, "TOO_LARGE", "bias.forget_gate.log_gates"));
            }),
            0);
}

TEST(InterruptionPoints, NoneBeforeTooManySequencesAreRefused) {
  v1::Positions positions;
  *positions.mutable_cu_seqlens() = Zeros(v1::DATA_TYPE_INT32, {kMany}, kMany * 4);
  const wire::InMessage payloads;
  const Limits limits;
  EXPECT_EQ(PointsOf([&] {
              EXPECT_THAT((wire::Reader{payloads, limits}.ReadPositions(positions, "positions")),
                          FailsWith(absl::StatusCode::kResourceExhausted, "TOO_LARGE", "positions.cu_seqlens"));
            }),
            0);
}

TEST(InterruptionPoints, OfLongLists) {
  const std::vector<double> numbers(kMany);
  EXPECT_GE(PointsOf([&] { EXPECT_THAT(CheckFinite("numbers", numbers), IsOk()); }), kOften);
  std::vector<int64_t> bounds(kMany);
  EXPECT_GE(PointsOf([&] { EXPECT_THAT(CheckSequenceBounds("cu_seqlens", bounds, 0), IsOk()); }), kOften - 1);
  RotarySettings settings{.frequencies = GivenFrequencies{.inv_freq = numbers}};
  EXPECT_GE(PointsOf([&] {
              EXPECT_THAT(Rotary::Create(settings, Frequencies::kExact, Limits()),
                          FailsWith(absl::StatusCode::kInvalidArgument, "OUT_OF_RANGE", "given_frequencies.inv_freq"));
            }),
            kOften);
  settings = {.frequencies = RopeParameters{.rope_type = "longrope", .short_factor = numbers, .long_factor = numbers},
              .rotary_dim = 2,
              .input_pairing = Pairing::kHalfSplit};
  EXPECT_GE(PointsOf([&] { EXPECT_FALSE(Rotary::Create(settings, Frequencies::kExact, Limits()).ok()); }), 2 * kOften);
}

TEST(InterruptionPoints, OfFourierFeatures) {
  const Limits limits;
  for (const auto& [columns, points] : {std::pair{kMany, int64_t{1}}, {int64_t{64}, kMany / 64}}) {
    for (const Frequencies arithmetic : {Frequencies::kExact, Frequencies::kFloat64, Frequencies::kFloat32}) {
      const FourierSettings fourier{{std::vector<double>(columns), 1, columns, false},
                                    {std::vector<double>(kMany), points, columns, false}};
      std::optional<EmbeddingGeneration> generation;
      EXPECT_GE(PointsOf([&] {
                  GenerateEmbedding call{.method = fourier, .dtype = DType::kBF16};
                  call.precision.frequencies = arithmetic;
                  generation = *EmbeddingGeneration::Create(std::move(call), limits);
                }),
                kOften);
      std::vector<std::byte> out(generation->bytes());
      WorkPool pool(1);
      EXPECT_GE(PointsOf([&](const Cancellation& cancelled) {
                  EXPECT_THAT(generation->Write(nullptr, out.data(), pool, cancelled), IsOk());
                }),
                kOften);
    }
  }
}

TEST(InterruptionPoints, OfTablesWithEachValueTwice) {
  for (const TableForm form : {TableForm::kDuplicated, TableForm::kRepeatInterleaved}) {
    const auto zeros = std::make_shared<const std::vector<std::byte>>(4 * kMany);
    GivenTable table{DType::kBF16, kMany / 64, 128, form, zeros, zeros};
    EXPECT_GE(PointsOf([&] { EXPECT_THAT(Complete(table, 1), IsOk()); }), 2 * kOften);
  }
}

// Each row has 64 products with each of 256 columns.
TEST(InterruptionPoints, OfManyProducts) {
  constexpr size_t kRows = 4096, kDepth = 64, kWidth = 256;
  const std::vector<float> rows(kRows * kDepth, 1);
  const std::vector<double> columns(kDepth * kWidth, 1);
  std::vector<double> out(kRows * kWidth);
  const DotProducts work{.rows = rows.data(),
                         .row_stride = kDepth,
                         .row_count = kRows,
                         .depth = kDepth,
                         .columns = columns.data(),
                         .width = kWidth,
                         .out = out.data()};
  EXPECT_EQ(PointsOf([&] { ComputeDotProducts(work); }), 15);
  EXPECT_EQ(out, std::vector<double>(out.size(), kDepth));

  const Matrix<float> table{std::vector<float>(kMany), kMany / 64, 64, false};
  const std::vector<float> zeros(64);
  EXPECT_GE(PointsOf([&] { Normalised({.weight = zeros, .bias = zeros, .epsilon = 1}, table); }), kOften);
  WorkPool pool(1);
  EXPECT_GE(PointsOf([&] { EXPECT_THAT(Project({.bias = zeros}, table, 64, pool, NeverCancelled), IsOk()); }), kOften);
}

// Many rows of a batch take as many slow steps as one long row.
TEST(InterruptionPoints, OfManyShortRows) {
  const Matrix<uint8_t> valid{std::vector<uint8_t>(kMany, 1), kMany, 1, false};
  const auto once = [](int points) { return points >= kOften && points <= kOften + 1; };
  EXPECT_PRED1(once, PointsOf([&] { posenc::CountValid(valid); }));
  const PerSequenceOffsets offsets{std::vector<int64_t>(kMany)};
  EXPECT_PRED1(once, PointsOf([&] { QueryPositions({.query = offsets}, 0, 1); }));
}

TEST(InterruptionPoints, OfAnEncodingOfManyShortRows) {
  const GenerateEmbedding call{.method = SinusoidalSettings{.dim = 2},
                               .positions = {.source = PositionIds{{std::vector<double>(kMany), kMany, 1, false}}},
                               .add_to = TensorShape{DType::kFP32, {kMany, 1, 2}}};
  std::vector<std::byte> sums(8 * kMany);
  WorkPool pool(1);
  const int points = PointsOf([&](const Cancellation& cancelled) {
    const auto generation = EmbeddingGeneration::Create(call, Limits());
    ASSERT_THAT(generation, IsOk());
    EXPECT_THAT(generation->Write(sums.data(), sums.data(), pool, cancelled), IsOk());
  });
  EXPECT_GE(points, 4 * kOften - 1);
  EXPECT_LE(points, kMany / 512);
}

TEST(InterruptionPoints, OfManyShortBiases) {
  const FireSettings fire{.c = 1,
                          .threshold = 1,
                          .epsilon = 1,
                          .hidden_weight = {1},
                          .hidden_bias = {0},
                          .output_weight = {{1}, 1, 1, false},
                          .output_bias = {0}};
  for (const BiasMethod& method : {BiasMethod{.settings = fire}, BiasMethod{.settings = NopeSettings{}}}) {
    const GenerateBias call{
        .method = method,
        .geometry = {.query_length = 1, .key_length = 1, .query = PerSequenceOffsets{std::vector<int64_t>(kMany)}},
        .dtype = DType::kBF16};
    std::vector<std::byte> out(2 * kMany);
    WorkPool pool(1);
    const int points = PointsOf([&](const Cancellation& cancelled) {
      const auto generation = BiasGeneration::Create(call, Limits(), BiasGeneration::Extent::kWhole);
      ASSERT_THAT(generation, IsOk());
      EXPECT_THAT(generation->WriteRows(0, 1, nullptr, out.data(), pool, cancelled, nullptr), IsOk());
    });
    EXPECT_GE(points, kMany / 4096);
    EXPECT_LE(points, kMany / 32);
  }
}

TEST(InterruptionPoints, OfManySegments) {
  v1::Positions positions;
  for (int64_t n = 0; n < kMany; ++n) positions.mutable_segments()->add_segment()->mutable_line()->set_count(1);
  v1::GenerateTableRequest parsed;
  *parsed.mutable_positions() = positions;
  EXPECT_GE(PointsOf([&] { EXPECT_THAT(wire::RejectUnknown(parsed), IsOk()); }), kOften);
  const wire::InMessage payloads;
  const Limits limits;
  const wire::Reader reader{payloads, limits};
  Positions read;
  EXPECT_GE(PointsOf([&] { read = *reader.ReadPositions(positions, "positions"); }), kMany / 4096);
  EXPECT_GE(PointsOf([&] { EXPECT_EQ(wire::CountRows("positions", read, {}, limits).value(), kMany); }), kOften);
  std::optional<TokenPositions> tokens;
  const auto create = [&](int64_t sequences, int64_t length) {
    tokens = *TokenPositions::Create(std::move(read), {sequences, length, false}, limits);
  };
  EXPECT_GE(PointsOf([&] { create(1, kMany); }), kOften);
  EXPECT_GE(PointsOf([&] { EXPECT_THAT(tokens->CheckIndices(kMany), IsOk()); }), kOften);
  read.source = PerSequenceOffsets{std::vector<int64_t>(kMany)};
  EXPECT_GE(PointsOf([&] { create(kMany, 1); }), kOften);
  EXPECT_GE(PointsOf([&] { EXPECT_THAT(tokens->CheckIndices(1), IsOk()); }), kOften);
}

TEST(InterruptionPoints, OfManyIds) {
  v1::Positions positions;
  *positions.mutable_ids() = Zeros(v1::DATA_TYPE_INT32, {kMany / 2, 2}, kMany * 4);
  positions.set_axis_dimension(v1::AXIS_DIMENSION_LAST);
  const wire::InMessage payloads;
  const Limits limits;
  Positions read;
  EXPECT_GE(PointsOf([&] {
              read = *wire::Reader{payloads, limits}.ReadPositions(positions, "positions");
            }),
            2 * kOften - 1);
  std::optional<TokenPositions> tokens;
  EXPECT_GE(PointsOf([&] {
              tokens = *TokenPositions::Create(std::move(read), {1, kMany / 2, false, 2}, limits);
            }),
            kOften);
  EXPECT_GE(PointsOf([&] { EXPECT_THAT(tokens->CheckIndices(1), IsOk()); }), kOften);
  const Matrix<double> line = Line(0, kMany);
  EXPECT_GE(PointsOf([&] { Range(line, line); }), 2 * kOften);
}

v1::RotarySettings GivenTable(v1::DataType dtype, size_t size) {
  v1::RotarySettings settings;
  settings.set_rotary_dim(2);
  settings.set_input_pairing(v1::PAIRING_HALF_SPLIT);
  v1::GivenTable& table = *settings.mutable_given_table();
  *table.mutable_cos() = *table.mutable_sin() = Zeros(dtype, {kMany, 1}, kMany * size);
  table.set_form(v1::TABLE_FORM_HALF_WIDTH);
  return settings;
}

// A row of a narrow table is not slow.
TEST(InterruptionPoints, OfEqualTables) {
  v1::CompareRequest request;
  *request.mutable_a()->mutable_rotary() = GivenTable(v1::DATA_TYPE_FP32, 4);
  *request.mutable_b()->mutable_rotary() = GivenTable(v1::DATA_TYPE_FP64, 8);
  const int points = PointsOf([&] { EXPECT_TRUE(Call(request)->same()); });
  EXPECT_GE(points, kOften);
  EXPECT_LE(points, 4 * kOften);
}

// Nothing is searched far beyond the first difference.
TEST(InterruptionPoints, OfAnEarlyDifference) {
  v1::CompareRequest request;
  for (v1::ComparedSettings* side : {request.mutable_a(), request.mutable_b()}) {
    side->mutable_rotary()->set_rotary_dim(2);
    side->mutable_rotary()->set_input_pairing(v1::PAIRING_HALF_SPLIT);
  }
  request.mutable_a()->mutable_rotary()->mutable_given_frequencies()->add_inv_freq(1);
  request.mutable_b()->mutable_rotary()->mutable_given_frequencies()->add_inv_freq(2);
  WorkPool pool(1);
  EXPECT_LE(PointsOf([&] { EXPECT_EQ(Call(request, {}, &pool)->layers(0).rotary(0).first_position(), 1); }), 20);
}

}  // namespace
}  // namespace posenc::interruption_points_test
