#include "server/core/log.h"

#include <algorithm>
#include <atomic>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/time/time.h"
#include "google/protobuf/stubs/common.h"
#include "google/protobuf/stubs/logging.h"
#include "spdlog/logger.h"
#include "spdlog/sinks/stdout_sinks.h"

namespace posenc::server {
namespace {

struct State {
  LogFormat format;
  spdlog::logger logger;
};

// Not destroyed at exit: a call may log its last line after main() has returned.
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

void StartLog(LogFormat format, const std::string& level) {
  auto* started = new State{format, {"posenc", std::make_shared<spdlog::sinks::stdout_sink_mt>()}};
  started->logger.set_pattern("%v");
  started->logger.set_level(spdlog::level::from_str(level));
  started->logger.flush_on(spdlog::level::trace);
  delete state.exchange(started);
#if GOOGLE_PROTOBUF_VERSION < 4022000
  // Protobuf would print a line of its own for every malformed string that a caller sends.
  google::protobuf::SetLogHandler(nullptr);
#endif
}

bool Logs(LogLevel level) {
  State* const current = state;
  return current != nullptr && current->logger.should_log(level);
}

void Log(LogLevel level, std::string_view message, const LogFields& fields) {
  if (!Logs(level)) return;
  State* const current = state;
  current->logger.log(level, FormatLine(current->format, level, std::chrono::system_clock::now(), message, fields));
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
