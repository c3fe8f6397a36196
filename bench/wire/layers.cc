#include "bench/wire/layers.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "bench/wire/requests.h"
#include "bench/wire/row.h"
#include "bench/wire/traffic.h"

namespace posenc::bench {
namespace {

constexpr int64_t kLayers = 64;
// Layers of a model in which every sixth one has other settings, as in Gemma 3.
constexpr int64_t kOfOtherKind = 10;
constexpr size_t kInFlight = 16;
constexpr double kOneTheta = 1e6, kOtherTheta = 1e4;

// A group of calls that is timed as one: `requests` in turn, `times` times.
struct Group {
  std::vector<grpc::ByteBuffer> requests;
  int64_t times = 1;
  size_t in_flight = 1;
};

// Returns the milliseconds of one group: the mean, because it counts every call.
double Milliseconds(Caller* caller, const Group& group, double seconds) {
  constexpr size_t kLeast = 5;
  size_t calls = 0;
  const Load load =
      caller->Run([&]() -> const grpc::ByteBuffer& { return group.requests[calls++ % group.requests.size()]; },
                  group.in_flight, seconds, kLeast* group.requests.size() * static_cast<size_t>(group.times));
  return 1e3 / load.CallsPerSecond() * static_cast<double>(group.requests.size()) * static_cast<double>(group.times);
}

}  // namespace

void MeasureLayers(const std::string& posenc, const Effort& effort) {
  const size_t bytes = kLayers * DecodeStepBytes();
  const std::vector<Group> groups = {
      {{DecodeStep(kOneTheta, kLayers)}},
      {{RotationOfSize(bytes)}},
      {{DecodeStep(kOneTheta)}, kLayers},
      {{DecodeStep(kOneTheta)}, kLayers, kInFlight},
      {{DecodeStep(kOneTheta, kLayers - kOfOtherKind), DecodeStep(kOtherTheta, kOfOtherKind)}},
  };
  std::vector<std::vector<double>> taken(groups.size());
  for (int round = -1; round < 4 * effort.rounds; ++round) {  // round -1 is the warm-up
    Caller caller(posenc, "ApplyRotary");                     // the interval covers how connections differ
    for (size_t n = 0; n < groups.size(); ++n) {
      const size_t which = (n + static_cast<size_t>(round + 1)) % groups.size();
      Milliseconds(&caller, groups[which], 0);
      const double milliseconds = Milliseconds(&caller, groups[which], round < 0 ? 0 : effort.seconds / 2);
      if (round >= 0) taken[which].push_back(milliseconds);
    }
  }
  const auto print = [&](const std::string& name, size_t ours, const std::string& against, size_t theirs, double goal) {
    Print({name, against, Median(taken[ours]), Median(taken[theirs]), "ms", Ratios(taken[ours], taken[theirs]), goal,
           false});
  };
  const std::string one = fmt::format("decode steps of {} layers in one call", kLayers);
  const std::string calls = fmt::format("{} calls in a row", kLayers);
  print(one, 0, "one tensor of as many bytes", 1, 1.1);
  print(one, 0, calls, 2, 0.3);
  print(one, 0, fmt::format("{} calls, {} in flight", kLayers, kInFlight), 3, 0);
  print(fmt::format("decode steps of {} layers of two kinds in two calls", kLayers), 4, calls, 2, 0.3);
}

}  // namespace posenc::bench
