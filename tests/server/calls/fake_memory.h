// Shared memory of calls under test.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "posenc/v1/tensor.pb.h"
#include "posenc/wire/shared_memory.h"

namespace posenc::server {

class FakeMemory final : public wire::SharedMemory {
 public:
  explicit FakeMemory(size_t size) : bytes_(size) {}
  absl::Span<std::byte> bytes() const override { return absl::MakeSpan(bytes_); }
  bool writable() const override { return true; }
  std::pair<uint64_t, uint64_t> file() const override { return {1, 1}; }
  bool damaged() const override { return false; }
  bool of_other_user() const override { return is_of_other_user; }

  void Write(std::string_view text, size_t offset = 0) const {
    std::memcpy(bytes().data() + offset, text.data(), text.size());
  }
  std::string text() const { return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()}; }

  bool is_of_other_user = false;

 private:
  mutable std::vector<std::byte> bytes_;
};

// Every token names the same memory.
class FakeMemorySource final : public wire::SharedMemorySource {
 public:
  explicit FakeMemorySource(std::shared_ptr<const FakeMemory> memory) : memory_(std::move(memory)) {}
  std::shared_ptr<const wire::SharedMemory> Find(std::string_view) const override { return memory_; }

 private:
  const std::shared_ptr<const FakeMemory> memory_;
};

// Moves a tensor's bytes to memory. Returns the bytes' end.
inline size_t Move(v1::Tensor* tensor, const FakeMemory& memory, size_t offset) {
  const size_t size = tensor->data().size();
  memory.Write(tensor->data(), offset);
  tensor->clear_data();
  v1::Region& region = *tensor->mutable_region();
  region.set_token(std::string(16, 't'));
  region.set_offset(static_cast<int64_t>(offset));
  region.set_byte_size(static_cast<int64_t>(size));
  return offset + size;
}

}  // namespace posenc::server
