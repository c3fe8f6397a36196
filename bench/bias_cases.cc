// Dense biases of one head, written or added to scores in place.
#include <cstring>
#include <numeric>

#include "bench/case.h"
#include "bench/memory.h"
#include "bench/sweeps.h"
#include "posenc/caches.h"
#include "posenc/kernels/distance_bias.h"

namespace posenc::bench {
namespace {

constexpr size_t kKeys = 4096;

enum class Values { kLinear, kToeplitz };

class Bias {
 public:
  Bias(Values values, DType dtype, bool add, size_t keys, size_t bytes)
      : positions_(bytes / keys / SizeOf(dtype) + keys), list_(positions_.size(), 0.25f), out_(Allocate(bytes)) {
    std::iota(positions_.begin(), positions_.end(), 0.0);
    work_.dtype = dtype;
    work_.rounding = Rounding::kOnce;
    work_.queries = bytes / keys / SizeOf(dtype);
    work_.keys = keys;
    if (values == Values::kLinear) {
      work_.query_positions = work_.key_positions = positions_.data();
      work_.past_slope = 0.0625f;
      work_.future_slope = -0.0625f;
    } else {
      work_.bias = list_.data() + work_.queries;
      work_.bias_stride = -1;
    }
    work_.out = out_.get();
    if (add) work_.scores = out_.get();
    work_.large = ExceedsCaches(bytes);
  }
  Bias(const Bias&) = delete;
  Bias& operator=(const Bias&) = delete;

  void Run(Team& team) const {
    team.Share(work_.queries, 1, [this](size_t begin, size_t end) { posenc::Run(work_, begin, end); });
  }

 private:
  std::vector<double> positions_;
  std::vector<float> list_;
  Memory out_;
  DistanceBias work_;
};

Contest Prepare(Values values, DType dtype, bool add, size_t bytes, Team& team) {
  const auto bias = std::make_shared<Bias>(values, dtype, add, kKeys, bytes);
  constexpr size_t kSmall = 16384;
  const auto small = std::make_shared<Bias>(values, dtype, add, 1024, kSmall);
  const Memory from = Allocate(bytes), to = Allocate(bytes);
  const auto sweep = [&team, bytes, to](void (*run)(std::byte*, size_t)) -> Pass {
    return [&team, bytes, to, run] {
      team.Share(bytes, 4096, [&](size_t begin, size_t end) { run(to.get() + begin, end - begin); });
    };
  };
  Contest contest;
  contest.subject = [bias, &team] { bias->Run(team); };
  contest.copy = [from, to, bytes] { std::memcpy(to.get(), from.get(), bytes); };
  if (add) {
    contest.memory = {sweep(ReadModifyWrite)};
  } else {
    contest.memory = {sweep(Store), sweep(StreamStore)};
  }
  contest.small = [small] {
    static Team alone(1);
    small->Run(alone);
  };
  contest.small_share = static_cast<double>(bytes) / kSmall / static_cast<double>(team.threads());
  return contest;
}

}  // namespace

std::vector<Case> BiasCases() {
  std::vector<Case> cases;
  for (const DType dtype : {DType::kFP32, DType::kBF16}) {
    for (const Values values : {Values::kLinear, Values::kToeplitz}) {
      for (const bool add : {false, true}) {
        for (size_t bytes = 256 << 10; bytes <= 256 << 20; bytes *= 4) {
          cases.push_back({.work = values == Values::kLinear ? "alibi" : "t5",
                           .dtype = ShortName(dtype),
                           .pairing = "dense",
                           .heads = 1,
                           .bytes = bytes,
                           .variant = add ? "added in place" : "",
                           .shape = {{"queries", bytes / kKeys / SizeOf(dtype)}, {"keys", kKeys}},
                           .goal = 0.9,
                           .quick = bytes == 64 << 20,
                           .prepare = [=](Team& team) { return Prepare(values, dtype, add, bytes, team); }});
        }
      }
    }
  }
  return cases;
}

}  // namespace posenc::bench
