#include "posenc/wire/shared_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>

#include "absl/functional/function_ref.h"
#include "google/protobuf/descriptor.h"
#include "posenc/base/status.h"
#include "posenc/v1/service.pb.h"
#include "posenc/wire/carriers.h"
#include "posenc/wire/rpcs.h"

namespace posenc::wire {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr size_t kTokenBytes = 16;
constexpr int64_t kMostCopiedAtOnce = 16 << 10;  // bytes

// Sibling fields of `output` that hold its operand: an in-place output may be the same region.
constexpr std::array<std::string_view, 3> kOperands = {"tensor", "scores", "add_to"};

std::string Join(std::string_view path, std::string_view name) {
  return path.empty() ? std::string(name) : fmt::format("{}.{}", path, name);
}

const LeadingFields& FieldsToRegions() {
  static const auto* const fields = [] {
    std::vector<const Descriptor*> requests;
    for (const RpcDescription& rpc : Rpcs()) requests.push_back(rpc.request.GetDescriptor());
    return new LeadingFields(requests, {v1::Tensor::descriptor(), v1::Region::descriptor()});
  }();
  return *fields;
}

// A message within a request: the names of fields are joined only for the messages that are looked for.
struct Place {
  const Place* outer = nullptr;  // null: the request
  const FieldDescriptor* field = nullptr;
  int index = 0;

  std::string Path() const {
    if (outer == nullptr) return "";
    const std::string path = Join(outer->Path(), field->name());
    return field->is_repeated() ? fmt::format("{}[{}]", path, index) : path;
  }
};

// Calls see(path, region, is_output) for each region of the message until a status is not OK. `path` is the region
// field itself for an output, else the tensor that holds the region. INVALID_ARGUMENT if a tensor has data and region.
absl::Status ForEachRegion(
    const Message& message, const Place& place,
    absl::FunctionRef<absl::Status(const std::string& path, const v1::Region& region, bool is_output)> see) {
  const Descriptor* type = message.GetDescriptor();
  if (type == v1::Region::descriptor()) return see(place.Path(), static_cast<const v1::Region&>(message), true);
  if (type == v1::Tensor::descriptor()) {
    const auto& tensor = static_cast<const v1::Tensor&>(message);
    if (!tensor.has_region()) return absl::OkStatus();
    if (!tensor.data().empty()) {
      return InvalidArgument("CONFLICT", Join(place.Path(), "data"), "", "must be empty with a region");
    }
    return see(place.Path(), tensor.region(), false);
  }
  const auto& reflection = *message.GetReflection();
  for (const FieldDescriptor* field : FieldsToRegions().Of(type)) {
    const int size = field->is_repeated() ? reflection.FieldSize(message, field) : reflection.HasField(message, field);
    for (int n = 0; n < size; ++n) {
      const Message& inner = field->is_repeated() ? reflection.GetRepeatedMessage(message, field, n)
                                                  : reflection.GetMessage(message, field);
      POSENC_RETURN_IF_ERROR(ForEachRegion(inner, {&place, field, n}, see));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckWithin(const std::string& path, const v1::Region& region, const SharedMemory& memory,
                         bool is_output) {
  const std::string field = is_output ? path : Join(path, "region");
  const auto size = static_cast<int64_t>(memory.bytes().size());
  for (const auto& [name, value] : {std::pair{"offset", region.offset()}, std::pair{"byte_size", region.byte_size()}}) {
    if (value < 0) {
      return InvalidArgument("OUT_OF_RANGE", Join(field, name), fmt::format("{}", value), "must be at least 0");
    }
  }
  if (region.byte_size() > size || region.offset() > size - region.byte_size()) {
    return InvalidArgument("OUT_OF_RANGE", field,
                           fmt::format("{} bytes at offset {}", region.byte_size(), region.offset()),
                           fmt::format("must be within the {} registered bytes", size));
  }
  if (is_output && !memory.writable()) {
    return InvalidArgument("CONFLICT", field, "", "must be writable memory: this is registered as read-only");
  }
  return absl::OkStatus();
}

bool Same(const v1::Region& a, const v1::Region& b) {
  return a.token() == b.token() && a.offset() == b.offset() && a.byte_size() == b.byte_size();
}

// Returns true if the output at path `output` may be in place of the tensor at path `tensor`: "q.output", "q.tensor".
bool IsOperandOf(std::string_view output, std::string_view tensor) {
  constexpr std::string_view kOutput = "output";
  if (output != kOutput && !output.ends_with(".output")) return false;
  output.remove_suffix(kOutput.size());
  for (const std::string_view operand : kOperands) {
    if (tensor == fmt::format("{}{}", output, operand)) return true;
  }
  return false;
}

}  // namespace

absl::StatusOr<RequestRegions> RequestRegions::Find(const Message& request, const SharedMemorySource& source) {
  RequestRegions regions;
  const auto find = [&](const std::string& path, const v1::Region& region, bool is_output) -> absl::Status {
    const std::string token = Join(is_output ? path : Join(path, "region"), "token");
    if (region.token().size() != kTokenBytes) {
      return InvalidArgument("MISMATCH", token, fmt::format("{} bytes", region.token().size()), "must be 16 bytes");
    }
    auto memory = source.Find(region.token());
    if (memory == nullptr) {
      // The error omits the token's value: it is a secret that grants access to the memory.
      const std::string limit = "must be registered memory: this is not, or no longer";
      return Restore(absl::StatusCode::kNotFound, fmt::format("{}: {}", token, limit),
                     {"NOT_FOUND", token, std::string(kPresent), limit});
    }
    POSENC_RETURN_IF_ERROR(CheckWithin(path, region, *memory, is_output));
    regions.uses_.push_back({path, region, is_output, std::move(memory)});
    return absl::OkStatus();
  };
  POSENC_RETURN_IF_ERROR(ForEachRegion(request, {}, find));
  POSENC_RETURN_IF_ERROR(regions.CheckUndamaged());
  POSENC_RETURN_IF_ERROR(regions.CheckDevices(request));
  POSENC_RETURN_IF_ERROR(regions.CheckOverlaps());
  regions.Count();
  regions.Copy();
  return regions;
}

// Only ApplyRotary may use device memory: all its operands and outputs must be on one device, and nothing else on any.
absl::Status RequestRegions::CheckDevices(const Message& request) const {
  const auto first =
      std::find_if(uses_.begin(), uses_.end(), [](const Use& use) { return use.memory->device() != nullptr; });
  if (first == uses_.end()) return absl::OkStatus();
  const std::string& name = first->memory->device()->name();
  if (request.GetDescriptor() != v1::ApplyRotaryRequest::descriptor()) {
    return InvalidArgument("UNSUPPORTED", first->path, "",
                           fmt::format("must not be memory of {}, which only ApplyRotary can use", name));
  }
  const auto& rotation = static_cast<const v1::ApplyRotaryRequest&>(request);
  std::vector<std::string> wanted;
  if (rotation.has_q() || !rotation.has_k()) wanted = {"q.tensor", "q.output"};
  if (rotation.has_k()) wanted.insert(wanted.end(), {"k.tensor", "k.output"});
  for (const std::string& path : wanted) {
    const auto there = [&](const Use& use) {
      return use.path == path && use.memory->device() == first->memory->device();
    };
    if (std::none_of(uses_.begin(), uses_.end(), there)) {
      return InvalidArgument("CONFLICT", path, "", fmt::format("must be memory of {}, as {} is", name, first->path));
    }
  }
  for (const Use& use : uses_) {
    if (use.memory->device() == nullptr || std::find(wanted.begin(), wanted.end(), use.path) != wanted.end()) continue;
    return InvalidArgument("UNSUPPORTED", use.path, "",
                           fmt::format("must not be memory of {}, which only operands and outputs can use", name));
  }
  return absl::OkStatus();
}

absl::Status RequestRegions::CheckOverlaps() const {
  for (const Use& output : uses_) {
    if (!output.is_output) continue;
    for (const Use& other : uses_) {
      if (&other == &output || other.memory->file() != output.memory->file()) continue;
      const v1::Region &a = output.region, &b = other.region;
      if (a.byte_size() == 0 || b.byte_size() == 0) continue;
      // No sum overflows: both parts lie within their file.
      const int64_t begin_a = output.memory->file_offset() + a.offset(), end_a = begin_a + a.byte_size();
      const int64_t begin_b = other.memory->file_offset() + b.offset(), end_b = begin_b + b.byte_size();
      if (end_a <= begin_b || end_b <= begin_a) continue;
      if (Same(a, b) && IsOperandOf(output.path, other.path)) continue;
      return InvalidArgument(
          "CONFLICT", output.path, "",
          fmt::format("must not overlap {}, which the call also {}", other.path, other.is_output ? "writes" : "reads"));
    }
  }
  return absl::OkStatus();
}

void RequestRegions::Count() {
  // Operands that are read in place, or copied only once, directly into the answer.
  constexpr std::array<std::string_view, 4> kInPlace = {"q.tensor", "k.tensor", "scores", "add_to"};
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  for (Use& use : uses_) {
    if (use.is_output) continue;
    const int64_t size = use.region.byte_size();
    if (__builtin_add_overflow(read_bytes_, size, &read_bytes_)) read_bytes_ = kMost;
    use.is_copied = std::find(kInPlace.begin(), kInPlace.end(), use.path) == kInPlace.end();
    if (use.is_copied && __builtin_add_overflow(copied_bytes_, size, &copied_bytes_)) copied_bytes_ = kMost;
  }
}

void RequestRegions::Copy() {
  if (copied_bytes_ > kMostCopiedAtOnce || of_other_user()) return;
  for (const Use& use : uses_) {
    if (!use.is_copied) continue;
    const std::byte* bytes = use.memory->bytes().data() + use.region.offset();
    copies_.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(use.region.byte_size()));
  }
}

absl::Span<const std::byte> RequestRegions::BytesOf(const v1::Region& region) const {
  const auto size = static_cast<size_t>(region.byte_size());
  size_t at = 0;
  for (const Use& use : uses_) {
    if (copies_.empty()) break;
    if (!use.is_copied) continue;
    if (Same(use.region, region)) return {reinterpret_cast<const std::byte*>(copies_.data()) + at, size};
    at += static_cast<size_t>(use.region.byte_size());
  }
  return {At(region), size};
}

Device* RequestRegions::DeviceOf(const v1::Region& region) const {
  for (const Use& use : uses_) {
    if (use.region.token() == region.token()) return use.memory->device();
  }
  return nullptr;
}

std::byte* RequestRegions::At(const v1::Region& region) const {
  for (const Use& use : uses_) {
    if (use.region.token() == region.token()) return use.memory->bytes().data() + region.offset();
  }
  std::abort();  // the region is not part of this request
}

bool RequestRegions::of_other_user() const {
  return std::any_of(uses_.begin(), uses_.end(), [](const Use& use) { return use.memory->of_other_user(); });
}

absl::Status RequestRegions::CheckUndamaged() const {
  for (const Use& use : uses_) {
    if (!use.memory->damaged()) continue;
    const std::string field = use.is_output ? use.path : Join(use.path, "region");
    const std::string limit = "must keep its size: this memory was truncated while in use, register it again";
    return Restore(absl::StatusCode::kDataLoss, fmt::format("{}: {}", field, limit),
                   {"DAMAGED", field, std::string(kPresent), limit});
  }
  return absl::OkStatus();
}

bool IsOutput(const v1::Region& region, const Message& request) {
  bool found = false;
  const absl::Status status =
      ForEachRegion(request, {}, [&](const std::string&, const v1::Region& other, bool is_output) {
        found = found || (is_output && Same(region, other));
        return absl::OkStatus();
      });
  return status.ok() && found;
}

bool WritesRegions(const Message& request) {
  bool found = false;
  const absl::Status status = ForEachRegion(request, {}, [&](const std::string&, const v1::Region&, bool is_output) {
    found = found || is_output;
    return absl::OkStatus();
  });
  return status.ok() && found;
}

bool IsInPlace(const Message& request) {
  std::vector<std::pair<std::string, v1::Region>> outputs, tensors;
  const absl::Status status =
      ForEachRegion(request, {}, [&](const std::string& path, const v1::Region& region, bool is_output) {
        (is_output ? outputs : tensors).emplace_back(path, region);
        return absl::OkStatus();
      });
  if (!status.ok()) return false;  // the server refuses this request
  for (const auto& [output, to] : outputs) {
    for (const auto& [tensor, from] : tensors) {
      if (IsOperandOf(output, tensor) && Same(to, from)) return true;
    }
  }
  return false;
}

}  // namespace posenc::wire
