// Answers for people: short, aligned.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "posenc/v1/info.pb.h"
#include "posenc/v1/service.pb.h"
#include "tools/files/tensor_header.h"

namespace posenc::command {

using Rows = std::vector<std::pair<std::string, std::string>>;

// Two columns, the second beginning where the longest of the first allows.
std::string Aligned(const Rows& rows, const std::string& indent = "");

// What was computed, in a few lines; notes included.
std::string InfoReport(const v1::AnswerInfo& info);

// All of a layer group's settings and frequencies.
std::string LayerReport(const v1::LayerExplanation& layer);

std::string ServerReport(const v1::GetServerInfoResponse& response);

// "rope_type llama3, rope_theta 500000, ...": the fields that are set, but for pairings.
std::string SettingsLine(const google::protobuf::Message& settings);

// "BF16 [2, 8, 128]".
std::string TensorReport(const TensorHeader& header);

}  // namespace posenc::command
