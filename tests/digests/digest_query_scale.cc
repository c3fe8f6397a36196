// Digests of factors of queries and of rows that they multiply.
#include <fmt/format.h>

#include "posenc/kernels/scale_rows.h"
#include "posenc/methods/rope/query_scale.h"
#include "tests/digests/digest_case.h"
#include "tests/digests/digest_inputs.h"

namespace posenc {
namespace {

struct QueryScaleCase {
  std::string name;
  QueryScale scale;
};

std::vector<QueryScaleCase> Functions() {
  std::vector<QueryScaleCase> found;
  const auto add = [&found](const char* function, QueryScale scale, double slope, double length) {
    found.push_back({fmt::format("function={} slope={} length={}", function, slope, length), scale});
  };
  for (const auto& [slope, length] : {std::pair{0.1, 8192.0}, {0.37, 100.0}, {1.5, 2.5}}) {
    add("llama4", {.function = QueryScaleFunction::kLlama4, .attn_scale = slope, .floor_scale = length}, slope, length);
    add("ministral3",
        {.function = QueryScaleFunction::kMinistral3,
         .llama_4_scaling_beta = slope,
         .original_max_position_embeddings = length},
        slope, length);
    add("logn", {.function = QueryScaleFunction::kLogn, .seq_length = length}, 0, length);
  }
  add("beam", {.function = QueryScaleFunction::kBeam}, 0, 0);
  return found;
}

Block RunQueryScale(const QueryScale& scale, Frequencies frequencies, DType dtype, size_t tokens, size_t elements) {
  std::vector<double> positions;
  for (size_t n = 0; n < tokens; ++n) positions.push_back(static_cast<double>(Random(1, n) >> (40 + n % 24)));
  const std::vector<double> factors = QueryFactors(frequencies, scale, positions);
  const std::vector<float> narrow(factors.begin(), factors.end());
  Block out(tokens * elements * SizeOf(dtype), 1);
  FillWithElements(dtype, 2, 0, tokens * elements, out.data());
  ScaleRows({.dtype = dtype,
             .elements = elements,
             .factors = narrow.data(),
             .y = out.data(),
             .tokens = tokens,
             .heads = 1,
             .token_stride = elements * SizeOf(dtype),
             .head_stride = 0});
  MakeNansEqual(dtype, out.data(), tokens * elements);
  return out;
}

std::vector<Case> QueryScaleCases() {
  std::vector<Case> cases;
  for (const QueryScaleCase& function : Functions()) {
    for (const Frequencies frequencies : kArithmetics) {
      for (const DType dtype : kTensorTypes) {
        const size_t n = cases.size(), tokens = Turn<size_t>(n, {48, 31, 5}),
                     elements = Turn<size_t>(n, {1, 17, 64, 7});
        cases.push_back({fmt::format("{} frequencies={} dtype={} tokens={} elements={}", function.name,
                                     Name(frequencies), Name(dtype), tokens, elements),
                         [=] { return RunQueryScale(function.scale, frequencies, dtype, tokens, elements); }});
      }
    }
  }
  return cases;
}

}  // namespace

TEST_P(DigestTest, QueryScale) { Check("query_scale", QueryScaleCases()); }

}  // namespace posenc
