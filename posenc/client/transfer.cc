#include "posenc/client/transfer.h"

#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "posenc/backend/tensor_memory.h"
#include "posenc/base/status.h"
#include "posenc/transport/slices.h"
#include "posenc/wire/values.h"

namespace posenc {
namespace {

constexpr size_t kNoLimit = std::numeric_limits<size_t>::max();

// Avoids std::string::resize(), which would fill the memory with zeros first.
std::string ReadString(const wire::Payloads& payloads, const v1::Tensor& tensor) {
  std::string bytes;
  const size_t size = payloads.Size(tensor);
  bytes.reserve(size);
  while (bytes.size() < size) {
    const absl::Span<const std::byte> piece = payloads.From(tensor, bytes.size());
    bytes.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  }
  return bytes;
}

// Returns the bytes that the tensor's type and shape need; nullopt if one of them is not valid.
std::optional<int64_t> NeededBytes(const v1::Tensor& tensor) {
  // The server's limits, which may be above the defaults, apply.
  Limits limits;
  limits.max_tensor_rank = tensor.shape_size();
  limits.max_dimension = limits.max_request_bytes = std::numeric_limits<int64_t>::max();
  const absl::StatusOr<TensorShape> shape = wire::ShapeOf("", tensor, limits);
  return shape.ok() ? std::optional(ByteSize("", *shape, limits).value()) : std::nullopt;
}

}  // namespace

Loan::~Loan() {
  std::unique_lock lock(mutex_);
  all_returned_.wait(lock, [this] { return outstanding_ == 0; });
}

// Called on a gRPC thread.
void Loan::GiveBack(void* loan) {
  auto* self = static_cast<Loan*>(loan);
  const std::lock_guard lock(self->mutex_);
  // Notifies before the lock is released: after that, the loan may be destroyed at any time.
  if (--self->outstanding_ == 0) self->all_returned_.notify_all();
}

grpc::Slice Loan::Lend(absl::Span<const std::byte> bytes) {
  {
    const std::lock_guard lock(mutex_);
    ++outstanding_;
  }
  // gRPC does not write to a slice.
  return grpc::Slice(const_cast<std::byte*>(bytes.data()), bytes.size(), GiveBack, this);
}

grpc::ByteBuffer Loan::Lend(const wire::Gathered& message) {
  std::vector<grpc::Slice> slices;
  slices.reserve(message.pieces.size());
  for (const auto& [bytes, lent] : message.pieces) {
    slices.push_back(lent ? Lend(bytes) : grpc::Slice(bytes.data(), bytes.size()));
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

absl::Status Receive(const grpc::ByteBuffer& answer, const std::string& sender,
                     const google::protobuf::Message& request, const wire::Stripper& stripper,
                     const CallOptions& options, google::protobuf::Message* response) {
  const auto malformed = [&] {
    return absl::InternalError(
        absl::StrCat("what ", sender, " answered is not a ", response->GetDescriptor()->full_name()));
  };
  std::vector<grpc::Slice> slices;
  if (!answer.Valid() || !answer.Dump(&slices).ok()) return malformed();
  transport::SliceStream stream(slices);
  absl::StatusOr<wire::Stripped> stripped = stripper.Strip(&stream, kNoLimit);
  if (!stripped.ok() || !response->ParseFromString(stripped->message)) return malformed();

  const transport::SlicedPayloads payloads(std::move(slices), std::move(stripped->ranges));
  absl::Status damaged;
  ForEachTensor(*response, [&](const v1::Tensor& tensor) {
    auto bytes = static_cast<int64_t>(payloads.Size(tensor));
    if (bytes == 0 && tensor.has_region() && wire::IsOutput(tensor.region(), request)) {
      bytes = tensor.region().byte_size();
    }
    if (NeededBytes(tensor) == bytes) return;
    damaged = absl::InternalError(absl::StrCat(sender, " answered ", bytes, " bytes for a tensor of type ",
                                               v1::DataType_Name(tensor.dtype()), " and shape [",
                                               absl::StrJoin(tensor.shape(), ", "), "]"));
  });
  POSENC_RETURN_IF_ERROR(damaged);
  POSENC_ASSIGN_OR_RETURN(const Destinations destinations,
                          DestinationsOf(*response, options, [&](const v1::Tensor& t) { return payloads.Size(t); }));
  ForEachTensor(*response, [&](const v1::Tensor& tensor) {
    std::string bytes;
    if (const auto found = destinations.find(&tensor); found != destinations.end()) {
      payloads.CopyTo(tensor, found->second);
    } else {
      bytes = ReadString(payloads, tensor);
    }
    const_cast<v1::Tensor&>(tensor).set_data(std::move(bytes));  // tensor is part of *response
  });
  return absl::OkStatus();
}

}  // namespace posenc
