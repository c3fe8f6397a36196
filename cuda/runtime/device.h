// A device and its slots. A call borrows one of a few slots, each a stream with pinned memory. Calls in different slots
// overlap: the device copies in for one, computes for another and copies out for a third at the same time.
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
  cudaMemPool_t pool = nullptr;         // the device's, not owned
  std::byte* staging = nullptr;         // pinned, kSlabBytes bytes: input, later output
  unsigned long long* count = nullptr;  // pinned: number of unproven table entries

  ~Slot();

  // Record marks the work put on the stream so far, AwaitRecord blocks until it is done, Await does both. The waiting
  // thread sleeps instead of spinning, because its CPU core has other work. All throw on CUDA errors.
  void Record();
  void AwaitRecord();
  void Await();
};

// RAII allocation of device memory, for work put on the slot's stream in its lifetime. data() is null for 0 bytes.
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
  explicit Device(int ordinal) : ordinal_(ordinal) { idle_.reserve(kSlots); }  // so that GiveBack() cannot throw

  int ordinal() const { return ordinal_; }
  void Describe(posenc_device_info* info) const;

  // Makes this the calling thread's device, before any other CUDA call. Throws POSENC_DEVICE_LOST after Lose().
  void Use() const;
  void Lose() { lost_ = true; }

  // RAII loan of a slot. The destructor waits for its stream, so that no copy still runs in memory that is reused.
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
  // Blocks while all kSlots slots are lent. Creates a slot if none is idle, and throws if that fails. Thread-safe.
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
