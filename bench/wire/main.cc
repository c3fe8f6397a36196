// posenc-bench-wire: measures calls of a server beside calls of reference servers that do less, one JSON object per
// line (bench/README.md). scripts/bench --wire starts the servers.
#include <fmt/format.h>
#include <malloc.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <regex>
#include <thread>

#include "bench/measure.h"
#include "bench/wire/inference.h"
#include "bench/wire/layers.h"
#include "bench/wire/peers.h"
#include "bench/wire/requests.h"
#include "bench/wire/row.h"
#include "bench/wire/shared.h"
#include "bench/wire/traffic.h"

namespace posenc::bench {
namespace {

struct Addresses {
  std::string posenc, echo, copy, typed, shared_memory_socket;
};

class Bench {
 public:
  Bench(const Addresses& addresses, const Effort& effort)
      : effort_(effort),
        addresses_(addresses),
        posenc_(addresses.posenc, "ApplyRotary"),
        echo_(addresses.echo, "ApplyRotary"),
        copy_(addresses.copy, "ApplyRotary"),
        typed_(addresses.typed, "ApplyRotary") {}

  void Sizes(const std::function<bool(const std::string&)>& wanted) {
    for (const size_t concurrency : {1, 4}) {
      for (const size_t bytes : {16 * kKiB, 64 * kKiB, 256 * kKiB, kMiB, 4 * kMiB, 16 * kMiB, 64 * kMiB}) {
        const std::string name = fmt::format("{} x{}", SizeName(bytes), concurrency);
        if (wanted(name)) Size(name, bytes, concurrency);
      }
    }
  }

  void Inference(const std::function<bool(const std::string&)>& wanted) {
    MeasureInference({addresses_.posenc, addresses_.copy, addresses_.shared_memory_socket}, effort_, wanted);
  }

  void Decode() {
    const grpc::ByteBuffer step = DecodeStep();
    const auto warm = P50({&posenc_, &echo_}, [&](size_t) { return &step; });
    Print({"decode step, p50", "echo", Median(warm[0]), Median(warm[1]), "ms", MedianRatio(warm[0], warm[1]), 1.1,
           false});
    double rope_theta = 1e4;
    grpc::ByteBuffer fresh;
    const auto cold = P50({&posenc_, &posenc_}, [&](size_t contestant) {
      if (contestant == 0) fresh = DecodeStep(++rope_theta);
      return contestant == 0 ? &fresh : &step;
    });
    Print({"decode step with a cold plan, p50 less the warm one's", "warm", Median(cold[0]), Median(cold[1]), "ms",
           Median(cold[0]) - Median(cold[1]), 1, false});
  }

  // Measures decode steps while another client sends calls of 64 MiB, either to posenc or to the echo server.
  void DecodeBeside() {
    const grpc::ByteBuffer step = DecodeStep(), large = RotationOfSize(64 * kMiB);
    std::vector<double> beside_ours, beside_echo;
    for (int round = 0; round < effort_.rounds; ++round) {
      for (auto [background, tails] : {std::pair(&posenc_, &beside_ours), {&echo_, &beside_echo}}) {
        std::atomic<bool> stop = false;
        Caller other(background == &posenc_ ? addresses_.posenc : addresses_.echo, "ApplyRotary");
        std::thread thread([&] { other.RunUntil(stop, large); });
        tails->push_back(1e3 * posenc_.Run(step, 1, 4 * effort_.seconds, 200).Percentile(0.99));
        stop = true;
        thread.join();
      }
    }
    Print({"decode step beside calls of 64 MiB, p99", "beside echoes", Median(beside_ours), Median(beside_echo), "ms",
           MedianRatio(beside_ours, beside_echo), 3, false});
  }

  void SharedMemory(const std::function<bool(const std::string&)>& wanted) {
    for (const size_t bytes : {16 * kKiB, 256 * kKiB, 4 * kMiB, 64 * kMiB, 256 * kMiB}) {
      const std::string name = "shared memory " + SizeName(bytes);
      if (wanted(name)) MeasureShared(name, bytes, addresses_.shared_memory_socket, effort_, &posenc_, &echo_);
    }
  }

 private:
  void Size(const std::string& name, size_t bytes, size_t concurrency) {
    const grpc::ByteBuffer request = RotationOfSize(bytes);
    std::vector<std::pair<std::string, Caller*>> contestants = {
        {"posenc", &posenc_}, {"copy", &copy_}, {"echo", &echo_}, {"typed", &typed_}};
    std::map<std::string, std::vector<double>> p50, gb_s;
    for (int round = -1; round < effort_.rounds; ++round) {                          // round -1 is the warm-up
      std::rotate(contestants.begin(), contestants.begin() + 1, contestants.end());  // rotate the order of contestants
      for (const auto& [who, caller] : contestants) {
        const Load load = caller->Run(request, concurrency, round < 0 ? 0 : effort_.seconds, 3 * concurrency);
        if (round < 0) continue;
        p50[who].push_back(1e3 * load.Percentile(0.5));
        gb_s[who].push_back(load.CallsPerSecond() * static_cast<double>(bytes) / 1e9);
      }
    }
    const auto print = [&](const char* what, const char* unit, auto& figures, const char* other, bool inverse,
                           double goal) {
      const auto& ours = figures["posenc"];
      const auto& theirs = figures[other];
      Print({name + ", " + what, other, Median(ours), Median(theirs), unit,
             inverse ? MedianRatio(theirs, ours) : MedianRatio(ours, theirs), goal, true});
    };
    // The goals for 16 KiB and 4 MiB are what Triton with a C++ backend reaches: 1.33 and 1.02 times a copy's p50.
    print("p50", "ms", p50, "copy", true, bytes < 64 * kKiB ? 0.75 : bytes == 4 * kMiB ? 0.98 : 0.95);
    print("throughput", "GB/s", gb_s, "copy", false, bytes < 64 * kKiB ? 0 : 0.95);
    print("throughput", "GB/s", gb_s, "echo", false, 0);
    print("throughput", "GB/s", gb_s, "typed", false, bytes >= kMiB ? 2 : 0);
  }

  // Returns p50 in milliseconds with one call at a time: [caller][round].
  std::vector<std::vector<double>> P50(const std::vector<Caller*>& callers,
                                       const std::function<const grpc::ByteBuffer*(size_t contestant)>& request) {
    std::vector<std::vector<double>> p50(callers.size());
    for (int round = -1; round < 2 * effort_.rounds; ++round) {
      for (size_t n = 0; n < callers.size(); ++n) {
        const Load load = callers[n]->Run([&]() -> const grpc::ByteBuffer& { return *request(n); }, 1,
                                          round < 0 ? 0 : effort_.seconds, 200);
        if (round >= 0) p50[n].push_back(1e3 * load.Percentile(0.5));
      }
    }
    return p50;
  }

  const Effort effort_;
  const Addresses addresses_;
  Caller posenc_, echo_, copy_, typed_;
};

// Makes malloc treat all large requests and answers alike. By default it gives the first ones mappings of their own,
// and a request of 1 MiB in one takes up to 1.5 times as long as one in the heap.
void UseHeapForMessages() {
#ifdef __GLIBC__
  constexpr int kMost = 32 << 20;  // glibc's limit
  mallopt(M_MMAP_THRESHOLD, kMost);
  mallopt(M_TRIM_THRESHOLD, 8 * kMost);
#endif
}

int Main(int argc, char** argv) {
  CLI::App app("Measures calls beside those of servers that do less: one JSON object a line.");
  app.require_subcommand(1);
  std::string kind, port_file, filter;
  CLI::App* serve = app.add_subcommand("serve", "be one of those servers");
  serve->add_option("kind", kind, "echo, copy or typed")->required();
  serve->add_option("--port-file", port_file, "gets the port")->required();
  Addresses addresses;
  bool quick = false;
  CLI::App* measure = app.add_subcommand("measure", "call all of them in turn");
  measure->add_option("--posenc", addresses.posenc, "its address")->required();
  measure->add_option("--echo", addresses.echo, "its address")->required();
  measure->add_option("--copy", addresses.copy, "its address")->required();
  measure->add_option("--typed", addresses.typed, "its address")->required();
  measure->add_option("--shared-memory-socket", addresses.shared_memory_socket, "posenc's")->required();
  measure->add_option("--filter", filter, "regular expression: the cases whose name has a match");
  measure->add_flag("--quick", quick, "few and short rounds");
  CLI11_PARSE(app, argc, argv);
  if (*serve) return Serve(kind, port_file) ? 0 : 1;

  std::regex expression;
  try {
    expression = filter;
  } catch (const std::regex_error& error) {
    fmt::print(stderr, "posenc-bench-wire: --filter: {} is no regular expression: {}\n", filter, error.what());
    return 2;
  }
  const auto wanted = [&](const std::string& name) { return std::regex_search(name, expression); };
  UseHeapForMessages();
  const Effort effort = quick ? Effort{3, 0.1} : Effort{9, 0.4};
  Bench bench(addresses, effort);
  bench.Sizes(wanted);
  bench.Inference(wanted);
  if (wanted("decode step")) {
    bench.Decode();
    bench.DecodeBeside();
  }
  if (wanted("decode steps of 64 layers")) MeasureLayers(addresses.posenc, effort);
  bench.SharedMemory(wanted);
  return 0;
}

}  // namespace
}  // namespace posenc::bench

int main(int argc, char** argv) { return posenc::bench::Main(argc, argv); }
