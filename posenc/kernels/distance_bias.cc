#include "posenc/kernels/distance_bias.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <variant>
#include <vector>

#include "posenc/base/interruption.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "posenc/kernels/distance_bias.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "posenc/kernels/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace posenc {
namespace HWY_NAMESPACE {

// One row of the matrix; values that all rows share stay in DistanceBias. Its options, except the source, are branches
// in the loop: they cost little, and one loop per combination and target would make hundreds.
struct BiasRow {
  double query_position;
  const float* bias;
  double lowest_visible;  // bounds on the keys' mask positions
  double highest_visible;
  double document;
  const std::byte* scores;
  std::byte* out;
};

// Returns the bias in float32.
template <class D64>
HWY_INLINE hn::Vec<hn::Rebind<float, D64>> BiasLanes(const NoBias&, D64, const BiasRow&, size_t) {
  return hn::Zero(hn::Rebind<float, D64>());
}

// Requires row.bias, for a given and for a gathered bias.
template <class Bias, class D64>
HWY_INLINE hn::Vec<hn::Rebind<float, D64>> BiasLanes(const Bias&, D64, const BiasRow& row, size_t key) {
  return hn::LoadU(hn::Rebind<float, D64>(), row.bias + key);
}

// Rounds to bias_dtype.
template <class D64>
HWY_INLINE hn::Vec<hn::Rebind<float, D64>> BiasLanes(const LinearBias& linear, D64 d64, const BiasRow& row,
                                                     size_t key) {
  const hn::Rebind<float, D64> d;
  const auto zero = hn::Zero(d);
  const auto keys = linear.key_positions != nullptr
                        ? hn::LoadU(d64, linear.key_positions + key)
                        : hn::Add(hn::Iota(d64, 0), hn::Set(d64, linear.first_key + static_cast<double>(key)));
  const auto distance = NarrowToFloat(d64, hn::Sub(keys, hn::Set(d64, row.query_position)));
  const auto slope =
      hn::IfThenElse(hn::Gt(distance, zero), hn::Set(d, linear.future_slope), hn::Set(d, linear.past_slope));
  // Adding zero turns -0 into +0 and changes nothing else.
  const auto bias = hn::Add(hn::Mul(slope, distance), zero);
  if (linear.bias_dtype == DType::kBF16) return RoundLanes(BFloat16(), d, bias);
  if (linear.bias_dtype == DType::kFP16) return RoundLanes(Float16(), d, bias);
  return bias;
}

// Returns which keys the mask leaves visible, as a mask of float lanes.
template <class D64>
HWY_INLINE hn::Mask<hn::Rebind<float, D64>> VisibleLanes(const DistanceBias& work, D64 d64, const BiasRow& row,
                                                         size_t key) {
  const hn::Rebind<float, D64> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const auto one = hn::Set(d64, 1.0);
  auto shown = one;
  if (work.mask_key_positions != nullptr) {
    const auto position = hn::LoadU(d64, work.mask_key_positions + key);
    const auto hidden =
        hn::Or(hn::Lt(position, hn::Set(d64, row.lowest_visible)), hn::Gt(position, hn::Set(d64, row.highest_visible)));
    shown = hn::IfThenZeroElse(hidden, one);
  }
  if (work.key_documents != nullptr) {
    const auto same = hn::Eq(hn::LoadU(d64, work.key_documents + key), hn::Set(d64, row.document));
    shown = hn::IfThenElseZero(same, shown);
  }
  // Double masks do not convert to float masks, but numbers do.
  const auto flags = NarrowToFloat(d64, shown);
  const auto in_window = hn::Ne(flags, hn::Zero(d));
  if (work.key_valid == nullptr) return in_window;
  const auto valid = LoadBytes(hn::Rebind<uint8_t, D64>(), reinterpret_cast<const std::byte*>(work.key_valid + key));
  return hn::And(in_window, hn::RebindMask(d, hn::Ne(hn::PromoteTo(du, valid), hn::Zero(du))));
}

// Returns score + bias, or the bias if `scores` is null.
template <class Bias, class Format, class D>
HWY_INLINE hn::Vec<D> AddScores(Format format, D d, Rounding rounding, const std::byte* scores, size_t key,
                                hn::Vec<D> bias) {
  if (scores == nullptr) return bias;
  const auto score = LoadLanes(format, d, scores + key * sizeof(typename Format::Bits));
  if constexpr (std::is_same_v<Bias, NoBias>) return score;
  return hn::Add(score, rounding == Rounding::kEachOperation ? RoundLanes(format, d, bias) : bias);
}

// Computes keys from `key` on while they fill a vector of D64. Returns the first key left.
template <class Format, class Bias, class D64>
HWY_INLINE size_t BiasWhole(const DistanceBias& work, const Bias& bias, D64 d64, const BiasRow& row, bool masked,
                            size_t key, size_t end, bool& any_visible) {
  constexpr size_t kElement = sizeof(typename Format::Bits);
  const Format format;
  const hn::Rebind<float, D64> d;
  for (; key + hn::Lanes(d) <= end; key += hn::Lanes(d)) {
    auto value = AddScores<Bias>(format, d, work.rounding, row.scores, key, BiasLanes(bias, d64, row, key));
    if (masked) {
      const auto visible = VisibleLanes(work, d64, row, key);
      any_visible |= !hn::AllFalse(d, visible);
      value = hn::IfThenElse(visible, value, hn::Set(d, work.fill));
    }
    StoreLanes(format, value, d, row.out + key * kElement);
  }
  return key;
}

template <class Format, class Bias>
void BiasKeys(const DistanceBias& work, const Bias& bias, const BiasRow& row, bool masked, size_t begin, size_t end,
              bool& any_visible) {
  const size_t key = BiasWhole<Format>(work, bias, hn::ScalableTag<double>(), row, masked, begin, end, any_visible);
  BiasWhole<Format>(work, bias, hn::CappedTag<double, 1>(), row, masked, key, end, any_visible);
}

// Computes keys that are all visible. Without a linear bias it takes two whole registers at once.
template <bool kStream, class Format, class Bias>
void VisibleKeys(const DistanceBias& work, const Bias& bias, const BiasRow& row, size_t begin, size_t end) {
  constexpr size_t kElement = sizeof(typename Format::Bits);
  const Format format;
  size_t key = begin;
  if constexpr (!std::is_same_v<Bias, LinearBias>) {
    const hn::ScalableTag<float> d;
    const size_t lanes = hn::Lanes(d);
    const Rounding rounding = work.rounding;
    const bool ahead = work.large && row.scores != nullptr;
    for (; key + 2 * lanes <= end; key += 2 * lanes) {
      auto a = hn::Zero(d), b = hn::Zero(d);
      if (ahead) Prefetch(row.scores + key * kElement, kFarAhead, 2 * lanes * kElement);
      if constexpr (!std::is_same_v<Bias, NoBias>) {
        a = hn::LoadU(d, row.bias + key);
        b = hn::LoadU(d, row.bias + key + lanes);
      }
      a = AddScores<Bias>(format, d, rounding, row.scores, key, a);
      b = AddScores<Bias>(format, d, rounding, row.scores, key + lanes, b);
      StoreTwo<kStream>(format, a, b, d, row.out + key * kElement);
    }
  }
  bool any_visible;
  BiasKeys<Format>(work, bias, row, false, key, end, any_visible);
}

template <class Format>
void FillKeys(const DistanceBias& work, const BiasRow& row, size_t begin, size_t end) {
  using Bits = typename Format::Bits;
  const hn::CappedTag<float, 1> one;
  std::byte bytes[sizeof(Bits)];
  StoreLanes(Format(), hn::Set(one, work.fill), one, bytes);
  Bits bits;
  std::memcpy(&bits, bytes, sizeof(bits));
  const hn::ScalableTag<Bits> d;
  for (; begin + hn::Lanes(d) <= end; begin += hn::Lanes(d)) {
    StoreBytes(hn::Set(d, bits), d, row.out + begin * sizeof(bits));
  }
  for (; begin < end; ++begin) std::memcpy(row.out + begin * sizeof(bits), &bits, sizeof(bits));
}

// Finds the keys within the row's bounds, [first, last). Requires ascending mask positions.
void FindVisible(const DistanceBias& work, const BiasRow& row, size_t& first, size_t& last) {
  const double *begin = work.mask_key_positions, *end = begin + work.keys;
  first = std::lower_bound(begin, end, row.lowest_visible) - begin;
  last = std::max<size_t>(std::upper_bound(begin, end, row.highest_visible) - begin, first);
}

// Gathers the bias values of a query's cells into `row` (`keys` floats).
void GatherRow(const GatheredBias& bias, size_t keys, size_t query, float* row) {
  const size_t last = bias.value_count - 1;
  if (bias.cls_query && query == 0) {
    std::fill_n(row, keys, bias.values[last - 2]);
    if (bias.cls_key) row[0] = bias.values[last];
    return;
  }
  const double origin = bias.query_positions[query];
  const hn::ScalableTag<double> d64;
  const hn::Rebind<int32_t, decltype(d64)> indices;
  const hn::Rebind<float, decltype(d64)> d;
  // Subtract the positions first: their difference is exact.
  size_t key = bias.cls_key ? 1 : 0;
  for (; key + hn::Lanes(d) <= keys; key += hn::Lanes(d)) {
    const auto distance = hn::Sub(hn::LoadU(d64, bias.key_positions + key), hn::Set(d64, origin));
    const auto at = hn::Sub(distance, hn::Set(d64, bias.first));
    hn::StoreU(hn::GatherIndex(d, bias.values, hn::DemoteTo(indices, at)), d, row + key);
  }
  for (; key < keys; ++key) {
    row[key] = bias.values[static_cast<int32_t>(bias.key_positions[key] - origin - bias.first)];
  }
  if (bias.cls_key) row[0] = bias.values[last - 1];
}

// Returns whether the last row has a visible key. Takes `work` and `bias` by value: stores to `out` might alias a
// referenced object, so the loop would reload its fields.
template <bool kStream, class Format, class Bias>
bool BiasRows(const DistanceBias work, const Bias bias, size_t begin, size_t end) {
  const size_t row_bytes = work.keys * sizeof(typename Format::Bits);
  const bool bounded = work.causal || work.window_left < kUnlimited || work.window_right < kUnlimited;
  const bool scattered = work.key_documents != nullptr || work.key_valid != nullptr;
  // True: the mask is evaluated per key. False: one run of visible keys lies between two runs of hidden keys.
  const bool by_key = scattered || (bounded && !work.mask_keys_ascend);
  BiasRow row{};
  bool any_visible = false;
  std::vector<float> gathered(std::is_same_v<Bias, GatheredBias> ? work.keys : 0);
  for (size_t query = begin; query < end; ++query) {
    if constexpr (std::is_same_v<Bias, LinearBias>) row.query_position = bias.query_positions[query];
    if constexpr (std::is_same_v<Bias, GivenBias>) row.bias = bias.values + static_cast<ptrdiff_t>(query) * bias.stride;
    if constexpr (std::is_same_v<Bias, GatheredBias>) {
      GatherRow(bias, work.keys, query, gathered.data());
      row.bias = gathered.data();
    }
    if (work.mask_key_positions != nullptr) {
      const double position = work.mask_query_positions[query];
      row.lowest_visible = position - work.window_left;
      row.highest_visible = position + work.window_right;
      if (work.causal) row.highest_visible = std::min(row.highest_visible, std::max(position, work.prefix_end));
    }
    if (work.key_documents != nullptr) row.document = work.query_documents[query];
    if (work.scores != nullptr) row.scores = work.scores + query * row_bytes;
    row.out = work.out + query * row_bytes;
    any_visible = false;
    if (by_key) {
      BiasKeys<Format>(work, bias, row, true, 0, work.keys, any_visible);
    } else {
      size_t first = 0, last = work.keys;
      if (bounded) FindVisible(work, row, first, last);
      any_visible = first < last;
      FillKeys<Format>(work, row, 0, first);
      VisibleKeys<kStream, Format>(work, bias, row, first, last);
      FillKeys<Format>(work, row, last, work.keys);
    }
    if (!any_visible && work.zero_fully_masked_rows) std::memset(row.out, 0, row_bytes);
  }
  return any_visible;
}

// Returns whether stores may bypass the caches: every store must be a whole, aligned register.
bool CanStream(const DistanceBias& work) {
  const size_t registers = 2 * hn::Lanes(hn::ScalableTag<float>()), alignment = registers / 2 * sizeof(float);
  return work.large && work.scores != work.out && work.mask_key_positions == nullptr && work.keys % registers == 0 &&
         reinterpret_cast<uintptr_t>(work.out) % alignment == 0;
}

template <class Format>
bool BiasFrom(const DistanceBias& work, size_t begin, size_t end) {
  const auto compute = [&](const auto& bias) {
    using Bias = std::decay_t<decltype(bias)>;
    constexpr bool kCanStream = std::is_same_v<Bias, GivenBias> || std::is_same_v<Bias, GatheredBias>;
    if (!kCanStream || !CanStream(work)) return BiasRows<false, Format>(work, bias, begin, end);
    const bool any_visible = BiasRows<kCanStream, Format>(work, bias, begin, end);
    hwy::FlushStream();
    return any_visible;
  };
  return std::visit(compute, work.bias);
}

bool BiasSlab(const DistanceBias& work, size_t begin, size_t end) {
  switch (work.dtype) {
    case DType::kFP32: return BiasFrom<Float32>(work, begin, end);
    case DType::kFP16: return BiasFrom<Float16>(work, begin, end);
    case DType::kBF16: return BiasFrom<BFloat16Arithmetic>(work, begin, end);
    default: HWY_ABORT("DistanceBias: elements are neither FP32, FP16 nor BF16");
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace posenc {

HWY_EXPORT(BiasSlab);

namespace {

// Keys of a row that are computed with one dispatched call. Their gathered values take 256 KiB.
constexpr size_t kKeysTogether = 65536;

// `work` restricted to keys [begin, end) of one query.
DistanceBias KeysOf(DistanceBias work, size_t query, size_t begin, size_t end) {
  const size_t bytes = (query * work.keys + begin) * SizeOf(work.dtype);
  const auto shift = [](auto& pointer, auto by) {
    if (pointer != nullptr) pointer += by;
  };
  work.queries = 1;
  work.keys = end - begin;
  if (auto* linear = std::get_if<LinearBias>(&work.bias)) {
    linear->query_positions += query;
    shift(linear->key_positions, begin);
    linear->first_key += static_cast<double>(begin);
  } else if (auto* given = std::get_if<GivenBias>(&work.bias)) {
    given->values += static_cast<ptrdiff_t>(query) * given->stride + static_cast<ptrdiff_t>(begin);
  } else if (auto* gathered = std::get_if<GatheredBias>(&work.bias)) {
    gathered->query_positions += query;
    gathered->key_positions += begin;
    gathered->cls_query = gathered->cls_query && query == 0;
    gathered->cls_key = gathered->cls_key && begin == 0;
  }
  shift(work.mask_query_positions, query);
  shift(work.mask_key_positions, begin);
  shift(work.query_documents, query);
  shift(work.key_documents, begin);
  shift(work.key_valid, begin);
  shift(work.scores, bytes);
  shift(work.out, bytes);
  work.zero_fully_masked_rows = false;
  return work;
}

}  // namespace

void ComputeDistanceBias(const DistanceBias& work, size_t begin, size_t end) {
  if (work.keys <= kKeysTogether) {
    HWY_DYNAMIC_DISPATCH(BiasSlab)(work, begin, end);
    return;
  }
  const size_t row = work.keys * SizeOf(work.dtype);
  for (size_t query = begin; query < end; ++query) {
    bool any_visible = false;
    for (size_t key = 0; key < work.keys; key += kKeysTogether) {
      if (key > 0) InterruptionPoint();
      const DistanceBias some = KeysOf(work, query, key, std::min(key + kKeysTogether, work.keys));
      any_visible |= HWY_DYNAMIC_DISPATCH(BiasSlab)(some, 0, 1);
    }
    if (!any_visible && work.zero_fully_masked_rows) std::memset(work.out + query * row, 0, row);
  }
}

}  // namespace posenc
#endif  // HWY_ONCE
