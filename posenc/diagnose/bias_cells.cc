#include "posenc/diagnose/bias_cells.h"

#include <algorithm>
#include <utility>

#include "posenc/base/interruption.h"

namespace posenc::diagnose {

void CellSet::Matrix::Merge(const Matrix& more) {
  const auto add = [](const std::vector<uint8_t>& indices, std::vector<uint8_t>* set) {
    set->resize(indices.size());
    for (size_t n = 0; n < indices.size(); ++n) (*set)[n] |= indices[n];
  };
  add(more.queries, &queries);
  add(more.keys, &keys);
  add(more.distances, &distances);
  cells += more.cells;
}

void CellSet::Add(const Cell& cell) {
  Matrix& matrix = matrices_[{cell.b, cell.h}];
  if (matrix.cells++ == 0) {
    matrix.queries.resize(queries_);
    matrix.keys.resize(keys_);
    matrix.distances.resize(queries_ + keys_ - 1);
  }
  matrix.queries[cell.i] = matrix.keys[cell.j] = matrix.distances[cell.j - cell.i + queries_ - 1] = 1;
}

std::vector<Part> CellSet::Parts(const Counts& counts, std::vector<Part>* said) const {
  constexpr size_t kMostGroups = 16;
  std::vector<std::pair<Matrix, Group>> groups;
  Matrix others;  // none of these is said exactly
  Group of_others;
  for (const auto& each : matrices_) {
    const Index& index = each.first;
    const Matrix& matrix = each.second;
    InterruptionPoint();
    auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& one) { return one.first == matrix; });
    if (group == groups.end() && groups.size() == kMostGroups) {
      others.Merge(matrix);
      of_others.push_back(index);
      continue;
    }
    if (group == groups.end()) group = groups.insert(group, {matrix, {}});
    group->second.push_back(index);
  }
  if (!of_others.empty()) groups.emplace_back(others, of_others);

  std::vector<Part> parts;
  for (const auto& [matrix, group] : groups) {
    const std::array<int64_t, 8> count = Count(matrix, group, counts);
    int64_t cells = 0;
    for (const Index& index : group) cells += matrices_.at(index).cells;
    const auto are_the_cells = [&](int axes) {
      int64_t of_part = 0;
      for (int in = 0; in < 8; ++in) of_part += (in & axes) == axes ? count[in] : 0;
      return of_part == cells;
    };
    constexpr int kFewest[] = {0, 1, 2, 4, 1 | 2, 1 | 4, 2 | 4, 1 | 2 | 4};
    const int axes = *std::find_if(std::begin(kFewest), std::end(kFewest) - 1, are_the_cells);
    for (Part& part : PartsOf(group)) {
      if (!are_the_cells(axes)) part.cells = cells;
      Part& words = said->emplace_back(part);
      part.tokens = Ranges(matrix.queries);
      part.keys = Ranges(matrix.keys);
      part.distances = Distances(matrix);
      if (axes & 1) words.tokens = part.tokens;
      if (axes & 2) words.keys = part.keys;
      if (axes & 4) words.distances = part.distances;
      parts.push_back(std::move(part));
    }
  }
  return parts;
}

std::vector<Part> CellSet::Outline(bool queries, bool distances) const {
  Matrix all;
  Group group;
  for (const auto& [index, matrix] : matrices_) {
    all.Merge(matrix);
    group.push_back(index);
  }
  std::vector<Part> parts = PartsOf(group);
  for (Part& part : parts) {
    if (queries) part.tokens = Ranges(all.queries);
    if (distances) part.distances = Distances(all);
  }
  return parts;
}

std::vector<Part> CellSet::PartsOf(const Group& group) const {
  std::map<int64_t, std::vector<uint8_t>> heads;  // by batch row
  for (const auto& [b, h] : group) {
    heads[b].resize(heads_);
    heads[b][h] = 1;
  }
  std::vector<std::pair<std::vector<uint8_t>, std::vector<uint8_t>>> batch_rows;  // heads, and the rows with them
  for (const auto& row : heads) {
    const auto alike = [&row](const auto& one) { return one.first == row.second; };
    auto same = std::find_if(batch_rows.begin(), batch_rows.end(), alike);
    if (same == batch_rows.end()) same = batch_rows.insert(same, {row.second, std::vector<uint8_t>(batch_)});
    same->second[row.first] = 1;
  }
  std::vector<Part> parts;
  for (const auto& [in, rows] : batch_rows) parts.push_back({.batch_rows = Ranges(rows), .heads = Ranges(in)});
  return parts;
}

std::vector<IndexRange> CellSet::Distances(const Matrix& matrix) const {
  std::vector<IndexRange> ranges = Ranges(matrix.distances);
  for (IndexRange& range : ranges) range.first += first_distance_, range.last += first_distance_;
  return ranges;
}

std::array<int64_t, 8> CellSet::Count(const Matrix& matrix, const Group& group, const Counts& counts) const {
  std::array<int64_t, 8> count{};
  for (const auto& [b, h] : group) {
    for (int64_t i = 0; i < queries_; ++i) {
      InterruptionPoint();
      for (int64_t j = 0; j < keys_; ++j) {
        const int in = matrix.queries[i] + 2 * matrix.keys[j] + 4 * matrix.distances[j - i + queries_ - 1];
        if (counts({b, h, i, j})) ++count[in];
      }
    }
  }
  return count;
}

}  // namespace posenc::diagnose
