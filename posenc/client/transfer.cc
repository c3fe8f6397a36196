#include "posenc/client/transfer.h"

#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "posenc/base/status.h"
#include "posenc/client/tensor_memory.h"
#include "posenc/transport/slices.h"

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

absl::Status Receive(const grpc::ByteBuffer& answer, const std::string& sender, const wire::Stripper& stripper,
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
