#include "posenc/wire/onnx.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "posenc/base/interruption.h"
#include "posenc/base/status.h"

namespace posenc {
namespace {

constexpr int kDeepestGraph = 16;
constexpr uint64_t kMostNodes = 1 << 18, kMostTensors = 1 << 18, kMostNumbers = 1 << 22;
constexpr uint64_t kLongestString = 4096, kMostStrings = 1 << 21, kMostStringBytes = 64 << 20;
constexpr uint64_t kMostBytesRead = 256 << 20;
constexpr uint64_t kOnnxWindow = 1 << 16;  // bytes that one read fetches
constexpr uint64_t kMostRanges = 1024;     // pieces of one tensor's data: writers make one
constexpr int kLongestVarint = 10;

enum OnnxWireType : uint32_t { kVarint = 0, kFixed64 = 1, kLength = 2, kFixed32 = 5 };

std::string OnnxPath(std::string_view name) { return fmt::format("{}.{}", kOnnx, name); }

// A field of a message. A field of bytes or a message lies in [begin, end); others have a value.
struct OnnxField {
  uint32_t number;
  OnnxWireType type;
  uint64_t value, begin, end;
};

// Reads fields from the file's beginning on, through a window, and counts what is kept.
class OnnxReading {
 public:
  explicit OnnxReading(const OnnxSource& source) : source_(source) {}

  uint64_t size() const { return source_.size; }
  uint64_t at() const { return at_; }
  void MoveTo(uint64_t at) { at_ = at; }

  // Reads the next field of the message `path`, which ends at `end`.
  absl::StatusOr<OnnxField> Next(uint64_t end, std::string_view path) {
    const uint64_t begin = at_;
    POSENC_ASSIGN_OR_RETURN(const uint64_t tag, Varint(end, path));
    OnnxField field{static_cast<uint32_t>(tag >> 3), static_cast<OnnxWireType>(tag & 7), 0, 0, 0};
    if (tag >> 3 == 0 || tag >> 32 != 0) return Malformed(path, begin, "a field number", "must be 1 .. 536870911");
    switch (field.type) {
      case kVarint: {
        POSENC_ASSIGN_OR_RETURN(field.value, Varint(end, path));
        break;
      }
      case kFixed32:
      case kFixed64: {
        POSENC_ASSIGN_OR_RETURN(const std::string bytes, Bytes(field.type == kFixed32 ? 4 : 8, end, path));
        std::memcpy(&field.value, bytes.data(), bytes.size());
        break;
      }
      case kLength: {
        POSENC_ASSIGN_OR_RETURN(const uint64_t length, Varint(end, path));
        if (length > end - at_) {
          return Malformed(path, begin, fmt::format("a field of {} bytes", length),
                           fmt::format("must end within its message, which ends at byte {}", end));
        }
        field.begin = at_;
        field.end = at_ + length;
        return field;
      }
      default: return Malformed(path, begin, fmt::format("wire type {}", tag & 7), "must be 0, 1, 2 or 5");
    }
    field.begin = field.end = at_;
    return field;
  }

  absl::StatusOr<std::string> String(const OnnxField& field, std::string_view path) {
    POSENC_RETURN_IF_ERROR(NeedLength(field, path));
    const uint64_t size = field.end - field.begin;
    if (size > kLongestString) return TooMany(path, fmt::format("{} bytes", size), kLongestString, "bytes");
    POSENC_RETURN_IF_ERROR(Count(1, kMostStrings, &strings_, path, "strings"));
    POSENC_RETURN_IF_ERROR(Count(size, kMostStringBytes, &string_bytes_, path, "bytes of strings"));
    return Bytes(size, field.end, path);
  }
  // Appends the numbers of a repeated field, packed or not.
  absl::Status Numbers(const OnnxField& field, std::string_view path, std::vector<int64_t>* numbers) {
    do {
      POSENC_RETURN_IF_ERROR(AddNumber(path));
      if (field.type == kVarint) {
        numbers->push_back(static_cast<int64_t>(field.value));
        return absl::OkStatus();
      }
      POSENC_RETURN_IF_ERROR(NeedLength(field, path));
      if (at_ == field.end) return absl::OkStatus();
      POSENC_ASSIGN_OR_RETURN(const uint64_t number, Varint(field.end, path));
      numbers->push_back(static_cast<int64_t>(number));
    } while (at_ < field.end);
    return absl::OkStatus();
  }
  absl::StatusOr<int64_t> Number(const OnnxField& field, std::string_view path) const {
    if (field.type == kVarint) return static_cast<int64_t>(field.value);
    return Malformed(path, field.begin, fmt::format("wire type {}", static_cast<int>(field.type)), "must be a varint");
  }
  absl::Status NeedLength(const OnnxField& field, std::string_view path) const {
    if (field.type == kLength) return absl::OkStatus();
    return Malformed(path, field.begin, fmt::format("wire type {}", static_cast<int>(field.type)),
                     "must be length-delimited");
  }

  // Graphs, functions and their attributes count, too.
  absl::Status AddNode(std::string_view path) { return Count(1, kMostNodes, &nodes_, path, "nodes"); }
  absl::Status AddNumber(std::string_view path) { return Count(1, kMostNumbers, &numbers_, path, "numbers"); }
  absl::Status AddTensor(std::string_view path) { return Count(1, kMostTensors, &tensors_, path, "tensors"); }

 private:
  static absl::Status Malformed(std::string_view path, uint64_t at, const std::string& what, const std::string& limit) {
    return InvalidArgument("MALFORMED", OnnxPath(path), fmt::format("{} at byte {}", what, at), limit);
  }
  static absl::Status TooMany(std::string_view path, const std::string& value, uint64_t most, std::string_view noun) {
    return InvalidArgument("OUT_OF_RANGE", OnnxPath(path), value, fmt::format("must be at most {} {}", most, noun));
  }
  absl::Status Count(uint64_t more, uint64_t most, uint64_t* count, std::string_view path,
                     std::string_view noun) const {
    if (more <= most - *count) {
      *count += more;
      return absl::OkStatus();
    }
    return TooMany(path, fmt::format("more than that at byte {}", at_), most, fmt::format("{} in the file", noun));
  }

  absl::StatusOr<uint64_t> Varint(uint64_t end, std::string_view path) {
    uint64_t value = 0;
    const uint64_t begin = at_;
    for (int n = 0; n < kLongestVarint; ++n) {
      POSENC_RETURN_IF_ERROR(Fetch(1, end, path));
      const auto byte = static_cast<uint8_t>(window_[at_ - window_at_]);
      ++at_;
      value |= static_cast<uint64_t>(byte & 0x7f) << (7 * n);
      if (byte < 0x80) return value;
    }
    return Malformed(path, begin, "a varint", fmt::format("must have at most {} bytes", kLongestVarint));
  }
  absl::StatusOr<std::string> Bytes(uint64_t count, uint64_t end, std::string_view path) {
    POSENC_RETURN_IF_ERROR(Fetch(count, end, path));
    std::string bytes = window_.substr(at_ - window_at_, count);
    at_ += count;
    return bytes;
  }
  // Makes the window hold the next `count` bytes.
  absl::Status Fetch(uint64_t count, uint64_t end, std::string_view path) {
    if (count > end - at_) {
      return Malformed(path, at_, fmt::format("{} bytes", count),
                       fmt::format("must lie within the message, which ends at byte {}", end));
    }
    POSENC_RETURN_IF_ERROR(Count(count, kMostBytesRead, &bytes_read_, path, "bytes besides the data of tensors"));
    if (at_ >= window_at_ && at_ + count <= window_at_ + window_.size()) return absl::OkStatus();
    InterruptionPoint();
    window_at_ = at_;
    POSENC_ASSIGN_OR_RETURN(window_, source_.read(at_, std::min(std::max(count, kOnnxWindow), source_.size - at_)));
    return absl::OkStatus();
  }

  const OnnxSource& source_;
  uint64_t at_ = 0;
  std::string window_;
  uint64_t window_at_ = 0;
  uint64_t nodes_ = 0, tensors_ = 0, numbers_ = 0, strings_ = 0, string_bytes_ = 0, bytes_read_ = 0;
};

// Calls read(field) for each field of a message that ends at `end`. What `read` leaves of a field is passed over.
template <typename Read>
absl::Status EachField(OnnxReading& file, uint64_t end, std::string_view path, const Read& read) {
  while (file.at() < end) {
    POSENC_ASSIGN_OR_RETURN(const OnnxField field, file.Next(end, path));
    POSENC_RETURN_IF_ERROR(read(field));
    file.MoveTo(field.end);
  }
  return absl::OkStatus();
}
// Calls read(field) for each field of the message that the field holds.
template <typename Read>
absl::Status EachFieldIn(OnnxReading& file, const OnnxField& field, std::string_view path, const Read& read) {
  POSENC_RETURN_IF_ERROR(file.NeedLength(field, path));
  return EachField(file, field.end, path, read);
}

absl::Status Assign(absl::StatusOr<std::string> text, std::string* to) {
  if (!text.ok()) return text.status();
  *to = *std::move(text);
  return absl::OkStatus();
}
absl::Status Assign(absl::StatusOr<int64_t> number, int64_t* to) {
  if (number.ok()) *to = *number;
  return number.status();
}
absl::Status Append(absl::StatusOr<std::string> text, std::vector<std::string>* to) {
  if (!text.ok()) return text.status();
  to->push_back(*std::move(text));
  return absl::OkStatus();
}

absl::Status AddRange(OnnxReading& file, const OnnxField& field, uint64_t unpacked_size, std::string_view path,
                      std::vector<OnnxRange>* ranges) {
  // An element that is not packed ends where its field does.
  const uint64_t begin = field.type == kLength ? field.begin : field.end - unpacked_size;
  if (unpacked_size == 0 || (field.type != kLength && field.type != (unpacked_size == 4 ? kFixed32 : kFixed64))) {
    POSENC_RETURN_IF_ERROR(file.NeedLength(field, path));
  }
  if (ranges->size() == kMostRanges) {
    return InvalidArgument("UNSUPPORTED", OnnxPath(path), fmt::format("more pieces at byte {}", begin),
                           fmt::format("must be in at most {} pieces", kMostRanges));
  }
  ranges->push_back({begin, field.end - begin});
  return absl::OkStatus();
}

// StringStringEntryProto
absl::Status ReadExternal(OnnxReading& file, const OnnxField& entry, std::string_view path, OnnxTensor* tensor) {
  std::string key, value;
  POSENC_RETURN_IF_ERROR(EachFieldIn(file, entry, path, [&](const OnnxField& field) {
    return field.number == 1   ? Assign(file.String(field, path), &key)
           : field.number == 2 ? Assign(file.String(field, path), &value)
                               : absl::OkStatus();
  }));
  std::string* known = key == "location" ? &tensor->location
                       : key == "offset" ? &tensor->external_offset
                       : key == "length" ? &tensor->external_length
                                         : nullptr;
  if (known != nullptr) *known = std::move(value);
  return absl::OkStatus();
}

absl::StatusOr<OnnxTensor> ReadTensorProto(OnnxReading& file, const OnnxField& message, std::string_view path) {
  POSENC_RETURN_IF_ERROR(file.AddTensor(path));
  OnnxTensor tensor;
  POSENC_RETURN_IF_ERROR(EachFieldIn(file, message, path, [&](const OnnxField& field) -> absl::Status {
    switch (field.number) {
      case 1: return file.Numbers(field, path, &tensor.dims);
      case 2: return Assign(file.Number(field, path), &tensor.data_type);
      case 4: return AddRange(file, field, 4, path, &tensor.float_data);
      case 5: return AddRange(file, field, 0, path, &tensor.int32_data);
      case 8: return Assign(file.String(field, path), &tensor.name);
      case 9: tensor.raw_data.clear(); return AddRange(file, field, 0, path, &tensor.raw_data);  // the last one counts
      case 10: return AddRange(file, field, 8, path, &tensor.double_data);
      case 13: return ReadExternal(file, field, path, &tensor);
      case 14: {
        POSENC_ASSIGN_OR_RETURN(const int64_t data_location, file.Number(field, path));
        tensor.is_external = data_location == 1;
        return absl::OkStatus();
      }
      default: return absl::OkStatus();
    }
  }));
  return tensor;
}

// ValueInfoProto: keeps the name, and the shape if it is a tensor's.
absl::Status ReadValue(OnnxReading& file, const OnnxField& message, OnnxGraph* graph, std::vector<std::string>* names) {
  constexpr std::string_view kPath = "graph.value_info";
  std::string name;
  std::vector<int64_t> shape;
  const auto read_dimension = [&](const OnnxField& field) -> absl::Status {
    if (field.number != 1) return absl::OkStatus();
    POSENC_RETURN_IF_ERROR(file.AddNumber(kPath));
    shape.push_back(0);
    std::vector<int64_t> number;
    POSENC_RETURN_IF_ERROR(EachFieldIn(file, field, kPath, [&](const OnnxField& inner) {
      return inner.number == 1 ? file.Numbers(inner, kPath, &number) : absl::OkStatus();
    }));
    if (!number.empty()) shape.back() = number.back();
    return absl::OkStatus();
  };
  // TypeProto.tensor_type = 1, .shape = 2, .dim = 1
  const auto read_tensor = [&](const OnnxField& field) {
    return field.number == 2 ? EachFieldIn(file, field, kPath, read_dimension) : absl::OkStatus();
  };
  const auto read_type = [&](const OnnxField& field) {
    return field.number == 1 ? EachFieldIn(file, field, kPath, read_tensor) : absl::OkStatus();
  };
  POSENC_RETURN_IF_ERROR(EachFieldIn(file, message, kPath, [&](const OnnxField& field) {
    return field.number == 1   ? Assign(file.String(field, kPath), &name)
           : field.number == 2 ? EachFieldIn(file, field, kPath, read_type)
                               : absl::OkStatus();
  }));
  if (names != nullptr) names->push_back(name);
  if (!shape.empty()) graph->shapes[std::move(name)] = std::move(shape);
  return absl::OkStatus();
}

absl::Status ReadGraphProto(OnnxReading& file, const OnnxField& message, int depth, OnnxGraph* graph);

// Reads an AttributeProto into the node's attributes, tensors and graphs.
absl::StatusOr<OnnxAttribute> ReadAttribute(OnnxReading& file, const OnnxField& message, int depth, OnnxNode* node) {
  constexpr std::string_view kPath = "graph.node.attribute";
  POSENC_RETURN_IF_ERROR(file.AddNumber(kPath));
  OnnxAttribute attribute;
  const auto read = [&](const OnnxField& field) -> absl::Status {
    switch (field.number) {
      case 1: return Assign(file.String(field, kPath), &attribute.name);
      case 2: {
        const auto bits = static_cast<uint32_t>(field.value);
        std::memcpy(&attribute.f, &bits, sizeof(bits));
        return absl::OkStatus();
      }
      case 3: return Assign(file.Number(field, kPath), &attribute.i);
      case 5: {
        POSENC_ASSIGN_OR_RETURN(OnnxTensor tensor, ReadTensorProto(file, field, kPath));
        if (node != nullptr) node->tensors.push_back(std::move(tensor));
        return absl::OkStatus();
      }
      case 6:
      case 11: {
        OnnxGraph graph;
        POSENC_RETURN_IF_ERROR(ReadGraphProto(file, field, depth + 1, &graph));
        if (node != nullptr) node->graphs.push_back(std::move(graph));
        return absl::OkStatus();
      }
      case 21: return Assign(file.String(field, kPath), &attribute.ref_attr_name);
      default: return absl::OkStatus();
    }
  };
  POSENC_RETURN_IF_ERROR(EachFieldIn(file, message, kPath, read));
  return attribute;
}

absl::Status ReadNode(OnnxReading& file, const OnnxField& message, int depth, OnnxGraph* graph) {
  constexpr std::string_view kPath = "graph.node";
  InterruptionPoint();
  POSENC_RETURN_IF_ERROR(file.AddNode(kPath));
  OnnxNode node;
  POSENC_RETURN_IF_ERROR(EachFieldIn(file, message, kPath, [&](const OnnxField& field) -> absl::Status {
    switch (field.number) {
      case 1: return Append(file.String(field, kPath), &node.inputs);
      case 2: return Append(file.String(field, kPath), &node.outputs);
      case 3: return Assign(file.String(field, kPath), &node.name);
      case 4: return Assign(file.String(field, kPath), &node.op_type);
      case 5: {
        POSENC_ASSIGN_OR_RETURN(OnnxAttribute attribute, ReadAttribute(file, field, depth, &node));
        node.attributes.push_back(std::move(attribute));
        return absl::OkStatus();
      }
      case 7: return Assign(file.String(field, kPath), &node.domain);
      default: return absl::OkStatus();
    }
  }));
  if (node.domain == "ai.onnx") node.domain.clear();  // another name of the default domain
  for (const std::string& output : node.outputs) {
    if (!output.empty()) graph->node_of.try_emplace(output, graph->nodes.size());
  }
  graph->nodes.push_back(std::move(node));
  return absl::OkStatus();
}

absl::Status ReadGraphProto(OnnxReading& file, const OnnxField& message, int depth, OnnxGraph* graph) {
  constexpr std::string_view kPath = "graph";
  POSENC_RETURN_IF_ERROR(file.AddNode(kPath));
  if (depth > kDeepestGraph) {
    return InvalidArgument("OUT_OF_RANGE", OnnxPath("graph.node.attribute.g"),
                           fmt::format("a graph {} deep at byte {}", depth, file.at()),
                           fmt::format("must be at most {} deep", kDeepestGraph));
  }
  return EachFieldIn(file, message, kPath, [&](const OnnxField& field) -> absl::Status {
    switch (field.number) {
      case 1: return ReadNode(file, field, depth, graph);
      case 5: {
        POSENC_ASSIGN_OR_RETURN(OnnxTensor tensor, ReadTensorProto(file, field, "graph.initializer"));
        graph->initializer_of.try_emplace(tensor.name, graph->initializers.size());
        graph->initializers.push_back(std::move(tensor));
        return absl::OkStatus();
      }
      case 11: return ReadValue(file, field, graph, &graph->inputs);
      case 12: return ReadValue(file, field, graph, &graph->outputs);
      case 13: return ReadValue(file, field, graph, nullptr);
      default: return absl::OkStatus();
    }
  });
}

absl::Status ReadFunction(OnnxReading& file, const OnnxField& message, OnnxFunction* function) {
  constexpr std::string_view kPath = "functions";
  POSENC_RETURN_IF_ERROR(file.AddNode(kPath));
  return EachFieldIn(file, message, kPath, [&](const OnnxField& field) -> absl::Status {
    switch (field.number) {
      case 1: return Assign(file.String(field, kPath), &function->name);
      case 4: return Append(file.String(field, kPath), &function->body.inputs);
      case 5: return Append(file.String(field, kPath), &function->body.outputs);
      case 7: return ReadNode(file, field, 0, &function->body);
      case 10: return Assign(file.String(field, kPath), &function->domain);
      case 11: {
        POSENC_ASSIGN_OR_RETURN(OnnxAttribute attribute, ReadAttribute(file, field, 0, nullptr));
        function->defaults.push_back(std::move(attribute));
        return absl::OkStatus();
      }
      case 12: return ReadValue(file, field, &function->body, nullptr);
      default: return absl::OkStatus();
    }
  });
}

// OperatorSetIdProto
absl::Status ReadOpset(OnnxReading& file, const OnnxField& message, OnnxModel* model) {
  constexpr std::string_view kPath = "opset_import";
  std::string domain;
  int64_t version = 0;
  POSENC_RETURN_IF_ERROR(EachFieldIn(file, message, kPath, [&](const OnnxField& field) {
    return field.number == 1   ? Assign(file.String(field, kPath), &domain)
           : field.number == 2 ? Assign(file.Number(field, kPath), &version)
                               : absl::OkStatus();
  }));
  model->opsets[domain == "ai.onnx" ? "" : domain] = version;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<OnnxModel> ReadOnnx(const OnnxSource& source) {
  OnnxReading file(source);
  OnnxModel model;
  bool has_graph = false;
  std::string version;
  POSENC_RETURN_IF_ERROR(EachField(file, file.size(), "model", [&](const OnnxField& field) -> absl::Status {
    switch (field.number) {
      case 2: return Assign(file.String(field, "producer_name"), &model.producer);
      case 3: return Assign(file.String(field, "producer_version"), &version);
      case 7: has_graph = true; return ReadGraphProto(file, field, 1, &model.graph);
      case 8: return ReadOpset(file, field, &model);
      case 25: return ReadFunction(file, field, &model.functions.emplace_back());
      default: return absl::OkStatus();
    }
  }));
  if (!has_graph)
    return InvalidArgument("MISSING", OnnxPath("graph"), "", "must be given: a file without one is no model");
  if (!version.empty()) model.producer += " " + version;
  return model;
}

absl::StatusOr<OnnxModel> ReadOnnx(std::string_view bytes) {
  return ReadOnnx(OnnxSource{bytes.size(), [bytes](uint64_t offset, uint64_t count) -> absl::StatusOr<std::string> {
                               return std::string(bytes.substr(offset, count));
                             }});
}

}  // namespace posenc
