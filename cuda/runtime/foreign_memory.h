// Memory of other processes on the same device: allocations opened by their CUDA IPC handles.
//
// A process can have an allocation open only once, but several callers of posenc may pass the same handle. So handles
// are reference-counted: opened for the first caller and closed after the last. Thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

#include "posenc/device/plugin_abi.h"

namespace posenc::cuda {

class ForeignMemory {
 public:
  // Opens on the calling thread's current device, whose number is `device`. Throws POSENC_BAD_HANDLE also if the
  // allocation has fewer than `bytes` bytes. Close throws it if the memory is not open.
  void* Open(int device, const posenc_memory_handle& handle, uint64_t bytes);
  void Close(int device, void* memory);

 private:
  using Key = std::pair<int, std::array<uint8_t, 64>>;
  struct Opened {
    void* memory;
    uint64_t users;
  };

  std::mutex mutex_;
  std::map<Key, Opened> opened_;
};

}  // namespace posenc::cuda
