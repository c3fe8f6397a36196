#include "tools/load/collector.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace posenc::load {
namespace {

constexpr double kUnusual = 5;  // times the median service time: a shorter wait is no stall

void Add(const Ended& call, Measurement* measured) {
  if (!call.error.empty()) {
    measured->counts.failed += 1;
    measured->errors[call.error] += 1;
    return;
  }
  measured->counts.succeeded += 1;
  measured->request_bytes += call.request_bytes;
  measured->answer_bytes += call.answer_bytes;
  measured->latency.Record(call.latency_us);
  measured->late.Record(call.late_us);
  measured->service.Record(call.service_us);
  if (call.send_wait_us >= 0) measured->send_wait.Record(call.send_wait_us);
  if (call.server.queue_us >= 0) measured->server_queue.Record(std::llround(call.server.queue_us));
  if (call.server.compute_us >= 0) measured->server_compute.Record(std::llround(call.server.compute_us));
}

// Adds to the element of the second that `time` is in.
void AddAt(double time, int64_t count, std::vector<int64_t>* seconds) {
  const auto second = static_cast<size_t>(time);
  if (seconds->size() <= second) seconds->resize(second + 1);
  (*seconds)[second] += count;
}

}  // namespace

Second& Collector::At(double intended) {
  const auto index = static_cast<size_t>(intended);
  while (results_.timeline.size() <= index) {
    const auto second = static_cast<double>(results_.timeline.size());
    results_.timeline.push_back({.offered = plan_.CallsBetween(second, second + 1), .warm_up = plan_.warm_up});
  }
  return results_.timeline[index];
}

void Collector::Skip(double intended) {
  const std::lock_guard lock(mutex_);
  for (Measurement* measured : {&measured_, &At(intended).measured}) {
    measured->counts.intended += 1;
    measured->counts.skipped += 1;
    measured->errors["SKIPPED"] += 1;
  }
  progress_->skipped.fetch_add(1, std::memory_order_relaxed);
}

void Collector::Start(double intended, double late_us) {
  progress_->started.fetch_add(1, std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  late_.Record(std::llround(late_us));
  unanswered_ += 1;
  if (!waiting_since_) waiting_since_ = intended + 1e-6 * late_us;
  AddAt(intended, 1, &open_);
}

void Collector::Answer(double at, bool answered) {
  const std::lock_guard lock(mutex_);
  unanswered_ -= 1;
  if (!answered) return;
  if (waiting_since_ && at - *waiting_since_ >= kLeastStall) waits_.push_back({*waiting_since_, at - *waiting_since_});
  waiting_since_ = unanswered_ > 0 ? std::optional(at) : std::nullopt;
}

void Collector::End(const Ended& call) {
  const std::lock_guard lock(mutex_);
  if (taken_) return;
  AddAt(call.intended, -1, &open_);
  if (call.error.empty()) {
    progress_->Succeeded(call.latency_us);
  } else {
    progress_->failed.fetch_add(1, std::memory_order_relaxed);
  }
  last_end_ = std::max(last_end_, call.at);
  if (call.error.empty()) {
    last_success_ = std::max(last_success_, call.at);
    AddAt(call.at, 1, &completed_);
  }
  for (Measurement* measured : {&measured_, &At(call.intended).measured}) {
    measured->counts.intended += 1;
    Add(call, measured);
  }
}

void Collector::Verified(const std::optional<Mismatch>& mismatch) {
  const std::lock_guard lock(mutex_);
  results_.verified += 1;
  if (!mismatch) return;
  results_.mismatches += 1;
  if (!results_.first_mismatch) results_.first_mismatch = mismatch;
}

void Collector::NotVerified() {
  const std::lock_guard lock(mutex_);
  results_.not_verified += 1;
}

double Collector::last_end() {
  const std::lock_guard lock(mutex_);
  return last_end_;
}

Results Collector::Take(double seconds) {
  const std::lock_guard lock(mutex_);
  taken_ = true;
  for (size_t second = 0; second < open_.size(); ++second) {
    if (open_[second] == 0) continue;
    progress_->failed.fetch_add(open_[second], std::memory_order_relaxed);
    for (Measurement* measured : {&measured_, &At(static_cast<double>(second)).measured}) {
      measured->counts.intended += open_[second];
      measured->counts.failed += open_[second];
      measured->errors["DEADLINE_EXCEEDED"] += open_[second];
    }
  }
  Step step{.name = plan_.name, .concurrency = static_cast<double>(plan_.concurrency), .seconds = seconds};
  step.rate = plan_.open_loop() ? plan_.MeanRate() : 0;
  step.drain_seconds = std::max(0.0, last_success_ - seconds);
  step.measured = std::move(measured_);
  if (waiting_since_ && seconds - *waiting_since_ >= kLeastStall) {
    waits_.push_back({*waiting_since_, seconds - *waiting_since_});
  }
  // Calls that always take long have not stalled.
  const double usual = 1e-6 * static_cast<double>(step.measured.service.Percentile(50));
  for (const Stall& wait : waits_) {
    if (wait.seconds >= kUnusual * usual) step.stalls.push_back(wait);
  }
  const size_t seconds_of_ends = std::min(completed_.size(), results_.timeline.size());
  for (size_t i = 0; i < seconds_of_ends; ++i) results_.timeline[i].completed = completed_[i];
  results_.steps.push_back(std::move(step));
  results_.seconds = seconds;
  results_.drain_seconds = results_.steps[0].drain_seconds;
  results_.late_starts_p99_us = static_cast<double>(late_.Percentile(99));
  return std::move(results_);
}

}  // namespace posenc::load
