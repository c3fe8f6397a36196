#include "tools/load/runner.h"

#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <mutex>
#include <thread>
#include <utility>

#include "posenc/base/status.h"
#include "posenc/client/client.h"
#include "tools/load/calls.h"
#include "tools/load/doubts.h"

namespace posenc::load {
namespace {

constexpr auto kStopCheck = std::chrono::milliseconds(50);
constexpr double kLeastSpan = 0.01;  // seconds; a process without calls in a closed loop takes none

void SleepUntil(Clock::time_point time) {
  const auto since = std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
  const timespec until = {since / 1'000'000'000, since % 1'000'000'000};
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr);
}

class RealRunner final : public Runner {
 public:
  RealRunner(std::unique_ptr<Calls> calls, const RunnerOptions& options) : options_(options), calls_(std::move(calls)) {
    // Ignores errors: not every server that can be measured has this method.
    ClientOptions client;
    client.address = options_.servers[0];
    client.tls = options_.tls;
    const auto info = Client(client).GetServerInfo({}, {.timeout = FromSeconds(options_.connect_seconds)});
    if (info.ok()) server_ = *info;
  }
  // Abandoned calls still use what they would be destroyed with: it remains until the process ends.
  ~RealRunner() override {
    if (abandoned_) static_cast<void>(calls_.release());
  }
  absl::StatusOr<Results> Run(const StepPlan& plan, const std::atomic<bool>& stop, Progress* progress) override;

 private:
  // Actual and planned time for starting the calls; equal in a closed loop.
  struct Span {
    double seconds, planned;
  };
  StepPlan OwnPart(const StepPlan& plan) const;
  Span RunOpen(const std::shared_ptr<StepRun>& run);
  Span RunClosed(const std::shared_ptr<StepRun>& run);
  std::vector<double> CpuTimes() const;

  const RunnerOptions options_;
  std::unique_ptr<Calls> calls_;
  bool abandoned_ = false;  // some of the calls
  v1::GetServerInfoResponse server_;
};

// This process's share of a step.
StepPlan RealRunner::OwnPart(const StepPlan& plan) const {
  const auto [index, of] = options_.share;
  StepPlan own = plan;
  own.rate /= static_cast<double>(of);
  own.end_rate /= static_cast<double>(of);
  own.concurrency = (plan.concurrency + of - 1 - index) / of;
  own.count = (plan.count + of - 1 - index) / of;
  return own;
}

RealRunner::Span RealRunner::RunClosed(const std::shared_ptr<StepRun>& run) {
  run->begin = Clock::now();
  for (int64_t i = OwnPart(run->plan).concurrency; i > 0; --i) calls_->BeginNext(run);
  double seconds = 0;
  if (calls_->Wait(run) == 0) {
    seconds = run->collector.last_end();  // excludes verification, which may end later
  } else {
    const std::lock_guard lock(run->mutex);
    seconds = Seconds(run->last_began - run->begin) + options_.deadline_seconds;  // abandoned calls end at the deadline
  }
  return {seconds, seconds};
}

RealRunner::Span RealRunner::RunOpen(const std::shared_ptr<StepRun>& owner) {
  StepRun& run = *owner;
  prctl(PR_SET_TIMERSLACK, 1000);  // nanoseconds; limits late wake-ups
  const int64_t room = options_.max_in_flight / options_.share.of;
  run.begin = Clock::now();
  const auto wait = [&](double second) {
    const Clock::time_point time = run.begin + FromSeconds(second);
    for (Clock::time_point now; !run.stop && (now = Clock::now()) < time;) SleepUntil(std::min(time, now + kStopCheck));
    return !run.stop;
  };
  Arrivals arrivals(run.plan, options_.share);
  double planned = run.plan.seconds;
  bool any = false;
  while (const std::optional<Arrival> arrival = arrivals.Next()) {
    any = true;
    if (!wait(arrival->seconds)) break;
    // A step limited by `count` ends when the next call would have been due.
    if (run.plan.count > 0 && arrival->number + options_.share.of >= run.plan.count) {
      const double due = arrival->seconds + 1 / run.plan.RateAt(arrival->seconds);
      planned = planned > 0 ? std::min(planned, due) : due;
    }
    if (run.in_flight >= room) {
      run.collector.Skip(arrival->seconds);
    } else {
      calls_->Begin(owner, arrival->number, arrival->seconds);
    }
  }
  // Measured before the wait below, from which this thread wakes up slightly late.
  const double issued = Seconds(Clock::now() - run.begin);
  const bool all_are_others = !any && run.plan.count > 0;
  if (all_are_others || !wait(planned)) return {issued, issued};
  return {std::max(issued, planned), planned};
}

// Processor seconds of each thread that may limit the rate, then of the process.
std::vector<double> RealRunner::CpuTimes() const {
  std::vector<double> times = calls_->CpuSeconds();
  times.push_back(CpuSeconds(CLOCK_THREAD_CPUTIME_ID));
  times.push_back(CpuSeconds(CLOCK_PROCESS_CPUTIME_ID));
  return times;
}

absl::StatusOr<Results> RealRunner::Run(const StepPlan& plan, const std::atomic<bool>& stop, Progress* progress) {
  const StepPlan own = OwnPart(plan);
  const auto run = std::make_shared<StepRun>(plan, own, stop, progress);
  const std::vector<double> before = CpuTimes();
  const Span span = plan.open_loop() ? RunOpen(run) : RunClosed(run);
  std::vector<double> busy = CpuTimes();
  const int64_t abandoned = calls_->Wait(run);
  abandoned_ |= abandoned > 0;

  Results results = run->collector.Take(span.seconds);
  const double over = std::max(span.seconds, kLeastSpan);
  for (size_t i = 0; i < busy.size(); ++i) busy[i] = (busy[i] - before[i]) / over;
  results.client_cpu_share = busy.back() / std::thread::hardware_concurrency();
  busy.pop_back();
  results.server_version = server_.version();
  results.server_cpu_target = server_.cpu_target();
  const ClientState client{.busiest_thread = *std::max_element(busy.begin(), busy.end()),
                           .offered = span.seconds > 0 ? span.planned / span.seconds : 1,
                           .most_in_flight = run->most_in_flight,
                           .connections = options_.connections * static_cast<int64_t>(options_.servers.size()),
                           .abandoned = abandoned};
  if (!plan.warm_up) AddDoubts(client, &results);
  return results;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Runner>> Runner::Create(const Mix& mix, const RunnerOptions& options) {
  POSENC_ASSIGN_OR_RETURN(auto calls, Calls::Create(mix, options));
  return std::make_unique<RealRunner>(std::move(calls), options);
}

}  // namespace posenc::load
