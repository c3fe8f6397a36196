// An answer's memory, which becomes gRPC's without a copy.
#pragma once

#include <cstddef>
#include <memory>

#include "grpcpp/support/byte_buffer.h"
#include "server/admission.h"

namespace posenc::server {

// Memory for an answer, not initialised, so that its pages are first touched by those who compute it. The charge is
// returned when the last slice of it is released, which may be long after the call.
class AnswerBuffer {
 public:
  // Throws std::bad_alloc.
  AnswerBuffer(size_t size, std::shared_ptr<Charge> charge);

  std::byte* data() { return block_->memory.get(); }
  // One slice of the first `size` bytes; ends the buffer.
  grpc::ByteBuffer Release() &&;

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  struct Block {
    std::unique_ptr<std::byte, Free> memory;
    std::shared_ptr<Charge> charge;
  };
  size_t size_;
  std::unique_ptr<Block> block_;
};

}  // namespace posenc::server
