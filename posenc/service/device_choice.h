// Chooses the device that computes a call.
#pragma once

#include "absl/status/statusor.h"
#include "posenc/base/limits.h"
#include "posenc/base/status.h"
#include "posenc/service/devices.h"
#include "posenc/v1/info.pb.h"

namespace posenc::wire {

// Returns null for the CPU. `slabs` counts the device calls that the work is split into; null: only the CPU can do it.
// Writes the device's name to `info`. Returns WouldBlock() if limits forbid to block and a device is chosen.
inline absl::StatusOr<DeviceLease> ChooseDevice(const v1::CallHints& hints, DeviceWork work, int64_t bytes,
                                                const Devices::Slabs& slabs, const Limits& limits,
                                                v1::AnswerInfo* info) {
  static const Devices& none = *new Devices();
  const Devices& devices = limits.devices != nullptr && slabs != nullptr ? *limits.devices : none;
  POSENC_ASSIGN_OR_RETURN(DeviceLease device, devices.Choose(hints.device(), work, bytes, slabs));
  if (device == nullptr) return device;
  if (limits.cached_plans_only) return WouldBlock();
  info->set_device(device->name());
  return device;
}

}  // namespace posenc::wire
