// The ONNX format (onnx/onnx.in.proto of https://github.com/onnx/onnx, IR version 14): a ModelProto in protobuf's wire
// format. The reader is written by hand, because protobuf parses a message whole: with its weights in memory, and up to
// 2 GiB only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace posenc {

// Errors name fields as onnx.in.proto does, after this: onnx.graph.node.
inline constexpr std::string_view kOnnx = "onnx";

// Random access to the bytes of a file. `read` is called with ranges within the file only.
struct OnnxSource {
  uint64_t size;
  std::function<absl::StatusOr<std::string>(uint64_t offset, uint64_t count)> read;
};

struct OnnxRange {
  uint64_t offset, size;  // bytes, in the graph's file
};

// TensorProto.DataType, those that a rotary operator's table can have.
enum OnnxType : int64_t { kOnnxFloat = 1, kOnnxFloat16 = 10, kOnnxDouble = 11, kOnnxBfloat16 = 16 };

// A TensorProto without its data.
struct OnnxTensor {
  std::string name;
  int64_t data_type = 0;
  std::vector<int64_t> dims;
  // Where the data is: raw_data, or the field of the type, or another file.
  std::vector<OnnxRange> raw_data, float_data, int32_data, double_data;
  bool is_external = false;
  std::string location, external_offset, external_length;  // as the file spells them
};

struct OnnxAttribute {
  std::string name, ref_attr_name;
  int64_t i = 0;
  float f = 0;
};

struct OnnxGraph;

struct OnnxNode {
  std::string op_type, domain, name;
  std::vector<std::string> inputs, outputs;  // "": left out
  std::vector<OnnxAttribute> attributes;     // without those that hold graphs or tensors
  std::vector<OnnxGraph> graphs;             // If, Loop, Scan
  std::vector<OnnxTensor> tensors;           // Constant
};

struct OnnxGraph {
  std::vector<OnnxNode> nodes;
  std::vector<OnnxTensor> initializers;
  std::vector<std::string> inputs, outputs;
  std::map<std::string, std::vector<int64_t>, std::less<>>
      shapes;  // of typed values; a dimension without a number is 0
  // Indices of `nodes` by output, and of `initializers` by name.
  std::map<std::string, size_t, std::less<>> node_of, initializer_of;
};

struct OnnxFunction {
  std::string domain, name;
  std::vector<OnnxAttribute> defaults;  // of its attributes
  OnnxGraph body;
};

struct OnnxModel {
  std::string producer;                   // name and version
  std::map<std::string, int64_t> opsets;  // version by domain; "": ai.onnx
  OnnxGraph graph;
  std::vector<OnnxFunction> functions;
};

// Reads all but the data of tensors, which it passes over. INVALID_ARGUMENT names the field and the byte where the file
// breaks the format or a limit: graphs 16 deep, 262,144 nodes, graphs and functions, 262,144 tensors, 4,194,304 sizes
// of shapes and attributes, strings of 4 KiB, 2,097,152 of them with 64 MiB, and 256 MiB besides the data of tensors.
absl::StatusOr<OnnxModel> ReadOnnx(const OnnxSource& source);
// Overload for a file in memory.
absl::StatusOr<OnnxModel> ReadOnnx(std::string_view bytes);

}  // namespace posenc
