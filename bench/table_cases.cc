// Benchmark cases: cold tables of cosines and sines for consecutive positions.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "bench/case.h"
#include "bench/memory.h"
#include "bench/sweeps.h"
#include "posenc/base/caches.h"
#include "posenc/kernels/sincos_rows.h"
#include "posenc/kernels/target.h"

namespace posenc::bench {
namespace {

Contest Prepare(Frequencies frequencies, DType dtype, size_t pairs, double scale, size_t bytes, Team& team) {
  const size_t rows = bytes / (2 * pairs * SizeOf(dtype)), half = bytes / 2;
  const auto positions = std::make_shared<std::vector<double>>(rows);
  const auto inv_freq = std::make_shared<std::vector<double>>(pairs);
  std::iota(positions->begin(), positions->end(), 0.0);
  for (size_t i = 0; i < pairs; ++i) (*inv_freq)[i] = std::pow(10000.0, -static_cast<double>(i) / pairs);
  const Memory out = Allocate(bytes), other = Allocate(bytes);
  const SinCosRows work = {.frequencies = frequencies,
                           .dtype = dtype,
                           .positions = positions->data(),
                           .inv_freq = inv_freq->data(),
                           .rows = rows,
                           .pairs = pairs,
                           .scale = scale,
                           .cos = out.get(),
                           .sin = out.get() + half,
                           .large = ExceedsCore(bytes)};
  const auto sweep = [&team, bytes, out](void (*store)(std::byte*, size_t)) -> Pass {
    return [&team, bytes, out, store] {
      team.Share(bytes, 4096, [&](size_t begin, size_t end) { store(out.get() + begin, end - begin); });
    };
  };
  Contest contest;
  contest.subject = [positions, inv_freq, out, work, &team] {
    team.Share(work.rows, 1, [&work](size_t begin, size_t end) { ComputeSinCosRows(work, begin, end); });
  };
  contest.copy = [out, other, bytes] { std::memcpy(other.get(), out.get(), bytes); };
  contest.memory = {sweep(Store), sweep(StreamStore)};
  return contest;
}

}  // namespace

std::vector<Case> TableCases() {
  const std::string target = CpuTarget();
  const double goal = target == "avx3" ? 0.4 : 0.2;
  std::vector<Case> cases;
  const auto add = [&](Frequencies frequencies, DType dtype, size_t head_dim, double scale, size_t bytes, bool quick) {
    const bool goal_holds = frequencies == Frequencies::kExact && dtype == DType::kFP32;
    const std::string recipe = frequencies == Frequencies::kExact ? "exact" : "float32";
    cases.push_back(
        {.work = "tables",
         .dtype = ShortName(dtype),
         .pairing = recipe,
         .head_dim = head_dim,
         .bytes = bytes,
         .variant = scale != 1   ? "scaled"
                    : goal_holds ? ""
                                 : "no goal",
         .shape = {{"tokens", bytes / head_dim / SizeOf(dtype)}},
         .goal = goal_holds ? goal : 0,
         .quick = quick,
         .prepare = [=](Team& team) { return Prepare(frequencies, dtype, head_dim / 2, scale, bytes, team); }});
  };
  for (const size_t bytes : {size_t{64} << 10, size_t{1} << 20, size_t{16} << 20, size_t{64} << 20}) {
    for (const size_t head_dim : {64, 128, 256}) {
      add(Frequencies::kExact, DType::kFP32, head_dim, 1, bytes, head_dim == 128 && bytes != 1 << 20);
    }
    add(Frequencies::kExact, DType::kFP32, 128, 1.1386294361119891, bytes, false);
    add(Frequencies::kExact, DType::kBF16, 128, 1, bytes, false);
    add(Frequencies::kExact, DType::kFP16, 128, 1, bytes, false);
    add(Frequencies::kFloat32, DType::kFP32, 128, 1, bytes, false);
  }
  return cases;
}

}  // namespace posenc::bench
