#include "server/answer_buffer.h"

#include <utility>

namespace posenc::server {

AnswerBuffer::AnswerBuffer(size_t size, std::shared_ptr<AnswerPool> pool, std::shared_ptr<Charge> charge)
    : size_(size) {
  const AnswerPool::Block memory = pool->Take(size);
  block_.reset(new Block{std::move(pool), std::move(charge), memory});
}

grpc::ByteBuffer AnswerBuffer::Release() && {
  std::byte* const memory = data();
  // Called on a gRPC thread.
  const auto destroy = [](void* block) { delete static_cast<Block*>(block); };
  const grpc::Slice slice(memory, size_, destroy, block_.release());
  return grpc::ByteBuffer(&slice, 1);
}

}  // namespace posenc::server
