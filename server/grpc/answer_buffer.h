// An answer on its way to gRPC, and from then on gRPC's.
#pragma once

#include <cstddef>
#include <memory>

#include "grpcpp/support/byte_buffer.h"
#include "server/core/admission.h"
#include "server/core/answer_pool.h"

namespace posenc::server {

// The pages of fresh memory are first touched by those who compute it. Memory and charge are returned when the last
// slice of it is released, which may be long after the call, and even after the server.
class AnswerBuffer {
 public:
  // The byte at `aligned` begins a cache line: vectors that are stored across two lines cost twice, and can not be
  // written past the caches. Throws std::bad_alloc.
  AnswerBuffer(size_t size, size_t aligned, std::shared_ptr<AnswerPool> pool, std::shared_ptr<Charge> charge);

  std::byte* data() { return begin_; }
  // One slice of the first `size` bytes; ends the buffer.
  grpc::ByteBuffer Release() &&;

 private:
  struct Block {
    ~Block() { pool->Give(memory); }
    std::shared_ptr<AnswerPool> pool;
    std::shared_ptr<Charge> charge;
    AnswerPool::Block memory;
  };
  size_t size_;
  std::unique_ptr<Block> block_;
  std::byte* begin_;
};

}  // namespace posenc::server
