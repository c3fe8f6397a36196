// Absolute encodings as diffusers, MAE's copies, vit-pytorch, transformers and rff compute them
// (tests/golden/recorded/embeddings.json).
#include <gtest/gtest.h>

#include "tests/reference/golden.h"
#include "tests/service/call.h"

namespace posenc::embedding_golden_test {
namespace {

using golden::json;

const json& File() {
  static const json& file = *new json(golden::Read("recorded/embeddings.json"));
  return file;
}

int64_t Columns(const json& rows) { return static_cast<int64_t>(rows[0].size()); }
int64_t Rows(const json& rows) { return static_cast<int64_t>(rows.size()); }

// The answer under this arithmetic, as float64 or as the recorded type.
std::vector<double> Answer(v1::GenerateEmbeddingRequest request, v1::FrequencyArithmetic arithmetic, DType dtype) {
  request.set_dtype(Wire(dtype));
  auto* axes = request.mutable_precision()->mutable_axes();
  axes->set_frequencies(arithmetic);
  axes->set_table_dtype(v1::TABLE_DTYPE_FLOAT32);
  axes->set_rounding(v1::ROUNDING_ONCE);
  const auto response = Call(request);
  EXPECT_THAT(response, IsOk());
  return response.ok() ? ValuesOf(response->embedding()) : std::vector<double>();
}

// Distances of answers from the recorded values. A unit is 2^-24 (float32) or 2^-53 (float64) of 1 + the largest angle:
// a framework's frequency may be off by an ulp, and the angle's error grows with the angle.
struct Distance {
  double chain = 0, exact = 0;
  size_t elements = 0, different = 0;  // counts for the chain
};

void Measure(const v1::GenerateEmbeddingRequest& request, const json& record, DType dtype, double largest_angle,
             Distance& distance, double exact_unit = 0) {
  const bool wide = dtype == DType::kFP64;
  const double unit = wide ? 0x1p-53 : 0x1p-24;
  if (exact_unit == 0) exact_unit = unit;
  const std::vector<double> recorded = golden::Numbers(record["values"]);
  const auto chain = Answer(request, wide ? v1::FREQUENCY_ARITHMETIC_FLOAT64 : v1::FREQUENCY_ARITHMETIC_FLOAT32, dtype);
  const auto exact = Answer(request, v1::FREQUENCY_ARITHMETIC_EXACT, dtype);
  ASSERT_EQ(chain.size(), recorded.size());
  ASSERT_EQ(exact.size(), recorded.size());
  distance.elements += recorded.size();
  for (size_t n = 0; n < recorded.size(); ++n) {
    distance.different += chain[n] != recorded[n];
    distance.chain = std::max(distance.chain, std::abs(chain[n] - recorded[n]) / unit / (1 + largest_angle));
    distance.exact = std::max(distance.exact, std::abs(exact[n] - recorded[n]) / exact_unit / (1 + largest_angle));
  }
}

void Expect(const char* what, const Distance& distance, double chain, double exact) {
  std::printf("%-20s chain %.2f units, %zu of %zu elements differ; exact %.2f units\n", what, distance.chain,
              distance.different, distance.elements, distance.exact);
  EXPECT_GT(distance.elements, 0u);
  EXPECT_LE(distance.chain, chain) << what;
  EXPECT_LE(distance.exact, exact) << what;
}

TEST(EmbeddingGolden, Timestep) {
  Distance distance;
  for (const json& record : File()["timestep"]) {
    const std::vector<double> t = golden::Numbers(record["timesteps"]);
    v1::GenerateEmbeddingRequest request;
    v1::Timestep& message = *request.mutable_timestep();
    message.set_dim(record["dim"]);
    message.set_flip_sin_to_cos(record.value("flip_sin_to_cos", false));
    message.set_downscale_freq_shift(record.value("downscale_freq_shift", 1.0));
    message.set_scale(record.value("scale", 1.0));
    message.set_max_period(record.value("max_period", 10000.0));
    *request.mutable_positions()->mutable_ids() = MakeTensor(DType::kFP32, {static_cast<int64_t>(t.size())}, t);
    double largest = 0;
    for (double x : t) largest = std::max(largest, std::abs(x * message.scale()));
    Measure(request, record, DType::kFP32, largest, distance);
  }
  Expect("timestep", distance, 1, 1);
}

v1::GenerateEmbeddingRequest GridRequest(const json& record, v1::GridConvention convention) {
  v1::GenerateEmbeddingRequest request;
  v1::Grid& message = *request.mutable_grid();
  message.set_convention(convention);
  message.set_dim(record["dim"]);
  message.set_height(record["height"]);
  message.set_width(record["width"]);
  message.set_extra_tokens(record.value("extra_tokens", 0));
  if (record.contains("frames")) message.set_frames(record["frames"]);
  if (record.contains("temperature")) message.set_temperature(record["temperature"]);
  if (record.contains("base_size")) message.set_base_size(record["base_size"]);
  for (const char* name : {"interpolation_scale", "spatial_interpolation_scale"}) {
    if (record.contains(name)) message.set_interpolation_scale(record[name]);
  }
  if (record.contains("temporal_interpolation_scale")) {
    message.set_temporal_interpolation_scale(record["temporal_interpolation_scale"]);
  }
  if (record.contains("pos_embed_max_size")) message.set_pos_embed_max_size(record["pos_embed_max_size"]);
  if (record.contains("offset")) message.set_offset(record["offset"]);
  if (record.contains("normalize")) message.set_normalize(record["normalize"]);
  message.set_rows_first(record.value("rows_first", false));
  return request;
}

TEST(EmbeddingGolden, Grids) {
  const struct {
    const char* name;
    v1::GridConvention convention;
    DType dtype;
    double chain, exact, exact_unit;
  } grids[] = {
      {"grid_mae", v1::GRID_CONVENTION_MAE, DType::kFP32, 1, 1, 0x1p-24},
      {"grid_big_vision", v1::GRID_CONVENTION_BIG_VISION, DType::kFP32, 1, 1, 0x1p-24},
      // Three roundings precede the angle's.
      {"grid_detr", v1::GRID_CONVENTION_DETR, DType::kFP32, 1, 2, 0x1p-24},
      // Only coordinates are float32: the chain is bit-equal, and as far from exact as float32 is.
      {"grid_diffusers", v1::GRID_CONVENTION_DIFFUSERS, DType::kFP64, 0, 1, 0x1p-24},
      {"grid_diffusers_3d", v1::GRID_CONVENTION_DIFFUSERS, DType::kFP64, 0, 1, 0x1p-24},
  };
  for (const auto& [name, convention, dtype, chain, exact, exact_unit] : grids) {
    Distance distance;
    for (const json& record : File()[name]) {
      const double largest_angle = name == std::string("grid_diffusers") ? 32 : 6;  // base_size / interpolation_scale
      Measure(GridRequest(record, convention), record, dtype, largest_angle, distance, exact_unit);
    }
    Expect(name, distance, chain, exact);
  }
}

TEST(EmbeddingGolden, Fourier) {
  for (DType dtype : {DType::kFP32, DType::kFP64}) {
    Distance distance;
    for (const json& record : File()["fourier"]) {
      if ((record["dtype"] == "float64") != (dtype == DType::kFP64)) continue;
      const json &points = record["points"], &frequencies = record["frequencies"];
      v1::GenerateEmbeddingRequest request;
      v1::Fourier& message = *request.mutable_fourier();
      *message.mutable_points() = MakeTensor(dtype, {Rows(points), Columns(points)}, golden::Numbers(points));
      *message.mutable_frequencies() =
          MakeTensor(dtype, {Rows(frequencies), Columns(frequencies)}, golden::Numbers(frequencies));
      double largest_angle = 0;  // the points are between 0 and 1
      for (const json& row : frequencies) {
        double sum = 0;
        for (double b : golden::Numbers(row)) sum += std::abs(b);
        largest_angle = std::max(largest_angle, 2 * M_PI * sum);
      }
      Measure(request, record, dtype, largest_angle, distance);
    }
    Expect(dtype == DType::kFP32 ? "fourier float32" : "fourier float64", distance, 2, 2);
  }
}

// Rows are copied, not computed, so every bit is equal.
TEST(EmbeddingGolden, Learned) {
  for (const json& record : File()["learned"]) {
    const json &table = record["table"], &valid = record["token_valid"];
    const DType dtype = golden::ReadDType(record["dtype"]);
    std::vector<uint8_t> flags;
    for (double flag : golden::Numbers(valid)) flags.push_back(flag != 0);
    v1::GenerateEmbeddingRequest request;
    *request.mutable_learned()->mutable_table() =
        MakeTensor(dtype, {Rows(table), Columns(table)}, golden::Numbers(table));
    request.mutable_learned()->set_offset(record["offset"]);
    *request.mutable_learned()->mutable_token_valid() = MakeTensor(DType::kBOOL, {Rows(valid), Columns(valid)}, flags);
    request.set_dtype(Wire(dtype));
    const auto response = Call(request);
    ASSERT_THAT(response, IsOk());
    EXPECT_EQ(response->embedding().data(), Pack(dtype, golden::Numbers(record["values"])));
    request.mutable_learned()->clear_offset();
    request.mutable_learned()->mutable_model()->set_config_json(record["config"].dump());
    const auto by_model = Call(request);
    ASSERT_THAT(by_model, IsOk());
    EXPECT_EQ(by_model->embedding().data(), response->embedding().data());
    EXPECT_EQ(by_model->info().plan_fingerprint(), response->info().plan_fingerprint());
  }
}

TEST(EmbeddingGolden, Added) {
  for (const json& record : File()["added"]) {
    const DType dtype = golden::ReadDType(record["dtype"]);
    v1::GenerateEmbeddingRequest request;
    *request.mutable_learned()->mutable_table() = MakeTensor(DType::kFP32, {3, 4}, golden::Numbers(record["table"]));
    request.mutable_positions()->set_offset(0);
    request.set_count(3);
    *request.mutable_add_to() = MakeTensor(dtype, {2, 3, 4}, golden::Numbers(record["x"]));
    for (const auto& [preset, name] : {std::pair{v1::PRECISION_PRESET_F32, "once"},
                                       {v1::PRECISION_PRESET_EXACT, "once"},
                                       {v1::PRECISION_PRESET_HF_EAGER, "each"},
                                       {v1::PRECISION_PRESET_VLLM, "each"}}) {
      request.mutable_precision()->set_preset(preset);
      const auto response = Call(request);
      ASSERT_THAT(response, IsOk());
      EXPECT_EQ(response->embedding().data(), Pack(dtype, golden::Numbers(record[name]))) << Name(dtype) << name;
    }
  }
}

}  // namespace
}  // namespace posenc::embedding_golden_test
