#include "cuda/runtime/device.h"

#include <cstdio>
#include <utility>

#include "cuda/runtime/error.h"

namespace posenc::cuda {

Slot::~Slot() {
  cudaFreeHost(count);
  cudaFreeHost(staging);
  if (event != nullptr) cudaEventDestroy(event);
  if (stream != nullptr) cudaStreamDestroy(stream);
}

void Slot::Record() { Check(cudaEventRecord(event, stream), "recording an event"); }
void Slot::AwaitRecord() { Check(cudaEventSynchronize(event), "waiting for the device"); }
void Slot::Await() {
  Record();
  AwaitRecord();
}

Scratch::Scratch(const Slot& slot, uint64_t bytes) : stream_(slot.stream) {
  if (bytes == 0) return;
  Check(cudaMallocFromPoolAsync(&data_, bytes, slot.pool, stream_), "allocating memory of the device");
}

Scratch& Scratch::operator=(Scratch&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(stream_, other.stream_);
  return *this;
}

Scratch::~Scratch() {
  if (data_ != nullptr && cudaFreeAsync(data_, stream_) != cudaSuccess) cudaGetLastError();
}

void Device::Describe(posenc_device_info* info) const {
  cudaDeviceProp properties;
  Check(cudaGetDeviceProperties(&properties, ordinal_), "asking what the device is");
  *info = {};
  std::snprintf(info->family, sizeof info->family, "cuda");
  std::snprintf(info->name, sizeof info->name, "%.127s", properties.name);
  info->memory_bytes = properties.totalGlobalMem;
  info->slab_bytes = kSlabBytes;
  info->calls_at_once = kSlots;
}

void Device::Use() const {
  if (lost_) throw Failure(POSENC_DEVICE_LOST, "the device was lost in an earlier call");
  Check(cudaSetDevice(ordinal_), "choosing the device");
}

Device::Lease::~Lease() {
  if (cudaStreamSynchronize(slot_->stream) != cudaSuccess) cudaGetLastError();
  device_.GiveBack(std::move(slot_));
}

Device::Lease Device::Borrow() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !idle_.empty() || made_ < kSlots; });
  if (!idle_.empty()) {
    std::unique_ptr<Slot> slot = std::move(idle_.back());
    idle_.pop_back();
    return {*this, std::move(slot)};
  }
  std::unique_ptr<Slot> slot = MakeSlot();
  ++made_;
  return {*this, std::move(slot)};
}

std::unique_ptr<Slot> Device::MakeSlot() {
  auto slot = std::make_unique<Slot>();
  slot->pool = Pool();
  Check(cudaStreamCreateWithFlags(&slot->stream, cudaStreamNonBlocking), "creating a stream");
  Check(cudaEventCreateWithFlags(&slot->event, cudaEventBlockingSync | cudaEventDisableTiming), "creating an event");
  Check(cudaMallocHost(reinterpret_cast<void**>(&slot->staging), kSlabBytes), "allocating pinned memory");
  Check(cudaMallocHost(reinterpret_cast<void**>(&slot->count), sizeof *slot->count), "allocating pinned memory");
  return slot;
}

void Device::GiveBack(std::unique_ptr<Slot> slot) {
  {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(slot));
  }
  changed_.notify_one();
}

// Allocations from a pool take microseconds; those from the driver take up to milliseconds and stall the whole device.
cudaMemPool_t Device::Pool() {
  if (pool_ != nullptr) return pool_;
  cudaMemPoolProps properties = {};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location = {cudaMemLocationTypeDevice, ordinal_};
  cudaMemPool_t pool;
  Check(cudaMemPoolCreate(&pool, &properties), "creating a pool of memory");
  // Bytes that the pool keeps: per slot x of one slab and a table of a quarter of it. Memory beyond that returns to the
  // device after the call.
  uint64_t kept = kSlots * (kSlabBytes + kSlabBytes / 4);
  // A slot's allocation must not wait for another slot's work in order to reuse its memory.
  int wait_for_others = 0;
  cudaError_t error = cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &kept);
  if (error == cudaSuccess) {
    error = cudaMemPoolSetAttribute(pool, cudaMemPoolReuseAllowInternalDependencies, &wait_for_others);
  }
  if (error != cudaSuccess) cudaMemPoolDestroy(pool);
  Check(error, "setting up a pool of memory");
  return pool_ = pool;
}

}  // namespace posenc::cuda
