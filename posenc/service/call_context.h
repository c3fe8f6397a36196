// Context of one call: limits, source of plans, devices; and the choice of the device that computes it.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "posenc/base/limits.h"
#include "posenc/rotary/rotary_plan.h"
#include "posenc/service/devices.h"
#include "posenc/v1/info.pb.h"

namespace posenc::wire {

struct CallContext {
  // NOLINTNEXTLINE(google-explicit-constructor): most callers have limits only
  CallContext(const Limits& call_limits = {}, PlanSource call_plan_source = PlanSource::kCacheOrComputed,
              const Devices* call_devices = nullptr)
      : limits(call_limits), plan_source(call_plan_source), devices(call_devices) {}

  // NOLINTNEXTLINE(google-explicit-constructor): most operations read limits only
  operator const Limits&() const { return limits; }

  // False: the operation returns WouldBlock() instead of computing a plan or using a device.
  bool may_block() const { return plan_source != PlanSource::kCacheOnly; }

  Limits limits;
  PlanSource plan_source;
  const Devices* devices;  // other than the CPU; null if absent
};

// Returns null for the CPU. `slabs` counts the device calls that the work is split into; null: only the CPU can do it.
// Writes the device's name to `info`. Returns WouldBlock() if the call must not block and a device is chosen.
absl::StatusOr<DeviceLease> ChooseDevice(const v1::CallHints& hints, DeviceWork work, int64_t bytes,
                                         const Devices::Slabs& slabs, const CallContext& context, v1::AnswerInfo* info);

}  // namespace posenc::wire
