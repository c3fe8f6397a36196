#include "server/trace/tracer.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <random>
#include <utility>

#include "server/core/log.h"

namespace posenc::server {
namespace {

using std::chrono::milliseconds;

constexpr std::chrono::seconds kLastExports{2};
constexpr std::chrono::seconds kLogPause{60};
constexpr int kTries = 4;
constexpr milliseconds kFirstPause(500);  // between tries; doubles
constexpr size_t kMostTracestate = 512;   // the most that W3C's Trace Context asks to be passed on

size_t SpansOf(const CallSpan& call) { return 1 + call.children().size(); }

template <size_t kSize>
void Randomize(std::array<uint8_t, kSize>* id) {
  thread_local std::mt19937_64 random{std::random_device()()};
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
                                        std::string name) const {
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
  context.flags = 1;
  const bool keeps_state = parent && tracestate.size() <= kMostTracestate;
  return std::make_unique<CallSpan>(context, parent ? &*parent : nullptr, std::string(keeps_state ? tracestate : ""),
                                    std::move(name));
}

void Tracer::End(std::shared_ptr<CallSpan> span) {
  span->End();
  const size_t spans = SpansOf(*span);
  const std::lock_guard lock(mutex_);
  if (queue_spans_ + spans > max_queue_spans_ && !queue_.empty())
    return queue_full_.Increment(static_cast<double>(spans));
  queue_spans_ += spans;
  queue_.push_back(std::move(span));
  if (queue_.size() == 1 || queue_spans_ >= max_batch_spans_) changed_.notify_one();
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
  changed_.wait_for(lock, delay_, [this] { return is_ending_ || queue_spans_ >= max_batch_spans_; });
  Batch batch;
  size_t spans = 0, calls = 0;
  while (calls < queue_.size() && (calls == 0 || spans + SpansOf(*queue_[calls]) <= max_batch_spans_)) {
    spans += SpansOf(*queue_[calls++]);
  }
  std::move(queue_.begin(), queue_.begin() + static_cast<ptrdiff_t>(calls), std::back_inserter(batch));
  queue_.erase(queue_.begin(), queue_.begin() + static_cast<ptrdiff_t>(calls));
  queue_spans_ -= spans;
  return batch;
}

void Tracer::Export(const Batch& batch) {
  size_t spans = 0;
  for (const auto& call : batch) spans += SpansOf(*call);
  milliseconds pause = kFirstPause;
  SpanExporter::Result result;
  for (int tries = 0; tries < kTries; ++tries, pause *= 2) {
    if (tries > 0 && !Pause(pause)) break;
    std::unique_lock lock(mutex_);
    const milliseconds left =
        is_ending_ ? std::chrono::duration_cast<milliseconds>(end_ - Clock::now()) : milliseconds(timeout_);
    lock.unlock();
    if (left <= milliseconds(0)) break;
    result = exporter_->Export(batch, std::min(left, timeout_));
    if (result.outcome != SpanExporter::Outcome::kUnavailable) break;
  }
  switch (result.outcome) {
    case SpanExporter::Outcome::kTaken: {
      const auto rejected =
          static_cast<size_t>(std::clamp<int64_t>(result.rejected_spans, 0, static_cast<int64_t>(spans)));
      exported_.Increment(static_cast<double>(spans - rejected));
      if (rejected > 0 || !result.error.empty()) Drop(&rejected_, rejected, result.error);
      return;
    }
    case SpanExporter::Outcome::kRejected: return Drop(&rejected_, spans, result.error);
    case SpanExporter::Outcome::kUnavailable: return Drop(&unavailable_, spans, result.error);
  }
}

bool Tracer::Pause(milliseconds time) {
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
