// Memory of other processes on the same device: allocations opened by their CUDA IPC handles.
//
// A process can open an allocation once at a time, while several of posenc's callers may name the same one: it is
// opened for the first of them and closed after the last.
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
  // On the device of the calling thread, whose number only tells equal handles apart. Throws POSENC_BAD_HANDLE also
  // where the allocation ends before `bytes`.
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
