#include "posenc/bias/bias_mask.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "posenc/base/interruption.h"
#include "posenc/base/status.h"
#include "posenc/kernels/convert.h"

namespace posenc {
namespace {

// The fill value rounded to `dtype`, as float32, which holds it exactly.
float FillValue(const std::variant<double, LowestFinite>& fill, DType dtype) {
  const double* value = std::get_if<double>(&fill);
  switch (dtype) {
    case DType::kFP16:
      return value == nullptr ? -static_cast<float>(kLargestFinite<Float16>) : Widen<Float16>(Narrow<Float16>(*value));
    case DType::kBF16:
      return value == nullptr ? -static_cast<float>(kLargestFinite<BFloat16>)
                              : Widen<BFloat16>(Narrow<BFloat16>(*value));
    default: return value == nullptr ? std::numeric_limits<float>::lowest() : static_cast<float>(*value);
  }
}

}  // namespace

absl::Status CheckMask(const Mask& mask) {
  for (const auto& [name, window] : {std::pair{"window_left", mask.window_left}, {"window_right", mask.window_right}}) {
    if (window && *window < 0) {
      return InvalidArgument("OUT_OF_RANGE", name, fmt::format("{}", *window), "must be at least 0; absent: unlimited");
    }
  }
  if (!mask.prefix_length.empty() && !mask.causal) {
    return InvalidArgument("NOT_READ", "prefix_length", "",
                           "must be absent without causal: without it every key is visible");
  }
  for (size_t b = 0; b < mask.prefix_length.size(); ++b) {
    InterruptionPointOfStep(static_cast<int64_t>(b) + 1);
    if (mask.prefix_length[b] < 0) {
      return InvalidArgument("OUT_OF_RANGE", fmt::format("prefix_length[{}]", b),
                             fmt::format("{}", mask.prefix_length[b]), "must be at least 0");
    }
  }
  if (mask.query_documents.has_value() != mask.key_documents.has_value()) {
    return InvalidArgument("MISSING", mask.query_documents ? "key_documents" : "query_documents", "",
                           "must be given: query_documents and key_documents go together");
  }
  if (const double* value = std::get_if<double>(&mask.fill); value != nullptr && std::isnan(*value)) {
    return InvalidArgument("OUT_OF_RANGE", "fill_value", "nan", "must be a number or an infinity");
  }
  return absl::OkStatus();
}

void SetMask(const Mask& mask, int64_t b, DistanceBias* work) {
  work->causal = mask.causal;
  if (!mask.prefix_length.empty()) {
    const int64_t length = mask.prefix_length[mask.prefix_length.size() == 1 ? 0 : b];
    // Positions may be fractions, so "below the length" means up to the largest double below it.
    work->prefix_end = std::nextafter(static_cast<double>(length), -kUnlimited);
  }
  if (mask.window_left) work->window_left = static_cast<double>(*mask.window_left);
  if (mask.window_right) work->window_right = static_cast<double>(*mask.window_right);
  if (mask.query_documents) {
    work->query_documents = mask.query_documents->row(b);
    work->key_documents = mask.key_documents->row(b);
  }
  if (mask.key_valid) work->key_valid = mask.key_valid->row(b);
  work->fill = FillValue(mask.fill, work->dtype);
  work->zero_fully_masked_rows = mask.zero_fully_masked_rows;
}

}  // namespace posenc
