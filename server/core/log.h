// Log lines: one event each, a message and fields, as text or as one JSON object. They never contain tensor data.
#pragma once

#include <chrono>
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

// Starts logging to standard output; nothing is logged before. gRPC's own messages go to standard error. `level` is a
// spdlog level name: "debug", "info", "warning", "error", "off".
void StartLog(LogFormat format, const std::string& level);

// True if lines of this level are logged. Thread-safe, like Log().
bool Logs(LogLevel level);
void Log(LogLevel level, std::string_view message, const LogFields& fields = {});

// Formats one line without a line break. For any field values it is valid JSON, or text without control characters.
std::string FormatLine(LogFormat format, LogLevel level, std::chrono::system_clock::time_point time,
                       std::string_view message, const LogFields& fields);

}  // namespace posenc::server
