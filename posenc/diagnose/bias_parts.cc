#include <algorithm>

#include "posenc/diagnose/bias_verdict.h"

namespace posenc::diagnose {

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

std::vector<BiasBox> BoxesOf(const BiasEvidence& e, const std::vector<uint8_t>& rows) {
  constexpr size_t kMostBoxes = 40;
  std::vector<BiasBox> boxes;
  const auto add_once = [&boxes](const BiasBox& box) {
    if (std::find(boxes.begin(), boxes.end(), box) == boxes.end()) boxes.push_back(box);
  };
  // The smallest box around the rows in these ranges: with all queries, then with those from the first to the last.
  const auto add = [&](const IndexRange& batch_rows, const IndexRange& heads) {
    if (boxes.size() >= kMostBoxes) return;
    constexpr IndexRange kEmpty{int64_t{1} << 62, -1};
    BiasBox box{kEmpty, kEmpty, kEmpty};
    const auto extend = [](int64_t index, IndexRange* range) {
      range->first = std::min(range->first, index), range->last = std::max(range->last, index);
    };
    for (int64_t b = batch_rows.first; b <= batch_rows.last; ++b) {
      for (int64_t h = heads.first; h <= heads.last; ++h) {
        const auto begin = rows.begin() + (b * e.heads() + h) * e.queries(), end = begin + e.queries();
        const auto first = std::find(begin, end, 1);
        if (first == end) continue;
        const auto last = std::find(std::make_reverse_iterator(end), std::make_reverse_iterator(first), 1);
        extend(b, &box.batch_rows);
        extend(h, &box.heads);
        extend(first - begin, &box.queries);
        extend(last.base() - begin - 1, &box.queries);
      }
    }
    if (box.queries == kEmpty) return;
    add_once({box.batch_rows, box.heads, {0, e.queries() - 1}});
    add_once(box);
  };
  const IndexRange all_rows{0, e.batch() - 1}, all_heads{0, e.heads() - 1};
  add(all_rows, all_heads);
  for (int64_t b = 0; b < e.batch(); ++b) add({b, b}, all_heads);
  for (int64_t h = 0; h < e.heads(); ++h) add(all_rows, {h, h});
  for (int64_t b = 0; b < e.batch(); ++b) {
    for (int64_t h = 0; h < e.heads(); ++h) add({b, b}, {h, h});
  }
  return boxes;
}

}  // namespace posenc::diagnose
