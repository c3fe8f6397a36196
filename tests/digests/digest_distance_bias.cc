// Digests of biases and masks.
#include <fmt/format.h>

#include <limits>

#include "posenc/kernels/distance_bias.h"
#include "tests/digests/digest_case.h"
#include "tests/digests/digest_inputs.h"

namespace posenc {
namespace {

struct BiasCase {
  DType dtype;
  Rounding rounding;
  bool scores;
  DType bias_dtype;
  size_t queries;
  size_t keys;
  double step;    // between adjacent positions
  double offset;  // position of query 0, in steps
  float past;
  float future;
  std::string mask;  // positions of keys: "none", "in-order" or "shuffled"
  bool causal;
  double left;
  double right;
  uint64_t valid;  // valid keys of four; 5: not given
  float fill;
  bool zero_rows;
  std::string gather = "none";  // "values": from a list; "cls": also with a cls token
  std::string source = "none";  // instead of slopes: "rows", "one-row" for all, "shifted" slices of a list, "no-bias"
  bool ascend = false;          // mask_keys_ascend
  uint64_t documents = 0;       // number of documents; 0: not given
  double prefix = -kUnlimited;
  bool large = false;
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
  const size_t offset = c.large ? 0 : 1;  // streaming stores write whole aligned vectors only
  Block scores(cells * SizeOf(c.dtype), offset), out(cells * SizeOf(c.dtype), offset);
  FillWithElements(c.dtype, 4, 0, cells, scores.data());
  DistanceBias work = {.dtype = c.dtype,
                       .rounding = c.rounding,
                       .queries = c.queries,
                       .keys = c.keys,
                       .bias = LinearBias{.query_positions = queries.data(),
                                          .key_positions = keys.data(),
                                          .past_slope = c.past,
                                          .future_slope = c.future,
                                          .bias_dtype = c.bias_dtype}};
  if (c.gather != "none") {
    work.bias = GatheredBias{.values = values.data(),
                             .value_count = values.size(),
                             .query_positions = queries.data(),
                             .key_positions = keys.data(),
                             .cls_query = c.gather == "cls",
                             .cls_key = c.gather == "cls"};
  }
  std::vector<float> given(c.queries * c.keys + c.keys);
  FillWithElements(DType::kFP32, 8, 0, given.size(), reinterpret_cast<std::byte*>(given.data()));
  MakeNansEqual(DType::kFP32, reinterpret_cast<std::byte*>(given.data()), given.size());
  if (c.source == "no-bias") {
    work.bias = NoBias();
  } else if (c.source == "rows") {
    work.bias = GivenBias{given.data(), static_cast<ptrdiff_t>(c.keys)};
  } else if (c.source == "shifted") {
    work.bias = GivenBias{given.data() + c.queries - 1, -1};
  } else if (c.source != "none") {
    work.bias = GivenBias{given.data()};
  }
  std::vector<double> query_documents(c.queries), key_documents(c.keys);
  for (size_t i = 0; i < c.queries && c.documents > 0; ++i) {
    query_documents[i] = static_cast<double>(Random(9, i) % c.documents);
  }
  for (size_t j = 0; j < c.keys && c.documents > 0; ++j) {
    key_documents[j] = static_cast<double>(Random(10, j) % c.documents);
  }
  if (c.documents > 0) {
    work.query_documents = query_documents.data();
    work.key_documents = key_documents.data();
  }
  if (c.mask != "none") {
    work.mask_keys_ascend = c.ascend;
    work.prefix_end = c.prefix;
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
  work.large = c.large;
  ComputeDistanceBias(work, 0, c.queries);
  MakeNansEqual(c.dtype, out.data(), cells);
  return out;
}

// The other sources as in production: masks that leave a run of keys, documents, and streaming stores.
void AddSources(std::vector<Case>* cases) {
  const size_t first = cases->size();
  for (const DType dtype : kTensorTypes) {
    for (const Rounding rounding : kRoundings) {
      for (const bool scores : {false, true}) {
        for (const char* source : {"rows", "one-row", "shifted", "no-bias"}) {
          for (int mask = 0; mask < 4; ++mask) {
            const size_t n = cases->size() - first;
            const BiasCase c = {
                .dtype = dtype,
                .rounding = rounding,
                .scores = scores,
                .bias_dtype = DType::kFP32,
                .queries = Turn<size_t>(n, {1, 4, 7}),
                .keys = mask == 0 ? Turn<size_t>(n / 4, {32, 64, 160, 33, 96})
                                  : Turn<size_t>(n, {32, 7, 64, 33, 128, 1, 160, 67, 96}),
                .step = 1,
                .offset = Turn<double>(n, {0, 20, -5, 3, 60}),
                .past = 0,
                .future = 0,
                .mask = mask == 0 ? "none" : "in-order",
                .causal = n % 5 < 3,
                .left = Turn<double>(n, {kUnlimited, 30, kUnlimited, 5, 0.5, 0, 17}),
                .right = Turn<double>(n, {kUnlimited, 5, 40}),
                .valid = 5,
                .fill = Turn(n, {-std::numeric_limits<float>::infinity(), 0.0f, -10000.0f, 1.00001f}),
                .zero_rows = n % 2 == 0,
                .source = source,
                .ascend = mask < 3,
                .documents = mask == 2 ? Turn<uint64_t>(n, {2, 1, 3}) : 0,
                .prefix = mask == 0 ? -kUnlimited : Turn(n, {-kUnlimited, 10.0, -kUnlimited, 3.0, 40.0}),
                .large = mask == 0 || n % 3 == 0};
            cases->push_back(
                {fmt::format(
                     "dtype={} rounding={} scores={:d} bias_dtype=FP32 queries={} keys={} step=1 offset={} past=0 "
                     "future=0 mask={} causal={:d} left={} right={} valid=5 fill={} zero_rows={:d} source={} "
                     "ascend={:d} documents={} prefix={} large={:d}",
                     Name(dtype), Name(rounding), scores, c.queries, c.keys, c.offset, c.mask, c.causal, c.left,
                     c.right, c.fill, c.zero_rows, source, c.ascend, c.documents, c.prefix, c.large),
                 [c] { return RunBias(c); }});
          }
        }
      }
    }
  }
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
  AddSources(&cases);
  return cases;
}

}  // namespace

TEST_P(DigestTest, DistanceBias) { Check("distance_bias", BiasCases()); }

}  // namespace posenc
