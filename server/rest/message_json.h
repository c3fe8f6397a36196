// Messages of the Open Inference Protocol as its JSON: fields by their names, all of them, integers as numbers.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "google/protobuf/map.h"
#include "google/protobuf/message.h"
#include "inference/service.pb.h"

namespace posenc::server {

// Submessages that are absent are left out, and of a oneof all but the field that is set.
nlohmann::ordered_json ToJson(const google::protobuf::Message& message);
// A parameter is its value.
nlohmann::ordered_json ToJson(const google::protobuf::Map<std::string, inference::InferParameter>& parameters);
// A text with its quotation marks. Bytes that are no UTF-8 are replaced.
std::string JsonText(const std::string& text);
std::string JsonText(const nlohmann::ordered_json& value);

}  // namespace posenc::server
