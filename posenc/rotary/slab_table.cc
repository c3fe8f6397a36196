#include "posenc/rotary/slab_table.h"

#include "posenc/kernels/convert.h"

namespace posenc {
namespace {

constexpr size_t kTableCacheBytes = size_t{32} << 20;
// Below this many entries, computing takes no longer than a cache lookup; entries with xPos take longer.
constexpr int64_t kFewEntries = 256;

}  // namespace

SlabTable::SlabTable(const TableRows& rows, int64_t token, int64_t count, DType type, Operand operand, bool scales)
    : widened_(type == DType::kFP64 ? DType::kFP64 : DType::kFP32) {
  if (scales) factors_ = rows.QueryFactors(token, count);
  if (rows.pairs() == 0) return;
  const size_t values = count * rows.width(), size = (values * SizeOf(widened_) + 63) / 64 * 64;
  bytes_.resize(2 * size);
  std::byte *cos = bytes_.data(), *sin = cos + size;
  if (type == widened_) {
    rows.Compute(token, count, type, operand, cos, sin);
    return;
  }
  const size_t narrow_size = values * SizeOf(type);
  LineVector<std::byte> narrow(2 * narrow_size);
  std::byte *narrow_cos = narrow.data(), *narrow_sin = narrow_cos + narrow_size;
  rows.Compute(token, count, type, operand, narrow_cos, narrow_sin);
  Convert(type, DType::kFP32, narrow_cos, cos, values);
  Convert(type, DType::kFP32, narrow_sin, sin, values);
}

SharedCache<SlabTable>& TableCache() {
  static SharedCache<SlabTable> cache(kTableCacheBytes, [](const SlabTable& table) { return table.bytes(); });
  return cache;
}

std::shared_ptr<const SlabTable> TableOf(const TableRows& rows, int64_t token, int64_t count, DType type,
                                         Operand operand, bool scales) {
  const auto width = static_cast<int64_t>(rows.width());
  const auto all = static_cast<size_t>(rows.positions().tokens() * width) * 2 * sizeof(float);
  const bool few = count * width < kFewEntries && !rows.differ_by_operand();
  if (rows.is_given() || few || all > TableCache().max_bytes() / 4) {
    return std::make_shared<const SlabTable>(rows, token, count, type, operand, scales);
  }
  const std::string key = rows.Key(token, count, type, operand) + (scales ? "scales" : "");
  return *TableCache().Get(
      key, [&]() -> absl::StatusOr<SlabTable> { return SlabTable(rows, token, count, type, operand, scales); });
}

}  // namespace posenc
