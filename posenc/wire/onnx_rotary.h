// The rotary embeddings in an ONNX graph: which operators rotate, and the tables that they rotate by.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/wire/onnx.h"

namespace posenc {

// The attributes of an operator that say how it rotates. The table is not among them.
struct OnnxRotation {
  std::string domain, op_type;       // domain "": ai.onnx
  int64_t opset = 0;                 // version of the domain's operators; 0: the file does not say
  bool interleaved = false;          // else half-split
  int64_t rotary_embedding_dim = 0;  // attributes; 0: absent
  int64_t num_heads = 0, kv_num_heads = 0;
  int64_t rotary_offset = 0;  // first element of a head row that rotates
  float scale = 0;            // 0: absent
  bool is_packed_batching = false;
  bool has_position_ids = true;  // else row s of the table is for token s
  int64_t head_size = 0;         // 0: unknown

  // NOLINTNEXTLINE(modernize-use-nullptr): the check takes the 0 that comparisons are compared with for a pointer.
  auto operator<=>(const OnnxRotation&) const = default;
};

// Where an operator's cosines or sines come from: a tensor in the file, or nothing that is stored there.
struct OnnxOrigin {
  const OnnxTensor* tensor = nullptr;
  int64_t cast_to = 0;     // TensorProto.DataType of the last Cast on the way; 0: none
  std::string not_stored;  // without a tensor: "an input of the graph", "the output of a node Cos"
};

// One table of an operator. A table that an If chooses is one of several.
struct OnnxUse {
  OnnxRotation rotation;
  std::string node;  // name of the operator's node, or of its output
  OnnxOrigin cos, sin;
};

struct OnnxUses {
  std::vector<OnnxUse> uses;  // in the order of the nodes
  // Operators that rotate, but are not read, by domain and type: MRotaryEmbedding, Attention with do_rotary.
  std::map<std::pair<std::string, std::string>, int64_t> unread;
};

// Finds the operators in the graph, its subgraphs and the functions that it calls. They are RotaryEmbedding of ai.onnx
// (https://github.com/onnx/onnx/blob/main/docs/Operators.md, since opset 23) and of com.microsoft, and with do_rotary
// GroupQueryAttention, SparseAttention and PagedAttention of com.microsoft
// (https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md). MultiHeadAttention has no rotation.
// Follows tables through Identity, Cast, Gather of rows, If, and the inputs and outputs of functions. `model` must
// outlive the answer. INVALID_ARGUMENT above 1,048,576 visited nodes, calls 16 deep, or 4,096 uses.
absl::StatusOr<OnnxUses> FindRotary(const OnnxModel& model);

}  // namespace posenc
