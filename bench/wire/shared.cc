#include "bench/wire/shared.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "bench/wire/requests.h"
#include "bench/wire/row.h"
#include "posenc/client/shared_memory.h"
#include "posenc/in_process/in_process.h"

namespace posenc::bench {
namespace {

constexpr double kOfEmptyCall = 1.2;

void Require(const absl::Status& status) {
  if (!status.ok()) Fail(status.ToString());
}

// Does the same calls sequentially in this process, on as many threads as a server has by default.
Load RunHere(InProcess& engine, const v1::ApplyRotaryRequest& request, const CallOptions& options, double seconds,
             size_t calls) {
  using Clock = std::chrono::steady_clock;
  const auto since = [](Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  Load load;
  const Clock::time_point begin = Clock::now();
  while (since(begin) < seconds || load.seconds.size() < calls) {
    const Clock::time_point began = Clock::now();
    Require(engine.ApplyRotary(request, options).status());
    load.seconds.push_back(since(began));
  }
  load.elapsed = since(begin);
  std::sort(load.seconds.begin(), load.seconds.end());
  return load;
}

}  // namespace

void MeasureShared(const std::string& name, size_t bytes, const std::string& side_socket, const Effort& effort,
                   Caller* posenc, Caller* echo) {
  auto memory = SharedMemory::Create(side_socket, 2 * bytes);
  Require(memory.status());
  Fill(reinterpret_cast<char*>(memory->data()), bytes);

  const v1::ApplyRotaryRequest here = RotationWithoutData(bytes);
  CallOptions options;
  options.inputs = {{&here.q().tensor(), {memory->data(), bytes}}};
  options.outputs = {{memory->data() + bytes, bytes}};
  v1::ApplyRotaryRequest there = here;
  *there.mutable_q()->mutable_tensor()->mutable_region() = memory->Part(0, bytes);
  *there.mutable_q()->mutable_output() = memory->Part(bytes, bytes);
  const grpc::ByteBuffer shared = Serialize(there), empty = Serialize(v1::ApplyRotaryRequest());

  InProcess engine;
  std::vector<double> ours, others, ours_gb_s, others_gb_s;
  for (int round = -1; round < effort.rounds; ++round) {  // round -1 is the warm-up
    const double seconds = round < 0 ? 0 : effort.seconds;
    const Load call = posenc->Run(shared, 1, seconds, 3);
    const Load alone = RunHere(engine, here, options, seconds, 3);
    const Load nothing = echo->Run(empty, 1, seconds, 100);
    if (round < 0) continue;
    ours.push_back(1e3 * call.Percentile(0.5));
    others.push_back(1e3 * (alone.Percentile(0.5) + kOfEmptyCall * nothing.Percentile(0.5)));
    ours_gb_s.push_back(call.CallsPerSecond() * static_cast<double>(bytes) / 1e9);
    others_gb_s.push_back(alone.CallsPerSecond() * static_cast<double>(bytes) / 1e9);
  }
  Print({name + ", p50", "in process + 1.2 empty calls", Median(ours), Median(others), "ms", Ratios(ours, others), 1,
         false});
  if (bytes >= 64 * kMiB) {
    Print({name + ", throughput", "in process", Median(ours_gb_s), Median(others_gb_s), "GB/s",
           Ratios(ours_gb_s, others_gb_s), 0.95, true});
  }
}

}  // namespace posenc::bench
