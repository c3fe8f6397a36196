#include "posenc/methods/rope/given_table.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "posenc/base/interruption.h"
#include "posenc/base/memory_account.h"
#include "posenc/base/status.h"
#include "posenc/kernels/convert.h"
#include "posenc/methods/rope/elements.h"

namespace posenc {
namespace {

using Bytes = std::shared_ptr<const std::vector<std::byte>>;

// Removes the second copy of each entry in a row, or in each of a row's parts. Returns INVALID_ARGUMENT if the copies
// differ.
absl::Status ToHalfWidth(std::string_view name, const GivenTable& table, int64_t parts, Bytes& data) {
  const LargeBlocksMayBeRefused scope;
  const size_t size = SizeOf(table.dtype), pairs = table.width / 2 / parts;
  // Distances from an entry to its copy and to the next entry, in bytes.
  const bool duplicated = table.form == TableForm::kDuplicated;
  const size_t copy = (duplicated ? pairs : 1) * size, next = (duplicated ? 1 : 2) * size;
  std::vector<std::byte> half(data->size() / 2);
  std::byte* to = half.data();
  int64_t steps = 0;
  for (int64_t part = 0; part < table.rows * table.heads * parts; ++part) {
    const std::byte* from = data->data() + part * 2 * pairs * size;
    for (size_t pair = 0; pair < pairs; ++pair, from += next, to += size) {
      InterruptionPointOfStep(++steps);
      if (std::memcmp(from, from + copy, size) != 0) {
        return InvalidArgument(
            "MISMATCH", name,
            fmt::format("unequal at row {}, pair {}", part / (parts * table.heads), part % parts * pairs + pair),
            "must be the same bits in both copies of a value in this form; TABLE_FORM_PER_ELEMENT allows other ones");
      }
      std::memcpy(to, from, size);
    }
  }
  data = std::make_shared<const std::vector<std::byte>>(std::move(half));
  return absl::OkStatus();
}

// Replaces every NaN by the quiet NaN of its sign: rotation requires NaNs without payload, as arithmetic returns them.
template <class Float>
void ClearNanPayloads(std::byte* floats, size_t count) {
  for (size_t i = 0; i < count; ++i, floats += sizeof(Float)) {
    Float value;
    std::memcpy(&value, floats, sizeof(value));
    if (std::isnan(value)) value = std::copysign(std::numeric_limits<Float>::quiet_NaN(), value);
    std::memcpy(floats, &value, sizeof(value));
  }
}

}  // namespace

absl::Status Complete(GivenTable& table, int64_t half_split_parts) {
  if (table.form == TableForm::kHalfWidth) return absl::OkStatus();
  if (table.width < 2 || table.width % 2 != 0) {  // a table without columns may have any number of rows
    return InvalidArgument("OUT_OF_RANGE", "cos.shape", fmt::format("{} columns", table.width),
                           "must be even and at least 2 in this form");
  }
  if (table.form == TableForm::kPerElement) return absl::OkStatus();
  const int64_t parts = table.form == TableForm::kDuplicated ? half_split_parts : 1;
  if (table.width / 2 % parts != 0) {
    return InvalidArgument("OUT_OF_RANGE", "cos.shape", fmt::format("{} columns", table.width),
                           fmt::format("must be divisible by twice half_split_parts = {}", parts));
  }
  POSENC_RETURN_IF_ERROR(ToHalfWidth("cos", table, parts, table.cos));
  POSENC_RETURN_IF_ERROR(ToHalfWidth("sin", table, parts, table.sin));
  table.width /= 2;
  table.form = TableForm::kHalfWidth;
  return absl::OkStatus();
}

void ReduceIfEqual(GivenTable& table, Pairing pairing, int64_t half_split_parts) {
  if (table.form != TableForm::kPerElement) return;
  const LargeBlocksMayBeRefused scope;
  const int64_t pairs = table.width / 2;
  const size_t size = SizeOf(table.dtype);
  const PairPlaces places(pairing, pairs, half_split_parts);
  Bytes reduced[2];
  int64_t steps = 0;
  for (const Bytes* data : {&table.cos, &table.sin}) {
    std::vector<std::byte> half((*data)->size() / 2);
    std::byte* to = half.data();
    const std::byte* from = (*data)->data();
    for (int64_t row = 0; row < table.rows * table.heads; ++row, from += table.width * size) {
      for (int64_t pair = 0; pair < pairs; ++pair, to += size) {
        InterruptionPointOfStep(++steps);
        const std::byte* first = from + places.Element(pair, 0) * size;
        if (std::memcmp(first, from + places.Element(pair, 1) * size, size) != 0) return;
        std::memcpy(to, first, size);
      }
    }
    reduced[data == &table.sin] = std::make_shared<const std::vector<std::byte>>(std::move(half));
  }
  table.cos = std::move(reduced[0]);
  table.sin = std::move(reduced[1]);
  table.width = pairs;
  table.form = TableForm::kHalfWidth;
}

void CopyRow(const GivenTable& table, int64_t row, DType dtype, std::byte* cos, std::byte* sin) {
  const size_t width = table.row_width(), begin = row * width * SizeOf(table.dtype);
  for (const auto& [from, to] : {std::pair{table.cos->data() + begin, cos}, {table.sin->data() + begin, sin}}) {
    Convert(table.dtype, dtype, from, to, width);
    if (dtype == DType::kFP32) ClearNanPayloads<float>(to, width);
    if (dtype == DType::kFP64) ClearNanPayloads<double>(to, width);
  }
}

}  // namespace posenc
