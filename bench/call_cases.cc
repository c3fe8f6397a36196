// Benchmark cases: whole in-process calls, table included; speed-up of two threads over one.
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

}  // namespace

std::vector<Case> CallCases() {
  std::vector<Case> cases;
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
