// Rotations of transformers' eager models (tests/golden/recorded) are bit-equal, given the same tables.
#include <gtest/gtest.h>

#include "posenc/kernels/rotate_pairs.h"
#include "posenc/model/model_types.h"
#include "tests/reference/golden.h"
#include "tests/reference/ulp.h"
#include "tests/service/call.h"

namespace posenc::eager_apply_test {
namespace {

using golden::json;

// The first P columns of a recorded table as float32, which holds any of the tables' types.
std::vector<float> PairColumns(const json& table, const std::string& layout) {
  std::vector<float> columns;
  for (const json& row : table) {
    const std::vector<double> numbers = golden::Numbers(row);
    const size_t pairs = layout == "single" ? numbers.size() : numbers.size() / 2;
    for (size_t i = 0; i < pairs; ++i) columns.push_back(static_cast<float>(numbers[layout == "repeated" ? 2 * i : i]));
  }
  return columns;
}

// Compares bit by bit, except that all NaNs are equal.
void ExpectSame(DType dtype, const std::string& got, const std::vector<double>& recorded, const char* name) {
  const std::vector<double> ours = Unpack(dtype, got);
  ASSERT_EQ(ours.size(), recorded.size());
  for (size_t n = 0; n < ours.size(); ++n) {
    const bool same = std::isnan(recorded[n])
                          ? std::isnan(ours[n])
                          : ours[n] == recorded[n] && std::signbit(ours[n]) == std::signbit(recorded[n]);
    ASSERT_TRUE(same) << name << "[" << n << "] is " << ours[n] << ", recorded " << recorded[n];
  }
}

// Rotates x [1][H][S][D] with the kernel.
std::string Rotate(const json& record, const json& shape, const std::vector<double>& x, Rounding rounding) {
  const DType dtype = golden::ReadDType(record["dtype"]);
  const std::vector<float> cos = PairColumns(record["cos"], record["table_layout"]);
  const std::vector<float> sin = PairColumns(record["sin"], record["table_layout"]);
  const size_t heads = shape[1], tokens = shape[2], head_dim = shape[3], row = head_dim * SizeOf(dtype);
  std::string bytes = Pack(dtype, x);
  auto* data = reinterpret_cast<std::byte*>(bytes.data());
  const PairRotation work{.dtype = dtype,
                          .head_dim = head_dim,
                          .pairs = record["rotary_width"].get<size_t>() / 2,
                          .input_pairing = golden::ReadPairing(record["input_pairing"]),
                          .output_pairing = golden::ReadPairing(record["output_pairing"]),
                          .rounding = rounding,
                          .table_dtype = DType::kFP32,
                          .cos = cos.data(),
                          .sin = sin.data(),
                          .x = data,
                          .y = data,
                          .tokens = tokens,
                          .heads = heads,
                          .token_stride = row,
                          .head_stride = row * tokens};
  RotatePairs(work, 0, tokens);
  return bytes;
}

TEST(EagerApply, BitEqualForAllModelsAndTypes) {
  const json file = golden::Read("recorded/eager_apply.json");
  ASSERT_EQ(file["records"].size(), 8u * 2 * 3);
  for (const json& record : file["records"]) {
    SCOPED_TRACE(record["model"].dump() + " " + record["dtype"].dump() + " " + record["q_shape"].dump());
    const ModelType* type = FindModelType(record["model"].get<std::string>());
    ASSERT_NE(type, nullptr);
    EXPECT_EQ(type->pairing, golden::ReadPairing(record["input_pairing"]));
    EXPECT_EQ(type->output_pairing.value_or(type->pairing), golden::ReadPairing(record["output_pairing"]));
    const bool wide_table = record["table_dtype"] != record["dtype"];
    if (wide_table) {
      EXPECT_EQ(type->precision.table_dtype, TableDtype::kFloat32);
    } else if (record["dtype"] != "float32") {
      EXPECT_EQ(type->precision.table_dtype, TableDtype::kTensor);
    }
    const DType dtype = golden::ReadDType(record["dtype"]);
    for (const std::string name : {"q", "k"}) {
      const std::string y =
          Rotate(record, record[name + "_shape"], golden::Numbers(record[name]), type->precision.rounding);
      ExpectSame(dtype, y, golden::Numbers(record[name + "_out"]), name.c_str());
      if (HasFatalFailure()) return;
    }
  }
}

// DeepSeek-V3's real shapes end to end: config.json, q at offset 128 of 192 and k at 0 of 64 in one call.
class DeepseekV3 : public testing::TestWithParam<int> {
 protected:
  // x(n) as defined in the file's note.
  static double Input(uint64_t n) {
    const auto hashed = static_cast<uint32_t>(n * 2654435761u);
    return static_cast<double>(hashed >> 8) / 16777216.0 - 0.5;
  }
  static std::vector<double> Inputs(uint64_t first, size_t count) {
    std::vector<double> values;
    for (size_t n = 0; n < count; ++n) values.push_back(Input(first + n));
    return values;
  }

  // Compares rotated rows [S=2][heads][64] with the recorded. Bits must be equal where our table's entries equal the
  // recorded; elsewhere the entries' difference bounds the results' difference.
  void Compare(const std::vector<double>& x, const std::vector<double>& ours, const std::vector<double>& recorded,
               size_t heads) {
    for (size_t row = 0; row < 2 * heads; ++row) {
      const size_t token = row / heads;
      for (size_t k = 0; k < 32; ++k) {
        const double x0 = std::abs(x[row * 64 + 2 * k]), x1 = std::abs(x[row * 64 + 2 * k + 1]);
        const size_t entry = token * 32 + k;
        const double dc = std::abs(our_cos_[entry] - cos_[entry]), ds = std::abs(our_sin_[entry] - sin_[entry]);
        for (const auto& [at, bound] :
             {std::pair{row * 64 + k, x0 * dc + x1 * ds}, {row * 64 + 32 + k, x1 * dc + x0 * ds}}) {
          ++all_;
          if (dc == 0 && ds == 0) {
            ++same_tables_;
            ASSERT_EQ(ours[at], recorded[at]) << "row " << row << ", pair " << k;
          } else {
            ASSERT_LE(std::abs(ours[at] - recorded[at]), bound + rounding_) << "row " << row << ", pair " << k;
          }
        }
      }
    }
  }

  std::vector<double> our_cos_, our_sin_;
  std::vector<float> cos_, sin_;
  double rounding_ = 0;  // bounds three roundings of values below 1
  size_t same_tables_ = 0, all_ = 0;
};

TEST_P(DeepseekV3, WholePath) {
  const json file = golden::Read("recorded/deepseek_v3.json");
  const json& record = file["records"][GetParam()];
  const DType dtype = golden::ReadDType(record["dtype"]);
  rounding_ = dtype == DType::kBF16 ? 3 * 0x1p-9 : 3 * 0x1p-25;
  const std::vector<double> q = Unpack(dtype, Pack(dtype, Inputs(0, 2 * 128 * 192)));
  const std::vector<double> k = Unpack(dtype, Pack(dtype, Inputs(file["k_first_n"], 2 * 64)));
  const v1::Tensor positions = MakeTensor(DType::kFP64, {2}, golden::Numbers(file["positions"]));

  v1::ApplyRotaryRequest request;
  request.mutable_rotary()->mutable_model()->set_config_json(golden::ReadText("configs/deepseek-v3.json"));
  *request.mutable_positions()->mutable_ids() = positions;
  request.set_layout(v1::LAYOUT_BSHD);
  request.mutable_precision()->set_preset(v1::PRECISION_PRESET_MODEL);
  request.mutable_hints()->set_return_plan(true);
  *request.mutable_q()->mutable_tensor() = MakeTensor(dtype, {1, 2, 128, 192}, q);
  request.mutable_q()->set_rotary_offset(file["q_rotary_offset"]);
  *request.mutable_k()->mutable_tensor() = MakeTensor(dtype, {1, 2, 1, 64}, k);
  const auto answer = Call(request);
  ASSERT_THAT(answer, IsOk());

  v1::GenerateTableRequest table;
  *table.mutable_rotary() = request.rotary();
  *table.mutable_positions()->mutable_ids() = positions;
  table.set_dtype(Wire(dtype));
  table.set_form(v1::TABLE_FORM_HALF_WIDTH);
  table.mutable_precision()->set_preset(v1::PRECISION_PRESET_MODEL);
  const auto ours = Call(table);
  ASSERT_THAT(ours, IsOk());
  our_cos_ = ValuesOf(ours->cos());
  our_sin_ = ValuesOf(ours->sin());
  cos_ = PairColumns(record["cos"], "halves");
  sin_ = PairColumns(record["sin"], "halves");

  const std::vector<double> y = ValuesOf(answer->q());
  std::vector<double> x_part, y_part;
  for (size_t row = 0; row < 2 * 128; ++row) {
    for (size_t e = 0; e < 192; ++e) {
      if (e < 128) {
        ASSERT_EQ(y[row * 192 + e], q[row * 192 + e]) << "outside the rotary part";
      } else {
        x_part.push_back(q[row * 192 + e]);
        y_part.push_back(y[row * 192 + e]);
      }
    }
  }
  Compare(x_part, y_part, golden::Numbers(record["q_rot"]), 128);
  Compare(k, ValuesOf(answer->k()), golden::Numbers(record["k_rot"]), 1);
  std::printf("%s: %zu of %zu elements have the recorded tables' entries\n", record["dtype"].dump().c_str(),
              same_tables_, all_);
  EXPECT_GT(same_tables_, all_ * 9 / 10);

  EXPECT_EQ(answer->info().input_pairing(), v1::PAIRING_INTERLEAVED);
  EXPECT_EQ(answer->info().output_pairing(), v1::PAIRING_HALF_SPLIT);
  EXPECT_EQ(answer->info().precision().rounding(), v1::ROUNDING_EACH_OPERATION);
  EXPECT_LE(
      reference::Ulps(answer->info().plan().softmax_scale_factor(), file["softmax"]["mscale_squared"].get<double>()),
      1);
  EXPECT_LE(reference::Ulps(answer->info().sequences(0).attention_scaling(), record["attention_scaling"].get<double>()),
            1);
}

INSTANTIATE_TEST_SUITE_P(Types, DeepseekV3, testing::Values(0, 1));

}  // namespace
}  // namespace posenc::eager_apply_test
