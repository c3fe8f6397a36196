#include "posenc/diagnose/blocks.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "posenc/base/status.h"
#include "posenc/diagnose/comparison.h"
#include "posenc/kernels/convert.h"

namespace posenc::diagnose {
namespace {

constexpr int64_t kBlockElements = int64_t{1} << 17;

}  // namespace

absl::Status ForEachBlock(const Rows& rows, WorkPool& pool, const Cancellation& cancelled, int64_t element_bytes,
                          absl::FunctionRef<void(const Block& block, int64_t first)> body) {
  const int64_t heads = std::clamp<int64_t>(kBlockElements / rows.width, 1, rows.heads);
  const int64_t parts = (rows.heads + heads - 1) / heads;  // of a token
  const int64_t tokens = std::clamp<int64_t>(kBlockElements / (rows.heads * rows.width), 1, rows.tokens());
  return pool.ParallelFor(
      rows.tokens() * parts, tokens, cancelled,
      [&](size_t begin, size_t end) {  // of more than one part only if each is a token
        const auto at = static_cast<int64_t>(begin);
        const int64_t token = at / parts, head = at % parts * heads;
        body({token, static_cast<int64_t>(end - begin), head, std::min(heads, rows.heads - head)},
             token * rows.heads + head);
      },
      tokens * heads * rows.width * element_bytes);
}

absl::StatusOr<int64_t> CountNotFinite(const Evidence& evidence, WorkPool& pool, const Cancellation& cancelled) {
  std::atomic<int64_t> count = 0;
  for (const Rows& rows : evidence.operands) {
    POSENC_RETURN_IF_ERROR(
        ForEachBlock(rows, pool, cancelled, sizeof(double), [&](const Block& block, int64_t /*first*/) {
          const int64_t all = block.tokens * block.heads;
          std::vector<uint8_t> special(all);
          for (const bool of_before : {true, false}) {
            const DType dtype = of_before ? rows.before_dtype : rows.after_dtype;
            const size_t row = rows.width * SizeOf(dtype);
            std::vector<std::byte> bytes(all * row);
            rows.Load(of_before, block, bytes.data());
            for (int64_t n = 0; n < all; ++n) special[n] |= !AreFinite(dtype, bytes.data() + n * row, rows.width);
          }
          count += std::count(special.begin(), special.end(), 1);
        }));
  }
  return count.load();
}

absl::StatusOr<RowSet> ChangedRows(const Evidence& evidence, WorkPool& pool, const Cancellation& cancelled) {
  RowSet changed = NoRows(evidence);
  for (size_t n = 0; n < evidence.operands.size(); ++n) {
    const Rows& rows = evidence.operands[n];
    const size_t row = rows.width * SizeOf(rows.after_dtype);
    const auto compare = [&](const Block& block, int64_t first) {
      const int64_t count = block.tokens * block.heads;
      std::vector<std::byte> before(count * rows.width * SizeOf(rows.before_dtype)), after(count * row),
          as_after(after);
      rows.Load(true, block, before.data());
      rows.Load(false, block, after.data());
      Convert(rows.before_dtype, rows.after_dtype, before.data(), as_after.data(), count * rows.width);
      for (int64_t r = 0; r < count; ++r) {
        changed[n][first + r] = std::memcmp(after.data() + r * row, as_after.data() + r * row, row) != 0;
      }
    };
    POSENC_RETURN_IF_ERROR(ForEachBlock(rows, pool, cancelled, 3 * sizeof(double), compare));
  }
  return changed;
}

}  // namespace posenc::diagnose
