#include "posenc/embedding/generate_embedding.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "posenc/base/interruption.h"
#include "posenc/base/status.h"
#include "posenc/base/tensor.h"
#include "posenc/kernels/convert.h"
#include "posenc/methods/embedding/encoding.h"

namespace posenc {
namespace {

// Returns the method's encoding. Errors have the method's name in front of the field.
EncodingOr EncodingOf(EmbeddingMethod method, Frequencies arithmetic, const Limits& limits) {
  return std::visit(
      [&]<class Settings>(Settings& settings) -> EncodingOr {
        auto encoding = Encode(std::move(settings), arithmetic, limits);
        if (!encoding.ok()) return Within(Settings::kName, encoding.status());
        return encoding;
      },
      method);
}

absl::Status CheckDType(const GenerateEmbedding& call) {
  switch (call.dtype) {
    case DType::kFP32:
    case DType::kFP16:
    case DType::kBF16: return absl::OkStatus();
    case DType::kFP64:
      if (!call.add_to) return absl::OkStatus();
      [[fallthrough]];
    default:
      return InvalidArgument("UNSUPPORTED", call.add_to ? "add_to.dtype" : "dtype", Name(call.dtype),
                             call.add_to ? "must be FP32, FP16 or BF16" : "must be FP32, FP16, BF16 or FP64");
  }
}

// Returns the number of tokens that the positions are for, as the grid that TokenPositions checks against.
absl::StatusOr<TokenGrid> Grid(const Positions& positions, const std::optional<int64_t>& count, const Limits& limits) {
  if (count) POSENC_RETURN_IF_ERROR(CheckCount("count", *count, limits));
  TokenGrid grid{1, 0, false};
  if (const auto* ids = std::get_if<PositionIds>(&positions.source)) {
    grid = {ids->ids.rows, ids->ids.columns, false};
  } else if (const auto* segments = std::get_if<PositionSegments>(&positions.source)) {
    POSENC_ASSIGN_OR_RETURN(grid.length, Count("positions.segments", *segments, limits));
  } else if (std::holds_alternative<PerSequenceOffsets>(positions.source)) {
    return InvalidArgument("NOT_READ", "positions.offsets", "",
                           "must be absent: ids [B, S] or one offset give the positions");
  } else if (!count) {
    return InvalidArgument("MISSING", "count", "", "must be given with positions.offset");
  } else {
    grid.length = *count;
  }
  if (count && *count != grid.length) {
    return InvalidArgument("MISMATCH", "count", fmt::format("{}", *count),
                           fmt::format("must be {}, the number of positions", grid.length));
  }
  return grid;
}

}  // namespace

absl::StatusOr<EmbeddingGeneration> EmbeddingGeneration::Create(GenerateEmbedding call, const Limits& limits) {
  POSENC_RETURN_IF_ERROR(CheckDType(call));
  const std::string_view name = std::visit([](const auto& settings) { return settings.kName; }, call.method);
  POSENC_ASSIGN_OR_RETURN(std::unique_ptr<const Encoding> encoding,
                          EncodingOf(std::move(call.method), call.precision.frequencies, limits));
  if (std::optional<Positions> own = encoding->OwnPositions()) {
    if (!std::holds_alternative<std::monostate>(call.positions.source)) {
      return InvalidArgument("CONFLICT", "positions", "",
                             fmt::format("must not be set: {} defines the positions", name));
    }
    call.positions.source = std::move(own->source);
  }
  const std::optional<PositionLine> all_rows = encoding->AllRows();
  if (all_rows && !call.count && std::holds_alternative<std::monostate>(call.positions.source)) {
    call.positions.source = PositionSegments{{*all_rows}};
  }
  if (call.positions.cu_seqlens) {
    return InvalidArgument("NOT_READ", "positions.cu_seqlens", "", "must be absent without LAYOUT_THD");
  }
  POSENC_ASSIGN_OR_RETURN(const TokenGrid grid, Grid(call.positions, call.count, limits));
  const auto* ids = std::get_if<PositionIds>(&call.positions.source);
  const bool batched = ids != nullptr && !ids->ids.shared;
  auto positions = TokenPositions::Create(std::move(call.positions), grid, limits);
  if (!positions.ok()) return Within("positions", positions.status());
  POSENC_RETURN_IF_ERROR(Within("positions", positions->RefuseScalingLength()));

  EmbeddingGeneration generation(*std::move(positions), std::move(encoding));
  generation.method_ = name;
  generation.dtype_ = call.dtype;
  generation.precision_ = call.precision;
  TensorShape& shape = generation.shape_;
  shape.dtype = call.dtype;
  if (batched) shape.shape.push_back(grid.sequences);
  shape.shape.push_back(grid.length);
  shape.shape.push_back(generation.encoding_->dim());
  if (call.add_to) {
    const std::vector<int64_t>& whole = call.add_to->shape;
    const int64_t leading = call.add_to->rank() - shape.rank();
    if (leading < 0 || !std::equal(shape.shape.begin(), shape.shape.end(), whole.begin() + leading)) {
      return InvalidArgument("MISMATCH", "add_to.shape", ToString(whole),
                             fmt::format("must end with the encoding's {}", ToString(shape.shape)));
    }
    POSENC_RETURN_IF_ERROR(ByteSize("add_to", *call.add_to, limits).status());
    for (int64_t n = 0; n < leading; ++n) generation.copies_ *= whole[n];
    shape.shape = whole;
  }
  POSENC_ASSIGN_OR_RETURN(generation.bytes_, ByteSize("answer", shape, limits));
  POSENC_RETURN_IF_ERROR(CheckOutput(generation.bytes_, limits));
  if (!shape.empty()) POSENC_RETURN_IF_ERROR(generation.CheckPositions());
  return generation;
}

absl::Status EmbeddingGeneration::CheckPositions() const {
  constexpr int64_t kSlab = 1024;
  std::vector<double> at(kSlab);
  for (int64_t token = 0, next_point = 0; token < positions_.tokens();) {
    if (token >= next_point) next_point += 65536, InterruptionPoint();
    const int64_t end = positions_.begin(positions_.SequenceOf(token) + 1), count = std::min(kSlab, end - token);
    positions_.Fill(token, count, at.data());
    for (int64_t n = 0; n < count; ++n) {
      const absl::Status status = encoding_->CheckPosition(at[n]);
      if (!status.ok()) return Within(fmt::format("positions[{}]", token + n), status);
    }
    token += count;
  }
  return absl::OkStatus();
}

std::string EmbeddingGeneration::Fingerprint() const {
  posenc::Fingerprint parts;
  parts.Add(method_).Add(static_cast<int64_t>(precision_.frequencies));
  encoding_->AddTo(parts);
  return parts.Digest();
}

// Evaluates the rows once and adds them to each of the copies, in float32. Counts the elements that it adds, and checks
// for interruption once in 65,536 of them.
void EmbeddingGeneration::Add(const double* at, int64_t token, size_t count, const std::byte* add_to, std::byte* out,
                              size_t* added) const {
  const size_t elements = count * encoding_->dim(), size = SizeOf(dtype_);
  std::vector<float> rows(elements), sums(elements);
  const bool rounded_first =
      precision_.table_dtype == TableDtype::kTensor || precision_.rounding == Rounding::kEachOperation;
  if (rounded_first) {
    auto* narrow = reinterpret_cast<std::byte*>(sums.data());
    encoding_->Fill(at, count, dtype_, narrow);
    Convert(dtype_, DType::kFP32, narrow, rows.data(), elements);
  } else {
    encoding_->Fill(at, count, DType::kFP32, reinterpret_cast<std::byte*>(rows.data()));
  }
  for (int64_t copy = 0; copy < copies_; ++copy) {
    const size_t before = std::exchange(*added, *added + elements);
    if (*added / 65536 != before / 65536) InterruptionPoint();
    const size_t begin = (copy * positions_.tokens() + token) * encoding_->dim() * size;
    Convert(dtype_, DType::kFP32, add_to + begin, sums.data(), elements);
    for (size_t n = 0; n < elements; ++n) sums[n] += rows[n];
    Convert(DType::kFP32, dtype_, sums.data(), out + begin, elements);
  }
}

absl::Status EmbeddingGeneration::Write(const std::byte* add_to, std::byte* out, WorkPool& pool,
                                        const Cancellation& cancelled) const {
  if (shape_.empty()) return absl::OkStatus();
  const size_t dim = encoding_->dim(), slab = std::clamp<size_t>(16384 / encoding_->steps(), 1, 1024);
  const auto write = [&](size_t begin, size_t end) {
    std::vector<double> at(end - begin);
    size_t added = 0;
    for (int64_t token = begin; token < static_cast<int64_t>(end);) {
      const int64_t stop = std::min<int64_t>(end, positions_.begin(positions_.SequenceOf(token) + 1));
      positions_.Fill(token, stop - token, at.data());
      if (add_to != nullptr) {
        Add(at.data(), token, stop - token, add_to, out, &added);
      } else {
        encoding_->Fill(at.data(), stop - token, dtype_, out + token * dim * SizeOf(dtype_));
      }
      token = stop;
    }
  };
  const size_t most = std::min<size_t>(slab, positions_.tokens());
  // Angles, their sines, and the rows of Add().
  const size_t bytes = most * dim * (2 * sizeof(double) + (add_to == nullptr ? 0 : 2 * sizeof(float)));
  return pool.ParallelFor(positions_.tokens(), slab, cancelled, write, static_cast<int64_t>(bytes));
}

}  // namespace posenc
