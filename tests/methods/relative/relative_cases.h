// Random attention for tests of relative terms: q, k and their positions, as a request and as rows for an oracle.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <vector>

#include "tests/reference/relative_recipe.h"
#include "tests/service/call.h"

namespace posenc {

using reference::Row;

struct Attention {
  int64_t batch = 2, heads = 4, key_heads = 2, queries = 5, keys = 7, dim = 8;
  DType dtype = DType::kFP32;
  v1::Layout layout = v1::LAYOUT_BHSD;
  std::mt19937 random{20261121};
  std::vector<double> q, k;
  std::vector<double> query_positions, key_positions;  // [B, Sq] and [B, Sk]

  // Random values that the type can represent.
  std::vector<double> Draw(int64_t count, double size = 1) {
    std::uniform_real_distribution<double> uniform(-size, size);
    std::vector<double> values(count);
    for (double& value : values) value = uniform(random);
    return Unpack(dtype, Pack(dtype, values));
  }
  std::vector<Row> DrawRows(int64_t rows, int64_t columns, double size = 1) {
    std::vector<Row> table;
    for (int64_t n = 0; n < rows; ++n) table.push_back(Draw(columns, size));
    return table;
  }

  // Fills q and k; queries are consecutive from `query_offset` on.
  void Fill(int64_t query_offset) {
    q = Draw(batch * heads * queries * dim);
    k = Draw(batch * key_heads * keys * dim);
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t i = 0; i < queries; ++i) query_positions.push_back(static_cast<double>(query_offset + i));
      for (int64_t j = 0; j < keys; ++j) key_positions.push_back(static_cast<double>(j));
    }
  }

  Row Q(int64_t b, int64_t h, int64_t i) const { return RowOf(q, heads, queries, b, h, i); }
  Row K(int64_t b, int64_t h, int64_t j) const { return RowOf(k, key_heads, keys, b, h / (heads / key_heads), j); }
  int64_t Distance(int64_t b, int64_t i, int64_t j) const {  // query - key
    return static_cast<int64_t>(query_positions[b * queries + i] - key_positions[b * keys + j]);
  }

  v1::RelativeScoresRequest Request(bool content, bool with_keys) const {
    v1::RelativeScoresRequest request;
    request.set_layout(layout);
    request.set_content(content);
    request.set_dtype(Wire(DType::kFP32));
    *request.mutable_q() = MakeTensor(dtype, Shape(heads, queries), q);
    if (with_keys) *request.mutable_k() = MakeTensor(dtype, Shape(key_heads, keys), k);
    auto& geometry = *request.mutable_geometry();
    geometry.set_key_length(keys);
    *geometry.mutable_query_positions() = MakeTensor(DType::kFP64, {batch, queries}, query_positions);
    *geometry.mutable_key_positions() = MakeTensor(DType::kFP64, {batch, keys}, key_positions);
    return request;
  }

  // Calls check(b, h, i, j, n) for each cell n.
  template <class Check>
  void ForEach(const Check& check) const {
    int64_t n = 0;
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t h = 0; h < heads; ++h) {
        for (int64_t i = 0; i < queries; ++i) {
          for (int64_t j = 0; j < keys; ++j) check(b, h, i, j, n++);
        }
      }
    }
  }

  // Compares an answer with oracle(b, h, i, j). Tolerates one rounding to float32 plus `inside`, a bound for roundings
  // before the sum: 2^-25 times channels, for numbers around 1.
  template <class Oracle>
  void Expect(const absl::StatusOr<v1::RelativeScoresResponse>& answer, const Oracle& oracle,
              double inside = 1e-12) const {
    ASSERT_THAT(answer, IsOk());
    EXPECT_THAT(ShapeOf(answer->scores()), testing::ElementsAre(batch, heads, queries, keys));
    const std::vector<double> ours = ValuesOf(answer->scores());
    ForEach([&](int64_t b, int64_t h, int64_t i, int64_t j, int64_t n) {
      const double expected = oracle(b, h, i, j);
      EXPECT_NEAR(ours[n], expected, 0x1p-24 * std::abs(expected) + inside) << b << " " << h << " " << i << " " << j;
    });
  }

 private:
  std::vector<int64_t> Shape(int64_t of_heads, int64_t tokens) const {
    if (layout == v1::LAYOUT_BSHD) return {batch, tokens, of_heads, dim};
    return {batch, of_heads, tokens, dim};
  }
  Row RowOf(const std::vector<double>& x, int64_t of_heads, int64_t tokens, int64_t b, int64_t h, int64_t n) const {
    const int64_t row = layout == v1::LAYOUT_BSHD ? (b * tokens + n) * of_heads + h : (b * of_heads + h) * tokens + n;
    return {x.begin() + row * dim, x.begin() + (row + 1) * dim};
  }
};

inline v1::Tensor Weight(const std::vector<Row>& rows) {
  std::vector<double> values;
  for (const Row& row : rows) values.insert(values.end(), row.begin(), row.end());
  const auto columns = static_cast<int64_t>(rows[0].size());
  return MakeTensor(DType::kFP32, {static_cast<int64_t>(rows.size()), columns}, values);
}
inline v1::Tensor Vector(const Row& row) { return MakeTensor(DType::kFP32, {static_cast<int64_t>(row.size())}, row); }

}  // namespace posenc
