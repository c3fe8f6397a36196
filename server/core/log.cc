#include "server/core/log.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <memory>
#include <mutex>
#include <thread>

#include "absl/strings/ascii.h"
#include "absl/time/time.h"
#include "google/protobuf/stubs/common.h"
#include "spdlog/async.h"
#include "spdlog/sinks/base_sink.h"
#if GOOGLE_PROTOBUF_VERSION < 4022000
#include "google/protobuf/stubs/logging.h"
#else
#include "absl/log/globals.h"
#endif

namespace posenc::server {
namespace {

// Counts lines so that FlushLog() knows when all are written.
class StandardOutput final : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
 public:
  int64_t handled() const { return handled_; }
  int64_t failed() const { return failed_; }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    std::string line(message.payload.data(), message.payload.size());
    line += '\n';
    const char* rest = line.data();
    for (size_t left = line.size(); left > 0;) {
      const ssize_t written = write(STDOUT_FILENO, rest, left);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) {
        ++failed_;
        break;
      }
      rest += written;
      left -= static_cast<size_t>(written);
    }
    ++handled_;
  }
  void flush_() override {}

 private:
  std::atomic<int64_t> handled_{0}, failed_{0};
};

// Limit of lines per second.
class LineLimit {
 public:
  explicit LineLimit(int64_t most) : most_(most) {}

  // Returns true if a line may be logged now. Sets *left_out to the lines refused since the last one that was logged.
  bool Take(std::chrono::steady_clock::time_point now, int64_t* left_out) {
    if (most_ == 0) return true;
    const std::lock_guard lock(mutex_);
    if (now - second_ >= std::chrono::seconds(1)) {
      second_ = now;
      lines_ = 0;
    }
    if (++lines_ > most_) {
      ++left_out_;
      ++all_left_out_;
      return false;
    }
    *left_out = std::exchange(left_out_, 0);
    return true;
  }
  int64_t all_left_out() const {
    const std::lock_guard lock(mutex_);
    return all_left_out_;
  }

 private:
  const int64_t most_;
  mutable std::mutex mutex_;
  std::chrono::steady_clock::time_point second_;
  int64_t lines_ = 0, left_out_ = 0, all_left_out_ = 0;
};

struct State {
  explicit State(const LogOptions& options) : format(options.format), call_lines(options.max_call_lines_per_second) {
    logger->set_level(spdlog::level::from_str(options.level));
  }

  const LogFormat format;
  LineLimit call_lines;
  std::atomic<int64_t> queued{0};
  const std::shared_ptr<StandardOutput> output = std::make_shared<StandardOutput>();
  const std::shared_ptr<spdlog::details::thread_pool> writer =
      std::make_shared<spdlog::details::thread_pool>(kLogQueueLines, 1);
  // An asynchronous logger must be owned by a shared_ptr.
  const std::shared_ptr<spdlog::async_logger> logger =
      std::make_shared<spdlog::async_logger>("posenc", output, writer, spdlog::async_overflow_policy::overrun_oldest);
};

// Not destroyed at exit: a call may log its last line after main() has returned, and the writer may wait for a reader.
std::atomic<State*> state{nullptr};

std::string Dump(const auto& json) {
  return json.dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace);
}

// Returns a plain word unchanged, any other value as JSON (quoted and escaped).
std::string Word(const nlohmann::json& value) {
  const std::string* text = value.get_ptr<const std::string*>();
  const auto plain = [](char c) {
    return absl::ascii_isalnum(c) || std::string_view("._:/+-[]").find(c) != std::string_view::npos;
  };
  if (text == nullptr || text->empty() || !std::all_of(text->begin(), text->end(), plain)) return Dump(value);
  return *text;
}

std::string NameOf(LogLevel level) {
  const spdlog::string_view_t name = spdlog::level::to_string_view(level);
  return std::string(name.data(), name.size());
}

}  // namespace

void StartLog(const LogOptions& options) {
  state = new State(options);
  // Protobuf would print a line of its own for every malformed string that a caller sends.
#if GOOGLE_PROTOBUF_VERSION < 4022000
  google::protobuf::SetLogHandler(nullptr);
#else
  absl::SetMinLogLevel(absl::LogSeverityAtLeast::kFatal);  // of gRPC too
#endif
}

bool Logs(LogLevel level) {
  State* const current = state;
  return current != nullptr && current->logger->should_log(level);
}

void Log(LogLevel level, std::string_view message, const LogFields& fields) {
  if (!Logs(level)) return;
  State* const current = state;
  ++current->queued;
  current->logger->log(level, FormatLine(current->format, level, std::chrono::system_clock::now(), message, fields));
}

void LogCall(LogLevel level, std::string_view message, const LogFields& fields) {
  if (!Logs(level)) return;
  int64_t left_out = 0;
  State* const current = state;
  if (level >= LogLevel::info && !current->call_lines.Take(std::chrono::steady_clock::now(), &left_out)) return;
  if (left_out > 0) Log(LogLevel::warn, "lines about calls were left out", {{"lines", left_out}});
  Log(level, message, fields);
}

void LogException(std::string_view message, const std::exception& error) noexcept {
  try {
    LogCall(LogLevel::err, message, {{"error", error.what()}});
  } catch (...) {
  }
}

int64_t LogLinesLost() {
  State* const current = state;
  if (current == nullptr) return 0;
  return static_cast<int64_t>(current->writer->overrun_counter()) + current->output->failed() +
         current->call_lines.all_left_out();
}

void FlushLog(std::chrono::milliseconds timeout) {
  State* const current = state;
  if (current == nullptr) return;
  const auto until = std::chrono::steady_clock::now() + timeout;
  const auto done = [current] {
    return current->output->handled() + static_cast<int64_t>(current->writer->overrun_counter()) >= current->queued;
  };
  while (!done() && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

std::string FormatLine(LogFormat format, LogLevel level, std::chrono::system_clock::time_point time,
                       std::string_view message, const LogFields& fields) {
  const std::string stamp = absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::FromChrono(time), absl::UTCTimeZone());
  if (format == LogFormat::kJson) {
    nlohmann::ordered_json line = {{"time", stamp}, {"level", NameOf(level)}, {"message", message}};
    for (const auto& [name, value] : fields) line[name] = value;
    return Dump(line);
  }
  std::string line = stamp + " " + NameOf(level) + " " + std::string(message);
  for (const auto& [name, value] : fields) line.append(" ").append(name).append("=").append(Word(value));
  return line;
}

}  // namespace posenc::server
