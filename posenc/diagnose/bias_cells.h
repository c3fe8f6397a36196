// Sets of cells of a bias, and the parts that say which they are.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "posenc/diagnose/bias_structure.h"
#include "posenc/diagnose/verdict.h"

namespace posenc::diagnose {

class CellSet {
 public:
  explicit CellSet(const BiasEvidence& evidence)
      : queries_(evidence.queries()),
        keys_(evidence.keys()),
        batch_(evidence.batch()),
        heads_(evidence.heads()),
        first_distance_(1 - queries_ - evidence.query_offset.value_or(keys_ - queries_)) {}

  void Add(const Cell& cell);
  bool empty() const { return matrices_.empty(); }
  // Matrices with the same cells together. If other cells have a query, a key and a distance of the part, too, it says
  // how many are in the set. `Counts` says whether a cell counts: a hidden one is in no set. It is called row by row.
  using Counts = std::function<bool(const Cell& cell)>;
  // `said`: the same, each by the fewest of queries, keys and distances that give its cells.
  std::vector<Part> Parts(const Counts& counts, std::vector<Part>* said) const;
  // The matrices alone, and if asked for all of their queries or distances.
  std::vector<Part> Outline(bool queries, bool distances) const;

 private:
  struct Matrix {
    std::vector<uint8_t> queries, keys, distances;
    int64_t cells = 0;
    void Merge(const Matrix& more);
    bool operator==(const Matrix&) const = default;
  };
  using Index = std::pair<int64_t, int64_t>;  // batch row and head

  using Group = std::vector<Index>;

  // Parts with only batch rows and heads.
  std::vector<Part> PartsOf(const Group& group) const;
  std::vector<IndexRange> Distances(const Matrix& matrix) const;
  // The numbers of the group's cells whose query (1), key (2) and distance (4) are in the matrix's sets.
  std::array<int64_t, 8> Count(const Matrix& matrix, const Group& group, const Counts& counts) const;

  const int64_t queries_, keys_, batch_, heads_;
  const int64_t first_distance_;  // of the first key and the last query
  std::map<Index, Matrix> matrices_;
};

}  // namespace posenc::diagnose
