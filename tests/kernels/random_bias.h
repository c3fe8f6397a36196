// Random work for a bias kernel.
#pragma once

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "posenc/kernels/distance_bias.h"
#include "tests/kernels/elements.h"

namespace posenc {

inline constexpr DType kBiasDTypes[] = {DType::kFP32, DType::kFP16, DType::kBF16};

// Owns the inputs of one matrix.
struct RandomBias {
  std::vector<double> query_positions, key_positions, mask_query_positions, mask_key_positions;
  std::vector<double> query_documents, key_documents;
  std::vector<float> bias;
  std::vector<float> values;
  std::vector<uint8_t> key_valid;
  Block scores{0};
};

template <class T, size_t N>
T OneOf(std::mt19937_64& random, const T (&choices)[N]) {
  return choices[random() % N];
}

// Every setting is random. Most windows reach into the matrix, some lie outside it.
inline DistanceBias RandomBiasWork(std::mt19937_64& random, RandomBias& matrix) {
  DistanceBias work{};
  work.dtype = OneOf(random, kBiasDTypes);
  work.rounding = random() % 2 == 0 ? Rounding::kOnce : Rounding::kEachOperation;
  work.queries = 1 + random() % 6;
  work.keys = random() % 4 == 0 ? 32 * (1 + random() % 6) : 1 + random() % 80;
  if (random() % 64 == 0) work.keys += 65536 - 32;  // more or fewer than are computed together
  work.large = random() % 2 == 0;
  const double scale = OneOf(random, {1.0, 0.25, 1000.0, 1e9, 1e300});
  const double mask_scale = OneOf(random, {1.0, 1.0, 1.0, 0.25, 1e300});
  const double offset = static_cast<double>(random() % 100) - 20;
  const bool in_order = random() % 2 == 0;
  for (size_t i = 0; i < work.queries; ++i) {
    matrix.query_positions.push_back(scale * (offset + static_cast<double>(i)));
    matrix.mask_query_positions.push_back(mask_scale * (offset + static_cast<double>(in_order ? i : random() % 20)));
  }
  for (size_t j = 0; j < work.keys; ++j) {
    matrix.key_positions.push_back(scale * static_cast<double>(j));
    matrix.mask_key_positions.push_back(mask_scale * static_cast<double>(in_order ? j : random() % 100));
  }
  const uint64_t density = random() % 4;  // valid keys of four; 0: none
  for (size_t j = 0; j < work.keys; ++j) {
    matrix.key_valid.push_back(random() % 4 < density ? OneOf(random, {uint8_t{1}, uint8_t{128}, uint8_t{255}}) : 0);
  }
  matrix.scores = Block(work.queries * work.keys * SizeOf(work.dtype), random() % 4);
  FillWithElements(work.dtype, random, matrix.scores.data(), work.queries * work.keys);

  // The bias is linear, has rows of its own or slices of one row, is gathered, or is absent.
  const uint64_t source = random() % 5;
  if (source == 0) {
    work.bias =
        LinearBias{.query_positions = matrix.query_positions.data(), .key_positions = matrix.key_positions.data()};
  } else if (source < 3) {
    const bool slices = source == 2;
    matrix.bias.resize(slices ? work.queries + work.keys - 1 : work.queries * work.keys);
    for (float& x : matrix.bias) x = static_cast<float>(std::ldexp(static_cast<double>(random() >> 11), -51) - 2);
    work.bias = GivenBias{matrix.bias.data() + (slices ? work.queries - 1 : 0),
                          slices ? -1 : static_cast<ptrdiff_t>(work.keys)};
  } else if (source == 3) {
    matrix.values.resize(40 + random() % 5);
    for (float& x : matrix.values) x = static_cast<float>(std::ldexp(static_cast<double>(random() >> 11), -51) - 2);
    // The last two origins are where whole float64 numbers end. From 0 .. 36, `first` leads to 3 .. 39.
    const double origin = OneOf(random, {0.0, -17.0, 0x1p53 - 17, -0x1p53 + 19});
    const double first = OneOf(random, {0.0, -1.0, -2.0, -3.0});
    for (double& at : matrix.query_positions) at = origin - static_cast<double>(random() % 20);
    for (double& at : matrix.key_positions) at = origin + static_cast<double>(random() % 18);
    GatheredBias& gathered = work.bias.emplace<GatheredBias>();
    gathered.values = matrix.values.data();
    gathered.value_count = matrix.values.size();
    gathered.first = first;
    gathered.query_positions = matrix.query_positions.data();
    gathered.key_positions = matrix.key_positions.data();
    gathered.cls_query = random() % 2 == 0;
    gathered.cls_key = random() % 2 == 0;
  }
  const float slopes[] = {0.5f, -0.5f, 0.00390625f, 0.7071067811865476f, 0.0f, -0.0f, -3.0f, 1e-42f, 3e38f, -1e-30f};
  if (auto* linear = std::get_if<LinearBias>(&work.bias)) {
    linear->past_slope = OneOf(random, slopes);
    linear->future_slope = OneOf(random, slopes);
    linear->bias_dtype = OneOf(random, kBiasDTypes);
  }
  if (random() % 4 != 0) {
    work.mask_query_positions = matrix.mask_query_positions.data();
    work.mask_key_positions = matrix.mask_key_positions.data();
    work.mask_keys_ascend = in_order && random() % 2 == 0;
    work.causal = random() % 3 == 0;
    const double windows[] = {kUnlimited, kUnlimited, 0, 0.5, 1, 5, 30, 1e300};
    work.window_left = OneOf(random, windows);
    work.window_right = OneOf(random, windows);
  }
  if (random() % 3 == 0) work.prefix_end = static_cast<double>(random() % 40) - 0.5;
  if (random() % 3 == 0) {
    for (size_t i = 0; i < work.queries; ++i) matrix.query_documents.push_back(static_cast<double>(random() % 3));
    for (size_t j = 0; j < work.keys; ++j) matrix.key_documents.push_back(static_cast<double>(random() % 3));
    work.query_documents = matrix.query_documents.data();
    work.key_documents = matrix.key_documents.data();
  }
  if (random() % 2 == 0) work.key_valid = matrix.key_valid.data();
  work.fill = OneOf(random, {-std::numeric_limits<float>::infinity(), 0.0f, -10000.0f,
                             std::numeric_limits<float>::lowest(), 1.00001f});
  work.zero_fully_masked_rows = random() % 2 == 0;
  if (random() % 3 != 0) work.scores = matrix.scores.data();
  return work;
}

}  // namespace posenc
