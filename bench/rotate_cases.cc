// Benchmark cases: rotation out of place and in place, over all types, pairings, widths and sizes.
#include <cmath>
#include <cstring>

#include "bench/rotation.h"
#include "bench/sweeps.h"
#include "posenc/base/caches.h"
#include "posenc/kernels/rotate_pairs.h"

namespace posenc::bench {
namespace {

// Tokens per sequence. All sequences of the batch use the same table, as in a call.
constexpr size_t kSequence = 256;

struct Kind {
  DType dtype;
  Pairing pairing;
  size_t head_dim;
  bool in_place;
  Rounding rounding = Rounding::kOnce;
  size_t rotary_dim = 0;     // 0: all of head_dim
  bool heads_first = false;  // [B, H, S, D]
};

// Rotates one tensor of `bytes` bytes with a team, sequence by sequence.
class Rotation {
 public:
  Rotation(const Kind& kind, size_t heads, size_t bytes) : kind_(kind) {
    const size_t token = heads * kind.head_dim * SizeOf(kind.dtype);
    tokens_ = bytes / token;
    sequence_ = std::min(tokens_, kSequence);
    x_ = Allocate(bytes);
    y_ = kind.in_place ? x_ : Allocate(bytes);
    const size_t rotary_dim = kind.rotary_dim == 0 ? kind.head_dim : kind.rotary_dim;
    const size_t row = kind.head_dim * SizeOf(kind.dtype);
    const size_t entries = sequence_ * rotary_dim / 2;
    cos_ = Allocate(entries * sizeof(float));
    sin_ = Allocate(entries * sizeof(float));
    for (size_t i = 0; i < entries; ++i) {
      // cos^2 + sin^2 = 1 keeps vector lengths constant, however often a tensor is rotated in place.
      reinterpret_cast<float*>(cos_.get())[i] = static_cast<float>(std::cos(0.1 * static_cast<double>(i)));
      reinterpret_cast<float*>(sin_.get())[i] = static_cast<float>(std::sin(0.1 * static_cast<double>(i)));
    }
    work_ = {.dtype = kind.dtype,
             .head_dim = kind.head_dim,
             .pairs = rotary_dim / 2,
             .input_pairing = kind.pairing,
             .output_pairing = kind.pairing,
             .rounding = kind.rounding,
             .large = ExceedsCaches(kind.in_place ? bytes : 2 * bytes),
             .table_dtype = DType::kFP32,
             .cos = cos_.get(),
             .sin = sin_.get(),
             .x = nullptr,
             .y = nullptr,
             .tokens = sequence_,
             .heads = heads,
             .token_stride = kind.heads_first ? row : token,
             .head_stride = kind.heads_first ? sequence_ * row : row};
  }

  const Memory& x() const { return x_; }
  const Memory& y() const { return y_; }

  void Run(Team& team) const {
    team.Share(tokens_, 1, [this](size_t begin, size_t end) {
      while (begin < end) {
        const size_t sequence = begin / sequence_, first = sequence * sequence_;
        const size_t stop = std::min(end, first + sequence_);
        PairRotation work = work_;
        const size_t start = first * work.heads * work.head_dim * SizeOf(work.dtype);
        work.x = x_.get() + start;
        work.y = y_.get() + start;
        RotatePairs(work, begin - first, stop - first);
        begin = stop;
      }
    });
  }

 private:
  Kind kind_;
  size_t tokens_;
  size_t sequence_;
  Memory x_, y_, cos_, sin_;
  PairRotation work_;
};

RotationContest Prepare(const Kind& kind, size_t bytes, Team& team) {
  const auto rotation = std::make_shared<Rotation>(kind, kHeads, bytes);
  const size_t row = kind.head_dim * SizeOf(kind.dtype);
  const size_t small_bytes = kind.in_place ? 16384 : 8192;
  const auto small = std::make_shared<Rotation>(kind, small_bytes / row, small_bytes);
  // The limits are measured on the same memory, because the placement of pages in the caches varies.
  const Memory from = rotation->x(), to = kind.in_place ? Allocate(bytes) : rotation->y();
  const auto sweep = [&team, bytes](auto part) -> Pass {
    return [&team, bytes, part] { team.Share(bytes, 4096, part); };
  };
  Contest contest;
  contest.subject = [rotation, &team] { rotation->Run(team); };
  const auto copy = [from, to](size_t begin, size_t end) {
    std::memcpy(to.get() + begin, from.get() + begin, end - begin);
  };
  contest.copy = [copy, bytes] { copy(0, bytes); };
  if (kind.in_place) {
    contest.memory = {sweep([from](size_t begin, size_t end) { ReadModifyWrite(from.get() + begin, end - begin); })};
  } else {
    contest.memory = {sweep(copy), sweep([from, to](size_t begin, size_t end) {
                        StreamCopy(to.get() + begin, from.get() + begin, end - begin);
                      })};
  }
  contest.small = [small] {
    static Team alone(1);
    small->Run(alone);
  };
  contest.small_share =
      static_cast<double>(bytes) / static_cast<double>(small_bytes) / static_cast<double>(team.threads());
  return {std::move(contest), from, to};
}

}  // namespace

RotationContest PrepareRotation(DType dtype, Pairing pairing, size_t head_dim, size_t bytes, Team& team) {
  return Prepare({dtype, pairing, head_dim, /*in_place=*/false}, bytes, team);
}

std::vector<Case> RotateCases() {
  std::vector<Case> cases;
  const auto add = [&cases](const Kind& kind, size_t bytes, const std::string& variant, double goal, bool quick) {
    cases.push_back({.work = "rotate",
                     .dtype = ShortName(kind.dtype),
                     .pairing = kind.pairing == Pairing::kInterleaved ? "interleaved" : "half_split",
                     .head_dim = kind.head_dim,
                     .heads = kHeads,
                     .bytes = bytes,
                     .variant = variant,
                     .goal = goal,
                     .quick = quick,
                     .prepare = [kind, bytes](Team& team) { return Prepare(kind, bytes, team).contest; }});
  };
  for (const DType dtype : {DType::kFP32, DType::kBF16, DType::kFP16}) {
    for (const Pairing pairing : {Pairing::kInterleaved, Pairing::kHalfSplit}) {
      for (const size_t head_dim : {64, 128, 256}) {
        for (const bool in_place : {false, true}) {
          for (size_t bytes = 64 << 10; bytes <= 256 << 20; bytes *= 4) {
            const bool quick = head_dim == 128 && (bytes == 64 << 10 || bytes == 4 << 20 || bytes == 64 << 20);
            add({dtype, pairing, head_dim, in_place}, bytes, in_place ? "in place" : "", 0.95, quick);
          }
        }
      }
    }
    for (const size_t bytes : {256 << 10, 16 << 20, 64 << 20}) {
      const Kind half{dtype, Pairing::kHalfSplit, 128, false};
      Kind eager = half, partial = half, strided = half;
      eager.rounding = Rounding::kEachOperation;
      partial.rotary_dim = 64;
      strided.heads_first = true;
      if (dtype != DType::kFP32) add(eager, bytes, "hf_eager", 0.9, false);
      add(partial, bytes, "partial", 0.9, false);
      add(strided, bytes, "BHSD", 0.9, false);
    }
  }
  return cases;
}

}  // namespace posenc::bench
