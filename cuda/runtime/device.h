// A device, and what a call borrows of it: one of a few slots, each a stream and pinned memory. Calls in different
// slots overlap: the device copies in for one, computes for another and copies out for a third at the same time.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "posenc/device/plugin_abi.h"

namespace posenc::cuda {

inline constexpr uint64_t kSlabBytes = uint64_t{32} << 20;
inline constexpr uint32_t kSlots = 4;

struct Slot {
  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;
  cudaMemPool_t pool = nullptr;         // the device's own
  std::byte* staging = nullptr;         // pinned, kSlabBytes: what goes in, and later what comes out
  unsigned long long* count = nullptr;  // pinned

  ~Slot();

  // Until what was put on the stream so far is done. The thread sleeps: its processor has other work.
  void Record();
  void AwaitRecord();
  void Await();
};

// Memory of the device, for the work that is put on the slot's stream between its two ends.
class Scratch {
 public:
  Scratch() = default;
  Scratch(const Slot& slot, uint64_t bytes);
  Scratch(Scratch&& other) noexcept { *this = std::move(other); }
  Scratch& operator=(Scratch&& other) noexcept;
  ~Scratch();
  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
  cudaStream_t stream_ = nullptr;
};

class Device {
 public:
  explicit Device(int ordinal) : ordinal_(ordinal) {}

  int ordinal() const { return ordinal_; }
  void Describe(posenc_device_info* info) const;

  // Makes it the calling thread's, as each function of the plugin does first. Throws if it is lost.
  void Use() const;
  void Lose() { lost_ = true; }

  // A slot until the end of the lease, which waits for its stream, so that no copy runs on in memory that others use.
  class Lease {
   public:
    Lease(Device& device, std::unique_ptr<Slot> slot) : device_(device), slot_(std::move(slot)) {}
    Lease(const Lease&) = delete;
    ~Lease();
    Slot& operator*() const { return *slot_; }
    Slot* operator->() const { return slot_.get(); }

   private:
    Device& device_;
    std::unique_ptr<Slot> slot_;
  };
  // Waits while all are taken. Slots are made when they are first needed.
  Lease Borrow();

 private:
  std::unique_ptr<Slot> MakeSlot();
  void GiveBack(std::unique_ptr<Slot> slot);
  cudaMemPool_t Pool();

  const int ordinal_;
  std::atomic<bool> lost_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Slot>> idle_;
  uint32_t made_ = 0;
  cudaMemPool_t pool_ = nullptr;
};

}  // namespace posenc::cuda
