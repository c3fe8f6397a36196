#include "posenc/wire/onnx_rotary.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "absl/strings/match.h"
#include "posenc/base/interruption.h"
#include "posenc/base/status.h"

namespace posenc {
namespace {

constexpr int64_t kMostVisits = 1 << 20, kMostUses = 4096;
constexpr int kDeepestCall = 16, kLongestWay = 64;
constexpr size_t kMostOrigins = 16;  // that Ifs choose from
constexpr std::string_view kMicrosoft = "com.microsoft";

// An operator that rotates: its inputs' indices and its attributes' names.
struct RotaryOperator {
  std::string_view domain, op_type;
  size_t cos, sin;
  std::string_view interleaved;
  bool needs_do_rotary;             // rotates only with this attribute
  std::optional<size_t> positions;  // input without which row s is for token s
};
// onnxruntime 1.32 has these inputs; its documentation gives the first four.
constexpr RotaryOperator kRotaryOperators[] = {
    {"", "RotaryEmbedding", 1, 2, "interleaved", false, 3},
    {kMicrosoft, "RotaryEmbedding", 2, 3, "interleaved", false, std::nullopt},
    {kMicrosoft, "GroupQueryAttention", 7, 8, "rotary_interleaved", true, std::nullopt},
    {kMicrosoft, "SparseAttention", 9, 10, "rotary_interleaved", true, std::nullopt},
    {kMicrosoft, "PagedAttention", 8, 9, "rotary_interleaved", true, std::nullopt},
};

// A graph that is being visited, and where its names come from: a subgraph sees those of the graph around it, a
// function its arguments.
struct Frame {
  const OnnxGraph* graph;
  const Frame* around = nullptr;           // subgraphs
  const OnnxFunction* function = nullptr;  // functions: with the call, and the frame that it is in
  const OnnxNode* call = nullptr;
  const Frame* caller = nullptr;
  int calls = 0;  // deep
};

std::string_view InputOf(const OnnxNode& node, size_t index) {
  return index < node.inputs.size() ? std::string_view(node.inputs[index]) : std::string_view();
}

const OnnxAttribute* Find(const std::vector<OnnxAttribute>& attributes, std::string_view name) {
  const auto found = std::find_if(attributes.begin(), attributes.end(),
                                  [name](const OnnxAttribute& attribute) { return attribute.name == name; });
  return found == attributes.end() ? nullptr : &*found;
}

// Returns the attribute, or the one of the function's call that it stands for; null if it is absent.
const OnnxAttribute* AttributeOf(const OnnxNode& node, std::string_view name, const Frame* frame) {
  const OnnxAttribute* attribute = Find(node.attributes, name);
  while (attribute != nullptr && !attribute->ref_attr_name.empty()) {
    while (frame->function == nullptr && frame->around != nullptr) frame = frame->around;
    if (frame->function == nullptr) return nullptr;
    const std::string_view wanted = attribute->ref_attr_name;
    const OnnxAttribute* given = Find(frame->call->attributes, wanted);
    if (given == nullptr) return Find(frame->function->defaults, wanted);
    attribute = given;
    frame = frame->caller;
  }
  return attribute;
}

int64_t IntOf(const OnnxNode& node, std::string_view name, const Frame& frame) {
  const OnnxAttribute* attribute = AttributeOf(node, name, &frame);
  return attribute == nullptr ? 0 : attribute->i;
}

class RotaryVisit {
 public:
  explicit RotaryVisit(const OnnxModel& model) : model_(model) {
    for (const OnnxFunction& function : model.functions) {
      functions_.try_emplace({function.domain == "ai.onnx" ? "" : function.domain, function.name}, &function);
    }
  }

  absl::Status Graph(const Frame& frame) {
    InterruptionPoint();
    for (const OnnxNode& node : frame.graph->nodes) {
      if (++visits_ > kMostVisits) return TooManyVisits();
      for (const OnnxGraph& graph : node.graphs) POSENC_RETURN_IF_ERROR(Graph({.graph = &graph, .around = &frame}));
      if (const OnnxFunction* function = FunctionOf(node); function != nullptr) {
        const Frame inner = Called(*function, node, frame);
        if (inner.calls > kDeepestCall) {
          return InvalidArgument("OUT_OF_RANGE", "onnx.functions." + Quote(function->name), "a call of itself",
                                 fmt::format("must be called at most {} deep", kDeepestCall));
        }
        POSENC_RETURN_IF_ERROR(Graph(inner));
        continue;
      }
      POSENC_RETURN_IF_ERROR(Node(node, frame));
    }
    return absl::OkStatus();
  }

  OnnxUses&& result() { return std::move(result_); }

 private:
  const OnnxFunction* FunctionOf(const OnnxNode& node) const {
    const auto found = functions_.find({node.domain, node.op_type});
    return found == functions_.end() ? nullptr : found->second;
  }
  static Frame Called(const OnnxFunction& function, const OnnxNode& node, const Frame& frame) {
    return {
        .graph = &function.body, .function = &function, .call = &node, .caller = &frame, .calls = DepthOf(frame) + 1};
  }
  static int DepthOf(const Frame& frame) {
    const Frame* outer = &frame;
    while (outer->around != nullptr) outer = outer->around;
    return outer->calls;
  }

  absl::Status Node(const OnnxNode& node, const Frame& frame) {
    const auto* operation = std::find_if(
        std::begin(kRotaryOperators), std::end(kRotaryOperators),
        [&node](const RotaryOperator& one) { return one.domain == node.domain && one.op_type == node.op_type; });
    const bool does_rotary = IntOf(node, "do_rotary", frame) != 0;
    if (operation == std::end(kRotaryOperators)) {
      if (node.domain == kMicrosoft && (does_rotary || absl::StrContains(node.op_type, "Rotary"))) {
        ++result_.unread[{node.domain, node.op_type}];
      }
      return absl::OkStatus();
    }
    if (operation->needs_do_rotary && !does_rotary) return absl::OkStatus();
    OnnxUse use;
    use.rotation = RotationOf(*operation, node, frame);
    use.node = !node.name.empty() || node.outputs.empty() ? node.name : node.outputs[0];
    const std::vector<OnnxOrigin> cos = OriginsOf(InputOf(node, operation->cos), frame, 0),
                                  sin = OriginsOf(InputOf(node, operation->sin), frame, 0);
    if (visits_ > kMostVisits) return TooManyVisits();
    if (cos.size() != sin.size() || cos.empty()) {
      return InvalidArgument("MALFORMED", "onnx.graph.node." + Quote(use.node),
                             fmt::format("{} tables of cosines, {} of sines", cos.size(), sin.size()),
                             "must have as many of both");
    }
    for (size_t n = 0; n < cos.size(); ++n) {
      if (std::ssize(result_.uses) == kMostUses) {
        return InvalidArgument("OUT_OF_RANGE", "onnx.graph.node", "more operators that rotate",
                               fmt::format("must be at most {}", kMostUses));
      }
      use.cos = cos[n];
      use.sin = sin[n];
      result_.uses.push_back(use);
    }
    return absl::OkStatus();
  }

  OnnxRotation RotationOf(const RotaryOperator& operation, const OnnxNode& node, const Frame& frame) const {
    const auto opset = model_.opsets.find(node.domain);
    const OnnxAttribute* scale = AttributeOf(node, "scale", &frame);
    OnnxRotation rotation{
        .domain = node.domain,
        .op_type = node.op_type,
        .opset = opset == model_.opsets.end() ? 0 : opset->second,
        .interleaved = IntOf(node, operation.interleaved, frame) != 0,
        .rotary_embedding_dim = IntOf(node, "rotary_embedding_dim", frame),
        .num_heads = IntOf(node, "num_heads", frame),
        .kv_num_heads = IntOf(node, "kv_num_heads", frame),
        .rotary_offset = IntOf(node, "rotary_offset", frame),
        .scale = scale == nullptr ? 0 : scale->f,
        .is_packed_batching = IntOf(node, "is_packed_batching", frame) != 0,
        .has_position_ids = !operation.positions || !InputOf(node, *operation.positions).empty(),
    };
    // The input has the shape [batch, heads, tokens, head_size], or [batch, tokens, heads * head_size].
    const auto shape = frame.graph->shapes.find(InputOf(node, 0));
    if (shape == frame.graph->shapes.end() || operation.needs_do_rotary) return rotation;
    const std::vector<int64_t>& sizes = shape->second;
    if (sizes.size() == 4) {
      if (rotation.num_heads == 0) rotation.num_heads = sizes[1];
      rotation.head_size = sizes[3];
    } else if (sizes.size() == 3 && rotation.num_heads > 0) {
      rotation.head_size = sizes[2] / rotation.num_heads;
    }
    return rotation;
  }

  static absl::Status TooManyVisits() {
    return InvalidArgument("OUT_OF_RANGE", "onnx.functions", "more calls and branches",
                           fmt::format("must lead to at most {} nodes", kMostVisits));
  }
  static std::vector<OnnxOrigin> Stored(const OnnxTensor& tensor) { return {{&tensor, 0, ""}}; }
  static std::vector<OnnxOrigin> NotStored(std::string why) { return {{nullptr, 0, std::move(why)}}; }

  // Returns where the value of this name comes from; several origins if an If chooses one.
  std::vector<OnnxOrigin> OriginsOf(std::string_view name, const Frame& frame, int way) {
    if (name.empty()) return NotStored("absent");
    if (way > kLongestWay || ++visits_ > kMostVisits) return NotStored("computed by a long chain of nodes");
    const OnnxGraph& graph = *frame.graph;
    if (const auto found = graph.initializer_of.find(name); found != graph.initializer_of.end()) {
      return Stored(graph.initializers[found->second]);
    }
    if (const auto found = graph.node_of.find(name); found != graph.node_of.end()) {
      return OriginsOfOutput(graph.nodes[found->second], name, frame, way);
    }
    if (frame.around != nullptr) return OriginsOf(name, *frame.around, way + 1);
    const auto input = std::find(graph.inputs.begin(), graph.inputs.end(), name);
    if (input == graph.inputs.end()) return NotStored("of no node");
    if (frame.function == nullptr) return NotStored("an input of the graph");
    return OriginsOf(InputOf(*frame.call, input - graph.inputs.begin()), *frame.caller, way + 1);
  }

  std::vector<OnnxOrigin> OriginsOfOutput(const OnnxNode& node, std::string_view name, const Frame& frame, int way) {
    const size_t index = std::find(node.outputs.begin(), node.outputs.end(), name) - node.outputs.begin();
    if (const OnnxFunction* function = FunctionOf(node); function != nullptr) {
      const Frame inner = Called(*function, node, frame);
      if (inner.calls > kDeepestCall || index >= function->body.outputs.size())
        return NotStored("computed by a function");
      return OriginsOf(function->body.outputs[index], inner, way + 1);
    }
    const bool is_standard = node.domain.empty();
    if (is_standard && node.op_type == "Constant" && node.tensors.size() == 1) return Stored(node.tensors[0]);
    if (is_standard && node.op_type == "Identity") return OriginsOf(InputOf(node, 0), frame, way + 1);
    // Rows by the tokens' positions.
    if (is_standard && node.op_type == "Gather" && IntOf(node, "axis", frame) == 0) {
      return OriginsOf(InputOf(node, 0), frame, way + 1);
    }
    if (is_standard && node.op_type == "Cast") {
      std::vector<OnnxOrigin> origins = OriginsOf(InputOf(node, 0), frame, way + 1);
      for (OnnxOrigin& origin : origins) origin.cast_to = IntOf(node, "to", frame);
      return origins;
    }
    if (is_standard && node.op_type == "If") {
      std::vector<OnnxOrigin> all;
      for (const OnnxGraph& branch : node.graphs) {
        if (index >= branch.outputs.size()) return NotStored("of no node");
        for (OnnxOrigin& origin : OriginsOf(branch.outputs[index], {.graph = &branch, .around = &frame}, way + 1)) {
          if (all.size() < kMostOrigins) all.push_back(std::move(origin));
        }
      }
      return all;
    }
    return NotStored(fmt::format("the output of a node {}", Quote(node.op_type)));
  }

  const OnnxModel& model_;
  std::map<std::pair<std::string, std::string>, const OnnxFunction*> functions_;
  int64_t visits_ = 0;
  OnnxUses result_;
};

}  // namespace

absl::StatusOr<OnnxUses> FindRotary(const OnnxModel& model) {
  RotaryVisit visit(model);
  POSENC_RETURN_IF_ERROR(visit.Graph({.graph = &model.graph}));
  return visit.result();
}

}  // namespace posenc
