#include "server/trace/tracer.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <random>
#include <utility>

#include "server/core/log.h"

namespace posenc::server {
namespace {

using std::chrono::milliseconds;

constexpr std::chrono::seconds kLastExports{1};
constexpr std::chrono::seconds kLogPause{60};
constexpr int kTries = 4;
constexpr milliseconds kFirstPause(500);      // between tries; doubles
constexpr uint8_t kSampled = 1, kRandom = 2;  // flags of W3C's Trace Context
constexpr size_t kMostTracestate = 512;       // the most that W3C's Trace Context asks to be passed on

size_t SpansOf(const CallSpan& call) { return 1 + call.phases().size(); }

template <size_t kSize>
void Randomize(std::array<uint8_t, kSize>* id) {
  thread_local std::mt19937_64 random = [] {
    std::random_device device;
    std::seed_seq seed{device(), device(), device(), device(), device(), device(), device(), device()};
    return std::mt19937_64(seed);
  }();
  for (size_t n = 0; n < kSize; n += 8) {
    const uint64_t word = std::max<uint64_t>(random(), 1);  // zero is no id
    std::memcpy(id->data() + n, &word, 8);
  }
}

}  // namespace

Tracer::Tracer(const TraceSettings& settings, std::unique_ptr<SpanExporter> exporter, prometheus::Registry* registry)
    : sampler_(settings.sampler),
      timeout_(settings.timeout),
      delay_(settings.schedule_delay),
      max_queue_spans_(settings.max_queue_spans),
      max_batch_spans_(settings.max_batch_spans),
      exporter_(std::move(exporter)),
      dropped_(prometheus::BuildCounter()
                   .Name("posenc_spans_dropped_total")
                   .Help("Spans of traces that were dropped, by why.")
                   .Register(*registry)),
      exported_(prometheus::BuildCounter()
                    .Name("posenc_spans_exported_total")
                    .Help("Spans of traces that the collector has taken.")
                    .Register(*registry)
                    .Add({})),
      queue_full_(dropped_.Add({{"reason", "queue_full"}})),
      rejected_(dropped_.Add({{"reason", "rejected"}})),
      unavailable_(dropped_.Add({{"reason", "unavailable"}})),
      thread_([this] { Run(); }) {}

Tracer::~Tracer() {
  std::unique_lock lock(mutex_);
  is_ending_ = true;
  end_ = Clock::now() + kLastExports;
  changed_.notify_all();
  if (!ended_.wait_for(lock, kLastExports, [this] { return has_ended_; })) exporter_->Cancel();
  lock.unlock();
  thread_.join();
}

std::unique_ptr<CallSpan> Tracer::Begin(std::string_view traceparent, std::string_view tracestate, bool is_probe,
                                        std::string_view name) const {
  const auto parent = ParseTraceparent(traceparent);
  if (!parent && is_probe) return nullptr;
  TraceContext context;
  if (parent) {
    context.trace_id = parent->trace_id;
  } else {
    Randomize(&context.trace_id);
  }
  if (!sampler_.Samples(parent ? &*parent : nullptr, context.trace_id)) return nullptr;
  Randomize(&context.span_id);
  context.flags = kSampled | (parent ? parent->flags & kRandom : kRandom);
  const bool keeps_state = parent && tracestate.size() <= kMostTracestate;
  try {
    return std::make_unique<CallSpan>(context, parent ? &*parent : nullptr,
                                      std::string(keeps_state ? tracestate : std::string_view()), std::string(name));
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void Tracer::End(std::unique_ptr<CallSpan> span) {
  span->End();
  const size_t spans = SpansOf(*span);
  const std::lock_guard lock(mutex_);
  const bool fits = queue_spans_ + spans <= max_queue_spans_ || queue_.empty();
  try {
    if (fits) queue_.push_back(std::move(span));
    if (fits) queue_spans_ += spans;
  } catch (const std::bad_alloc&) {
    return unavailable_.Increment(static_cast<double>(spans));
  }
  if (!fits) queue_full_.Increment(static_cast<double>(spans));
  const bool is_due = !fits || queue_spans_ >= max_batch_spans_;
  if (queue_.size() == 1 || (is_due && !is_asked_)) changed_.notify_one();
  is_asked_ |= is_due;
}

void Tracer::Run() {
  for (;;) {
    try {
      const Batch batch = NextBatch();
      if (batch.empty()) break;
      Export(batch);
    } catch (const std::exception& error) {  // out of memory
      LogException("traces", error);
    }
  }
  const std::lock_guard lock(mutex_);
  has_ended_ = true;
  ended_.notify_all();
}

Tracer::Batch Tracer::NextBatch() {
  std::unique_lock lock(mutex_);
  while (!is_ending_ && queue_.empty()) changed_.wait(lock);
  // A batch that is not full waits for others.
  changed_.wait_for(lock, delay_, [this] { return is_ending_ || is_asked_; });
  size_t spans = 0, calls = 0;
  while (calls < queue_.size() && (calls == 0 || spans + SpansOf(*queue_[calls]) <= max_batch_spans_)) {
    spans += SpansOf(*queue_[calls++]);
  }
  Batch batch;
  batch.reserve(calls);
  for (; calls > 0; --calls) {
    batch.push_back(std::move(queue_.front()));
    queue_.pop_front();
  }
  queue_spans_ -= spans;
  is_asked_ = queue_spans_ >= max_batch_spans_;
  return batch;
}

void Tracer::Export(const Batch& batch) {
  size_t spans = 0;
  for (const auto& call : batch) spans += SpansOf(*call);
  const Clock::time_point deadline = Clock::now() + timeout_;
  milliseconds pause = kFirstPause;
  SpanExporter::Result result = {SpanExporter::Outcome::kUnavailable, 0, "there was no time left"};
  for (int tries = 0; tries < kTries; ++tries, pause *= 2) {
    if (tries > 0 && !Pause(pause)) break;
    std::unique_lock lock(mutex_);
    const Clock::time_point until = is_ending_ ? std::min(end_, deadline) : deadline;
    lock.unlock();
    const auto left = std::chrono::duration_cast<milliseconds>(until - Clock::now());
    if (left <= milliseconds(0)) break;
    try {
      result = exporter_->Export(batch, left);
    } catch (const std::exception& error) {  // out of memory
      result = {SpanExporter::Outcome::kUnavailable, 0, error.what()};
    }
    if (result.outcome != SpanExporter::Outcome::kUnavailable) break;
  }
  Count(result, spans);
}

void Tracer::Count(const SpanExporter::Result& result, size_t spans) {
  switch (result.outcome) {
    case SpanExporter::Outcome::kAccepted: {
      const auto most = static_cast<int64_t>(spans);
      const auto rejected = static_cast<size_t>(std::clamp<int64_t>(result.rejected_spans, 0, most));
      exported_.Increment(static_cast<double>(spans - rejected));
      if (rejected > 0 || !result.error.empty()) Drop(&rejected_, rejected, result.error);
      return;
    }
    case SpanExporter::Outcome::kRejected: return Drop(&rejected_, spans, result.error);
    case SpanExporter::Outcome::kUnavailable: return Drop(&unavailable_, spans, result.error);
  }
}

bool Tracer::Pause(milliseconds time) {
  // Up to a quarter longer, so that servers do not come back to a collector all at once.
  time += milliseconds(std::random_device()() % (static_cast<uint64_t>(time.count()) / 4 + 1));
  std::unique_lock lock(mutex_);
  return !changed_.wait_for(lock, time, [this] { return is_ending_; });
}

void Tracer::Drop(prometheus::Counter* counter, size_t spans, const std::string& why) {
  counter->Increment(static_cast<double>(spans));
  const Clock::time_point now = Clock::now();
  if (now < next_line_) return;
  next_line_ = now + kLogPause;
  Log(LogLevel::warn, "spans dropped", {{"spans", static_cast<int64_t>(spans)}, {"error", why}});
}

}  // namespace posenc::server
