// A caller's memory on a device. It is not mapped into the host's address space.
#pragma once

#include <utility>

#include "posenc/device/device.h"
#include "posenc/wire/shared_memory.h"

namespace posenc::server {

class DeviceRegion final : public wire::SharedMemory {
 public:
  DeviceRegion(Device* device, DeviceMemory memory, bool read_only)
      : device_(device), memory_(std::move(memory)), writable_(!read_only) {}

  absl::Span<std::byte> bytes() const override { return {static_cast<std::byte*>(memory_.begin.get()), memory_.size}; }
  bool writable() const override { return writable_; }
  // Identity for overlap checks: an allocation opened twice has one address, and no file has a Device's address as ID.
  std::pair<uint64_t, uint64_t> file() const override {
    return {reinterpret_cast<uintptr_t>(device_), reinterpret_cast<uintptr_t>(memory_.begin.get())};
  }
  bool damaged() const override { return false; }
  Device* device() const override { return device_; }

 private:
  Device* const device_;
  const DeviceMemory memory_;
  const bool writable_;
};

}  // namespace posenc::server
