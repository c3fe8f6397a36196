#include "bench/wire/cost.h"

#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <ctime>
#include <thread>
#include <vector>

#include "bench/wire/requests.h"
#include "bench/wire/row.h"
#include "bench/wire/traffic.h"
#include "posenc/client/shared_memory.h"

namespace posenc::bench {
namespace {

// Goals for the server's seconds relative to the copying server's.
constexpr double kOfLargeCopy = 1.1;  // from 1 MiB
constexpr double kOfSmallCopy = 1.25;
constexpr double kOfTlsCopy = 1.05;

double SecondsOn(clockid_t clock) {
  timespec time;
  if (clock_gettime(clock, &time) != 0) Fail("a server has ended");
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Clock of the user and system time of all threads of a process, also of those that have ended.
clockid_t ClockOf(pid_t process) {
  clockid_t clock;
  if (clock_getcpuclockid(process, &clock) != 0) Fail(fmt::format("no process {}", process));
  return clock;
}

using Requests = std::vector<grpc::ByteBuffer>;

struct Contestant {
  Server server;
  Requests requests;                                             // are sent in turn
  std::function<double()> more = [] { return 0.0; };             // seconds to add to each of the server's calls
  std::vector<double> server_seconds = {}, client_seconds = {};  // per call: [round]
};

struct Case {
  std::string name;
  size_t bytes, callers;
  double goal;  // 0: none
  std::string root_certificates;
};

class CostBench {
 public:
  CostBench(const CostServers& servers, const Effort& effort,
            const std::function<bool(const std::string& name)>& wanted)
      : servers_(servers), rounds_(effort.rounds), wanted_(wanted) {}

  void InMessages(const std::string& transport, const Server& posenc, const Server& copy, bool tls) {
    const auto add = [&](const std::string& size, const grpc::ByteBuffer& request, size_t bytes) {
      const double goal = tls ? kOfTlsCopy : bytes >= kMiB ? kOfLargeCopy : bytes <= kStep ? kOfSmallCopy : 0;
      for (const size_t callers : kCallers) {
        Run({fmt::format("cost {} {} x{}", transport, size, callers), bytes, callers, goal,
             tls ? servers_.root_certificates : ""},
            {posenc, {request}}, {copy, {request}});
      }
    };
    // After large messages the server polls with one more thread for a second, and it still unmaps shared memory.
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    add("decode step", DecodeStep(), kStep);
    for (const size_t bytes : kSizes) add(SizeName(bytes), RotationOfSize(bytes), bytes);
  }

  // Each caller rotates the same tensor to a place of its own. The other server copies as small a message; the time of
  // a copy of the tensor in this process is added.
  void InSharedMemory() {
    for (const size_t bytes : kSizes) {
      auto memory = SharedMemory::Create(servers_.shared_memory_socket, (1 + kMostCallers) * bytes);
      if (!memory.ok()) Fail(memory.status().ToString());
      Fill(reinterpret_cast<char*>(memory->data()), (1 + kMostCallers) * bytes);
      for (const size_t callers : kCallers) {
        Requests requests;
        for (size_t n = 0; n < callers; ++n) {
          v1::ApplyRotaryRequest request = RotationWithoutData(bytes);
          *request.mutable_q()->mutable_tensor()->mutable_region() = memory->Part(0, bytes);
          *request.mutable_q()->mutable_output() = memory->Part((1 + n) * bytes, bytes);
          requests.push_back(Serialize(request));
        }
        const auto copy = [&] {
          const size_t copies = callers * (1 + kMiB / bytes);
          const double began = SecondsOn(CLOCK_THREAD_CPUTIME_ID);
          for (size_t n = 0; n < copies; ++n) {
            std::memcpy(memory->data() + (1 + n % callers) * bytes, memory->data(), bytes);
          }
          return (SecondsOn(CLOCK_THREAD_CPUTIME_ID) - began) / static_cast<double>(copies);
        };
        const double goal = bytes >= kMiB ? kOfLargeCopy : bytes <= kStep ? kOfSmallCopy : 0;
        Run({fmt::format("cost shared memory {} x{}", SizeName(bytes), callers), bytes, callers, goal, ""},
            {servers_.posenc, requests}, {servers_.copy, requests, copy});
      }
    }
  }

 private:
  static constexpr double kSeconds = 0.1;     // of a round, at least
  static constexpr size_t kStep = 16 * kKiB;  // at most the size of a decode step
  static constexpr size_t kSizes[] = {16 * kKiB, 256 * kKiB, kMiB, 16 * kMiB, 64 * kMiB};
  static constexpr size_t kMostCallers = 16;
  static constexpr size_t kCallers[] = {1, 4, kMostCallers};

  // Each round has new connections, so that the interval covers how they differ.
  void Round(const Case& measured, Contestant* contestant) const {
    const clockid_t server = ClockOf(contestant->server.process);
    const size_t callers = measured.callers, warm_up = measured.bytes < kMiB ? 30 * callers : callers;
    size_t calls = 0;
    const auto request = [&]() -> const grpc::ByteBuffer& {
      return contestant->requests[calls++ % contestant->requests.size()];
    };
    Caller caller(contestant->server.address, "ApplyRotary", {callers, measured.root_certificates});
    caller.Run(request, callers, 0, warm_up);
    const double server_began = SecondsOn(server), client_began = SecondsOn(CLOCK_PROCESS_CPUTIME_ID);
    const auto ended = static_cast<double>(caller.Run(request, callers, kSeconds, callers).seconds.size());
    const double server_seconds = SecondsOn(server) - server_began;
    contestant->client_seconds.push_back((SecondsOn(CLOCK_PROCESS_CPUTIME_ID) - client_began) / ended);
    contestant->server_seconds.push_back(server_seconds / ended + contestant->more());
  }

  void Run(const Case& measured, Contestant posenc, Contestant copy) const {
    if (!wanted_(measured.name)) return;
    for (int round = 0; round < rounds_; ++round) {
      Round(measured, round % 2 == 0 ? &posenc : &copy);
      Round(measured, round % 2 == 0 ? &copy : &posenc);
    }
    const bool large = measured.bytes >= kMiB;
    const double scale = large ? 1e9 / static_cast<double>(measured.bytes) : 1e6;
    const auto print = [&](const char* who, const std::vector<double>& ours, const std::vector<double>& theirs,
                           double goal) {
      Print({fmt::format("{}, {}", measured.name, who), "copy", scale * Median(ours), scale * Median(theirs),
             large ? "s/GB" : "s/1e6 calls", Ratios(ours, theirs), goal, false});
    };
    print("server", posenc.server_seconds, copy.server_seconds, measured.goal);
    print("client", posenc.client_seconds, copy.client_seconds, 0);
  }

  const CostServers& servers_;
  const int rounds_;
  const std::function<bool(const std::string& name)>& wanted_;
};

}  // namespace

void MeasureCost(const CostServers& servers, const Effort& effort,
                 const std::function<bool(const std::string& name)>& wanted) {
  CostBench bench(servers, effort, wanted);
  bench.InMessages("TCP", servers.posenc, servers.copy, false);
  bench.InMessages("Unix socket", servers.posenc_unix, servers.copy_unix, false);
  bench.InMessages("TLS", servers.posenc_tls, servers.copy_tls, true);
  bench.InSharedMemory();
}

}  // namespace posenc::bench
