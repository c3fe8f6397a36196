#include "tools/load/live.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace posenc::load {
namespace {

constexpr auto kInterval = std::chrono::seconds(1);

std::string Milliseconds(int64_t us) {
  const double ms = 1e-3 * static_cast<double>(us);
  return ms < 10 ? absl::StrFormat("%.2f ms", ms) : absl::StrFormat("%.0f ms", ms);
}

}  // namespace

Live::Live(const Progress* progress, size_t processes, bool shown)
    : progress_(progress), processes_(processes), shown_(shown), terminal_(isatty(STDERR_FILENO) != 0) {
  if (shown_) thread_ = std::thread([this] { Run(); });
}

Live::~Live() {
  if (!shown_) return;
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

Live::Snapshot Live::Look() const {
  Snapshot all;
  for (size_t i = 0; i < processes_; ++i) {
    all.started += progress_[i].started;
    all.succeeded += progress_[i].succeeded;
    all.failed += progress_[i].failed;
    all.skipped += progress_[i].skipped;
    for (size_t bucket = 0; bucket < all.latency.size(); ++bucket) all.latency[bucket] += progress_[i].latency[bucket];
  }
  return all;
}

void Live::BeginStep(const StepPlan& plan) {
  const std::lock_guard lock(mutex_);
  plan_ = plan;
  begin_ = last_ = Clock::now();
  at_begin_ = before_ = Look();
  running_ = true;
}

void Live::EndStep(const std::string& verdict) {
  const std::lock_guard lock(mutex_);
  running_ = false;
  if (!shown_) return;
  if (terminal_) std::fputs("\r\x1b[K", stderr);
  if (!verdict.empty()) std::fprintf(stderr, "%s: %s\n", plan_.name.c_str(), verdict.c_str());
  std::fflush(stderr);
}

std::string Live::Line(const Snapshot& now, double interval) const {
  const double elapsed = Seconds(Clock::now() - begin_);
  std::string line = absl::StrCat(plan_.name, "  ");
  const int64_t ended = now.succeeded + now.failed - at_begin_.succeeded - at_begin_.failed;
  const double done = plan_.seconds > 0
                          ? elapsed / plan_.seconds
                          : static_cast<double>(ended) / static_cast<double>(std::max<int64_t>(plan_.count, 1));
  if (terminal_) {
    constexpr int kWidth = 20;
    const int filled = static_cast<int>(kWidth * std::clamp(done, 0.0, 1.0));
    absl::StrAppend(&line, "[", std::string(filled, '#'), std::string(kWidth - filled, ' '), "] ");
  }
  absl::StrAppendFormat(&line, "%.0f s", elapsed);
  if (plan_.seconds > 0) absl::StrAppendFormat(&line, " of %.0f", plan_.seconds);

  Snapshot recent = now;
  int64_t count = 0;
  for (size_t bucket = 0; bucket < recent.latency.size(); ++bucket) {
    count += recent.latency[bucket] -= before_.latency[bucket];
  }
  const auto percentile = [&](double p) {
    auto left = static_cast<int64_t>(p * static_cast<double>(count));
    for (size_t bucket = 0; bucket < recent.latency.size(); ++bucket) {
      if ((left -= recent.latency[bucket]) < 0) return Progress::MiddleOf(bucket);
    }
    return int64_t{0};
  };
  absl::StrAppendFormat(&line, "  %.0f/s", static_cast<double>(now.succeeded - before_.succeeded) / interval);
  if (count > 0)
    absl::StrAppend(&line, "  p50 ", Milliseconds(percentile(0.5)), "  p99 ", Milliseconds(percentile(0.99)));
  absl::StrAppend(&line, "  errors ", now.failed - at_begin_.failed, "  skipped ", now.skipped - at_begin_.skipped);
  return absl::StrCat(line, "  in flight ", now.started - now.succeeded - now.failed);
}

void Live::Run() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kInterval, [&] { return ending_; })) {
    if (!running_) continue;
    const Snapshot now = Look();
    const Clock::time_point time = Clock::now();
    const std::string line = Line(now, std::max(1e-3, Seconds(time - last_)));
    std::fprintf(stderr, terminal_ ? "\r%s\x1b[K" : "%s\n", line.c_str());
    std::fflush(stderr);
    before_ = now;
    last_ = time;
  }
}

}  // namespace posenc::load
