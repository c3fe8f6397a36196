#include "server/trace/call_span.h"

namespace posenc::server {

const char* NameOf(Phase phase) {
  switch (phase) {
    case Phase::kReceive: return "receive";
    case Phase::kQueue: return "queue";
    case Phase::kPrepare: return "prepare";
    case Phase::kCompute: return "compute";
    case Phase::kSend: return "send";
  }
  __builtin_unreachable();
}

CallSpan::CallSpan(TraceContext context, const TraceContext* parent, std::string tracestate, std::string name)
    : context_(context),
      has_parent_(parent != nullptr),
      parent_(parent == nullptr ? TraceContext() : *parent),
      tracestate_(std::move(tracestate)),
      name_(std::move(name)) {
  children_.push_back({Phase::kReceive, begin_, begin_});
}

void CallSpan::Enter(Phase phase) {
  if (children_.back().phase == phase || children_.size() == kMostChildren) return;
  const Clock::time_point now = Clock::now();
  children_.back().end = now;
  children_.push_back({phase, now, now});
}

void CallSpan::End() { end_ = children_.back().end = Clock::now(); }

uint64_t CallSpan::UnixTimeOf(Clock::time_point time) const {
  const auto since_begin = std::chrono::duration_cast<std::chrono::nanoseconds>(time - begin_);
  const auto begin = std::chrono::duration_cast<std::chrono::nanoseconds>(unix_begin_.time_since_epoch());
  return static_cast<uint64_t>((begin + since_begin).count());
}

}  // namespace posenc::server
