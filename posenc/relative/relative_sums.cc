#include "posenc/relative/relative_sums.h"

#include <algorithm>

#include "absl/types/span.h"
#include "posenc/base/interruption.h"
#include "posenc/kernels/convert.h"
#include "posenc/kernels/dot_products.h"

namespace posenc {
namespace {

// Keys per tile of a slab: few enough that the rows and products that cells share stay in the caches.
constexpr int64_t kKeys = 256;

// Transposes rows [count, depth] to columns [depth, count].
std::vector<double> Columns(const float* rows, int64_t count, int64_t depth) {
  std::vector<double> columns(count * depth);
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t c = 0; c < depth; ++c) columns[c * count + i] = rows[i * depth + c];
  }
  return columns;
}

// Matrix product of rows [n, d] and columns [d, width].
std::vector<double> Product(absl::Span<const float> rows, int64_t depth, const std::vector<double>& columns,
                            int64_t width) {
  const int64_t count = static_cast<int64_t>(rows.size()) / depth;
  std::vector<double> products(count * width);
  ComputeDotProducts(DotProducts{.rows = rows.data(),
                                 .row_stride = static_cast<size_t>(depth),
                                 .row_count = static_cast<size_t>(count),
                                 .depth = static_cast<size_t>(depth),
                                 .columns = columns.data(),
                                 .width = static_cast<size_t>(width),
                                 .out = products.data()});
  return products;
}

// Most table rows that are multiplied with a tile's columns: as many as its queries and keys in one sequence need, and
// about as many again.
constexpr int64_t kMostRows = 2 * kKeys;

// Table rows that a tile's cells use: a contiguous range, or, if that is too long, only the rows in use.
class TileRows {
 public:
  explicit TileRows(std::vector<int32_t> of_cells) : slots_(std::move(of_cells)) {
    const auto [least, most] = std::minmax_element(slots_.begin(), slots_.end());
    first_ = *least;
    count_ = *most - *least + 1;
    if (count_ <= kMostRows) {
      for (int32_t& slot : slots_) slot -= static_cast<int32_t>(first_);
      return;
    }
    rows_ = slots_;
    std::sort(rows_.begin(), rows_.end());
    rows_.erase(std::unique(rows_.begin(), rows_.end()), rows_.end());
    count_ = static_cast<int64_t>(rows_.size());
    if (AreMany()) return;
    for (int32_t& slot : slots_) {
      slot = static_cast<int32_t>(std::lower_bound(rows_.begin(), rows_.end(), slot) - rows_.begin());
    }
  }

  // True if the cells use too many rows: then there are no slots, and each cell is computed by itself.
  bool AreMany() const { return count_ > kMostRows; }

  // Products of the rows with columns [d, width]: [rows, width]. slot(cell) is the cell's row in them.
  std::vector<double> Products(const HeadTable& table, int64_t head, const std::vector<double>& columns,
                               int64_t width) const {
    std::vector<double> products(count_ * width);
    DotProducts work{.rows = table.row(head, first_),
                     .row_stride = static_cast<size_t>(table.stride),
                     .row_count = static_cast<size_t>(count_),
                     .depth = static_cast<size_t>(table.dim),
                     .columns = columns.data(),
                     .width = static_cast<size_t>(width),
                     .out = products.data()};
    std::vector<float> scattered;
    if (!rows_.empty()) {
      scattered.reserve(rows_.size() * table.dim);
      for (const int32_t row : rows_) {
        scattered.insert(scattered.end(), table.row(head, row), table.row(head, row) + table.dim);
      }
      work.rows = scattered.data();
      work.row_stride = table.dim;
    }
    ComputeDotProducts(work);
    return products;
  }
  int32_t slot(int64_t cell) const { return slots_[cell]; }

  // Product of the cell's row with a column of [d, width], summed in the same order.
  double Product(int64_t cell, const HeadTable& table, int64_t head, const std::vector<double>& columns, int64_t width,
                 int64_t column) const {
    const float* row = table.row(head, slots_[cell]);
    double sum = 0;
    for (int64_t c = 0; c < table.dim; ++c) sum += row[c] * columns[c * width + column];
    return sum;
  }

 private:
  std::vector<int32_t> slots_, rows_;
  int64_t first_, count_;
};

}  // namespace

std::vector<double> RelativeSums::QueryColumns(const Slab& slab, const std::optional<Matrix<float>>& bias) const {
  std::vector<float> rows(slab.count * q_.dim);
  q_.Load(q_data_, slab.b, slab.h, slab.begin, slab.count, rows.data());
  for (size_t n = 0; bias && n < rows.size(); ++n) rows[n] += bias->row(head_start_ + slab.h)[n % q_.dim];
  if (query_factors_) {
    const double* factors = query_factors_->row(slab.b) + slab.begin;
    for (size_t n = 0; n < rows.size(); ++n) rows[n] *= static_cast<float>(factors[n / q_.dim]);
    RoundTo(q_.dtype, rows.data(), slab.count * q_.dim);
  }
  return Columns(rows.data(), slab.count, q_.dim);
}

std::vector<float> RelativeSums::KeyRows(const Slab& slab, int64_t begin, int64_t count) const {
  std::vector<float> rows(count * k_->dim);
  k_->Load(k_data_, slab.b, slab.h / (q_.heads / k_->heads), begin, count, rows.data());
  return rows;
}

int32_t RelativeSums::RowOf(const Slab& slab, int64_t i, int64_t j) const {
  const double distance = key_positions_.row(slab.b)[j] - query_positions_.row(slab.b)[slab.begin + i];
  return tables_.row_of_distance[static_cast<size_t>(distance - first_distance_)];
}

void RelativeSums::AddContent(const Slab& slab, double* sums) const {
  const std::vector<double> columns = QueryColumns(slab, tables_.content_bias);
  for (int64_t begin = 0; begin < keys_; begin += kKeys) {
    if (begin > 0) InterruptionPoint();  // the first tile follows that of the loop over slabs
    const int64_t count = std::min(kKeys, keys_ - begin);
    const std::vector<double> products = Product(KeyRows(slab, begin, count), q_.dim, columns, slab.count);
    for (int64_t i = 0; i < slab.count; ++i) {
      double* row = sums + i * keys_ + begin;
      for (int64_t j = 0; j < count; ++j) row[j] += products[j * slab.count + i];
    }
  }
}

void RelativeSums::AddByDistance(const Slab& slab, double* sums) const {
  const int64_t head = head_start_ + slab.h;
  std::vector<double> queries;
  if (tables_.of_query) queries = QueryColumns(slab, tables_.query_bias);
  for (int64_t begin = 0; begin < keys_; begin += kKeys) {
    if (begin > 0) InterruptionPoint();  // the first tile follows that of the loop over slabs
    const int64_t count = std::min(kKeys, keys_ - begin);
    std::vector<int32_t> of_cells;
    of_cells.reserve(slab.count * count);
    for (int64_t i = 0; i < slab.count; ++i) {
      for (int64_t j = 0; j < count; ++j) of_cells.push_back(RowOf(slab, i, begin + j));
    }
    const TileRows rows(std::move(of_cells));
    const auto add = [&](const HeadTable& table, const std::vector<double>& columns, int64_t width, auto column) {
      const auto products = rows.AreMany() ? std::vector<double>() : rows.Products(table, head, columns, width);
      for (int64_t i = 0; i < slab.count; ++i) {
        if (rows.AreMany()) InterruptionPoint();
        double* row = sums + i * keys_ + begin;
        for (int64_t j = 0; j < count; ++j) {
          const int64_t cell = i * count + j, of = column(i, j);
          row[j] += rows.AreMany() ? rows.Product(cell, table, head, columns, width, of)
                                   : products[rows.slot(cell) * width + of];
        }
      }
    };
    if (tables_.of_query) add(*tables_.of_query, queries, slab.count, [](int64_t i, int64_t) { return i; });
    if (tables_.of_key) {
      const std::vector<double> keys = Columns(KeyRows(slab, begin, count).data(), count, q_.dim);
      add(*tables_.of_key, keys, count, [](int64_t, int64_t j) { return j; });
    }
  }
}

int64_t RelativeSums::TileBytes(int64_t queries) const {
  constexpr int64_t kOfElement = sizeof(float) + sizeof(double);
  const int64_t keys = std::min(kKeys, keys_);
  const int64_t rows = tables_.of_query || tables_.of_key ? std::min(kMostRows, keys * queries) : 0;
  return (queries + keys + rows) * q_.dim * kOfElement + rows * keys * static_cast<int64_t>(sizeof(double));
}

std::vector<double> RelativeSums::QueryProducts(const Slab& slab) const {
  const HeadTable& table = *tables_.of_query;
  const int64_t rows = std::min(table.rows, keys_ + 1);
  return Product(absl::MakeConstSpan(table.values.data(), rows * table.dim), table.dim,
                 QueryColumns(slab, std::nullopt), slab.count);
}

void RelativeSums::AddByPosition(const Slab& slab, double* sums) const {
  const int64_t head = head_start_ + slab.h;
  const double* query_positions = query_positions_.row(slab.b) + slab.begin;
  const double* key_positions = key_positions_.row(slab.b);
  const auto gather = [&](const HeadTable& table, const double* positions, int64_t count) {
    std::vector<float> rows;
    rows.reserve(count * table.dim);
    for (int64_t n = 0; n < count; ++n) {
      const float* row = table.row(head, static_cast<int64_t>(positions[n]) + tables_.first_row);
      rows.insert(rows.end(), row, row + table.dim);
    }
    return rows;
  };
  const HeadTable &of_queries = *tables_.query_rows, &of_keys = *tables_.key_rows;
  const auto theta = [&](int64_t row) {
    if (!tables_.cls) return 0.0;
    const float* key = of_keys.row(head, row);
    return Product(absl::MakeConstSpan(key, q_.dim), q_.dim, Columns(of_queries.row(head, row), 1, q_.dim), 1)[0];
  };
  const double of_cls = theta(0), to_cls = theta(1);
  const std::vector<double> queries =
      Columns(gather(of_queries, query_positions, slab.count).data(), slab.count, q_.dim);
  for (int64_t begin = 0; begin < keys_; begin += kKeys) {
    if (begin > 0) InterruptionPoint();  // the first tile follows that of the loop over slabs
    const int64_t count = std::min(kKeys, keys_ - begin);
    const auto products = Product(gather(of_keys, key_positions + begin, count), q_.dim, queries, slab.count);
    for (int64_t i = 0; i < slab.count; ++i) {
      double* row = sums + i * keys_ + begin;
      for (int64_t j = 0; j < count; ++j) {
        double product = products[j * slab.count + i];
        if (tables_.cls && query_positions[i] == 0) {
          product = of_cls;
        } else if (tables_.cls && key_positions[begin + j] == 0) {
          product = to_cls;
        }
        row[j] += product;
      }
    }
  }
}

}  // namespace posenc
