#include <algorithm>

#include "posenc/diagnose/bias_verdict.h"

namespace posenc::diagnose {
namespace {

constexpr size_t kMostBoxes = 40;

IndexRange Bounds(const std::vector<uint8_t>& in_set) {
  const auto first = std::find(in_set.begin(), in_set.end(), 1);
  const auto last = std::find(in_set.rbegin(), in_set.rend(), 1);
  return {first - in_set.begin(), in_set.rend() - last - 1};
}

// The indices along each axis that have a row in the set.
struct Marks {
  std::vector<uint8_t> batch_rows, heads, queries;
};

class Boxes {
 public:
  Boxes(const BiasEvidence& evidence, const std::vector<uint8_t>& rows) : e_(evidence), rows_(rows) {}

  std::vector<BiasBox> All() {
    const IndexRange all_rows{0, e_.batch() - 1}, all_heads{0, e_.heads() - 1};
    Add(all_rows, all_heads);
    for (int64_t b = 0; b < e_.batch() && e_.batch() > 1 && !IsFull(); ++b) Add({b, b}, all_heads);
    for (int64_t h = 0; h < e_.heads() && e_.heads() > 1 && !IsFull(); ++h) Add(all_rows, {h, h});
    for (int64_t b = 0; b < e_.batch() && e_.batch() > 1; ++b) {
      for (int64_t h = 0; h < e_.heads() && e_.heads() > 1 && !IsFull(); ++h) Add({b, b}, {h, h});
    }
    return std::move(boxes_);
  }

  Marks MarksIn(const IndexRange& batch_rows, const IndexRange& heads) const {
    Marks marks{std::vector<uint8_t>(e_.batch()), std::vector<uint8_t>(e_.heads()), std::vector<uint8_t>(e_.queries())};
    for (int64_t b = batch_rows.first; b <= batch_rows.last; ++b) {
      for (int64_t h = heads.first; h <= heads.last; ++h) {
        const auto* row = rows_.data() + (b * e_.heads() + h) * e_.queries();
        for (int64_t i = 0; i < e_.queries(); ++i) {
          if (row[i]) marks.batch_rows[b] = marks.heads[h] = marks.queries[i] = 1;
        }
      }
    }
    return marks;
  }

 private:
  bool IsFull() const { return boxes_.size() >= kMostBoxes; }
  bool HasRows(const IndexRange& batch_rows, const IndexRange& heads) const {
    for (int64_t b = batch_rows.first; b <= batch_rows.last; ++b) {
      const auto of_batch_row = rows_.begin() + b * e_.heads() * e_.queries();
      const auto end = of_batch_row + (heads.last + 1) * e_.queries();
      if (std::find(of_batch_row + heads.first * e_.queries(), end, 1) != end) return true;
    }
    return false;
  }
  // Adds the smallest box around the rows in these ranges: with all queries, then with those from the first to the
  // last.
  void Add(const IndexRange& batch_rows, const IndexRange& heads) {
    if (!HasRows(batch_rows, heads)) return;  // before Marks, which take the time of the whole batch
    const Marks marks = MarksIn(batch_rows, heads);
    const IndexRange queries = Bounds(marks.queries), all_queries{0, e_.queries() - 1};
    AddOnce({Bounds(marks.batch_rows), Bounds(marks.heads), all_queries});
    AddOnce({Bounds(marks.batch_rows), Bounds(marks.heads), queries});
  }
  void AddOnce(const BiasBox& box) {
    if (IsFull() || std::find(boxes_.begin(), boxes_.end(), box) != boxes_.end()) return;
    boxes_.push_back(box);
  }

  const BiasEvidence& e_;
  const std::vector<uint8_t>& rows_;
  std::vector<BiasBox> boxes_;
};

}  // namespace

BiasEvidence Crop(const BiasEvidence& whole, const BiasBox& box) {
  BiasEvidence part = whole;
  if (part.head_stride == 0) part.head_stride = whole.queries();
  if (part.batch_stride == 0) part.batch_stride = whole.heads() * part.head_stride;
  const int64_t row = box.batch_rows.first * part.batch_stride + box.heads.first * part.head_stride + box.queries.first;
  part.data = whole.data + row * whole.keys() * static_cast<int64_t>(SizeOf(whole.bias.dtype));
  if (whole.shown != nullptr) {
    part.shown = whole.shown + (box.batch_rows.first * whole.shown_stride + box.queries.first) * whole.keys();
  }
  part.bias.shape = {box.batch_rows.last - box.batch_rows.first + 1, box.heads.last - box.heads.first + 1,
                     box.queries.last - box.queries.first + 1, whole.keys()};
  return part;
}

std::vector<BiasBox> BoxesOf(const BiasEvidence& evidence, const std::vector<uint8_t>& rows) {
  return Boxes(evidence, rows).All();
}

}  // namespace posenc::diagnose
