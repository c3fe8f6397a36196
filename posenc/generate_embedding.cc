#include "posenc/generate_embedding.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "posenc/fingerprint.h"
#include "posenc/kernels/sincos_rows.h"
#include "posenc/methods/sinusoidal.h"
#include "posenc/status.h"

namespace posenc {
namespace {

// What an offset of the convention adds to each position.
int64_t Shift(const SinusoidalSettings& settings) {
  return settings.start_index + (settings.padding_idx ? *settings.padding_idx + 1 : 0);
}

// fairseq: valid tokens are counted, padding stands at -1, which Shift() moves to padding_idx.
Positions CountValid(const Matrix<uint8_t>& valid) {
  Matrix<double> ids{{}, valid.rows, valid.columns, false};
  ids.values.reserve(valid.values.size());
  for (int64_t b = 0; b < valid.rows && valid.columns > 0; ++b) {  // without columns there may be any number of rows
    double next = 0;
    for (int64_t s = 0; s < valid.columns; ++s) ids.values.push_back(valid.row(b)[s] ? next++ : -1);
  }
  return Positions{PositionIds{std::move(ids)}, {}, {}, {}};
}

// How many tokens the positions are for: the grid that TokenPositions checks against.
absl::StatusOr<TokenGrid> Grid(const Positions& positions, const std::optional<int64_t>& count) {
  TokenGrid grid{1, 0, false};
  if (const auto* ids = std::get_if<PositionIds>(&positions.source)) {
    grid = {ids->ids.rows, ids->ids.columns, false};
  } else if (const auto* segments = std::get_if<PositionSegments>(&positions.source)) {
    for (const PositionLine& line : segments->lines) {
      if (line.count > 0 && __builtin_add_overflow(grid.length, line.count, &grid.length)) grid.length = 0;
    }
  } else if (std::holds_alternative<PerSequenceOffsets>(positions.source)) {
    return InvalidArgument("NOT_READ", "positions.offsets", "", "give ids [B, S] or one offset");
  } else if (!count) {
    return InvalidArgument("MISSING", "count", "", "is required with positions.offset");
  } else {
    grid.length = *count;
  }
  if (count && *count != grid.length) {
    return InvalidArgument("MISMATCH", "count", fmt::format("{}", *count),
                           fmt::format("the positions are {}", grid.length));
  }
  if (grid.length < 0) {
    return InvalidArgument("OUT_OF_RANGE", "count", fmt::format("{}", grid.length), "must be at least 0");
  }
  return grid;
}

}  // namespace

absl::StatusOr<EmbeddingGeneration> EmbeddingGeneration::Create(GenerateEmbedding call, const Limits& limits) {
  POSENC_RETURN_IF_ERROR(Within("sinusoidal", Complete(call.settings)));
  if (call.dtype != DType::kFP32 && call.dtype != DType::kFP16 && call.dtype != DType::kBF16 &&
      call.dtype != DType::kFP64) {
    return InvalidArgument("UNSUPPORTED", "dtype", Name(call.dtype), "must be FP32, FP16, BF16 or FP64");
  }
  if (call.settings.dim > limits.max_rotary_dim) {
    return InvalidArgument("OUT_OF_RANGE", "sinusoidal.dim", fmt::format("{}", call.settings.dim),
                           fmt::format("must be at most {}", limits.max_rotary_dim));
  }
  if (call.settings.token_valid) {
    if (!std::holds_alternative<std::monostate>(call.positions.source)) {
      return InvalidArgument("CONFLICT", "positions", "", "sinusoidal.token_valid says where the tokens stand");
    }
    call.positions = CountValid(*call.settings.token_valid);
  }
  if (call.positions.cu_seqlens) {
    return InvalidArgument("NOT_READ", "positions.cu_seqlens", "", "is for LAYOUT_THD only");
  }
  POSENC_ASSIGN_OR_RETURN(const TokenGrid grid, Grid(call.positions, call.count));
  const auto* ids = std::get_if<PositionIds>(&call.positions.source);
  const bool batched = ids != nullptr && !ids->ids.shared;
  auto positions = TokenPositions::Create(call.positions, grid, limits);
  if (!positions.ok()) return Within("positions", positions.status());
  POSENC_RETURN_IF_ERROR(Within("positions", positions->RefuseScalingLength()));

  EmbeddingGeneration generation(std::move(call), *std::move(positions));
  const SinusoidalSettings& settings = generation.call_.settings;
  generation.inv_freq_ = SinusoidalFrequencies(generation.call_.frequencies, settings);
  generation.shape_.dtype = generation.call_.dtype;
  if (batched) generation.shape_.shape.push_back(grid.sequences);
  generation.shape_.shape.push_back(grid.length);
  generation.shape_.shape.push_back(settings.dim);
  return generation;
}

std::string EmbeddingGeneration::Fingerprint() const {
  return posenc::Fingerprint()
      .Add("sinusoidal")
      .Add(static_cast<int64_t>(call_.settings.convention))
      .Add(static_cast<int64_t>(call_.frequencies))
      .Add(call_.settings.dim)
      .Add(Shift(call_.settings))
      .Add(call_.settings.padding_idx.value_or(-1))
      .Add(*call_.settings.scale)
      .Add(inv_freq_)
      .Digest();
}

absl::Status EmbeddingGeneration::Run(std::byte* out, WorkPool& pool, const Cancellation& cancelled) const {
  if (shape_.empty()) return absl::OkStatus();
  const SinusoidalSettings& settings = call_.settings;
  const size_t pairs = inv_freq_.size(), size = SizeOf(call_.dtype), row = settings.dim * size;
  const bool interleaved = settings.convention == SinusoidalConvention::kInterleaved;
  const double shift = static_cast<double>(Shift(settings));
  const size_t slab = std::clamp<size_t>(8192 / std::max<size_t>(pairs, 1), 1, 1024);

  const auto piece = [&](int64_t token, size_t count) {
    std::vector<double> at(count), values(2 * count * pairs);
    positions_.Fill(token, count, at.data());
    for (double& position : at) position += shift;
    auto* cos = reinterpret_cast<std::byte*>(values.data());
    auto* sin = reinterpret_cast<std::byte*>(values.data() + count * pairs);
    posenc::Run(SinCosRows{.frequencies = call_.frequencies,
                           .dtype = call_.dtype,
                           .positions = at.data(),
                           .inv_freq = inv_freq_.data(),
                           .rows = count,
                           .pairs = pairs,
                           .scale = *settings.scale,
                           .cos = cos,
                           .sin = sin},
                0, count);
    std::byte* to = out + token * row;
    for (size_t r = 0; r < count; ++r, to += row, cos += pairs * size, sin += pairs * size) {
      if (settings.padding_idx && at[r] == static_cast<double>(*settings.padding_idx)) {
        std::memset(to, 0, row);
      } else if (interleaved) {
        for (size_t k = 0; k < pairs; ++k) {
          std::memcpy(to + 2 * k * size, sin + k * size, size);
          std::memcpy(to + (2 * k + 1) * size, cos + k * size, size);
        }
      } else {
        // Not memcpy, which may not be given the null of an empty vector: a dim of 1 has no pairs.
        std::copy_n(cos, pairs * size, std::copy_n(sin, pairs * size, to));
        std::memset(to + 2 * pairs * size, 0, row - 2 * pairs * size);  // the last element of an odd dim
      }
    }
  };

  return pool.ParallelFor(positions_.tokens(), slab, cancelled, [&](size_t begin, size_t end) {
    for (int64_t token = begin; token < static_cast<int64_t>(end);) {
      const int64_t stop = std::min<int64_t>(end, positions_.begin(positions_.SequenceOf(token) + 1));
      piece(token, stop - token);
      token = stop;
    }
  });
}

}  // namespace posenc
