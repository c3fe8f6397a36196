// The span of one call: its times, its phases and its attributes, as OpenTelemetry's semantic conventions name them.
#pragma once

#include <chrono>
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "server/trace/trace_context.h"

namespace posenc::server {

// Phases of a unary call, which are child spans and add up to the call. Streams have none.
enum class Phase : uint8_t {
  kReceive,  // the request's message comes
  kQueue,    // it waits for a thread
  kPrepare,  // it is parsed and planned
  kCompute,  // its outputs are computed
  kEncode,   // its answer becomes JSON
  kSend,     // its answer and status are sent
};
const char* NameOf(Phase phase);

// Not thread-safe: each thread of a call hands it to the next. Without memory, attributes are left out.
class CallSpan {
 public:
  using Clock = std::chrono::steady_clock;
  using Value = std::variant<std::string, int64_t>;

  struct PhaseSpan {
    Phase phase;
    Clock::time_point begin, end;
  };
  struct Attribute {
    const char* key;  // a literal
    Value value;
  };

  // `parent`: null for the root of a trace.
  CallSpan(TraceContext context, const TraceContext* parent, std::string tracestate, std::string name);

  // The current phase ends, and this one begins. The first one is kReceive, from the call's begin. After kMostPhases
  // the last one goes on.
  void Enter(Phase phase);
  bool has_phases() const { return !phases_.empty(); }
  // Texts are cut to 256 bytes.
  void Set(const char* key, std::string_view value);
  template <std::integral Integer>
  void Set(const char* key, Integer value) {
    Add(key, static_cast<int64_t>(value));
  }
  // The call has failed by the server's fault, with this text.
  void SetError(std::string_view text);
  void End();

  std::string trace_id() const { return ToHex(context_.trace_id.data(), context_.trace_id.size()); }
  const TraceContext& context() const { return context_; }
  const TraceContext* parent() const { return has_parent_ ? &parent_ : nullptr; }
  const std::string& tracestate() const { return tracestate_; }
  const std::string& name() const { return name_; }
  const std::vector<PhaseSpan>& phases() const { return phases_; }
  const std::vector<Attribute>& attributes() const { return attributes_; }
  bool is_error() const { return is_error_; }
  const std::string& error() const { return error_; }
  Clock::time_point begin() const { return begin_; }
  Clock::time_point end() const { return end_; }
  // Nanoseconds since 1970.
  uint64_t UnixTimeOf(Clock::time_point time) const;

 private:
  static constexpr size_t kMostPhases = 32;

  void Add(const char* key, Value value);

  const TraceContext context_;
  const bool has_parent_;
  const TraceContext parent_;
  const std::string tracestate_, name_;
  const Clock::time_point begin_ = Clock::now();
  const std::chrono::system_clock::time_point unix_begin_ = std::chrono::system_clock::now();
  Clock::time_point end_ = begin_;
  std::vector<PhaseSpan> phases_;  // the last one is the current phase
  std::vector<Attribute> attributes_;
  bool is_error_ = false;
  std::string error_;
};

}  // namespace posenc::server
