// Benchmark cases: dense biases of one head, written, or added to scores in place.
#include <cstring>

#include "bench/case.h"
#include "bench/memory.h"
#include "bench/sweeps.h"
#include "posenc/base/caches.h"
#include "posenc/bias/generate_bias.h"
#include "posenc/kernels/distance_bias.h"

namespace posenc::bench {
namespace {

constexpr size_t kKeys = 4096;

enum class Values { kAlibi, kToeplitz };

// Kernel loop alone for biases with one value per distance, such as T5's.
class Toeplitz {
 public:
  Toeplitz(DType dtype, bool add, size_t keys, size_t bytes)
      : list_(bytes / keys / SizeOf(dtype) + keys, 0.25f), out_(Allocate(bytes)) {
    work_.dtype = dtype;
    work_.rounding = Rounding::kOnce;
    work_.queries = bytes / keys / SizeOf(dtype);
    work_.keys = keys;
    work_.bias = GivenBias{list_.data() + work_.queries, -1};
    work_.out = out_.get();
    if (add) work_.scores = out_.get();
    work_.large = ExceedsCaches(bytes);
  }
  Toeplitz(const Toeplitz&) = delete;
  Toeplitz& operator=(const Toeplitz&) = delete;

  const Memory& out() const { return out_; }
  void Run(Team& team) const {
    team.Share(work_.queries, 1, [this](size_t begin, size_t end) { ComputeDistanceBias(work_, begin, end); });
  }

 private:
  std::vector<float> list_;
  Memory out_;
  DistanceBias work_;
};

// ALiBi's whole call for one head; the call computes each head's values once.
Pass Alibi(DType dtype, bool add, size_t bytes, const Memory& out) {
  const auto queries = static_cast<int64_t>(bytes / kKeys / SizeOf(dtype));
  GenerateBias call;
  AlibiSettings settings;
  settings.form = AlibiForm::kSymmetric;
  settings.num_heads = 1;
  settings.slopes = AlibiSlopeRule::kPowerOfTwo;
  call.method.settings = settings;
  call.dtype = dtype;
  call.geometry.query_length = queries;
  call.geometry.key_length = kKeys;
  call.geometry.query = OffsetPositions{0};
  if (add) call.scores = TensorShape{dtype, {1, 1, queries, kKeys}};
  const auto bias = std::make_shared<const BiasGeneration>(*BiasGeneration::Create(std::move(call), {}));
  const auto pool = std::make_shared<WorkPool>(1);
  return [bias, pool, out, add] { (void)bias->Write(add ? out.get() : nullptr, out.get(), *pool, NeverCancelled); };
}

Contest Prepare(Values values, DType dtype, bool add, size_t bytes, Team& team) {
  const auto toeplitz = std::make_shared<Toeplitz>(dtype, add, kKeys, bytes);
  const Memory out = toeplitz->out(), other = Allocate(bytes);
  const auto sweep = [&team, bytes, out](void (*run)(std::byte*, size_t)) -> Pass {
    return [&team, bytes, out, run] {
      team.Share(bytes, 4096, [&](size_t begin, size_t end) { run(out.get() + begin, end - begin); });
    };
  };
  Contest contest;
  contest.copy = [out, other, bytes] { std::memcpy(other.get(), out.get(), bytes); };
  if (add) {
    contest.memory = {sweep(ReadModifyWrite)};
  } else {
    contest.memory = {sweep(Store), sweep(StreamStore)};
  }
  constexpr size_t kSmall = 16384;
  const auto small = std::make_shared<Toeplitz>(dtype, add, 1024, kSmall);
  contest.small = [small] {
    static Team alone(1);
    small->Run(alone);
  };
  contest.small_share = static_cast<double>(bytes) / kSmall / static_cast<double>(team.threads());
  if (values == Values::kAlibi) {
    contest.subject = Alibi(dtype, add, bytes, out);
  } else {
    contest.subject = [toeplitz, &team] { toeplitz->Run(team); };
  }
  return contest;
}

}  // namespace

std::vector<Case> BiasCases() {
  std::vector<Case> cases;
  for (const DType dtype : {DType::kFP32, DType::kBF16}) {
    for (const Values values : {Values::kAlibi, Values::kToeplitz}) {
      for (const bool add : {false, true}) {
        for (size_t bytes = 256 << 10; bytes <= 256 << 20; bytes *= 4) {
          cases.push_back({.work = values == Values::kAlibi ? "alibi" : "t5",
                           .dtype = ShortName(dtype),
                           .pairing = "dense",
                           .heads = 1,
                           .bytes = bytes,
                           .variant = add ? "added in place" : "",
                           .shape = {{"queries", bytes / kKeys / SizeOf(dtype)}, {"keys", kKeys}},
                           .goal = 0.9,
                           .quick = bytes == 64 << 20,
                           .threads = values == Values::kAlibi ? std::vector<size_t>{1} : std::vector<size_t>{1, 2},
                           .prepare = [=](Team& team) { return Prepare(values, dtype, add, bytes, team); }});
        }
      }
    }
  }
  return cases;
}

}  // namespace posenc::bench
