// CPU implementation of cuda/launch.h for tests without a GPU: loops over the elements.
#include <cstring>
#include <vector>

#include "cuda/elements/bias.h"
#include "cuda/elements/pairing.h"
#include "cuda/elements/rotate.h"
#include "cuda/elements/table.h"
#include "cuda/launch.h"
#include "cuda/test/host/stream.h"

namespace posenc::cuda {
namespace {

template <class Function>
void WithFormat(posenc_dtype dtype, const Function& function) {
  if (dtype == POSENC_FP16) return function(Float16());
  if (dtype == POSENC_BF16) return function(BFloat16());
  return function(Float32());
}

template <class Wide>
void FillTable(const TableArguments& work) {
  const TableRecipe recipe = {work.dtype,          work.frequencies, {work.scale_hi, work.scale_lo},
                              work.scale_in_range, work.zero_cos,    work.scale,
                              work.divide,         work.negate_sin};
  for (uint64_t index = 0; index < work.rows * work.pairs; ++index) {
    const uint64_t row = index / work.pairs, pair = index % work.pairs;
    const uint64_t axis = work.axis != nullptr ? work.axis[pair] : 0;
    const double position = PositionIn(work.frequencies, work.positions[axis * work.rows + row]);
    Entry entry;
    const bool proven = IsWide(work.frequencies, work.dtype)
                            ? FirstRounded<true>(recipe, position, work.inv_freq[pair], entry)
                            : FirstRounded<false>(recipe, position, work.inv_freq[pair], entry);
    if (!proven) {
      const unsigned long long place = (*work.unproven_count)++;
      if (place < work.capacity) work.unproven[place] = index;
    }
    entry = Finished(recipe, entry);
    static_cast<Wide*>(work.cos)[index] = static_cast<Wide>(entry.cos);
    static_cast<Wide*>(work.sin)[index] = static_cast<Wide>(entry.sin);
  }
}

template <class Real, class Format>
void RotateRows(Format format, const RotateArguments& work) {
  using Bits = typename Format::Bits;
  const uint64_t half = work.pairs / work.half_split_parts;
  std::vector<Bits> row(work.head_dim), rotated;
  for (uint64_t token = 0; token < work.tokens; ++token) {
    for (uint64_t head = 0; head < work.heads; ++head) {
      const uint64_t at = token * work.token_stride + head * work.head_stride;
      std::memcpy(row.data(), static_cast<const std::byte*>(work.x) + at, work.head_dim * sizeof(Bits));
      rotated = row;
      for (uint64_t pair = 0; pair < work.pairs; ++pair) {
        const PairPlace in = PlaceOf(work.input_pairing, half, pair), out = PlaceOf(work.output_pairing, half, pair);
        const uint64_t entry = token * work.pairs + pair;
        const ElementPair<Format> y =
            Rotated(format, work.rounding,
                    ElementPair<Format>{row[work.rotary_offset + in.first], row[work.rotary_offset + in.second]},
                    static_cast<const Real*>(work.cos)[entry], static_cast<const Real*>(work.sin)[entry]);
        rotated[work.rotary_offset + out.first] = y.first;
        rotated[work.rotary_offset + out.second] = y.second;
      }
      std::memcpy(static_cast<std::byte*>(work.y) + at, rotated.data(), work.head_dim * sizeof(Bits));
    }
  }
}

template <class Format, class Real>
void FillBias(Format format, const BiasArguments<Real>& work) {
  using Bits = typename Format::Bits;
  const bool biased = work.values != nullptr || work.key_positions != nullptr || work.bias != nullptr;
  for (uint64_t i = 0; i < work.queries; ++i) {
    const Query<Real> query = work.query[i];
    const auto visible = [&](uint64_t j) {
      const Real position = work.mask_key_positions != nullptr ? work.mask_key_positions[j] : Real{0};
      return Within(query, MaskPosition(position, work.key_valid != nullptr ? work.key_valid[j] : uint8_t{1})) &&
             (work.key_documents == nullptr || work.key_documents[j] == query.document);
    };
    bool any = false;
    for (uint64_t j = 0; j < work.keys; ++j) any |= visible(j);
    const float hidden = !any && work.zero_fully_masked_rows ? 0 : work.fill;
    for (uint64_t j = 0; j < work.keys; ++j) {
      const uint64_t cell = i * work.keys + j;
      float value[1] = {};
      if (work.values != nullptr) {
        value[0] = work.values[ValueOf(work.cls_query && i == 0, work.cls_key && j == 0, work.value_count, work.first,
                                       query.position, work.key_positions[j])];
      } else if (work.key_positions != nullptr) {
        value[0] = LinearBias(work.past_slope, work.future_slope, query.position, work.key_positions[j]);
        RoundCells(work.bias_dtype, value);
      } else if (work.bias != nullptr) {
        value[0] = work.bias[static_cast<int64_t>(i) * work.bias_stride + static_cast<int64_t>(j)];
      }
      if (work.scores != nullptr) {
        const Bits score[1] = {static_cast<const Bits*>(work.scores)[cell]};
        AddScores(format, biased, work.rounding, score, value);
      }
      static_cast<Bits*>(work.out)[cell] = Encode(format, visible(j) ? value[0] : hidden);
    }
  }
}

}  // namespace

cudaError_t LaunchTable(const TableArguments& work, cudaStream_t stream) {
  if (const cudaError_t error = host::Fault(); error != cudaSuccess) return error;
  host::Enqueue(stream, [work] { work.dtype == POSENC_FP64 ? FillTable<double>(work) : FillTable<float>(work); });
  return cudaSuccess;
}

cudaError_t LaunchNarrow(posenc_dtype dtype, const void* wide, void* narrow, uint64_t count, cudaStream_t stream) {
  if (const cudaError_t error = host::Fault(); error != cudaSuccess) return error;
  host::Enqueue(stream, [=] {
    WithFormat(dtype, [&](auto format) {
      using Bits = typename decltype(format)::Bits;
      for (uint64_t i = 0; i < count; ++i) {
        static_cast<Bits*>(narrow)[i] = Encode(format, static_cast<const float*>(wide)[i]);
      }
    });
  });
  return cudaSuccess;
}

cudaError_t LaunchRotate(const RotateArguments& work, cudaStream_t stream) {
  if (const cudaError_t error = host::Fault(); error != cudaSuccess) return error;
  host::Enqueue(stream, [work] {
    WithFormat(work.dtype, [&](auto format) {
      work.table_is_double ? RotateRows<double>(format, work) : RotateRows<float>(format, work);
    });
  });
  return cudaSuccess;
}

template <class Real>
cudaError_t LaunchBias(const BiasArguments<Real>& work, cudaStream_t stream) {
  if (const cudaError_t error = host::Fault(); error != cudaSuccess) return error;
  host::Enqueue(stream, [work] { WithFormat(work.dtype, [&](auto format) { FillBias(format, work); }); });
  return cudaSuccess;
}
template cudaError_t LaunchBias(const BiasArguments<float>& work, cudaStream_t stream);
template cudaError_t LaunchBias(const BiasArguments<double>& work, cudaStream_t stream);

}  // namespace posenc::cuda
