// Log lines: one event each, a message and fields, as text or as one JSON object. They never contain tensor data.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"
#include "spdlog/common.h"

namespace posenc::server {

enum class LogFormat { kText, kJson };

using LogLevel = spdlog::level::level_enum;
using LogFields = std::vector<std::pair<std::string, nlohmann::json>>;

struct LogOptions {
  LogFormat format = LogFormat::kText;
  // A spdlog level name: "debug", "info", "warning", "error", "off".
  std::string level = "info";
  // Limit of LogCall(), in lines per second; 0: none.
  int64_t max_call_lines_per_second = 0;
};

// Starts logging to standard output; nothing is logged before.
//
// A thread of its own writes the lines, from a queue of kLogQueueLines. If standard output is slow, the oldest lines in
// the queue are dropped; if it is closed, all are. No function below waits for standard output, except FlushLog().
void StartLog(const LogOptions& options);
inline constexpr size_t kLogQueueLines = 8192;

// True if lines of this level are logged. Thread-safe, like the functions below.
bool Logs(LogLevel level);
void Log(LogLevel level, std::string_view message, const LogFields& fields = {});
// Logs a line that a caller can cause. Lines beyond the limit are left out; the first line of a later second is
// preceded by one that gives their number. Below LogLevel::info the limit does not apply.
void LogCall(LogLevel level, std::string_view message, const LogFields& fields);
// Logs an exception that must end nothing. There may be no line of it: the exception may tell of a lack of memory.
void LogException(std::string_view message, const std::exception& error) noexcept;

// Returns the number of lines that were dropped or left out.
int64_t LogLinesLost();
// Waits until all lines are written, but at most so long.
void FlushLog(std::chrono::milliseconds timeout);

// Formats one line without a line break. For any field values it is valid JSON, or text without control characters.
std::string FormatLine(LogFormat format, LogLevel level, std::chrono::system_clock::time_point time,
                       std::string_view message, const LogFields& fields);

}  // namespace posenc::server
