// Log lines: one event each, a message and fields, as text or as one JSON object. Never tensor data.
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

// Lines go to standard output; what gRPC itself has to say goes to standard error. Until this is called, nothing is
// logged. `level` as spdlog names it: "debug", "info", "warning", "error", "off".
void StartLog(LogFormat format, const std::string& level);

bool Logs(LogLevel level);
void Log(LogLevel level, std::string_view message, const LogFields& fields = {});

// One line, without its end. Whatever the strings hold, it is valid JSON, or text without control characters.
std::string FormatLine(LogFormat format, LogLevel level, std::chrono::system_clock::time_point time,
                       std::string_view message, const LogFields& fields);

}  // namespace posenc::server
