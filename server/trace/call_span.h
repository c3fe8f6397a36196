// The span of one call: its times, its phases and its attributes, as OpenTelemetry's semantic conventions name them.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "server/trace/trace_context.h"

namespace posenc::server {

// What a call is in. Each time is a child span; together they are the call's time.
enum class Phase : uint8_t {
  kReceive,  // the request's message comes
  kQueue,    // it waits for a thread
  kPrepare,  // it is parsed and planned
  kCompute,  // its outputs are computed
  kSend,     // its answer and status are sent
};
const char* NameOf(Phase phase);

// Not thread-safe: the threads of a call take turns.
class CallSpan {
 public:
  using Clock = std::chrono::steady_clock;
  using Value = std::variant<std::string, int64_t>;

  struct Child {
    Phase phase;
    Clock::time_point begin, end;
  };
  struct Attribute {
    const char* key;  // a literal
    Value value;
  };

  // `parent`: null for the root of a trace.
  CallSpan(TraceContext context, const TraceContext* parent, std::string tracestate, std::string name);

  // The current phase ends, and this one begins. After kMostChildren the last phase goes on.
  void Enter(Phase phase);
  void Set(const char* key, std::string value) { attributes_.push_back({key, std::move(value)}); }
  void Set(const char* key, const char* value) { Set(key, std::string(value)); }
  template <typename Integer>
  void Set(const char* key, Integer value) {
    attributes_.push_back({key, static_cast<int64_t>(value)});
  }
  // The call has failed by the server's fault, with this text.
  void SetError(std::string text) {
    is_error_ = true;
    error_ = std::move(text);
  }
  void End();

  std::string trace_id() const { return ToHex(context_.trace_id.data(), context_.trace_id.size()); }
  const TraceContext& context() const { return context_; }
  const TraceContext* parent() const { return has_parent_ ? &parent_ : nullptr; }
  const std::string& tracestate() const { return tracestate_; }
  const std::string& name() const { return name_; }
  const std::vector<Child>& children() const { return children_; }
  const std::vector<Attribute>& attributes() const { return attributes_; }
  bool is_error() const { return is_error_; }
  const std::string& error() const { return error_; }
  Clock::time_point begin() const { return begin_; }
  Clock::time_point end() const { return end_; }
  // Nanoseconds since 1970.
  uint64_t UnixTimeOf(Clock::time_point time) const;

 private:
  static constexpr size_t kMostChildren = 32;

  const TraceContext context_;
  const bool has_parent_;
  const TraceContext parent_;
  const std::string tracestate_, name_;
  const Clock::time_point begin_ = Clock::now();
  const std::chrono::system_clock::time_point unix_begin_ = std::chrono::system_clock::now();
  Clock::time_point end_ = begin_;
  std::vector<Child> children_;  // the last one is the current phase
  std::vector<Attribute> attributes_;
  bool is_error_ = false;
  std::string error_;
};

}  // namespace posenc::server
