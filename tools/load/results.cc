#include "tools/load/results.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "absl/time/time.h"
#include "posenc/base/status.h"

namespace posenc::load {
namespace {

constexpr double kBeginResolution = 1;  // of Results::begin_time, in seconds

std::string RateName(double rate) { return fmt::format("{:.10g}/s", rate); }
std::string ConcurrencyName(double concurrency) { return fmt::format("concurrency {:.10g}", concurrency); }

// The spans of both: a server that answers one client has not stalled.
std::vector<Stall> Common(const std::vector<Stall>& ours, const std::vector<Stall>& theirs) {
  std::vector<Stall> common;
  for (const Stall& a : ours) {
    for (const Stall& b : theirs) {
      const double begin = std::max(a.begin, b.begin);
      const double end = std::min(a.begin + a.seconds, b.begin + b.seconds);
      if (end - begin >= kLeastStall) common.push_back({begin, end - begin});
    }
  }
  return common;
}

void MergeStep(const Step& other, Step* step) {
  const bool named_by_rate = step->name == RateName(step->rate);
  const bool named_by_concurrency = step->name == ConcurrencyName(step->concurrency);
  step->rate += other.rate;
  step->concurrency += other.concurrency;
  if (named_by_rate) step->name = RateName(step->rate);
  if (named_by_concurrency) step->name = ConcurrencyName(step->concurrency);
  step->seconds = std::max(step->seconds, other.seconds);
  step->drain_seconds = std::max(step->drain_seconds, other.drain_seconds);
  step->measured.Merge(other.measured);
  step->stalls = Common(step->stalls, other.stalls);
  // The objective must be met in every process, and missed if it was missed in one.
  if (step->tries > 0) {
    const bool missed = step->held == false || other.held == false;
    const bool met = step->held == true && other.held == true;
    step->held = missed ? std::optional(false) : met ? std::optional(true) : std::nullopt;
    step->late = {std::max(step->late.low, other.late.low), std::max(step->late.high, other.late.high)};
  }
}

// Merges element by element; elements that only one vector has are kept.
template <typename T, typename MergeOne>
void MergeByIndex(const std::vector<T>& from, std::vector<T>* into, MergeOne merge_one) {
  const size_t common = std::min(from.size(), into->size());
  for (size_t i = 0; i < common; ++i) merge_one(from[i], &(*into)[i]);
  into->insert(into->end(), from.begin() + static_cast<ptrdiff_t>(common), from.end());
}

}  // namespace

bool BaselineVerdict::worse() const {
  return std::any_of(figures.begin(), figures.end(), [](const ComparedFigure& figure) { return figure.worse; });
}

void Measurement::Merge(const Measurement& other) {
  counts.intended += other.counts.intended;
  counts.skipped += other.counts.skipped;
  counts.succeeded += other.counts.succeeded;
  counts.failed += other.counts.failed;
  for (const auto& [status, count] : other.errors) errors[status] += count;
  request_bytes += other.request_bytes;
  answer_bytes += other.answer_bytes;
  latency.Merge(other.latency);
  late.Merge(other.late);
  service.Merge(other.service);
  send_wait.Merge(other.send_wait);
  server_queue.Merge(other.server_queue);
  server_compute.Merge(other.server_compute);
}

void Results::Merge(const Results& other) {
  // Keeps the first process's settings and mix: processes of one test do not differ in anything to report.
  const auto warn = [&](const std::string& warning) {
    if (std::find(warnings.begin(), warnings.end(), warning) == warnings.end()) warnings.push_back(warning);
  };
  for (const std::string& warning : other.warnings) warn(warning);
  if (mix_json != other.mix_json) warn("the merged clients had different mixes; the first client's is shown");
  if (server_version != other.server_version || server_cpu_target != other.server_cpu_target) {
    warn("the merged clients saw servers of different versions or processors; the first client's is shown");
  }
  begin_time = std::min(begin_time, other.begin_time);
  seconds = std::max(seconds, other.seconds);
  drain_seconds = std::max(drain_seconds, other.drain_seconds);
  interrupted |= other.interrupted;
  clients += other.clients;
  total.Merge(other.total);
  MergeByIndex(other.timeline, &timeline, [](const Second& from, Second* into) {
    into->offered += from.offered;
    into->completed += from.completed;
    // A second that is warm-up for one process does not show the server under the whole load.
    into->warm_up |= from.warm_up;
    into->measured.Merge(from.measured);
  });
  const auto same_kind = [](const Step& a, const Step& b) {
    return (a.rate > 0) == (b.rate > 0) && (a.tries > 0) == (b.tries > 0);
  };
  if (!std::equal(steps.begin(), steps.end(), other.steps.begin(), other.steps.end(), same_kind)) {
    warn("the merged clients had different kinds of steps: the sums combine steps that did not run at the same time");
  }
  MergeByIndex(other.steps, &steps, MergeStep);
  // Adds the rates, since the searches ran at the same time. If one process found none, the sum means nothing.
  if (highest_rate && other.highest_rate) {
    *highest_rate += *other.highest_rate;
  } else {
    highest_rate.reset();
  }
  if (highest_rate && lowest_missed_rate && other.lowest_missed_rate) {
    *lowest_missed_rate += *other.lowest_missed_rate;
  } else {
    lowest_missed_rate.reset();
  }
  peak_per_second = peak_per_second > 0 && other.peak_per_second > 0 ? peak_per_second + other.peak_per_second : 0;
  noise.share = std::max(noise.share, other.noise.share);
  noise.longest_us = std::max(noise.longest_us, other.noise.longest_us);
  verify = std::max(verify, other.verify);
  verified += other.verified;
  not_verified += other.not_verified;
  mismatches += other.mismatches;
  if (!first_mismatch) first_mismatch = other.first_mismatch;
  // Keeps each maximum. On one machine both measured the same. On several, the client in the worst state limits how far
  // the figures can be trusted, and shares of the fastest memory are no overstatement.
  memory_bytes_per_second = std::max(memory_bytes_per_second, other.memory_bytes_per_second);
  client_cpu_share = std::max(client_cpu_share, other.client_cpu_share);
  late_starts_p99_us = std::max(late_starts_p99_us, other.late_starts_p99_us);
}

absl::Status CheckSameTime(const Results& one, const Results& other) {
  absl::Time begins[2];
  for (size_t i = 0; i < 2; ++i) {
    const std::string& text = (i == 0 ? one : other).begin_time;
    if (!absl::ParseTime(absl::RFC3339_full, text, &begins[i], nullptr)) {
      return InvalidArgument("MALFORMED", "begin_time", text, "must be a time such as 2026-01-02T03:04:05Z");
    }
  }
  const double apart = absl::ToDoubleSeconds(begins[1] - begins[0]);
  const auto shorter = static_cast<double>(std::min(one.timeline.size(), other.timeline.size()));
  if (std::abs(apart) <= kBeginResolution + shorter / 2) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format(
      "began {:g} s {} the run that it is to be merged with, and the shorter one took {:g} s: clients must run "
      "at the same time, or their rates do not add up",
      std::abs(apart), apart > 0 ? "after" : "before", shorter));
}

}  // namespace posenc::load
