// The recorded files of tests/golden, whose README.md has their schemas.
#pragma once

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "posenc/base/dtype.h"
#include "posenc/kernels/rotate_pairs.h"

namespace posenc::golden {

using nlohmann::json;

// `path` is relative to tests/golden.
inline std::string ReadText(const std::string& path) {
  std::ifstream file(std::string(POSENC_TEST_DATA) + "/golden/" + path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read tests/golden/" + path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

inline json Read(const std::string& path) { return json::parse(ReadText(path)); }

// The component to request of a config.json: its text part if it has several, or a T5's encoder.
inline std::string ComponentOf(const std::string& config_json) {
  const json file = json::parse(config_json);
  if (file.contains("text_config")) return "text";
  return file["model_type"] == "t5" ? "encoder" : "";
}

// Names of the files in a directory of tests/golden, in order.
inline std::vector<std::string> List(const std::string& directory) {
  std::vector<std::string> names;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(POSENC_TEST_DATA) + "/golden/" + directory)) {
    names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

inline double Number(const json& value) {
  if (value == "inf") return std::numeric_limits<double>::infinity();
  if (value == "-inf") return -std::numeric_limits<double>::infinity();
  if (value == "nan") return std::numeric_limits<double>::quiet_NaN();
  return value.get<double>();
}

// The numbers of nested lists, in order.
inline std::vector<double> Numbers(const json& value) {
  if (!value.is_array()) return {Number(value)};
  std::vector<double> numbers;
  for (const json& item : value) {
    const std::vector<double> inner = Numbers(item);
    numbers.insert(numbers.end(), inner.begin(), inner.end());
  }
  return numbers;
}

// Converts torch's name of a type.
inline DType ReadDType(const json& name) {
  if (name == "float32") return DType::kFP32;
  if (name == "float16") return DType::kFP16;
  if (name == "bfloat16") return DType::kBF16;
  throw std::runtime_error("unknown dtype " + name.dump());
}

inline Pairing ReadPairing(const json& name) {
  return name == "interleaved" ? Pairing::kInterleaved : Pairing::kHalfSplit;
}

}  // namespace posenc::golden
