#include "client/load/runner.h"

#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <ctime>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/client.h"
#include "client/load/clock.h"
#include "client/load/collector.h"
#include "client/load/connections.h"
#include "client/load/exchange.h"
#include "client/load/requests.h"
#include "client/load/verifier.h"
#include "posenc/status.h"

namespace posenc::load {
namespace {

constexpr auto kStopCheck = std::chrono::milliseconds(50);
constexpr std::byte kPoison{0xa5};  // where an answer is to be that will be verified
constexpr int kMostSlotsVerified = 8;
constexpr double kBusy = 0.9;     // of a processor: a thread that is busier is what limits the rate
constexpr double kHeld = 0.99;    // of the rate asked for
constexpr double kLateUs = 1000;  // what starts may be late before anyone is told

// The names of gRPC's codes, as it writes them.
std::string NameOf(grpc::StatusCode code) { return absl::StatusCodeToString(static_cast<absl::StatusCode>(code)); }

void SleepUntil(Clock::time_point time) {
  const auto since = std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
  const timespec until = {since / 1'000'000'000, since % 1'000'000'000};
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr);
}

// One step under way.
struct StepRun {
  StepRun(const StepPlan& p, const StepPlan& own, const std::atomic<bool>& s, Progress* progress)
      : plan(p), stop(s), collector(own, progress) {}

  const StepPlan& plan;
  const std::atomic<bool>& stop;
  Collector collector;
  Clock::time_point begin;
  std::atomic<int64_t> next = 0;       // closed loop: the number of this process' next call
  std::atomic<int64_t> in_flight = 0;  // calls
  std::mutex mutex;
  std::condition_variable ended;
  int64_t open = 0;    // calls in flight or being verified
  double planned = 0;  // open loop: seconds within which the calls were to start
};

struct Flight final : Exchange {
  Flight(const Call& call, StepRun* r) : Exchange(call), run(r) {}

  StepRun* run;
  const Requests* requests = nullptr;
  size_t offset = 0;
  int slot = -1;
  bool verify = false;
  double intended = 0;  // seconds since the step's beginning
  Clock::time_point intended_time, began;
};

class RealRunner final : public Runner {
 public:
  RealRunner(const Mix& mix, const RunnerOptions& options) : options_(options), chooser_(mix) {}
  absl::Status Connect();
  absl::Status Prepare(const Mix& mix);
  absl::StatusOr<Results> Run(const StepPlan& plan, const std::atomic<bool>& stop, Progress* progress) override;

 private:
  StepPlan OwnPart(const StepPlan& plan) const;
  double RunOpen(StepRun& run);
  double RunClosed(StepRun& run);
  void BeginNext(StepRun& run);
  void Begin(StepRun& run, int64_t number, double intended, Clock::time_point intended_time);
  void Done(Flight* flight);
  void Record(const Flight& flight, const Ended& ended);
  void Warn(const StepPlan& plan, const std::vector<double>& busy, double offered, Results* results) const;

  const RunnerOptions options_;
  const Chooser chooser_;
  std::vector<Requests> requests_;
  std::atomic<int> slots_verified_ = 0;
  std::unique_ptr<Verifier> verifier_;
  v1::GetServerInfoResponse server_;
  std::unique_ptr<Connections> connections_;  // ends first: its threads use the rest
};

absl::Status RealRunner::Connect() {
  POSENC_ASSIGN_OR_RETURN(connections_, Connections::Open(options_.servers, options_.connections, options_.threads,
                                                          options_.connect_seconds, [this](Exchange* exchange) {
                                                            Done(static_cast<Flight*>(exchange));
                                                          }));
  // Not every server that can be measured has this method.
  ClientOptions client;
  client.address = options_.servers[0];
  const auto info = Client(client).GetServerInfo({}, {.timeout = FromSeconds(options_.connect_seconds)});
  if (info.ok()) server_ = *info;
  return absl::OkStatus();
}

absl::Status RealRunner::Prepare(const Mix& mix) {
  const int64_t in_flight = options_.most_concurrent > 0 ? options_.most_concurrent : options_.max_in_flight;
  InProcess here(WholeMachine());
  for (size_t i = 0; i < mix.entries.size(); ++i) {
    POSENC_ASSIGN_OR_RETURN(auto work, Work::Create(mix.entries[i], mix.seed + i, here));
    POSENC_ASSIGN_OR_RETURN(Requests requests, MakeRequests(std::move(work), options_.shared_memory_socket,
                                                            static_cast<size_t>(in_flight) + kMostSlotsVerified));
    // A closed loop's call that finds no room would be one less from then on.
    if (requests.slots && static_cast<int64_t>(requests.slots->count()) < options_.most_concurrent) {
      return TooLarge(Quote(mix.entries[i].name), absl::StrCat(requests.work->answer_bytes(), " bytes an answer"),
                      absl::StrCat("all those in flight have at most ", Slots::kMostBytes));
    }
    requests_.push_back(std::move(requests));
  }
  if (options_.verify > 0) verifier_ = std::make_unique<Verifier>();
  return absl::OkStatus();
}

void RealRunner::Begin(StepRun& run, int64_t number, double intended, Clock::time_point intended_time) {
  const Choice choice = chooser_.At(run.plan.seed, number);
  const Requests& requests = requests_[choice.entry];
  int slot = -1;
  if (requests.slots && (slot = requests.slots->Take()) < 0) return run.collector.Skip(intended);
  bool verify = choice.verify < options_.verify;
  if (verify && slot >= 0) {
    if (slots_verified_.fetch_add(1) < kMostSlotsVerified) {
      const absl::Span<std::byte> answer = requests.slots->Answer(slot);
      std::fill(answer.begin(), answer.end(), kPoison);
    } else {
      slots_verified_.fetch_sub(1);
      run.collector.NotVerified();
      verify = false;
    }
  }
  Exchange::Call call{.path = &requests.path};
  call.messages = slot < 0 ? absl::MakeConstSpan(requests.messages[choice.offset])
                           : absl::MakeConstSpan(&requests.slots->Request(choice.offset, slot), 1);
  call.stream = requests.work->entry().transport == Transport::kStream;
  call.keep = verify;
  call.deadline = std::chrono::system_clock::now() + FromSeconds(options_.deadline_seconds);
  auto* flight = new Flight(call, &run);
  flight->requests = &requests;
  flight->offset = choice.offset;
  flight->slot = slot;
  flight->verify = verify;
  flight->intended = intended;
  run.in_flight += 1;
  {
    const std::lock_guard lock(run.mutex);
    run.open += 1;
  }
  flight->began = Clock::now();
  flight->intended_time = run.plan.open_loop() ? intended_time : flight->began;
  run.collector.Start(1e6 * Seconds(flight->began - flight->intended_time));
  connections_->Start(flight);
}

void RealRunner::Done(Flight* raw) {
  std::unique_ptr<Flight> flight(raw);
  StepRun& run = *flight->run;
  const Clock::time_point now = Clock::now();
  Ended ended{.intended = flight->intended,
              .latency_us = Microseconds(now - flight->intended_time),
              .service_us = Microseconds(now - flight->began),
              .server = flight->server_times(),
              .request_bytes = flight->requests->work->request_bytes(),
              .answer_bytes = flight->requests->work->answer_bytes()};
  if (!flight->status().ok()) ended.error = NameOf(flight->status().error_code());
  run.in_flight -= 1;
  if (!run.plan.open_loop()) BeginNext(run);

  if (!flight->verify || !ended.error.empty()) return Record(*flight, ended);
  const std::shared_ptr<Flight> held = std::move(flight);
  Verifier::Job job{.work = held->requests->work, .offset = held->offset, .pieces = std::move(held->answers())};
  if (held->slot >= 0) job.shared = held->requests->slots->Answer(held->slot);
  job.done = [this, held, ended](const std::optional<Mismatch>& mismatch) {
    Ended verified = ended;
    if (mismatch) verified.error = "MISMATCH";
    held->run->collector.Verified(mismatch);
    Record(*held, verified);
  };
  if (!verifier_->Offer(std::move(job))) {
    run.collector.NotVerified();
    Record(*held, ended);
  }
}

// The last of a call: nothing of its step may be touched afterwards.
void RealRunner::Record(const Flight& flight, const Ended& ended) {
  if (flight.slot >= 0) {
    if (flight.verify) slots_verified_.fetch_sub(1);
    flight.requests->slots->Give(flight.slot);
  }
  StepRun& run = *flight.run;
  run.collector.End(ended);
  const std::lock_guard lock(run.mutex);
  if (--run.open == 0) run.ended.notify_all();
}

// Closed loop: the next call in the place of one that ended.
void RealRunner::BeginNext(StepRun& run) {
  const double now = Seconds(Clock::now() - run.begin);
  if (run.stop || (run.plan.seconds > 0 && now >= run.plan.seconds)) return;
  const int64_t number = options_.share.index + options_.share.of * run.next++;
  if (run.plan.count > 0 && number >= run.plan.count) return;
  Begin(run, number, now, {});
}

// What this process does of a step.
StepPlan RealRunner::OwnPart(const StepPlan& plan) const {
  const auto [index, of] = options_.share;
  StepPlan own = plan;
  own.rate /= static_cast<double>(of);
  own.end_rate /= static_cast<double>(of);
  own.concurrency = (plan.concurrency + of - 1 - index) / of;
  return own;
}

double RealRunner::RunClosed(StepRun& run) {
  run.begin = Clock::now();
  for (int64_t i = OwnPart(run.plan).concurrency; i > 0; --i) BeginNext(run);
  std::unique_lock lock(run.mutex);
  run.ended.wait(lock, [&] { return run.open == 0; });
  return Seconds(Clock::now() - run.begin);
}

double RealRunner::RunOpen(StepRun& run) {
  prctl(PR_SET_TIMERSLACK, 1000);  // nanoseconds that the system may wake us late by
  const int64_t room = std::max<int64_t>(options_.max_in_flight / options_.share.of, 1);
  run.begin = Clock::now();
  const auto wait = [&](Clock::time_point time) {
    for (Clock::time_point now; !run.stop && (now = Clock::now()) < time;) SleepUntil(std::min(time, now + kStopCheck));
    return !run.stop;
  };
  Arrivals arrivals(run.plan, options_.share);
  double& planned = run.planned;
  planned = run.plan.seconds;
  while (const std::optional<Arrival> arrival = arrivals.Next()) {
    const Clock::time_point time = run.begin + FromSeconds(arrival->seconds);
    if (!wait(time)) break;
    // A step that its count ends is over when the next call would have been due.
    if (run.plan.count > 0 && arrival->number + options_.share.of >= run.plan.count) {
      const double due = arrival->seconds + 1 / run.plan.RateAt(arrival->seconds);
      planned = planned > 0 ? std::min(planned, due) : due;
    }
    if (run.in_flight >= room) {
      run.collector.Skip(arrival->seconds);
    } else {
      Begin(run, arrival->number, arrival->seconds, time);
    }
  }
  // Not when this thread wakes up, which is a little later.
  const double issued = Seconds(Clock::now() - run.begin);
  const double seconds = wait(run.begin + FromSeconds(planned)) ? std::max(issued, planned) : issued;
  std::unique_lock lock(run.mutex);
  run.ended.wait(lock, [&] { return run.open == 0; });
  return seconds;
}

absl::StatusOr<Results> RealRunner::Run(const StepPlan& plan, const std::atomic<bool>& stop, Progress* progress) {
  const StepPlan own = OwnPart(plan);
  StepRun run(plan, own, stop, progress);
  const auto cpu_times = [&] {
    std::vector<double> times = connections_->CpuSeconds();
    times.push_back(CpuSeconds(CLOCK_THREAD_CPUTIME_ID));
    times.push_back(CpuSeconds(CLOCK_PROCESS_CPUTIME_ID));
    return times;
  };
  const std::vector<double> before = cpu_times();
  const Clock::time_point began = Clock::now();
  const double seconds = plan.open_loop() ? RunOpen(run) : RunClosed(run);
  const double all = Seconds(Clock::now() - began);

  Results results = run.collector.Take(seconds);
  std::vector<double> busy = cpu_times();
  for (size_t i = 0; i < busy.size(); ++i) busy[i] = (busy[i] - before[i]) / all;
  results.client_cpu_share = busy.back() / std::thread::hardware_concurrency();
  busy.pop_back();
  results.server_version = server_.version();
  results.server_cpu_target = server_.cpu_target();
  Warn(plan, busy, run.planned > 0 && !stop ? run.planned / seconds : 1, &results);
  return results;
}

void RealRunner::Warn(const StepPlan& plan, const std::vector<double>& busy, double offered, Results* results) const {
  if (plan.warm_up) return;
  const double busiest = *std::max_element(busy.begin(), busy.end());
  if (busiest > kBusy) {
    results->warnings.push_back(absl::StrFormat(
        "%s: the client itself was saturated: a thread of it took %.0f %% of a processor", plan.name, 100 * busiest));
  }
  if (offered < kHeld) {
    results->warnings.push_back(absl::StrFormat("%s: the client offered only %.1f %% of the rate that it was asked for",
                                                plan.name, 100 * offered));
  }
  const double late = results->late_starts_p99_us;
  if (late > kLateUs && late > 0.1 * static_cast<double>(results->steps[0].measured.latency.Percentile(99))) {
    results->warnings.push_back(absl::StrFormat(
        "%s: one call in a hundred was started %.1f ms late or more: that part of the latency comes from the client",
        plan.name, 1e-3 * late));
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Runner>> Runner::Create(const Mix& mix, const RunnerOptions& options) {
  auto runner = std::make_unique<RealRunner>(mix, options);
  POSENC_RETURN_IF_ERROR(runner->Prepare(mix));
  POSENC_RETURN_IF_ERROR(runner->Connect());
  return runner;
}

}  // namespace posenc::load
