// The devices of this process, and the choice of a device for a call.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/base/work_pool.h"
#include "posenc/device/device.h"

namespace posenc {

// Kinds of work, and the time that work takes, measured at start. The speed of biases is not measured.
enum class DeviceWork { kRotation, kTable, kBias };
struct Speed {
  double seconds_a_call = 0;
  double seconds_a_byte = 0;
  double Seconds(int64_t bytes, int64_t calls) const {
    return seconds_a_call * static_cast<double>(calls) + seconds_a_byte * static_cast<double>(bytes);
  }
};

struct Speeds {
  Speed rotation, table;
};

// True if `asked`, a family ("cuda") or a name ("cuda:1"), matches the device named `name`.
bool IsNamedBy(std::string_view asked, std::string_view name);

// A device leased to one call; the call counts as in flight until the last copy is destroyed.
using DeviceLease = std::shared_ptr<Device>;

// Thread-safe once all devices are added.
class Devices {
 public:
  struct Kept {
    std::unique_ptr<Device> device;
    std::optional<Speeds> speeds;
    std::atomic<int64_t> busy{0};  // calls in flight
  };

  // nullopt: the speeds are unknown, and the device computes only calls that name it.
  void Add(std::unique_ptr<Device> device, std::optional<Speeds> speeds);
  void SetCpu(Speeds speeds) { cpu_ = speeds; }

  // Returns INVALID_ARGUMENT unless a call may ask for this device: for the CPU, or one of a family that exists, which
  // are "cuda" and those of the devices here. The device itself need not be there.
  absl::Status CheckName(std::string_view asked) const;

  // Device for a call of `bytes` bytes; null: the CPU. `asked` is "" (the least estimated time; for biases the CPU),
  // "cpu", a family ("cuda": the device with the fewest calls in flight) or a name ("cuda:1"), which CheckName()
  // allows; null if there is no such device, or it is withdrawn. `slabs` counts the device calls that the
  // work is split into, each at the cost of one call; null: one.
  using Slabs = std::function<int64_t(const Device& device)>;
  DeviceLease Choose(std::string_view asked, DeviceWork work, int64_t bytes, const Slabs& slabs = nullptr) const;

  // The device of exactly that name, even if it is withdrawn; null if there is none.
  Device* Find(std::string_view name) const;

  bool empty() const { return kept_.empty(); }
  const std::vector<std::unique_ptr<Kept>>& all() const { return kept_; }
  const Speeds& cpu() const { return cpu_; }

 private:
  std::vector<std::unique_ptr<Kept>> kept_;
  Speeds cpu_;
};

// Measures rotations and tables on the device or, if null, on the pool: medians of a few small and large calls. They
// are not the device's speeds if it declines any slab of them.
Speeds MeasureSpeeds(Device* device, WorkPool& pool);

}  // namespace posenc
