// Who computes a call.
#pragma once

#include "absl/status/statusor.h"
#include "posenc/base/limits.h"
#include "posenc/base/status.h"
#include "posenc/service/devices.h"
#include "posenc/v1/info.pb.h"

namespace posenc::wire {

// Null: the CPU. `slabs` says into how many calls of a device the work is cut; null: it is none for devices. The
// answer's info says which it is. NotAtHand() where a device may not be waited for.
inline absl::StatusOr<DeviceLease> ChooseDevice(const v1::CallHints& hints, DeviceWork work, int64_t bytes,
                                                const Devices::Slabs& slabs, const Limits& limits,
                                                v1::AnswerInfo* info) {
  static const Devices& none = *new Devices();
  const Devices& devices = limits.devices != nullptr && slabs != nullptr ? *limits.devices : none;
  POSENC_ASSIGN_OR_RETURN(DeviceLease device, devices.Choose(hints.device(), work, bytes, slabs));
  if (device == nullptr) return device;
  if (limits.plans_at_hand) return NotAtHand();
  info->set_device(device->name());
  return device;
}

}  // namespace posenc::wire
