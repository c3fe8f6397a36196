// posenc-bench-wire: measures calls of a server beside calls of reference servers that do less, one JSON object per
// line (bench/README.md). scripts/bench --wire starts the servers.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <malloc.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <regex>
#include <thread>
#include <vector>

#include "bench/measure.h"
#include "bench/wire/cost.h"
#include "bench/wire/inference.h"
#include "bench/wire/layers.h"
#include "bench/wire/peers.h"
#include "bench/wire/requests.h"
#include "bench/wire/row.h"
#include "bench/wire/shared.h"
#include "bench/wire/traffic.h"

namespace posenc::bench {
namespace {

// Names of the servers that are measured. "unix" and "tls" are the same programs' over other transports.
constexpr const char* kServers[] = {"posenc",    "posenc-unix", "posenc-tls", "copy",
                                    "copy-unix", "copy-tls",    "echo",       "typed"};

using Servers = std::map<std::string, Server>;

struct Addresses {
  std::string posenc, echo, copy, typed, shared_memory_socket;
};

// Parses NAME=ADDRESS@PROCESS. Returns an empty map if one of kServers is absent or wrong.
Servers ParseServers(const std::vector<std::string>& texts) {
  static const std::regex form("([^=]+)=(.+)@([0-9]{1,9})");
  Servers servers;
  for (const std::string& text : texts) {
    std::smatch parts;
    if (std::regex_match(text, parts, form)) servers[parts[1]] = {parts[2], std::stoi(parts[3])};
  }
  for (const char* name : kServers) {
    if (!servers.contains(name)) return {};
  }
  return servers;
}

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
    Print({"decode step, p50", "echo", Median(warm[0]), Median(warm[1]), "ms", Ratios(warm[0], warm[1]), 1.1, false});
    double rope_theta = 1e4;
    grpc::ByteBuffer fresh;
    const auto cold = P50({&posenc_, &posenc_}, [&](size_t contestant) {
      if (contestant == 0) fresh = DecodeStep(++rope_theta);
      return contestant == 0 ? &fresh : &step;
    });
    std::vector<double> more;
    for (size_t round = 0; round < cold[0].size(); ++round) more.push_back(cold[0][round] - cold[1][round]);
    Print({"decode step with a cold plan, p50 less the warm one's", "warm", Median(cold[0]), Median(cold[1]), "ms",
           more, 1, false});
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
           Ratios(beside_ours, beside_echo), 1.3, false});
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
             inverse ? Ratios(theirs, ours) : Ratios(ours, theirs), goal, true});
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
  std::string kind, filter, shared_memory_socket, root_certificates;
  Listening listening;
  CLI::App* serve = app.add_subcommand("serve", "be one of those servers");
  serve->add_option("kind", kind, "echo, copy or typed")->required();
  serve->add_option("--port-file", listening.port_file, "gets the port")->required();
  serve->add_option("--unix-socket", listening.unix_socket, "path of a socket to serve, too");
  serve->add_option("--tls-cert", listening.certificate, "PEM file, to serve TLS");
  serve->add_option("--tls-key", listening.key, "PEM file of its key");
  std::vector<std::string> named;
  bool quick = false;
  CLI::App* measure = app.add_subcommand("measure", "call all of them in turn");
  measure->add_option("--server", named, fmt::format("NAME=ADDRESS@PROCESS of each of {}", fmt::join(kServers, ", ")))
      ->required();
  measure->add_option("--shared-memory-socket", shared_memory_socket, "posenc's")->required();
  measure->add_option("--root-certificates", root_certificates, "PEM file for the servers with TLS")->required();
  measure->add_option("--filter", filter, "regular expression: the cases whose name has a match");
  measure->add_flag("--quick", quick, "short rounds");
  CLI11_PARSE(app, argc, argv);
  if (*serve) return Serve(kind, listening) ? 0 : 1;
  const Servers servers = ParseServers(named);
  if (servers.empty()) {
    fmt::print(stderr, "posenc-bench-wire: --server: needs NAME=ADDRESS@PROCESS of each of {}\n",
               fmt::join(kServers, ", "));
    return 2;
  }

  std::regex expression;
  try {
    expression = filter;
  } catch (const std::regex_error& error) {
    fmt::print(stderr, "posenc-bench-wire: --filter: {} is no regular expression: {}\n", filter, error.what());
    return 2;
  }
  const auto wanted = [&](const std::string& name) { return std::regex_search(name, expression); };
  UseHeapForMessages();
  const Effort effort = Effort{1, quick ? 0.1 : 0.4};  // scripts/bench runs this program several times
  Bench bench({servers.at("posenc").address, servers.at("echo").address, servers.at("copy").address,
               servers.at("typed").address, shared_memory_socket},
              effort);
  bench.Sizes(wanted);
  bench.Inference(wanted);
  if (wanted("decode step")) bench.Decode();
  if (wanted("decode step beside calls of 64 MiB")) bench.DecodeBeside();
  if (wanted("decode steps of 64 layers")) MeasureLayers(servers.at("posenc").address, effort);
  bench.SharedMemory(wanted);
  MeasureCost({.posenc = servers.at("posenc"),
               .copy = servers.at("copy"),
               .posenc_unix = servers.at("posenc-unix"),
               .copy_unix = servers.at("copy-unix"),
               .posenc_tls = servers.at("posenc-tls"),
               .copy_tls = servers.at("copy-tls"),
               .root_certificates = ReadFile(root_certificates),
               .shared_memory_socket = shared_memory_socket},
              effort, wanted);
  return 0;
}

}  // namespace
}  // namespace posenc::bench

int main(int argc, char** argv) { return posenc::bench::Main(argc, argv); }
