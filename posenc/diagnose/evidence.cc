#include "posenc/diagnose/evidence.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "posenc/base/checks.h"
#include "posenc/base/interruption.h"
#include "posenc/base/memory_account.h"
#include "posenc/base/status.h"
#include "posenc/kernels/convert.h"
#include "posenc/rotary/positions.h"

namespace posenc::diagnose {
namespace {

constexpr int64_t kSampledTokens = 640;
constexpr int64_t kSampledHeads = 8;
constexpr int64_t kSampledElements = int64_t{1} << 20;  // per operand; at least 16 head rows

absl::Status CheckType(std::string_view field, DType dtype) {
  switch (dtype) {
    case DType::kFP64:
    case DType::kFP32:
    case DType::kFP16:
    case DType::kBF16: return absl::OkStatus();
    default: return InvalidArgument("UNSUPPORTED", field, Name(dtype), "must be FP64, FP32, FP16 or BF16");
  }
}

std::vector<int64_t> SampledTokens(int64_t tokens, int64_t wanted) {
  std::vector<int64_t> chosen;
  if (tokens <= wanted) {
    for (int64_t n = 0; n < tokens; ++n) chosen.push_back(n);
    return chosen;
  }
  const int64_t run = wanted / 6;  // adjacent tokens in each of three places
  for (int64_t begin : {int64_t{0}, (tokens - run) / 2, tokens - run}) {
    for (int64_t n = 0; n < run; ++n) chosen.push_back(begin + n);
  }
  const int64_t between = wanted - static_cast<int64_t>(chosen.size());
  for (int64_t n = 0; n < between; ++n) chosen.push_back(tokens * n / between);
  std::sort(chosen.begin(), chosen.end());
  chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
  return chosen;
}

// Rows of the given tokens, of evenly spaced ones of the given heads.
Rows SampleRows(const Rows& all, const std::vector<int64_t>& tokens, const std::vector<int64_t>& heads) {
  Rows rows = all;
  rows.sampled_from = std::make_shared<const Rows>(all);
  rows.sampled_tokens = tokens;
  rows.layout = Layout::kTHD;
  rows.sequences = 1;
  rows.length = static_cast<int64_t>(tokens.size());
  const auto given = static_cast<int64_t>(heads.size());
  rows.heads = std::clamp<int64_t>(kSampledElements / (rows.length * all.width), 1, std::min(given, kSampledHeads));
  rows.sampled_heads.clear();
  for (int64_t h = 0; h < rows.heads; ++h) rows.sampled_heads.push_back(heads[given * h / rows.heads]);
  const auto take = [&](bool of_before, DType dtype) {
    const size_t row = all.width * SizeOf(dtype);
    std::vector<std::byte> bytes(rows.length * rows.heads * row);
    std::byte* out = bytes.data();
    for (int64_t n : tokens) {
      for (const int64_t h : rows.sampled_heads) {
        all.Load(of_before, {n, 1, h, 1}, out);
        out += row;
      }
    }
    return std::make_shared<const OwnedBytes>(std::move(bytes));
  };
  rows.before = take(true, all.before_dtype);
  rows.after = take(false, all.after_dtype);
  return rows;
}

// The form of a table whose form is not given: by the expected width, else by entries that occur twice in every row.
TableForm FormOf(const TablePair& table) {
  const std::vector<int64_t>& s = table.cos.shape;
  const bool fits = s.size() == 2 && s[0] > 0 && s[1] > 0 && s[1] % 2 == 0 && table.sin.shape == s &&
                    table.sin.dtype == table.cos.dtype;
  if (!fits || (table.rotary_dim && s[1] == *table.rotary_dim / 2)) return TableForm::kHalfWidth;
  const size_t size = SizeOf(table.cos.dtype), columns = s[1], half = columns / 2 / table.half_split_parts;
  bool duplicated = half > 0 && columns / 2 % table.half_split_parts == 0, repeated = true;
  std::vector<std::byte> line(columns * size);
  int64_t steps = 0;
  for (int64_t row = 0; row < s[0] && (duplicated || repeated); ++row) {
    for (const bool sines : {false, true}) {
      Copy(sines ? *table.sin_bytes : *table.cos_bytes, row * line.size(), line.size(), line.data());
      const auto equal = [&](size_t a, size_t b) {
        return std::memcmp(line.data() + a * size, line.data() + b * size, size) == 0;
      };
      for (size_t k = 0; k < columns; k += 2) {
        InterruptionPointOfStep(++steps);
        repeated = repeated && equal(k, k + 1);
      }
      for (size_t k = 0; duplicated && k < columns; ++k) {
        duplicated = k / half % 2 == 1 || equal(k, k + half);
      }
    }
  }
  if (duplicated) return TableForm::kDuplicated;
  return repeated ? TableForm::kRepeatInterleaved : TableForm::kHalfWidth;
}

}  // namespace

void Rows::Load(bool of_before, const Block& block, std::byte* out) const {
  const ByteSource& from = of_before ? *before : *after;
  const size_t row = width * SizeOf(of_before ? before_dtype : after_dtype);
  if (layout != Layout::kBHSD && block.heads == heads) {
    return Copy(from, block.token * heads * row, block.tokens * heads * row, out);
  }
  for (int64_t n = block.token; n < block.token + block.tokens; ++n) {
    for (int64_t h = block.head; h < block.head + block.heads; ++h, out += row) {
      const int64_t at = layout == Layout::kBHSD ? (n / length * heads + h) * length + n % length : n * heads + h;
      Copy(from, at * row, row, out);
    }
  }
}

std::vector<int64_t> Rows::Index(int64_t token, int64_t head, int64_t element) const {
  if (sampled_from != nullptr) {
    return sampled_from->Index(sampled_tokens[token], sampled_heads[head], element);
  }
  const int64_t sequence = token / length, within = token % length;
  switch (layout) {
    case Layout::kBSHD: return {sequence, within, head, element};
    case Layout::kBHSD: return {sequence, head, within, element};
    case Layout::kTHD: return {token, head, element};
  }
  __builtin_unreachable();
}

int64_t Tokens::SequenceOf(int64_t token) const {
  return std::upper_bound(bounds.begin(), bounds.end(), token) - bounds.begin() - 1;
}

absl::StatusOr<Rows> MakeRows(std::string_view field, Operand which, const TensorPair& pair, Layout layout,
                              const Limits& limits) {
  const std::string before = fmt::format("{}.before", field), after = fmt::format("{}.after", field);
  POSENC_RETURN_IF_ERROR(CheckType(before + ".dtype", pair.before.dtype));
  POSENC_RETURN_IF_ERROR(CheckType(after + ".dtype", pair.after.dtype));
  const std::vector<int64_t>& s = pair.before.shape;
  if (pair.after.shape != s) {
    return InvalidArgument("MISMATCH", after + ".shape", ToString(pair.after.shape),
                           fmt::format("must be equal to before.shape, {}", ToString(s)));
  }
  const size_t rank = layout == Layout::kTHD ? 3 : 4;
  if (s.size() != rank) {
    return InvalidArgument("MISMATCH", before + ".shape", ToString(s),
                           rank == 3                 ? "must be [T, H, D] for LAYOUT_THD"
                           : layout == Layout::kBSHD ? "must be [B, S, H, D] for LAYOUT_BSHD"
                                                     : "must be [B, H, S, D] for LAYOUT_BHSD");
  }
  POSENC_RETURN_IF_ERROR(ByteSize(before, pair.before, limits).status());
  if (pair.before.empty()) {
    return InvalidArgument("OUT_OF_RANGE", before + ".shape", ToString(s), "must not be empty");
  }
  Rows rows{.which = which, .layout = layout, .before_dtype = pair.before.dtype, .after_dtype = pair.after.dtype};
  rows.before = pair.x;
  rows.after = pair.y;
  rows.width = s.back();
  switch (layout) {
    case Layout::kBSHD: rows.sequences = s[0], rows.length = s[1], rows.heads = s[2]; break;
    case Layout::kBHSD: rows.sequences = s[0], rows.heads = s[1], rows.length = s[2]; break;
    case Layout::kTHD: rows.length = s[0], rows.heads = s[1]; break;
  }
  if (rows.width < 2 || rows.width > limits.max_rotary_dim) {
    return InvalidArgument("OUT_OF_RANGE", before + ".shape", ToString(s),
                           fmt::format("must be 2 .. {} in the last axis", limits.max_rotary_dim));
  }
  return rows;
}

absl::StatusOr<Rows> MakeTable(const TablePair& given, const Limits& limits) {
  TablePair table = given;
  for (TensorShape* tensor : {&table.cos, &table.sin}) {  // transformers' tables are [1, rows, rotary_dim]
    while (tensor->shape.size() > 2 && tensor->shape[0] == 1) tensor->shape.erase(tensor->shape.begin());
  }
  POSENC_RETURN_IF_ERROR(CheckType("cos.dtype", table.cos.dtype));
  const std::vector<int64_t>& s = table.cos.shape;
  const TableForm form = table.form ? *table.form : FormOf(table);
  const bool half = form == TableForm::kHalfWidth;
  if (s.size() != 2 || (!half && s[1] % 2 != 0)) {
    return InvalidArgument("MISMATCH", "cos.shape", ToString(s),
                           half ? "must be [rows, rotary_dim/2]" : "must be [rows, rotary_dim], rotary_dim even");
  }
  if (table.sin.shape != s || table.sin.dtype != table.cos.dtype) {
    return InvalidArgument("MISMATCH", "sin.shape", ToString(table.sin.shape),
                           "must be of the shape and dtype of cos: " + ToString(s));
  }
  POSENC_RETURN_IF_ERROR(ByteSize("cos", table.cos, limits).status());
  if (table.cos.empty()) {
    return InvalidArgument("OUT_OF_RANGE", "cos.shape", ToString(s), "must not be empty");
  }
  const int64_t rows = s[0], columns = s[1], pairs = half ? columns : columns / 2;
  if (2 * pairs > limits.max_rotary_dim) {
    return InvalidArgument("OUT_OF_RANGE", "cos.shape", ToString(s),
                           fmt::format("must have at most {} pairs in a row", limits.max_rotary_dim / 2));
  }
  const size_t size = SizeOf(table.cos.dtype);
  if (form == TableForm::kDuplicated && pairs % table.half_split_parts != 0) {
    return InvalidArgument("MISMATCH", "cos.shape", ToString(s),
                           fmt::format("must be a multiple of half_split_parts, {}, in pairs", table.half_split_parts));
  }
  const int64_t part = std::max<int64_t>(pairs / table.half_split_parts, 1);
  const auto column = [&](int64_t head, int64_t k) {
    switch (form) {
      case TableForm::kHalfWidth: return k;
      case TableForm::kDuplicated: return k + (k / part + head) * part;
      case TableForm::kRepeatInterleaved: return 2 * k + head;
      case TableForm::kPerElement: break;  // refused where the request is read
    }
    __builtin_unreachable();
  };
  const int64_t heads = columns / pairs;  // the first and the second elements of the pairs
  const LargeBlocksMayBeRefused scope;
  std::vector<std::byte> before(rows * heads * 2 * pairs * size), after(before.size()), line(columns * size);
  std::vector<std::byte> ones(pairs * size);
  Convert(DType::kFP64, table.cos.dtype, std::vector<double>(pairs, 1).data(), ones.data(), pairs);
  int64_t steps = 0;
  for (int64_t row = 0; row < rows; ++row) {
    for (const bool sines : {false, true}) {
      Copy(sines ? *table.sin_bytes : *table.cos_bytes, row * columns * size, line.size(), line.data());
      for (int64_t head = 0; head < heads; ++head) {
        const int64_t half_row = 2 * (row * heads + head);
        if (!sines) std::memcpy(before.data() + half_row * ones.size(), ones.data(), ones.size());
        std::byte* const out = after.data() + (half_row + (sines ? 1 : 0)) * ones.size();
        for (int64_t k = 0; k < pairs; ++k) {
          InterruptionPointOfStep(++steps);
          std::memcpy(out + k * size, line.data() + column(head, k) * size, size);
        }
      }
    }
  }
  Rows made{.layout = Layout::kTHD, .before_dtype = table.cos.dtype, .after_dtype = table.cos.dtype};
  made.length = rows;
  made.heads = heads;
  made.width = 2 * pairs;
  made.before = std::make_shared<const OwnedBytes>(std::move(before));
  made.after = std::make_shared<const OwnedBytes>(std::move(after));
  return made;
}

absl::StatusOr<Tokens> MakeTokens(Positions positions, const std::optional<Rotary>& asked, int64_t sequences,
                                  int64_t length, bool packed, const Limits& limits) {
  const LargeBlocksMayBeRefused scope;
  int64_t axes = 1;
  const bool by_axis =
      positions.axis_dimension == AxisDimension::kFirst || positions.axis_dimension == AxisDimension::kLast;
  if (const auto* ids = std::get_if<PositionIds>(&positions.source); ids != nullptr && by_axis) axes = ids->axes;
  if (asked) axes = asked->axes();
  if (axes < 1 || axes > kMaxAxes) {
    return InvalidArgument("OUT_OF_RANGE", "ids.shape", fmt::format("{} axes", axes),
                           fmt::format("must be 1 .. {} axes", kMaxAxes));
  }
  POSENC_ASSIGN_OR_RETURN(const TokenPositions resolved,
                          TokenPositions::Create(std::move(positions), {sequences, length, packed, axes}, limits));
  // One position per axis and token is stored, which can be much larger than the request.
  const int64_t most = limits.max_request_bytes / static_cast<int64_t>(sizeof(double));
  if (resolved.tokens() > 0 && axes > most / resolved.tokens()) {
    return TooLarge("", fmt::format("{} axes of {} tokens", axes, resolved.tokens()),
                    fmt::format("must be at most {} in axes times tokens", most));
  }
  Tokens tokens;
  for (int64_t n = 0; n <= resolved.sequences(); ++n) tokens.bounds.push_back(resolved.begin(n));
  tokens.positions.resize(axes);
  for (int64_t axis = 0; axis < axes; ++axis) {
    tokens.positions[axis].resize(resolved.tokens());
    for (int64_t n = 0; n < resolved.sequences(); ++n) {
      if (n % 256 == 0) InterruptionPoint();
      const int64_t begin = resolved.begin(n);
      resolved.Fill(begin, resolved.begin(n + 1) - begin, tokens.positions[axis].data() + begin, axis);
    }
  }
  if (asked && asked->NeedsSeqLen()) {
    POSENC_ASSIGN_OR_RETURN(tokens.seq_len, resolved.ScalingLengths(limits));
  } else {
    POSENC_RETURN_IF_ERROR(resolved.RefuseScalingLength());
  }
  return tokens;
}

Box Whole(const Evidence& all) {
  Box box;
  box.tokens.resize(all.tokens.count());
  std::iota(box.tokens.begin(), box.tokens.end(), 0);
  for (size_t n = 0; n < all.operands.size(); ++n) {
    box.operands.push_back(n);
    box.heads.emplace_back(all.operands[n].heads);
    std::iota(box.heads[n].begin(), box.heads[n].end(), 0);
  }
  return box;
}

Evidence Sample(const Evidence& all, const Box& box) {
  int64_t width = 0;
  for (const size_t n : box.operands) width = std::max(width, all.operands[n].width);
  const int64_t wanted = std::clamp<int64_t>(kSampledElements / width, 16, kSampledTokens);
  std::vector<int64_t> chosen = SampledTokens(static_cast<int64_t>(box.tokens.size()), wanted);
  for (int64_t& n : chosen) n = box.tokens[n];
  Evidence sample;
  sample.is_table = all.is_table;
  for (size_t n = 0; n < box.operands.size(); ++n) {
    sample.operands.push_back(SampleRows(all.operands[box.operands[n]], chosen, box.heads[n]));
  }
  sample.tokens.positions.resize(all.tokens.axes());
  const bool one_length = all.tokens.seq_len.size() <= 1;
  int64_t last = -1;
  for (int64_t n : chosen) {
    const int64_t sequence = one_length ? 0 : all.tokens.SequenceOf(n);
    if (sequence != last) {
      sample.tokens.bounds.push_back(static_cast<int64_t>(sample.tokens.positions[0].size()));
      if (!one_length) sample.tokens.seq_len.push_back(all.tokens.seq_len[sequence]);
      last = sequence;
    }
    for (int64_t axis = 0; axis < all.tokens.axes(); ++axis) {
      sample.tokens.positions[axis].push_back(all.tokens.positions[axis][n]);
    }
  }
  sample.tokens.bounds.push_back(static_cast<int64_t>(chosen.size()));
  if (one_length) sample.tokens.seq_len = all.tokens.seq_len;
  return sample;
}

}  // namespace posenc::diagnose
