// Memory of an answer, whose ownership passes to gRPC.
#pragma once

#include <cstddef>
#include <memory>

#include "grpcpp/support/byte_buffer.h"
#include "server/core/admission.h"
#include "server/core/buffer_pool.h"

namespace posenc::server {

// Buffer of an answer. The threads that compute the answer touch its fresh pages first. Memory and charge are returned
// when the last slice is released, which may be long after the call, and even after the server is destroyed.
class AnswerBuffer {
 public:
  // Takes `size` bytes from the pool. The byte at offset `aligned` begins a cache line: vector stores across two lines
  // cost twice, and cannot bypass the caches. Throws std::bad_alloc.
  AnswerBuffer(size_t size, size_t aligned, std::shared_ptr<BufferPool> pool, std::shared_ptr<Charge> charge);

  std::byte* data() { return begin_; }
  // Moves the first `size` bytes into one slice, which takes ownership of all.
  grpc::ByteBuffer Release(size_t size) &&;

 private:
  struct Block {
    ~Block() { pool->Give(memory); }
    std::shared_ptr<BufferPool> pool;
    std::shared_ptr<Charge> charge;
    BufferPool::Block memory;
  };
  std::unique_ptr<Block> block_;
  std::byte* begin_;
};

}  // namespace posenc::server
