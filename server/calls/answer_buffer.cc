#include "server/calls/answer_buffer.h"

#include <cstdint>
#include <utility>

namespace posenc::server {

AnswerBuffer::AnswerBuffer(size_t size, size_t aligned, std::shared_ptr<BufferPool> pool,
                           std::shared_ptr<Charge> charge) {
  constexpr size_t kLine = 64;
  const BufferPool::Block memory = pool->Take(size + kLine - 1);
  block_.reset(new Block{std::move(pool), std::move(charge), memory});
  const auto address = reinterpret_cast<uintptr_t>(memory.data) + aligned;
  begin_ = memory.data + (kLine - address % kLine) % kLine;
}

grpc::ByteBuffer AnswerBuffer::Release(size_t size) && {
  // gRPC calls this on any of its threads.
  const auto destroy = [](void* block) { delete static_cast<Block*>(block); };
  const grpc::Slice slice(begin_, size, destroy, block_.release());
  return grpc::ByteBuffer(&slice, 1);
}

}  // namespace posenc::server
