#include "server/slices.h"

#include <algorithm>
#include <cstdlib>
#include <new>
#include <utility>

namespace posenc::server {

AnswerBuffer::AnswerBuffer(size_t size, std::shared_ptr<Charge> charge)
    : size_(size), block_(std::make_unique<Block>()) {
  block_->memory.reset(static_cast<std::byte*>(std::malloc(std::max<size_t>(size, 1))));
  if (block_->memory == nullptr) throw std::bad_alloc();
  block_->charge = std::move(charge);
}

grpc::ByteBuffer AnswerBuffer::Release() && {
  std::byte* const memory = data();
  // Called on a gRPC thread.
  const auto destroy = [](void* block) { delete static_cast<Block*>(block); };
  const grpc::Slice slice(memory, size_, destroy, block_.release());
  return grpc::ByteBuffer(&slice, 1);
}

void AnswerBuffer::Free::operator()(std::byte* memory) const { std::free(memory); }

}  // namespace posenc::server
