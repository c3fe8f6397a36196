// Digests of relative values: sums of probabilities by distance, and their products with a table.
#include <fmt/format.h>

#include "posenc/relative/relative_values.h"
#include "tests/digests/digest_case.h"
#include "tests/digests/digest_inputs.h"
#include "tests/digests/digest_relative_inputs.h"

namespace posenc {
namespace {

struct ValuesCase {
  DType dtype;
  bool key_minus_query, add, round_term;
  int64_t heads, queries, keys, dim, offset;
};

// Random streams: 1 the probabilities (any numbers), 2 the addend, 3 the table of nine distances.
Block RunValues(const ValuesCase& c) {
  RelativeValuesCall call = {
      .shaw = {.table = Table(3, 9, c.dim),
               .order = c.key_minus_query ? ShawOrder::kKeyMinusQuery : ShawOrder::kQueryMinusKey,
               .clip = true},
      .dtype = c.dtype};
  call.probabilities = {c.dtype, {1, c.heads, c.queries, c.keys}};
  call.geometry.query = OffsetPositions{c.offset};
  if (c.add) call.add_to = TensorShape{c.dtype, {1, c.heads, c.queries, c.dim}};
  if (c.round_term) call.precision.rounding = Rounding::kEachOperation;
  const Block probabilities = Tensor(c.dtype, 1, c.heads * c.queries * c.keys);
  Block out = Tensor(c.dtype, 2, c.heads * c.queries * c.dim);
  const auto values = RelativeValues::Create(std::move(call), {});
  EXPECT_TRUE(values.ok()) << values.status();
  if (!values.ok()) return Block(0);
  WorkPool pool(1);
  const std::byte* add_to = c.add ? out.data() : nullptr;  // in place
  const absl::Status status = values->WriteValues(probabilities.data(), add_to, out.data(), pool, NeverCancelled);
  EXPECT_TRUE(status.ok()) << status;
  return out;
}

std::vector<Case> ValuesCases() {
  std::vector<ValuesCase> inputs;
  for (const DType dtype : {DType::kFP32, DType::kBF16, DType::kFP16}) {
    for (int variant = 0; variant < 8; ++variant) {
      const size_t n = inputs.size();
      const bool add = variant & 2;
      inputs.push_back({dtype, (variant & 1) == 0, add, add && (variant & 4) != 0, Turn<int64_t>(n, {1, 2, 3}),
                        Turn<int64_t>(n, {3, 1, 7, 40}), Turn<int64_t>(n, {5, 9, 1, 12, 17}),
                        Turn<int64_t>(n, {4, 8, 2, 19}), Turn<int64_t>(n, {0, 4, 11})});
    }
  }
  std::vector<Case> cases;
  for (const ValuesCase& c : inputs) {
    cases.push_back({fmt::format("dtype={} key_minus_query={:d} add={:d} round_term={:d} heads={} queries={} keys={} "
                                 "dim={} offset={}",
                                 Name(c.dtype), c.key_minus_query, c.add, c.round_term, c.heads, c.queries, c.keys,
                                 c.dim, c.offset),
                     [c] { return RunValues(c); }});
  }
  return cases;
}

}  // namespace

TEST_P(DigestTest, RelativeValues) { Check("relative_values", ValuesCases()); }

}  // namespace posenc
