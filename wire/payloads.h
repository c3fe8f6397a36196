// Where the bytes of a request's tensors are.
#pragma once

#include <cstddef>

#include "posenc/v1/tensor.pb.h"

namespace posenc::wire {

// In process, a tensor's bytes are in the message. In the server they stay in the call's slices, and Tensor.data holds
// only a ticket (walker.h). Code that reads requests sees this interface and does not know which.
class Payloads {
 public:
  virtual ~Payloads() = default;
  virtual size_t Size(const v1::Tensor& tensor) const = 0;
  // Copies all Size(tensor) bytes to `out`.
  virtual void CopyTo(const v1::Tensor& tensor, std::byte* out) const = 0;
};

class InMessage final : public Payloads {
 public:
  size_t Size(const v1::Tensor& tensor) const override { return tensor.data().size(); }
  void CopyTo(const v1::Tensor& tensor, std::byte* out) const override {
    tensor.data().copy(reinterpret_cast<char*>(out), tensor.data().size());
  }
};

}  // namespace posenc::wire
