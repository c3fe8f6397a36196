// Digests of biases and masks.
#include <fmt/format.h>

#include <limits>

#include "posenc/kernels/distance_bias.h"
#include "tests/unit/digest_case.h"
#include "tests/unit/digest_inputs.h"

namespace posenc {
namespace {

struct BiasCase {
  DType dtype;
  Rounding rounding;
  bool scores;
  DType bias_dtype;
  size_t queries;
  size_t keys;
  double step;    // from one position to the next
  double offset;  // of query 0, in steps
  float past;
  float future;
  std::string mask;  // "none", "in-order" or "shuffled" positions of keys
  bool causal;
  double left;
  double right;
  uint64_t valid;  // of four keys; 5: not given
  float fill;
  bool zero_rows;
  std::string gather = "none";  // "values" of a list, or with a token for the whole, "cls"
};

Block RunBias(const BiasCase& c) {
  std::vector<double> queries(c.queries), keys(c.keys), mask_queries(c.queries), mask_keys(c.keys);
  std::vector<uint8_t> key_valid(c.keys);
  for (size_t i = 0; i < c.queries; ++i) {
    mask_queries[i] = c.offset + static_cast<double>(i);
    queries[i] = c.step * mask_queries[i];
  }
  for (size_t j = 0; j < c.keys; ++j) {
    keys[j] = c.step * static_cast<double>(j);
    mask_keys[j] = static_cast<double>(c.mask == "shuffled" ? Random(1, j) % 100 : j);
    key_valid[j] = Random(2, j) % 4 < c.valid ? static_cast<uint8_t>(1 + Random(3, j) % 255) : 0;
  }
  std::vector<float> values(64);
  for (size_t n = 0; n < values.size(); ++n) values[n] = static_cast<float>(Random(5, n) % 65536) / 1024 - 32;
  for (size_t i = 0; i < c.queries && c.gather != "none"; ++i) queries[i] = -static_cast<double>(Random(7, i) % 20);
  for (size_t j = 0; j < c.keys && c.gather != "none"; ++j) keys[j] = static_cast<double>(Random(6, j) % 40);
  const size_t cells = c.queries * c.keys;
  Block scores(cells * SizeOf(c.dtype), 1), out(cells * SizeOf(c.dtype), 1);
  FillWithElements(c.dtype, 4, 0, cells, scores.data());
  DistanceBias work = {.dtype = c.dtype,
                       .rounding = c.rounding,
                       .queries = c.queries,
                       .keys = c.keys,
                       .query_positions = queries.data(),
                       .key_positions = keys.data(),
                       .past_slope = c.past,
                       .future_slope = c.future,
                       .bias_dtype = c.bias_dtype};
  if (c.gather != "none") {
    work.values = values.data();
    work.value_count = values.size();
    work.cls_query = work.cls_key = c.gather == "cls";
  }
  if (c.mask != "none") {
    work.mask_query_positions = mask_queries.data();
    work.mask_key_positions = mask_keys.data();
    work.causal = c.causal;
    work.window_left = c.left;
    work.window_right = c.right;
  }
  if (c.valid <= 4) work.key_valid = key_valid.data();
  work.fill = c.fill;
  work.zero_fully_masked_rows = c.zero_rows;
  if (c.scores) work.scores = scores.data();
  work.out = out.data();
  Run(work, 0, c.queries);
  MakeNansEqual(c.dtype, out.data(), cells);
  return out;
}

std::vector<Case> BiasCases() {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr double kWindows[] = {kUnlimited, 5, kUnlimited, 0, 1, 0.5, 30};
  std::vector<Case> cases;
  for (const DType dtype : kTensorTypes) {
    for (const Rounding rounding : kRoundings) {
      for (const bool scores : {false, true}) {
        for (const DType bias_dtype : kTensorTypes) {
          for (const char* mask : {"none", "in-order", "shuffled"}) {
            for (int repeat = 0; repeat < 3; ++repeat) {
              const size_t n = cases.size();
              const BiasCase c = {
                  .dtype = dtype,
                  .rounding = rounding,
                  .scores = scores,
                  .bias_dtype = bias_dtype,
                  .queries = Turn<size_t>(n, {1, 4, 7}),
                  .keys = Turn<size_t>(n, {1, 2, 3, 5, 8, 13, 31, 33, 64, 67, 80}),
                  .step = Turn<double>(n, {1, 1, 0.25, 1e9, 1000}),
                  .offset = Turn<double>(n, {0, 20, -5, 3, 60}),
                  .past = Turn(n, {0.5f, 0.00390625f, 0.70710677f, -0.5f, 1e-42f, -0.0f, 3e38f, -1e-30f}),
                  .future = Turn(n, {-0.5f, 0.0f, -0.70710677f, 0.25f, -1e-42f, 3e-5f}),
                  .mask = mask,
                  .causal = n % 4 == 1,
                  .left = Turn(n, kWindows),
                  .right = Turn(n / 2, kWindows),
                  .valid = Turn<uint64_t>(n / 3, {5, 3, 5, 0, 1}),
                  .fill = Turn(n, {-kInfinity, 0.0f, -10000.0f, std::numeric_limits<float>::lowest(), 1.00001f}),
                  .zero_rows = n % 2 == 0};
              cases.push_back(
                  {fmt::format("dtype={} rounding={} scores={:d} bias_dtype={} queries={} keys={} step={} offset={} "
                               "past={} future={} mask={} causal={:d} left={} right={} valid={} fill={} zero_rows={:d}",
                               Name(dtype), Name(rounding), scores, Name(bias_dtype), c.queries, c.keys, c.step,
                               c.offset, c.past, c.future, mask, c.causal, c.left, c.right, c.valid, c.fill,
                               c.zero_rows),
                   [c] { return RunBias(c); }});
            }
          }
        }
      }
    }
  }
  const size_t linear = cases.size();
  for (const DType dtype : kTensorTypes) {
    for (const Rounding rounding : kRoundings) {
      for (const bool scores : {false, true}) {
        for (const char* gather : {"values", "cls"}) {
          const size_t n = cases.size() - linear;
          const BiasCase c = {.dtype = dtype,
                              .rounding = rounding,
                              .scores = scores,
                              .bias_dtype = DType::kFP32,
                              .queries = Turn<size_t>(n, {1, 5, 8}),
                              .keys = Turn<size_t>(n, {1, 7, 32, 49, 64}),
                              .step = 1,
                              .offset = 0,
                              .past = 0,
                              .future = 0,
                              .mask = n % 3 == 0 ? "in-order" : "none",
                              .causal = false,
                              .left = 3,
                              .right = 4,
                              .valid = Turn<uint64_t>(n, {5, 3}),
                              .fill = -1.5f,
                              .zero_rows = n % 2 == 0,
                              .gather = gather};
          cases.push_back(
              {fmt::format("dtype={} rounding={} scores={:d} bias_dtype=FP32 queries={} keys={} step=1 offset=0 past=0 "
                           "future=0 mask={} causal=0 left=3 right=4 valid={} fill=-1.5 zero_rows={:d} gather={}",
                           Name(dtype), Name(rounding), scores, c.queries, c.keys, c.mask, c.valid, c.zero_rows,
                           gather),
               [c] { return RunBias(c); }});
        }
      }
    }
  }
  return cases;
}

}  // namespace

TEST_P(DigestTest, DistanceBias) { Check("distance_bias", BiasCases()); }

}  // namespace posenc
