#include "server/trace/tracer.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace posenc::server::tracer_test {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using testing::ElementsAre;
using Outcome = SpanExporter::Outcome;

// Records what is exported, and answers as it is told.
class Collector {
 public:
  struct Exported {
    std::vector<std::string> names;  // of calls
    size_t spans = 0;
    milliseconds time{};
  };

  // What the next export returns, after those before; nullopt: it throws. Without any, spans are taken.
  void Answer(std::optional<SpanExporter::Result> result) {
    const std::lock_guard lock(mutex_);
    answers_.push_back(std::move(result));
  }
  // Exports wait until they are let go or cancelled.
  void Block() {
    const std::lock_guard lock(mutex_);
    blocks_ = true;
  }
  void LetGo() {
    const std::lock_guard lock(mutex_);
    blocks_ = false;
    changed_.notify_all();
  }
  void Cancel() {
    const std::lock_guard lock(mutex_);
    is_cancelled_ = true;
    changed_.notify_all();
  }
  // Waits until so many exports have begun.
  bool Gets(size_t exports) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, minutes(1), [&] { return exports_.size() >= exports; });
  }
  SpanExporter::Result Take(absl::Span<const std::unique_ptr<CallSpan>> calls, milliseconds time) {
    std::unique_lock lock(mutex_);
    exports_.push_back({{}, 0, time});
    for (const auto& call : calls) {
      exports_.back().names.push_back(call->name());
      exports_.back().spans += 1 + call->phases().size();
      ids_.insert(ToHex(call->context().span_id.data(), 8));
    }
    changed_.notify_all();
    EXPECT_TRUE(changed_.wait_for(lock, minutes(1), [this] { return !blocks_ || is_cancelled_; }));
    if (is_cancelled_) return {Outcome::kUnavailable, 0, "cancelled"};
    if (answers_.empty()) return {};
    const std::optional<SpanExporter::Result> answer = answers_.front();
    answers_.pop_front();
    if (!answer) throw std::bad_alloc();
    return *answer;
  }

  std::vector<Exported> exports() {
    const std::lock_guard lock(mutex_);
    return exports_;
  }
  // The names of all calls.
  std::vector<std::string> names() {
    std::vector<std::string> all;
    for (const Exported& one : exports()) all.insert(all.end(), one.names.begin(), one.names.end());
    return all;
  }
  // Ids of calls.
  std::set<std::string> ids() {
    const std::lock_guard lock(mutex_);
    return ids_;
  }
  bool is_cancelled() {
    const std::lock_guard lock(mutex_);
    return is_cancelled_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::optional<SpanExporter::Result>> answers_;  // guarded by mutex_, as all below
  std::vector<Exported> exports_;
  std::set<std::string> ids_;
  bool blocks_ = false, is_cancelled_ = false;
};

class FakeExporter final : public SpanExporter {
 public:
  explicit FakeExporter(Collector* collector) : collector_(collector) {}
  Result Export(absl::Span<const std::unique_ptr<CallSpan>> calls, milliseconds time) override {
    return collector_->Take(calls, time);
  }
  void Cancel() override { collector_->Cancel(); }

 private:
  Collector* const collector_;
};

// The example of W3C's Trace Context.
constexpr char kTraceId[] = "4bf92f3577b34da6a3ce929d0e0e4736", kParentId[] = "00f067aa0ba902b7";
std::string Parent(const std::string& flags) { return std::string("00-") + kTraceId + "-" + kParentId + "-" + flags; }

class TracerTest : public testing::Test {
 protected:
  // Batches that are not full wait for an hour, unless a test says otherwise.
  TracerTest() { settings_.schedule_delay = hours(1); }

  void Start() { tracer_.emplace(settings_, std::make_unique<FakeExporter>(&collector_), &registry_); }
  // A call of this many phases. It has one span more.
  void Call(const std::string& name, int phases = 1) {
    auto span = tracer_->Begin("", "", /*is_probe=*/false, name);
    ASSERT_TRUE(span);
    span->Enter(Phase::kReceive);
    for (int n = 1; n < phases; ++n) span->Enter(n % 2 == 1 ? Phase::kCompute : Phase::kSend);
    tracer_->End(std::move(span));
  }
  // A metric's value.
  double Count(const std::string& name, const std::string& reason = "") {
    for (const prometheus::MetricFamily& family : registry_.Collect()) {
      if (family.name != name) continue;
      for (const prometheus::ClientMetric& metric : family.metric) {
        if (reason.empty() ? metric.label.empty() : metric.label.at(0).value == reason) return metric.counter.value;
      }
    }
    ADD_FAILURE() << "no metric " << name << " " << reason;
    return -1;
  }
  double Exported() { return Count("posenc_spans_exported_total"); }
  double Dropped(const std::string& reason) { return Count("posenc_spans_dropped_total", reason); }

  TraceSettings settings_;
  Collector collector_;
  prometheus::Registry registry_;
  std::optional<Tracer> tracer_;  // its destructor waits for the others
};

TEST_F(TracerTest, ACallWithoutAParentBeginsATrace) {
  Start();
  const auto first = tracer_->Begin("", "vendor=1", false, "a"), second = tracer_->Begin("", "", false, "b");
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->name(), "a");
  EXPECT_EQ(first->parent(), nullptr);
  EXPECT_EQ(first->tracestate(), "") << "belongs to no traceparent";
  EXPECT_TRUE(first->context().is_sampled());
  for (const auto* span : {first.get(), second.get()}) {
    EXPECT_NE(span->context().trace_id, TraceContext().trace_id);
    EXPECT_NE(span->context().span_id, TraceContext().span_id);
  }
  EXPECT_NE(first->context().trace_id, second->context().trace_id);
  EXPECT_NE(first->context().span_id, second->context().span_id);
}

TEST_F(TracerTest, ACallOfATraceGoesOnWithIt) {
  Start();
  const auto span = tracer_->Begin(Parent("01"), "vendor=1", false, "a");
  ASSERT_TRUE(span);
  EXPECT_EQ(span->trace_id(), kTraceId);
  ASSERT_TRUE(span->parent());
  EXPECT_EQ(ToHex(span->parent()->span_id.data(), 8), kParentId);
  EXPECT_NE(span->context().span_id, span->parent()->span_id);
  EXPECT_EQ(span->tracestate(), "vendor=1");
}

TEST_F(TracerTest, ACallOfATraceThatIsNotSampledHasNoSpan) {
  Start();
  EXPECT_FALSE(tracer_->Begin(Parent("00"), "", false, "a"));
  EXPECT_FALSE(tracer_->Begin(Parent("fe"), "", false, "a"));
}

TEST_F(TracerTest, AMalformedParentIsNone) {
  Start();
  const auto span = tracer_->Begin(Parent("01") + "-", "vendor=1", false, "a");
  ASSERT_TRUE(span);
  EXPECT_EQ(span->parent(), nullptr);
  EXPECT_NE(span->trace_id(), kTraceId);
  EXPECT_EQ(span->tracestate(), "");
}

TEST_F(TracerTest, AProbeBeginsNoTraceButGoesOnWithOne) {
  Start();
  EXPECT_FALSE(tracer_->Begin("", "", /*is_probe=*/true, "a"));
  EXPECT_FALSE(tracer_->Begin("malformed", "", /*is_probe=*/true, "a"));
  EXPECT_FALSE(tracer_->Begin(Parent("00"), "", /*is_probe=*/true, "a"));
  EXPECT_TRUE(tracer_->Begin(Parent("01"), "", /*is_probe=*/true, "a"));
}

// W3C's Trace Context asks that at least 512 characters are passed on.
TEST_F(TracerTest, ALongTracestateIsNotKept) {
  Start();
  EXPECT_EQ(tracer_->Begin(Parent("01"), std::string(512, 'a'), false, "a")->tracestate(), std::string(512, 'a'));
  EXPECT_EQ(tracer_->Begin(Parent("01"), std::string(513, 'a'), false, "a")->tracestate(), "");
}

TEST_F(TracerTest, TheSamplerIsThatOfTheSettings) {
  settings_.sampler = {.is_parent_based = true, .ratio = 0};
  Start();
  EXPECT_FALSE(tracer_->Begin("", "", false, "a"));
  EXPECT_TRUE(tracer_->Begin(Parent("01"), "", false, "a"));
  tracer_.reset();
  prometheus::Registry registry;
  settings_.sampler = {.is_parent_based = false, .ratio = 0};
  const Tracer alone(settings_, std::make_unique<FakeExporter>(&collector_), &registry);
  EXPECT_FALSE(alone.Begin(Parent("01"), "", false, "a"));
}

TEST_F(TracerTest, AFullBatchIsExportedAtOnce) {
  settings_.max_batch_spans = 6;
  Start();
  for (const char* name : {"a", "b", "c"}) Call(name);
  ASSERT_TRUE(collector_.Gets(1));
  EXPECT_THAT(collector_.exports()[0].names, ElementsAre("a", "b", "c"));
  EXPECT_LE(collector_.exports()[0].time, settings_.timeout);
  tracer_.reset();
  EXPECT_EQ(Exported(), 6);
}

TEST_F(TracerTest, ABatchThatIsNotFullIsExportedAfterTheDelay) {
  settings_.schedule_delay = milliseconds(1);
  Start();
  for (size_t n = 1; n <= 3; ++n) {
    Call("a");
    EXPECT_TRUE(collector_.Gets(n));
  }
}

TEST_F(TracerTest, BatchesHoldAtMostTheirLimit) {
  settings_.max_batch_spans = 8;
  Start();
  collector_.Block();
  std::vector<std::string> names;
  for (int n = 0; n < 20; ++n) {
    names.push_back(std::to_string(n));
    Call(names.back(), 1 + n % 4);
  }
  collector_.LetGo();
  tracer_.reset();
  size_t spans = 0;
  for (const auto& one : collector_.exports()) {
    EXPECT_LE(one.spans, 8u);
    spans += one.spans;
  }
  EXPECT_EQ(collector_.names(), names);
  EXPECT_LT(collector_.exports().size(), 20u) << "a batch for each call";
  EXPECT_EQ(spans, 70u);
  EXPECT_EQ(Exported(), 70);
}

TEST_F(TracerTest, ACallOfMoreSpansThanABatchIsExportedAlone) {
  settings_.max_queue_spans = settings_.max_batch_spans = 4;
  Start();
  Call("a", 30);
  ASSERT_TRUE(collector_.Gets(1));
  EXPECT_EQ(collector_.exports()[0].spans, 31u);
  tracer_.reset();
  EXPECT_EQ(Exported(), 31);
  EXPECT_EQ(Dropped("queue_full"), 0);
}

TEST_F(TracerTest, CallsThatDoNotFitTheQueueAreCounted) {
  settings_.max_queue_spans = 6;
  settings_.max_batch_spans = 2;
  Start();
  collector_.Block();
  Call("a");
  ASSERT_TRUE(collector_.Gets(1)) << "the queue is empty again";
  for (const char* name : {"b", "c", "d"}) Call(name);
  Call("e");
  EXPECT_EQ(Dropped("queue_full"), 2);
  Call("f", 4);
  EXPECT_EQ(Dropped("queue_full"), 7);
  collector_.LetGo();
  tracer_.reset();
  EXPECT_THAT(collector_.names(), ElementsAre("a", "b", "c", "d"));
  EXPECT_EQ(Exported(), 8);
  EXPECT_EQ(Dropped("queue_full"), 7);
}

// The queue is never as full as a batch, because the next call does not fit it.
TEST_F(TracerTest, AQueueThatCallsDoNotFillExactlyIsExportedToo) {
  settings_.max_queue_spans = settings_.max_batch_spans = 5;
  Start();
  for (const char* name : {"a", "b", "c"}) Call(name);
  EXPECT_TRUE(collector_.Gets(1)) << "calls are dropped for the whole delay";
}

TEST_F(TracerTest, AnExportIsTriedAgain) {
  settings_.schedule_delay = milliseconds(1);
  Start();
  collector_.Answer(SpanExporter::Result{Outcome::kUnavailable, 0, "no connection"});
  Call("a");
  ASSERT_TRUE(collector_.Gets(2));
  tracer_.reset();
  EXPECT_THAT(collector_.names(), ElementsAre("a", "a"));
  EXPECT_EQ(Exported(), 2);
  EXPECT_EQ(Dropped("unavailable"), 0);
}

TEST_F(TracerTest, AfterFourTriesTheNextBatchFollows) {
  settings_.schedule_delay = milliseconds(1);
  Start();
  for (int n = 0; n < 4; ++n) collector_.Answer(SpanExporter::Result{Outcome::kUnavailable, 0, "no connection"});
  Call("a");
  ASSERT_TRUE(collector_.Gets(4));
  Call("b");
  ASSERT_TRUE(collector_.Gets(5));
  tracer_.reset();
  EXPECT_THAT(collector_.names(), ElementsAre("a", "a", "a", "a", "b"));
  EXPECT_EQ(Dropped("unavailable"), 2);
  EXPECT_EQ(Exported(), 2);
}

TEST_F(TracerTest, WhatACollectorRejectsIsNotTriedAgain) {
  settings_.max_batch_spans = 2;
  Start();
  collector_.Answer(SpanExporter::Result{Outcome::kRejected, 0, "unauthenticated"});
  Call("a");
  Call("b");
  tracer_.reset();
  EXPECT_THAT(collector_.names(), ElementsAre("a", "b"));
  EXPECT_EQ(Dropped("rejected"), 2);
  EXPECT_EQ(Exported(), 2);
}

TEST_F(TracerTest, SpansOfABatchMayBeRejected) {
  settings_.max_batch_spans = 4;
  Start();
  collector_.Answer(SpanExporter::Result{Outcome::kAccepted, 3, "too old"});
  collector_.Answer(SpanExporter::Result{Outcome::kAccepted, 99, "more than were sent"});
  collector_.Answer(SpanExporter::Result{Outcome::kAccepted, -1, ""});
  collector_.Answer(SpanExporter::Result{Outcome::kAccepted, 0, "a warning"});
  for (int n = 0; n < 8; ++n) Call(std::to_string(n));
  tracer_.reset();
  EXPECT_EQ(collector_.exports().size(), 4u);
  EXPECT_EQ(Dropped("rejected"), 3 + 4);
  EXPECT_EQ(Exported(), 1 + 0 + 4 + 4);
}

TEST_F(TracerTest, GoesOnAfterALackOfMemory) {
  settings_.max_batch_spans = 2;
  Start();
  collector_.Answer(std::nullopt);
  Call("a");
  ASSERT_TRUE(collector_.Gets(1));
  Call("b");
  ASSERT_TRUE(collector_.Gets(2));
  tracer_.reset();
  EXPECT_THAT(collector_.names(), ElementsAre("a", "a", "b")) << "the first is tried again";
  EXPECT_EQ(Exported(), 4);
}

TEST_F(TracerTest, TheEndExportsWhatIsLeft) {
  settings_.max_batch_spans = 100;
  settings_.max_queue_spans = 1000;
  Start();
  for (int n = 0; n < 7; ++n) Call(std::to_string(n));
  tracer_.reset();
  EXPECT_EQ(collector_.names().size(), 7u);
  EXPECT_EQ(Exported(), 14);
  EXPECT_FALSE(collector_.is_cancelled());
  for (const auto& one : collector_.exports()) {
    EXPECT_LE(one.time, seconds(2)) << "no longer than a server may take to end";
    EXPECT_GT(one.time, milliseconds(0));
  }
}

TEST_F(TracerTest, AnExportAtTheEndTakesNoLongerThanOthers) {
  settings_.timeout = milliseconds(100);
  Start();
  Call("a");
  tracer_.reset();
  ASSERT_EQ(collector_.exports().size(), 1u);
  EXPECT_LE(collector_.exports()[0].time, milliseconds(100));
}

TEST_F(TracerTest, TheEndDoesNotWaitBetweenTries) {
  settings_.max_batch_spans = 2;
  Start();
  for (int n = 0; n < 100; ++n) collector_.Answer(SpanExporter::Result{Outcome::kUnavailable, 0, "no connection"});
  Call("a");
  ASSERT_TRUE(collector_.Gets(1));
  tracer_.reset();
  EXPECT_EQ(Dropped("unavailable"), 2);
  EXPECT_EQ(Exported(), 0);
  EXPECT_FALSE(collector_.is_cancelled());
}

TEST_F(TracerTest, WithoutCallsTheEndExportsNothing) {
  Start();
  tracer_->Begin("", "", false, "a");  // never ended
  tracer_.reset();
  EXPECT_TRUE(collector_.exports().empty());
}

TEST_F(TracerTest, TheEndCancelsAnExportThatHangs) {
  settings_.max_batch_spans = 2;
  Start();
  collector_.Block();
  Call("a");
  ASSERT_TRUE(collector_.Gets(1));
  Call("b");
  Call("c");
  tracer_.reset();
  EXPECT_TRUE(collector_.is_cancelled());
  EXPECT_EQ(Exported(), 0) << "nothing was taken";
  EXPECT_EQ(Dropped("unavailable"), 6);
}

// ThreadSanitizer watches this.
TEST_F(TracerTest, ManyThreadsBeginAndEndCalls) {
  constexpr int kThreads = 8, kCalls = 300, kSpans = 4;
  settings_.max_queue_spans = 64;
  settings_.max_batch_spans = 16;
  settings_.schedule_delay = milliseconds(1);
  Start();
  std::vector<std::thread> callers;
  for (int caller = 0; caller < kThreads; ++caller) {
    callers.emplace_back([this, caller] {
      for (int n = 0; n < kCalls; ++n) {
        auto span = tracer_->Begin(n % 2 == 0 ? "" : Parent("01"), "vendor=1", false, std::to_string(caller));
        EXPECT_FALSE(tracer_->Begin("", "", /*is_probe=*/true, "probe"));
        if (!span) {
          ADD_FAILURE() << "all calls are sampled";
          continue;
        }
        span->Enter(Phase::kCompute);
        span->Set("n", n);
        span->Enter(Phase::kSend);
        tracer_->End(std::move(span));
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  tracer_.reset();
  size_t spans = 0;
  for (const auto& one : collector_.exports()) {
    EXPECT_LE(one.spans, 16u);
    spans += one.spans;
  }
  EXPECT_EQ(Exported(), static_cast<double>(spans));
  EXPECT_EQ(Exported() + Dropped("queue_full"), kThreads * kCalls * kSpans);
  EXPECT_EQ(collector_.ids().size() * kSpans, spans) << "ids that two calls have";
}

}  // namespace
}  // namespace posenc::server::tracer_test
