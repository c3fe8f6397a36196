#include "server/trace/call_span.h"

#include <new>
#include <utility>

namespace posenc::server {
namespace {

constexpr size_t kMostTextBytes = 256;

}  // namespace

const char* NameOf(Phase phase) {
  switch (phase) {
    case Phase::kReceive: return "receive";
    case Phase::kQueue: return "queue";
    case Phase::kPrepare: return "prepare";
    case Phase::kCompute: return "compute";
    case Phase::kEncode: return "encode";
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
  phases_.reserve(kMostPhases);
}

void CallSpan::Enter(Phase phase) {
  const Clock::time_point now = Clock::now();
  if (phases_.empty()) phases_.push_back({Phase::kReceive, begin_, now});
  if (phases_.back().phase == phase || phases_.size() == kMostPhases) return;
  phases_.back().end = now;
  phases_.push_back({phase, now, now});
}

void CallSpan::Set(const char* key, std::string_view value) {
  try {
    Add(key, std::string(value.substr(0, kMostTextBytes)));
  } catch (const std::bad_alloc&) {
  }
}

void CallSpan::Add(const char* key, Value value) {
  try {
    attributes_.push_back({key, std::move(value)});
  } catch (const std::bad_alloc&) {
  }
}

void CallSpan::SetError(std::string_view text) {
  is_error_ = true;
  try {
    error_ = std::string(text.substr(0, kMostTextBytes));
  } catch (const std::bad_alloc&) {
  }
}

void CallSpan::End() {
  end_ = Clock::now();
  if (has_phases()) phases_.back().end = end_;
}

uint64_t CallSpan::UnixTimeOf(Clock::time_point time) const {
  const auto since_begin = std::chrono::duration_cast<std::chrono::nanoseconds>(time - begin_);
  const auto begin = std::chrono::duration_cast<std::chrono::nanoseconds>(unix_begin_.time_since_epoch());
  return static_cast<uint64_t>((begin + since_begin).count());
}

}  // namespace posenc::server
