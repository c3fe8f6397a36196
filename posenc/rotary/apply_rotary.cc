#include "posenc/rotary/apply_rotary.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "posenc/base/caches.h"
#include "posenc/base/checks.h"
#include "posenc/base/status.h"
#include "posenc/kernels/convert.h"
#include "posenc/kernels/rotate_pairs.h"
#include "posenc/kernels/scale_rows.h"
#include "posenc/rotary/rotate_pieces.h"
#include "posenc/rotary/slab_table.h"

namespace posenc {
namespace {

// Bytes per slab: enough work to outweigh scheduling. Cancellation is checked once per slab, and after as many bytes of
// a token's heads.
constexpr int64_t kSlabBytes = int64_t{1} << 20;
// Bytes of a token above which its heads are divided among threads.
constexpr int64_t kLargeTokenBytes = 16 * kSlabBytes;

absl::StatusOr<TensorAxes> ReadAxes(std::string_view name, const TensorShape& tensor, Layout layout) {
  const auto& s = tensor.shape;
  const int64_t rank = layout == Layout::kTHD ? 3 : 4;
  if (tensor.rank() != rank) {
    return InvalidArgument("MISMATCH", fmt::format("{}.tensor.shape", name), ToString(s),
                           rank == 3                 ? "must be [T, H, D] for LAYOUT_THD"
                           : layout == Layout::kBSHD ? "must be [B, S, H, D] for LAYOUT_BSHD"
                                                     : "must be [B, H, S, D] for LAYOUT_BHSD");
  }
  switch (layout) {
    case Layout::kBSHD: return TensorAxes{s[0], s[1], s[2], s[3]};
    case Layout::kBHSD: return TensorAxes{s[0], s[2], s[1], s[3]};
    case Layout::kTHD: return TensorAxes{1, s[0], s[1], s[2]};
  }
  __builtin_unreachable();
}

// Bytes of memory that a rotation of `bytes` bytes touches: `bytes` in place, otherwise twice that (read x, write y).
int64_t TouchedBytes(const RotaryApplication::Buffers& buffers, int64_t bytes) {
  return buffers.x->From(0).data() == buffers.y ? bytes : 2 * bytes;
}

absl::StatusOr<TensorAxes> CheckOperand(std::string_view name, const RotaryOperand& operand, Layout layout,
                                        const Rotary& rotary, const Limits& limits) {
  const int64_t rotary_dim = rotary.rotary_dim();
  const DType dtype = operand.tensor.dtype;
  POSENC_RETURN_IF_ERROR(CheckDataType(fmt::format("{}.tensor.dtype", name), dtype));
  POSENC_ASSIGN_OR_RETURN(const TensorAxes axes, ReadAxes(name, operand.tensor, layout));
  POSENC_RETURN_IF_ERROR(ByteSize(fmt::format("{}.tensor", name), operand.tensor, limits).status());
  if (axes.head_dim < rotary_dim) {
    return InvalidArgument("MISMATCH", fmt::format("{}.tensor.shape", name), ToString(operand.tensor.shape),
                           fmt::format("must be at least the rotary width {} in its last axis", rotary_dim));
  }
  if (operand.rotary_offset < 0 || operand.rotary_offset > axes.head_dim - rotary_dim) {
    return InvalidArgument("OUT_OF_RANGE", fmt::format("{}.rotary_offset", name),
                           fmt::format("{}", operand.rotary_offset),
                           fmt::format("must be 0 .. {}, head width minus rotary width", axes.head_dim - rotary_dim));
  }
  if (rotary.heads() > 1 && axes.heads != rotary.heads()) {
    return InvalidArgument("MISMATCH", fmt::format("{}.tensor.shape", name), ToString(operand.tensor.shape),
                           fmt::format("must have {} heads: each has its own entries", rotary.heads()));
  }
  return axes;
}

DType TypeOfTable(TableDtype table_dtype, DType tensor) {
  switch (table_dtype) {
    case TableDtype::kFloat32: return DType::kFP32;
    case TableDtype::kFloat64: return DType::kFP64;
    case TableDtype::kTensor: return tensor;
  }
  __builtin_unreachable();
}

// Splits [first, end) into the rest of a unit, whole units, and the beginning of a unit. Calls partial(unit, begin, end
// within it) and whole(first unit, end).
template <typename Partial, typename Whole>
void Split(int64_t first, int64_t end, int64_t unit, const Partial& partial, const Whole& whole) {
  if (first == end) return;
  int64_t n = first / unit;
  const int64_t last = end / unit, begin = first % unit, stop = end % unit;
  if (n == last) return partial(n, begin, stop);
  if (begin != 0) partial(n++, begin, unit);
  if (n < last) whole(n, last);
  if (stop != 0) partial(last, 0, stop);
}

// Copies the head rows of a layer that does not rotate.
void CopyRows(const PairRotation& work, const ByteSource& x, std::byte* y, size_t start) {
  const size_t row = work.head_dim * SizeOf(work.dtype);
  const bool heads_first = work.token_stride == row;
  const size_t count = heads_first ? work.heads : work.tokens, bytes = row * (heads_first ? work.tokens : work.heads);
  for (size_t n = 0; n < count; ++n) {
    const size_t at = start + n * (heads_first ? work.head_stride : work.token_stride);
    Copy(x, at, bytes, y + at);
  }
}

// Gives each token of a table with rows by token its row.
absl::Status PlaceTokens(const GivenTable& table, const TensorAxes& q, Layout layout, Positions& positions) {
  if (!std::holds_alternative<std::monostate>(positions.source)) {
    return InvalidArgument("CONFLICT", "positions", "", "must have no source with a given_table with rows by token");
  }
  const int64_t tokens = table.rows / table.sequences;
  if (layout == Layout::kTHD || q.sequences != table.sequences || q.length != tokens) {
    return InvalidArgument(
        "MISMATCH", "rotary.settings.given_table.cos.shape", fmt::format("[{}, {}, ...]", table.sequences, tokens),
        layout == Layout::kTHD ? "must be [rows, ...] for LAYOUT_THD: offset or offsets select the rows"
                               : fmt::format("must begin with q's B and S, {} and {}", q.sequences, q.length));
  }
  auto& offsets = positions.source.emplace<PerSequenceOffsets>().offsets;
  for (int64_t n = 0; n < table.sequences; ++n) offsets.push_back(n * tokens);
  return absl::OkStatus();
}

// Returns the axes of the keys that `pages` lists in the cache k. Sets page_size.
absl::StatusOr<TensorAxes> AxesOfPages(const KeyPages& pages, const TensorAxes& k, Layout layout, int64_t* page_size) {
  if (layout == Layout::kTHD) {
    return InvalidArgument("UNSUPPORTED", "layout", "LAYOUT_THD",
                           "must be LAYOUT_BSHD or LAYOUT_BHSD: k is a paged cache, B pages of S tokens");
  }
  POSENC_RETURN_IF_ERROR(Check(pages, k.sequences, k.length));
  *page_size = k.length;
  return TensorAxes{1, pages.tokens, k.heads, k.head_dim};
}

// Returns the rows that turn cached keys on.
absl::StatusOr<TableRows> MovedRows(TableRows to, const CachedKeys& cached, const TokenGrid& grid,
                                    const Limits& limits) {
  const auto within = [](const absl::Status& status) { return Within("cached_keys", status); };
  auto positions = TokenPositions::Create(cached.positions, grid, limits);
  if (!positions.ok()) return within(Within("positions", positions.status()));
  auto from = TableRows::Create(cached.rotary, *std::move(positions), Direction::kForward, limits);
  if (!from.ok()) return within(from.status());
  return TableRows::Moving(std::move(to), *std::move(from), limits);
}

}  // namespace

absl::StatusOr<RotaryApplication> RotaryApplication::Create(const Rotary& rotary, ApplyRotary call,
                                                            const Limits& limits) {
  TensorAxes q, k;
  int64_t page_size = 0;
  if (call.k) {
    POSENC_ASSIGN_OR_RETURN(k, CheckOperand("k", *call.k, call.layout, rotary, limits));
  }
  if (call.cached) {
    POSENC_RETURN_IF_ERROR(CheckMove(call.cached->rotary, rotary));
    if (call.direction != Direction::kForward) {
      return InvalidArgument("CONFLICT", "direction", "",
                             "must be DIRECTION_FORWARD with cached_keys: exchange the positions to move keys back");
    }
    if (call.cached->pages) {
      POSENC_ASSIGN_OR_RETURN(k, AxesOfPages(*call.cached->pages, k, call.layout, &page_size));
    }
    call.q.tensor = {call.k->tensor.dtype, {0}};
    q = {k.sequences, k.length, 0, k.head_dim};
  } else {
    POSENC_ASSIGN_OR_RETURN(q, CheckOperand("q", call.q, call.layout, rotary, limits));
  }
  if (call.k) {
    if (k.sequences != q.sequences || k.length != q.length) {
      return InvalidArgument("MISMATCH", "k.tensor.shape", ToString(call.k->tensor.shape),
                             fmt::format("must have the same {} as q, {}",
                                         call.layout == Layout::kTHD ? "T" : "B and S", ToString(call.q.tensor.shape)));
    }
  }
  if (rotary.table() != nullptr && rotary.table()->sequences > 0) {
    POSENC_RETURN_IF_ERROR(PlaceTokens(*rotary.table(), q, call.layout, call.positions));
  }
  const TokenGrid grid = {q.sequences, q.length, call.layout == Layout::kTHD, rotary.axes(), rotary.ReadsCacheIndex()};
  auto positions = TokenPositions::Create(std::move(call.positions), grid, limits);
  if (!positions.ok()) return Within("positions", positions.status());
  POSENC_ASSIGN_OR_RETURN(TableRows rows, TableRows::Create(rotary, *std::move(positions), call.direction, limits));
  if (call.cached) {
    POSENC_ASSIGN_OR_RETURN(rows, MovedRows(std::move(rows), *call.cached, grid, limits));
  }
  RotaryApplication application(std::move(call), q, k, std::move(rows));
  application.input_pairing_ = application.call_.cached ? rotary.output_pairing() : rotary.input_pairing();
  application.output_pairing_ = rotary.output_pairing();
  application.half_split_parts_ = static_cast<size_t>(rotary.half_split_parts());
  application.page_size_ = page_size;
  application.by_head_ = rotary.heads() > 1;
  application.differs_in_pair_ = rotary.differs_in_pair();
  return application;
}

DType RotaryApplication::TableType(Operand which) const {
  return TypeOfTable(call_.precision.table_dtype, operand(which).tensor.dtype);
}

const RotaryOperand& RotaryApplication::operand(Operand which) const {
  return which == Operand::kQuery ? call_.q : *call_.k;
}

std::shared_ptr<const SlabTable> RotaryApplication::Table(const Cells& cells, Operand which,
                                                          const Tables* tables) const {
  if (tables != nullptr) return tables->at({cells.token, which});
  return TableOf(rows_, cells.token, cells.tokens, TableType(which), which, ScalesRows(which));
}

// Kernel arguments for the cells, except for the table, x and y.
PairRotation RotaryApplication::Work(const Cells& cells, Operand which) const {
  const RotaryOperand& rotated = operand(which);
  const TensorAxes& axes = axes_of(which);
  const size_t row = axes.head_dim * SizeOf(rotated.tensor.dtype);
  const bool heads_first = call_.layout == Layout::kBHSD;
  return {
      .dtype = rotated.tensor.dtype,
      .head_dim = static_cast<size_t>(axes.head_dim),
      .rotary_offset = static_cast<size_t>(rotated.rotary_offset),
      .pairs = rows_.pairs(),
      .input_pairing = input_pairing_,
      .output_pairing = output_pairing_,
      .half_split_parts = half_split_parts_,
      .rounding = call_.precision.rounding,
      .table_dtype = DType::kFP32,
      .cos = nullptr,
      .sin = nullptr,
      .x = nullptr,
      .y = nullptr,
      .tokens = static_cast<size_t>(cells.tokens),
      .heads = static_cast<size_t>(cells.heads),
      .token_stride = heads_first ? row : row * axes.heads,
      .head_stride = heads_first ? row * (is_paged() ? page_size_ : axes.length) : row,
      .token_entries = rows_.width(),
      .head_entries = by_head_ ? rows_.pairs() * (differs_in_pair_ ? 2 : 1) : 0,
      .second_entry = differs_in_pair_ ? rows_.pairs() : 0,
  };
}

// Byte offset of the cells' first head row in the tensor.
size_t RotaryApplication::Start(const Cells& cells, Operand which) const {
  const TensorAxes& axes = axes_of(which);
  int64_t sequence = cells.token / axes.length, within = cells.token % axes.length, length = axes.length;
  if (is_paged()) {
    const KeyPages& pages = *call_.cached->pages;
    const int64_t slot = pages.first_slot + cells.token;
    sequence = pages.block_table[slot / page_size_];
    within = slot % page_size_;
    length = page_size_;
  }
  const int64_t first = call_.layout == Layout::kBHSD ? (sequence * axes.heads + cells.head) * length + within
                                                      : (sequence * length + within) * axes.heads + cells.head;
  return first * axes.head_dim * SizeOf(operand(which).tensor.dtype);
}

void RotaryApplication::Rotate(const Cells& cells, Operand which, const SlabTable& table, bool large, Buffers buffers,
                               size_t origin) const {
  // All heads, unless one token has more bytes than a slab; the tokens of one page.
  Cells some = cells;
  const int64_t end = cells.head + cells.heads, end_token = cells.token + cells.tokens;
  const auto next = [&] {
    some.head += some.heads;
    if (some.head == end) some = {some.token + some.tokens, 0, cells.head, 0};
  };
  for (; some.token < end_token; next()) {
    some.tokens = InOnePage(some.token, end_token - some.token);
    if (some.head > cells.head) InterruptionPoint();
    some.heads = std::min(HeadsOfSlab(which, some.tokens), end - some.head);
    PairRotation work = Work(some, which);
    work.large = large && !ScalesRows(which);
    work.table_dtype = table.widened();
    work.cos = table.cos();
    work.sin = table.sin();
    Advance(work, some.token - cells.token, some.head);
    const size_t start = Start(some, which) - origin;
    if (work.pairs == 0) {
      CopyRows(work, *buffers.x, buffers.y, start);
    } else {
      RotatePieces(work, *buffers.x, buffers.y, start);
    }
    if (ScalesRows(which)) ScaleCells(some, which, table, buffers.y + start);
  }
}

absl::Status RotaryApplication::CheckPagesInPlace(bool in_place) const {
  if (!is_paged() || in_place) return absl::OkStatus();
  return InvalidArgument(
      "UNSUPPORTED", "cached_keys.pages", "an output apart",
      "must be absent unless k is rotated in place: in shared memory, in a device's memory or in the "
      "caller's process");
}

int64_t RotaryApplication::InOnePage(int64_t token, int64_t most) const {
  if (!is_paged()) return most;
  return std::min(most, page_size_ - (call_.cached->pages->first_slot + token) % page_size_);
}

bool RotaryApplication::ScalesRows(Operand which) const {
  return which == Operand::kQuery && rows_.scales_query() &&
         (!rows_.contain_factors() || axes_of(which).head_dim > 2 * static_cast<int64_t>(rows_.pairs()));
}

void RotaryApplication::ScaleCells(const Cells& cells, Operand which, const SlabTable& table, std::byte* y) const {
  const PairRotation rotated = Work(cells, which);
  const std::vector<float>* factors = &table.factors();
  std::vector<float> rounded;
  const size_t element = SizeOf(rotated.dtype);
  const auto scale = [&](size_t first, size_t end) {
    constexpr size_t kTogether = size_t{1} << 18;  // of a row, between interruption points
    for (size_t at = first; at < end; at += kTogether) {
      if (at > first) InterruptionPoint();
      ScaleRows({.dtype = rotated.dtype,
                 .elements = std::min(kTogether, end - at),
                 .factors = factors->data(),
                 .y = y + at * element,
                 .tokens = rotated.tokens,
                 .heads = rotated.heads,
                 .token_stride = rotated.token_stride,
                 .head_stride = rotated.head_stride});
    }
  };
  if (rows_.contain_factors()) {
    scale(0, rotated.rotary_offset);
    return scale(rotated.rotary_offset + 2 * rotated.pairs, rotated.head_dim);
  }
  if (rows_.plan(0).query_scale->rounds_factor) {
    rounded = *factors;
    RoundTo(rotated.dtype, rounded.data(), rounded.size());
    factors = &rounded;
  }
  scale(0, rotated.head_dim);
}

int64_t RotaryApplication::HeadsOfSlab(Operand which, int64_t tokens) const {
  return std::max<int64_t>(kSlabBytes / (RowBytes(which) * tokens), 1);
}

RotaryApplication::Division RotaryApplication::Divide() const {
  const bool share = rows_.same_for_all();
  Division division;
  division.items = share ? q_axes_.length : rows_.positions().tokens();
  division.repeats = share ? q_axes_.sequences : 1;
  const int64_t token_bytes =
      ((has_q() ? TokenBytes(Operand::kQuery) : 0) + (has_k() ? TokenBytes(Operand::kKey) : 0)) * division.repeats;
  division.slab = Slab(token_bytes);
  division.together = std::clamp<int64_t>(kSlabBytes * division.repeats / token_bytes, 1, division.repeats);
  division.parts = (division.repeats + division.together - 1) / division.together;
  return division;
}

template <typename Visit>
void RotaryApplication::ForEachTable(const Division& division, int64_t begin, int64_t end, const Visit& visit) const {
  if (division.parts > 1) {
    for (int64_t n = begin; n < end; ++n) visit(Cells{n / division.parts, 1, 0, 0}, n % division.parts);
    return;
  }
  // A slab may span sequences; each sequence's part gets its own table.
  const TokenPositions& positions = rows_.positions();
  for (int64_t token = begin; token < end;) {
    const int64_t stop = std::min(end, positions.begin(positions.SequenceOf(token) + 1));
    visit(Cells{token, stop - token, 0, 0}, 0);
    token = stop;
  }
}

bool RotaryApplication::HaveOneTable() const {
  return has_q() && has_k() && !rows_.differ_by_operand() && TableType(Operand::kQuery) == TableType(Operand::kKey);
}

bool RotaryApplication::has_small_tables() const {
  if (!has_q() && !has_k()) return true;
  const auto entry = [this](Operand which) {
    return TableType(which) == DType::kFP64 ? sizeof(double) : sizeof(float);
  };
  size_t entries = 0;
  if (has_q()) entries += entry(Operand::kQuery);
  if (has_k() && !HaveOneTable()) entries += entry(Operand::kKey);
  return Divide().items <= static_cast<int64_t>((size_t{1} << 20) / (2 * entries * std::max<size_t>(rows_.width(), 1)));
}

RotaryApplication::Tables RotaryApplication::AllTables() const {
  Tables tables;
  if (!has_q() && !has_k()) return tables;
  const auto add = [&](const Cells& cells, Operand which) {
    InterruptionPoint();
    auto& table = tables[{cells.token, which}];
    if (table == nullptr) table = Table(cells, which);
  };
  const Division division = Divide();
  const int64_t all = division.items * division.parts;
  for (int64_t begin = 0; begin < all; begin += division.slab) {
    ForEachTable(division, begin, std::min(all, begin + division.slab), [&](const Cells& cells, int64_t) {
      if (has_q()) add(cells, Operand::kQuery);
      if (has_k() && !HaveOneTable()) add(cells, Operand::kKey);
    });
  }
  return tables;
}

absl::Status RotaryApplication::Rotate(Buffers q, Buffers k, WorkPool& pool, const Cancellation& cancelled,
                                       Device* device, const Tables* tables) const {
  if (!has_q() && !has_k()) return absl::OkStatus();
  if (has_k()) POSENC_RETURN_IF_ERROR(CheckPagesInPlace(k.x->From(0).data() == k.y));
  if (device != nullptr && CanRunOnDevice()) {
    return RunOn(*device, has_q() ? q : Buffers(), has_k() ? k : Buffers(), pool, cancelled);
  }

  const Division division = Divide();
  int64_t touched = 0;
  const auto count = [&](Operand which, const Buffers& buffers) {
    touched += TouchedBytes(buffers, division.items * TokenBytes(which) * division.repeats);
  };
  if (has_q()) count(Operand::kQuery, q);
  if (has_k()) count(Operand::kKey, k);
  const bool large = ExceedsCaches(touched);

  const auto is_large = [this](Operand which) { return TokenBytes(which) > kLargeTokenBytes; };
  if ((has_q() && is_large(Operand::kQuery)) || (has_k() && is_large(Operand::kKey))) {
    return RotateLargeTokens(division, q, k, large, pool, cancelled, tables);
  }

  const auto rotate = [&](Operand which, Buffers buffers, Cells cells, const SlabTable& table, int64_t part) {
    cells.heads = axes_of(which).heads;
    const int64_t end = std::min(division.repeats, (part + 1) * division.together);
    for (int64_t n = part * division.together; n < end; ++n) {
      Cells of_sequence = cells;
      of_sequence.token += n * q_axes_.length;
      Rotate(of_sequence, which, table, large, buffers, 0);
    }
  };
  const bool one_table = HaveOneTable();
  const auto rotate_both = [&](const Cells& cells, int64_t part) {
    const auto table = Table(cells, has_q() ? Operand::kQuery : Operand::kKey, tables);
    if (has_q()) rotate(Operand::kQuery, q, cells, *table, part);
    if (has_k())
      rotate(Operand::kKey, k, cells, has_q() && !one_table ? *Table(cells, Operand::kKey, tables) : *table, part);
  };
  const auto rotate_slab = [&](int64_t begin, int64_t end) { ForEachTable(division, begin, end, rotate_both); };
  const int64_t row = std::max(has_q() ? RowBytes(Operand::kQuery) : 0, has_k() ? RowBytes(Operand::kKey) : 0);
  return pool.ParallelFor(division.items * division.parts, division.slab, cancelled, rotate_slab, row);
}

absl::Status RotaryApplication::RotateLargeTokens(const Division& division, Buffers q, Buffers k, bool large,
                                                  WorkPool& pool, const Cancellation& cancelled,
                                                  const Tables* tables) const {
  const auto rotate = [&](int64_t token, Operand which, const SlabTable& table, Buffers buffers) {
    const int64_t heads = axes_of(which).heads, together = HeadsOfSlab(which, 1);
    const int64_t parts = (heads + together - 1) / together;
    const auto rotate_parts = [&](size_t begin, size_t end) {
      for (auto n = static_cast<int64_t>(begin); n < static_cast<int64_t>(end); ++n) {
        Cells some{token + n / parts * q_axes_.length, 1, n % parts * together, 0};
        some.heads = std::min(together, heads - some.head);
        Rotate(some, which, table, large, buffers, 0);
      }
    };
    return pool.ParallelFor(division.repeats * parts, 1, cancelled, rotate_parts, RowBytes(which));
  };
  return RunInterruptibly(cancelled, [&]() -> absl::Status {
    for (int64_t token = 0; token < division.items; ++token) {
      const Cells cells{token, 1, 0, 0};
      auto table = Table(cells, has_q() ? Operand::kQuery : Operand::kKey, tables);
      if (has_q()) POSENC_RETURN_IF_ERROR(rotate(token, Operand::kQuery, *table, q));
      if (!has_k()) continue;
      if (has_q() && !HaveOneTable()) table = Table(cells, Operand::kKey, tables);
      POSENC_RETURN_IF_ERROR(rotate(token, Operand::kKey, *table, k));
    }
    return absl::OkStatus();
  });
}

std::vector<RotaryApplication::Cells> RotaryApplication::CellsOf(Operand which, int64_t first, int64_t end) const {
  const TensorAxes& axes = axes_of(which);
  std::vector<Cells> all;
  if (call_.layout != Layout::kBHSD) {
    Split(
        first, end, axes.heads,
        [&](int64_t token, int64_t head, int64_t stop) {
          all.push_back({token, 1, head, stop - head});
        },
        [&](int64_t token, int64_t stop) {
          all.push_back({token, stop - token, 0, axes.heads});
        });
    return all;
  }
  const int64_t length = axes.length;
  Split(
      first, end, length,
      [&](int64_t matrix, int64_t within, int64_t stop) {
        all.push_back({matrix / axes.heads * length + within, stop - within, matrix % axes.heads, 1});
      },
      [&](int64_t begin, int64_t stop) {
        Split(
            begin, stop, axes.heads,
            [&](int64_t sequence, int64_t head, int64_t last) {
              all.push_back({sequence * length, length, head, last - head});
            },
            [&](int64_t sequence, int64_t last) {
              all.push_back({sequence * length, (last - sequence) * length, 0, axes.heads});
            });
      });
  return all;
}

absl::Status RotaryApplication::RotateRows(Operand which, int64_t first, int64_t count, Buffers buffers, WorkPool& pool,
                                           const Cancellation& cancelled) const {
  if (count == 0) return absl::OkStatus();
  const TokenPositions& positions = rows_.positions();
  const int64_t row = RowBytes(which);
  const bool large = ExceedsCaches(TouchedBytes(buffers, count * row));
  for (const Cells& block : CellsOf(which, first, first + count)) {
    const int64_t slab = Slab(row * block.heads);
    const auto rotate_slab = [&](size_t begin, size_t end) {
      const auto last = block.token + static_cast<int64_t>(end);
      for (int64_t token = block.token + static_cast<int64_t>(begin); token < last;) {
        const int64_t stop = std::min(last, positions.begin(positions.SequenceOf(token) + 1));
        const Cells cells{token, stop - token, block.head, block.heads};
        Rotate(cells, which, *Table(cells, which), large, buffers, first * row);
        token = stop;
      }
    };
    POSENC_RETURN_IF_ERROR(pool.ParallelFor(block.tokens, slab, cancelled, rotate_slab, row));
  }
  return absl::OkStatus();
}

int64_t RotaryApplication::RowBytes(Operand which) const {
  return axes_of(which).head_dim * static_cast<int64_t>(SizeOf(operand(which).tensor.dtype));
}

int64_t RotaryApplication::TokenBytes(Operand which) const { return axes_of(which).heads * RowBytes(which); }

int64_t RotaryApplication::Slab(int64_t token_bytes) const {
  const int64_t most = std::clamp<int64_t>(16384 / std::max<int64_t>(rows_.width(), 1), 1, 1024);
  return std::clamp<int64_t>(kSlabBytes / token_bytes, 1, most);
}

}  // namespace posenc
