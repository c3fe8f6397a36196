#include "tools/posenc/remote/load_flags.h"

#include <algorithm>
#include <charconv>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "posenc/base/status.h"
#include "posenc/command_line/arguments.h"
#include "tools/load/duration.h"
#include "tools/load/fleet.h"
#include "tools/posenc/session.h"

namespace posenc::command {
namespace {

constexpr char kDefaultDuration[] = "10s";
constexpr char kDefaultOverload[] = "1,2,5,10";

// Converts an error to a usage error, and the field that it begins with, such as "ApplyRotary.key_heads", to flags.
absl::Status Usage(const absl::Status& status) {
  if (status.ok()) return status;
  const std::string message(status.message()), field = DetailsOf(status).field;
  if (field.empty() || field.starts_with("--") || !message.starts_with(field)) return UsageError(message);
  const std::string flags = absl::StrReplaceAll(field.substr(field.rfind('.') + 1), {{", ", ", --"}, {"_", "-"}});
  return UsageError(absl::StrCat("--", flags, message.substr(field.size())));
}
template <typename T>
absl::StatusOr<T> Usage(absl::StatusOr<T> value) {
  return value.ok() ? std::move(value) : absl::StatusOr<T>(Usage(value.status()));
}

// Splits addresses at commas, except gRPC's lists of IP addresses, which contain commas.
std::vector<std::string> SplitServers(const std::vector<std::string>& flags) {
  std::vector<std::string> servers;
  for (const std::string& flag : flags) {
    if (flag.starts_with("ipv4:") || flag.starts_with("ipv6:")) {
      servers.push_back(flag);
    } else {
      const std::vector<std::string> parts = absl::StrSplit(flag, ',', absl::SkipEmpty());
      servers.insert(servers.end(), parts.begin(), parts.end());
    }
  }
  return servers;
}

}  // namespace

void WorkFlags::Add(CLI::App& app) {
  const char* group = "Work";
  const auto add = [&](const char* name, auto& variable, const char* help, const char* type) {
    return app.add_option(name, variable, help)->type_name(type)->group(group);
  };
  CLI::Option* mix =
      add("--mix", mix_path_,
          "File of weighted calls, as written by --record; in place of the flags that describe one call", "FILE.json");
  seed_option_ = add(
      "--seed", seed_,
      "Seed of the order and arrival times of calls and of the tensors' contents; default: the mix's, or 1", "NUMBER");
  const std::vector<CLI::Option*> one = {
      add("--method", entry_.method,
          "RPC: ApplyRotary (default), GenerateTable, GenerateEmbedding, GenerateBias, AddBias, RelativeScores or "
          "RelativeValues",
          "NAME"),
      add("--transport", transport_, "unary (default), stream or shared-memory", "KIND"),
      add("--dtype", entry_.dtype, "Element type of the tensors; default bf16", "TYPE"),
      add("--batch", entry_.batch, "Number of sequences; default 1", "NUMBER"),
      add("--tokens", entry_.tokens, "Tokens per sequence, rows of a table, queries and keys of a bias; default 1",
          "NUMBER"),
      add("--heads", entry_.heads, "Heads of q or of a bias; default 32", "NUMBER"),
      add("--key-heads", entry_.key_heads, "Heads of k; 0: no k; default 8", "NUMBER"),
      add("--head-dim", entry_.head_dim, "Elements per head; default 128", "NUMBER"),
      add("--offsets", entry_.offsets, "Positions of the first token, one of which each call uses; default 0",
          "NUMBER,...")
          ->delimiter(','),
      add("--model", model_,
          "A model's config.json or GGUF, or its folder; default: plain RoPE, ALiBi or a sinusoidal encoding", "PATH"),
      add("--request", entry_.request_json, "Further fields of the request, in proto3's JSON mapping", "JSON")};
  for (CLI::Option* option : one) option->excludes(mix);
}

absl::StatusOr<load::Mix> WorkFlags::Get() const {
  load::Mix mix;
  if (!mix_path_.empty()) {
    POSENC_ASSIGN_OR_RETURN(mix, load::ReadMix(mix_path_));
    if (seed_option_->count() > 0) mix.seed = seed_;
    return mix;
  }
  mix.seed = seed_;
  load::Entry entry = entry_;
  entry.name = entry.method;
  POSENC_ASSIGN_OR_RETURN(entry.transport, Usage(load::ParseTransport(transport_)));
  if (!model_.empty()) {
    POSENC_RETURN_IF_ERROR(load::ReadModel(model_, &entry));
  }
  mix.entries.push_back(std::move(entry));
  POSENC_RETURN_IF_ERROR(Usage(load::CheckMix(mix)));
  return mix;
}

void ScheduleFlagGroup::Add(CLI::App& app) {
  const char* group = "Schedule";
  const auto add = [&](const char* name, auto& variable, const char* help, const char* type) {
    return app.add_option(name, variable, help)->type_name(type)->group(group);
  };
  CLI::Option* rate = add("--rate", rate_,
                          "Open loop: calls per second, started on schedule; steps \"100,200\", ramps \"100..1000\". "
                          "With --slo: first rate of the search, default half the closed loop's peak",
                          "RATE");
  CLI::Option* concurrency = add("--concurrency", concurrency_,
                                 "Closed loop, in place of --rate: calls in flight; each call that ends starts the "
                                 "next; steps \"1,2,4\". With --overload: one "
                                 "number, of the loop that measures the peak, default 16 per connection",
                                 "NUMBER,...");
  CLI::Option* arrivals =
      add("--arrivals", arrivals_, "Arrivals of an open loop: constant (default) or poisson", "KIND")
          ->check(OneOf({"constant", "poisson"}));
  add("--duration", duration_, "Duration of each step, or of each try of a search; default 10s", "TIME");
  CLI::Option* count =
      add("--count", count_, "Calls per step, in place of --duration; with both, the first limit reached applies",
          "NUMBER")
          ->check(InRange(int64_t{1}, int64_t{1} << 50));
  add("--warm-up", warm_up_, "Warm-up before the first step, at its rate or concurrency; not in the results", "TIME");
  CLI::Option* slo =
      add("--slo", objective_,
          "Search the highest rate that meets this objective, such as p99=5ms or p50=1ms,p99.9=20ms", "OBJECTIVE");
  add("--max-failures", max_failures_, "Share of calls that may fail under --slo; default 0.1%", "SHARE")->needs(slo);
  add("--tries", tries_, "Tries per rate under --slo, at most, until the verdict is clear; default 5", "NUMBER")
      ->check(InRange(int64_t{1}, int64_t{100}))
      ->needs(slo);
  overload_option_ =
      add("--overload", overload_,
          "In place of --rate: measure the peak with a closed loop, then offer these multiples of it; default 1,2,5,10",
          "FACTOR,...")
          ->expected(0, 1)
          ->excludes(rate)
          ->excludes(slo)
          ->excludes(count);
  concurrency->excludes(rate)->excludes(slo)->excludes(arrivals);
  count->excludes(slo);
}

void ScheduleFlagGroup::AddMissing(Missing* missing) const {
  missing->Add(rate_.empty() && concurrency_.empty() && !searches() && !overloads(),
               "a schedule: --rate, --concurrency, --slo or --overload");
}

absl::StatusOr<load::ScheduleFlags> ScheduleFlagGroup::Parsed(uint64_t seed) const {
  load::ScheduleFlags flags{.rate = rate_, .concurrency = concurrency_, .count = count_, .seed = seed};
  if (!duration_.empty() || count_ == 0) {
    POSENC_ASSIGN_OR_RETURN(flags.seconds,
                            Usage(load::ParseSeconds("--duration", duration_.empty() ? kDefaultDuration : duration_)));
  }
  if (!warm_up_.empty()) {
    POSENC_ASSIGN_OR_RETURN(flags.warm_up_seconds, Usage(load::ParseSeconds("--warm-up", warm_up_)));
  }
  flags.arrivals = arrivals_ == "poisson" ? load::ArrivalKind::kPoisson : load::ArrivalKind::kConstant;
  return flags;
}

absl::StatusOr<std::vector<load::StepPlan>> ScheduleFlagGroup::Plans(uint64_t seed) const {
  POSENC_ASSIGN_OR_RETURN(const load::ScheduleFlags flags, Parsed(seed));
  POSENC_ASSIGN_OR_RETURN(auto plans, Usage(load::PlanSteps(flags)));
  return plans;
}

absl::StatusOr<ScheduleFlagGroup::Overload> ScheduleFlagGroup::GetOverload(int64_t peak_concurrency) const {
  POSENC_ASSIGN_OR_RETURN(load::ScheduleFlags flags, Parsed(0));
  std::vector<double> factors;
  const std::vector<std::string> parts = absl::StrSplit(overload_.empty() ? kDefaultOverload : overload_, ',');
  for (const std::string& text : parts) {
    double factor = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), factor);
    if (error != std::errc() || end != text.data() + text.size() || !(factor >= 0.01 && factor <= 1000)) {
      return UsageError(absl::StrCat("--overload: ", text, " must be a multiple of the peak, 0.01 to 1000"));
    }
    factors.push_back(factor);
  }
  Overload overload{.factors = std::move(factors),
                    .seconds = flags.seconds,
                    .warm_up_seconds = flags.warm_up_seconds,
                    .arrivals = flags.arrivals,
                    .concurrency = peak_concurrency};
  if (concurrency_.empty()) return overload;
  POSENC_ASSIGN_OR_RETURN(const auto plans, Usage(load::PlanSteps(flags)));
  if (plans.back().concurrency != plans.front().concurrency) {
    return UsageError("--concurrency: with --overload give one number, that of the peak");
  }
  overload.concurrency = plans.back().concurrency;
  return overload;
}

absl::StatusOr<ScheduleFlagGroup::Search> ScheduleFlagGroup::GetSearch(int64_t peak_concurrency) const {
  POSENC_ASSIGN_OR_RETURN(load::ScheduleFlags flags, Parsed(0));
  Search search{.seconds = flags.seconds,
                .warm_up_seconds = flags.warm_up_seconds,
                .arrivals = flags.arrivals,
                .rate_given = !rate_.empty(),
                .concurrency = peak_concurrency};
  POSENC_ASSIGN_OR_RETURN(search.objective, Usage(load::ParseObjective(objective_)));
  search.options.seconds = flags.seconds;
  search.options.most_tries = tries_;
  POSENC_ASSIGN_OR_RETURN(search.objective.max_failures, Usage(load::ParseShare("--max-failures", max_failures_)));
  if (!rate_.empty()) {
    POSENC_ASSIGN_OR_RETURN(const auto plans, Usage(load::PlanSteps(flags)));
    if (plans.size() != (flags.warm_up_seconds > 0 ? 2 : 1) || plans.back().rate != plans.back().end_rate) {
      return UsageError("--rate: with --slo give one rate, the first of the search");
    }
    const double rate = plans.back().rate;
    if (rate < load::SearchOptions::kLeastRate || rate > load::SearchOptions::kMostRate) {
      return UsageError(absl::StrCat("--rate: a search tries ", load::SearchOptions::kLeastRate, " to ",
                                     load::SearchOptions::kMostRate, " calls per second"));
    }
    search.options.first_rate = rate;
  }
  return search;
}

void ClientFlags::Add(CLI::App& app) {
  const char* group = "Clients";
  const auto add = [&](const char* name, auto& variable, const char* help, const char* type) {
    return app.add_option(name, variable, help)->type_name(type)->group(group);
  };
  const auto number = [](int64_t most) { return InRange(int64_t{1}, most); };
  add("--server", servers_, "Server address; several, separated by commas or repeated, are used in turn", "ADDRESS")
      ->group("Options");
  add("--connections", options_.connections, "Connections to each server; default 1", "NUMBER")->check(number(1000));
  const int64_t processors = std::thread::hardware_concurrency();
  options_.threads = static_cast<int>(std::clamp<int64_t>(processors / 8, 1, 4));
  add("--threads", options_.threads,
      "Threads that receive answers, at most one per connection; default: an eighth of the processors, 1 to 4",
      "NUMBER")
      ->check(number(256));
  add("--processes", processes_, "Client processes that share the load and make one report; default 1", "NUMBER")
      ->check(number(load::Shared::kMostProcesses));
  add("--max-in-flight", options_.max_in_flight,
      "Open loop: maximum calls in flight over all processes; calls beyond it are skipped and count as failures; "
      "default 1000",
      "NUMBER")
      ->check(number(1'000'000));
  add("--deadline", deadline_, "Deadline of each call; default 10s", "TIME");
  add("--verify", verify_, "Share of the answers to compare with the in-process engine's; default 0", "SHARE");
  add("--shared-memory-socket", options_.shared_memory_socket,
      "The server's --shared-memory-socket, for calls in shared memory", "PATH");
}

void ClientFlags::AddMissing(const std::string& server, Missing* missing) const {
  missing->Add(server.empty() && servers_.empty(), "--server ADDRESS, or POSENC_SERVER");
}

absl::StatusOr<load::RunnerOptions> ClientFlags::Get(const std::string& server, const std::optional<Tls>& tls) const {
  load::RunnerOptions options = options_;
  options.tls = tls;
  options.servers = SplitServers(servers_.empty() ? std::vector<std::string>{server} : servers_);
  if (options.max_in_flight < processes_) return UsageError("--max-in-flight: must not be less than --processes");
  options.threads = std::min(options.threads, options.connections * static_cast<int>(options.servers.size()));
  POSENC_ASSIGN_OR_RETURN(options.deadline_seconds, Usage(load::ParseSeconds("--deadline", deadline_)));
  POSENC_ASSIGN_OR_RETURN(options.verify, Usage(load::ParseShare("--verify", verify_)));
  return options;
}

}  // namespace posenc::command
