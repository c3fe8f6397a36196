// Benchmark cases: whole in-process calls, table included; speed-up of two threads over one, and of keys that move in
// one rotation over an inverse and a forward one.
#include <optional>
#include <utility>

#include "bench/case.h"
#include "bench/memory.h"
#include "posenc/rotary/apply_rotary.h"

namespace posenc::bench {
namespace {

constexpr int64_t kHeadsOfCall = 32, kHeadDim = 128;

RotaryApplication Application(DType dtype, size_t bytes) {
  const auto tokens = static_cast<int64_t>(bytes / (kHeadsOfCall * kHeadDim * SizeOf(dtype)));
  const Rotary rotary = *Rotary::Create({.frequencies = RopeParameters{.rope_type = "default"},
                                         .rotary_dim = kHeadDim,
                                         .input_pairing = Pairing::kHalfSplit},
                                        Frequencies::kExact, {});
  ApplyRotary call;
  call.q.tensor = {dtype, {1, tokens, kHeadsOfCall, kHeadDim}};
  call.layout = Layout::kBSHD;
  call.positions.source = OffsetPositions{0};
  return *RotaryApplication::Create(rotary, std::move(call), {});
}

Contest Prepare(DType dtype, size_t bytes) {
  const auto application = std::make_shared<RotaryApplication>(Application(dtype, bytes));
  const Memory data = Allocate(bytes);
  const auto on = [application, data, bytes](size_t threads) -> Pass {
    const auto pool = std::make_shared<WorkPool>(threads);
    return [application, data, bytes, pool] {
      const ContiguousBytes x(data.get(), bytes);
      (void)application->Rotate({&x, data.get()}, {}, *pool, NeverCancelled);
    };
  };
  Contest contest;
  contest.subject = on(2);
  contest.copy = contest.memory.emplace_back(on(1));
  contest.against = "one thread";
  return contest;
}

// Keys of 8 heads, as models with grouped queries cache them. Each call has other positions, whose table is not kept.
struct Keys {
  TensorShape shape;
  Rotary from, to;

  static Rotary WithTheta(double theta) {
    return *Rotary::Create({.frequencies = RopeParameters{.rope_type = "default", .rope_theta = theta},
                            .rotary_dim = kHeadDim,
                            .input_pairing = Pairing::kHalfSplit},
                           Frequencies::kExact, {});
  }

  void Run(const Rotary& rotary, int64_t offset, Direction direction, std::optional<CachedKeys> cached,
           const ContiguousBytes& x, std::byte* y, WorkPool& pool) const {
    ApplyRotary call;
    call.q.tensor = {shape.dtype, {shape.shape[0], shape.shape[1], 0, kHeadDim}};
    call.k = RotaryOperand{shape};
    call.positions.source = OffsetPositions{offset};
    call.direction = direction;
    call.cached = std::move(cached);
    (void)RotaryApplication::Create(rotary, std::move(call), {})->Rotate({}, {&x, y}, pool, NeverCancelled);
  }
};

Contest PrepareMove(DType dtype, size_t heads, size_t bytes, double theta) {
  const auto tokens = static_cast<int64_t>(bytes / (heads * kHeadDim * SizeOf(dtype)));
  const auto keys = std::make_shared<const Keys>(
      Keys{{dtype, {1, tokens, static_cast<int64_t>(heads), kHeadDim}}, Keys::WithTheta(5e5), Keys::WithTheta(theta)});
  const Memory data = Allocate(bytes);
  const auto pool = std::make_shared<WorkPool>(1);
  const auto calls = std::make_shared<int64_t>(0);
  Contest contest;
  contest.subject = [=] {
    const ContiguousBytes x(data.get(), bytes);
    const int64_t at = ++*calls;
    CachedKeys cached{keys->from, {}, {}};
    cached.positions.source = OffsetPositions{5000 + at};
    keys->Run(keys->to, 3 * at, Direction::kForward, std::move(cached), x, data.get(), *pool);
  };
  contest.copy = contest.memory.emplace_back([=] {
    const ContiguousBytes x(data.get(), bytes);
    const int64_t at = ++*calls;
    keys->Run(keys->from, 5000 + at, Direction::kInverse, {}, x, data.get(), *pool);
    keys->Run(keys->to, 3 * at, Direction::kForward, {}, x, data.get(), *pool);
  });
  contest.against = "inverse, then forward";
  return contest;
}

}  // namespace

std::vector<Case> CallCases() {
  std::vector<Case> cases;
  for (const auto& [theta, variant] : {std::pair{5e5, "keys move"}, {1e6, "keys move to another theta"}}) {
    for (const auto& [heads, mebibytes] : {std::pair<size_t, size_t>{8, 1}, {8, 8}, {8, 64}, {1, 8}}) {
      for (const DType dtype : {DType::kFP32, DType::kBF16}) {
        const size_t bytes = mebibytes << 20;
        cases.push_back(
            {.work = "call",
             .dtype = ShortName(dtype),
             .pairing = "half_split",
             .head_dim = kHeadDim,
             .heads = heads,
             .bytes = bytes,
             .variant = variant + std::string(heads == 1 ? ", one head" : ""),
             .goal = 1 / 0.6,
             .threads = {1},
             .own_pool = true,
             .prepare = [=, theta = theta, heads = heads](Team&) { return PrepareMove(dtype, heads, bytes, theta); }});
      }
    }
  }
  for (const DType dtype : {DType::kFP32, DType::kBF16}) {
    for (const size_t bytes : {size_t{1} << 20, size_t{4} << 20, size_t{16} << 20}) {
      cases.push_back({.work = "call",
                       .dtype = ShortName(dtype),
                       .pairing = "half_split",
                       .head_dim = kHeadDim,
                       .heads = kHeadsOfCall,
                       .bytes = bytes,
                       .variant = "in place",
                       .goal = 1.8,
                       .threads = {2},
                       .own_pool = true,
                       .prepare = [=](Team&) { return Prepare(dtype, bytes); }});
    }
  }
  return cases;
}

}  // namespace posenc::bench
