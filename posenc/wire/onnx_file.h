// Reader of ONNX files for what they rotate by: the operators with the tables that they have.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/base/input_file.h"
#include "posenc/v1/rotary.pb.h"
#include "posenc/wire/onnx_rotary.h"

namespace posenc {

// True for what ReadOnnxFile() reads: a path that ends in .onnx.
bool IsOnnxPath(const std::string& path);

// Operators of a graph that rotate alike, by equal tables.
struct OnnxRotary {
  OnnxRotation rotation;
  std::vector<std::string> nodes;  // their names, in the graph's order
  // Half-width tables with their pairing; absent if they are not in the file.
  std::optional<v1::RotarySettings> settings;
  std::string cos_name, sin_name;
  std::string stored;      // where the tables are: "in the graph", "in weights.bin"
  std::string not_stored;  // why there are none: "cos_cache is the output of a node Cos"
};

struct OnnxFile {
  std::string producer;
  std::vector<OnnxRotary> rotary;
  std::vector<std::string>
      unread;  // operators that rotate, but are not read: "com.microsoft MRotaryEmbedding, 4 nodes"
};

// Reads a graph without its weights, and the tables of its operators (onnx_rotary.h) from it or from files beside it.
// Tables are FP32, FP16, BF16 or FP64, [rows, width] or [1, rows, width]; at most 128 MiB each, 4,096 that are read,
// and 512 MiB of different ones. INVALID_ARGUMENT names the field or tensor that breaks the format or a limit, and for
// external data a path that leaves the folder of the graph; other errors are InputFile's. All name the file.
absl::StatusOr<OnnxFile> ReadOnnxFile(const std::string& path);

}  // namespace posenc
