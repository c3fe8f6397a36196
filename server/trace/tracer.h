// The tracer: begins the spans of sampled calls, and exports them in batches on a thread of its own. A call never waits
// for it: what does not fit its queue is dropped and counted.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "prometheus/counter.h"
#include "prometheus/registry.h"
#include "server/trace/call_span.h"
#include "server/trace/span_exporter.h"
#include "server/trace/trace_settings.h"

namespace posenc::server {

class Tracer {
 public:
  Tracer(const TraceSettings& settings, std::unique_ptr<SpanExporter> exporter, prometheus::Registry* registry);
  // Exports what is left, for at most a second.
  ~Tracer();

  // Begins the span of a call with these headers (empty: absent). Returns null if it is not sampled, if it is a probe,
  // which must not begin a trace, or without memory. Thread-safe.
  std::unique_ptr<CallSpan> Begin(std::string_view traceparent, std::string_view tracestate, bool is_probe,
                                  std::string_view name) const;
  // Ends a span, and leaves it to the exporter. Thread-safe, does not block.
  void End(std::unique_ptr<CallSpan> span);

 private:
  using Clock = std::chrono::steady_clock;
  using Batch = std::vector<std::unique_ptr<CallSpan>>;

  void Run();
  // Waits for the next batch. Empty: the tracer ends.
  Batch NextBatch();
  void Export(const Batch& batch);
  // Returns false if it ended meanwhile.
  bool Pause(std::chrono::milliseconds time);
  void Count(const SpanExporter::Result& result, size_t spans);
  void Drop(prometheus::Counter* counter, size_t spans, const std::string& why);

  const Sampler sampler_;
  const std::chrono::milliseconds timeout_, delay_;
  const size_t max_queue_spans_, max_batch_spans_;
  const std::unique_ptr<SpanExporter> exporter_;
  prometheus::Family<prometheus::Counter>& dropped_;
  prometheus::Counter &exported_, &queue_full_, &rejected_, &unavailable_;
  std::mutex mutex_;
  std::condition_variable changed_, ended_;
  std::deque<std::unique_ptr<CallSpan>> queue_;  // guarded by mutex_, as all below
  size_t queue_spans_ = 0;                       // of the calls in queue_
  bool is_asked_ = false;                        // to export before the delay is over
  bool is_ending_ = false, has_ended_ = false;
  Clock::time_point end_;        // of exports, once is_ending_
  Clock::time_point next_line_;  // of the log about dropped spans; of the thread
  std::thread thread_;           // declared last: it uses the others
};

}  // namespace posenc::server
