// Human-readable reports of answers: short, aligned.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "posenc/v1/info.pb.h"
#include "posenc/v1/service.pb.h"
#include "tools/files/tensor_header.h"

namespace posenc::command {

using Rows = std::vector<std::pair<std::string, std::string>>;

// Returns two columns; the second starts after the longest cell of the first.
std::string Aligned(const Rows& rows, const std::string& indent = "");

// Returns a few lines that say what was computed, notes included.
std::string InfoReport(const v1::AnswerInfo& info);

// Returns all settings and frequencies of a layer group.
std::string LayerReport(const v1::LayerExplanation& layer);

std::string ServerReport(const v1::GetServerInfoResponse& response);

// Formats 0, 1, 2, 4 as "0-2, 4".
std::string Ranges(const google::protobuf::RepeatedField<uint32_t>& indices);

// Formats a value that parses back to the same bits; without an exponent for 1e-4 <= |value| < 1e15.
std::string Decimal(double value);
std::string Decimal(int64_t value);

// Returns "rope_type llama3, rope_theta 500000, ...": the fields that are set, except pairings.
std::string SettingsLine(const google::protobuf::Message& settings);

// Returns "BF16 [2, 8, 128]".
std::string TensorReport(const TensorHeader& header);

}  // namespace posenc::command
