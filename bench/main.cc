// posenc-bench: measures posenc's loops beside the physical limits, one JSON object per line (bench/README.md).
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>

#include "bench/case.h"
#include "posenc/kernels/target.h"

namespace posenc::bench {
namespace {

nlohmann::ordered_json Compare(const Case& c, size_t threads, const Effort& effort) {
  Team team(c.own_pool ? 1 : threads);
  const Contest contest = c.prepare(team);
  std::vector<Pass> passes = {contest.subject, contest.copy};
  if (contest.small) passes.push_back(contest.small);
  const size_t meeting = passes.size();
  passes.push_back([&team] { team.Share(team.threads(), 1, [](size_t, size_t) {}); });
  const size_t first_memory = passes.size();
  passes.insert(passes.end(), contest.memory.begin(), contest.memory.end());
  const auto seconds = Measure(passes, effort);

  // The memory roof is the faster of the memory passes. The ratio's roof is the lower of memory and arithmetic.
  size_t memory = first_memory;
  for (size_t i = first_memory + 1; i < passes.size(); ++i) {
    if (Median(seconds[i]) < Median(seconds[memory])) memory = i;
  }
  const std::vector<double> of_memory = Ratios(seconds[memory], seconds[0]);
  std::vector<double> of_arithmetic(of_memory.size());
  if (contest.small) {
    of_arithmetic = Ratios(seconds[2], seconds[0]);
    for (double& ratio : of_arithmetic) ratio *= contest.small_share;
    // Adds the cost of synchronizing the threads, which the memory sweeps include too.
    const std::vector<double> of_meeting = Ratios(seconds[meeting], seconds[0]);
    for (size_t round = 0; threads > 1 && round < of_meeting.size(); ++round) of_arithmetic[round] += of_meeting[round];
  }
  const bool by_memory = Median(of_memory) >= Median(of_arithmetic);
  const double subject = Median(seconds[0]);
  nlohmann::ordered_json line = {{"case", c.Name(threads)},
                                 {"work", c.work},
                                 {"dtype", c.dtype},
                                 {"pairing", c.pairing},
                                 {"head_dim", c.head_dim},
                                 {"heads", c.heads},
                                 {"bytes", c.bytes},
                                 {"threads", threads},
                                 {"target", CpuTarget()},
                                 {"seconds", subject},
                                 {"gb_s", static_cast<double>(c.bytes) / subject / 1e9},
                                 {"copy_seconds", Median(seconds[1])},
                                 {"of_memory", Median(of_memory)},
                                 {"of_arithmetic", Median(of_arithmetic)},
                                 {"roof", by_memory ? contest.against : "arithmetic"},
                                 {"ratios", by_memory ? of_memory : of_arithmetic},
                                 {"at_least", true},
                                 {"goal", c.goal > 0 ? nlohmann::ordered_json(c.goal) : nlohmann::ordered_json()}};
  if (!c.variant.empty()) line["variant"] = c.variant;
  for (const auto& [name, size] : c.shape) line[name] = size;
  return line;
}

int Main(int argc, char** argv) {
  CLI::App app("Measures posenc's loops against the limits of memory and arithmetic; prints one JSON object per line.");
  bool quick = false, list = false;
  std::string filter;
  std::vector<size_t> threads = {1, 2};
  app.add_flag("--quick", quick, "fewer cases, fewer rounds");
  app.add_flag("--list", list, "print only the names of the cases");
  app.add_option("--filter", filter, "regular expression; run only the cases whose name matches");
  app.add_option("--threads", threads, "run only the cases with these numbers of threads")->delimiter(',');
  CLI11_PARSE(app, argc, argv);
  if (const absl::Status status = ForceCpuTargetFromEnvironment(); !status.ok()) {
    fmt::print(stderr, "posenc-bench: {}\n", std::string(status.message()));
    return 2;
  }

  std::regex wanted;
  try {
    wanted = filter;
  } catch (const std::regex_error& error) {
    fmt::print(stderr, "posenc-bench: --filter: {} is not a regular expression: {}\n", filter, error.what());
    return 2;
  }
  const Effort effort = quick ? Effort{5, 0.002} : Effort{11, 0.004};
  for (const auto& cases : {RotateCases(), TableCases(), BiasCases(), CallCases(), MethodCases()}) {
    for (const Case& c : cases) {
      for (const size_t n : c.threads) {
        if (std::find(threads.begin(), threads.end(), n) == threads.end()) continue;
        if ((quick && (!c.quick || n > 1)) || !std::regex_search(c.Name(n), wanted)) continue;
        fmt::print("{}\n", list ? c.Name(n) : Compare(c, n, effort).dump());
        std::fflush(stdout);
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace posenc::bench

int main(int argc, char** argv) { return posenc::bench::Main(argc, argv); }
