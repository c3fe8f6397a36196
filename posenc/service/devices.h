// Which device computes a call.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/base/work_pool.h"
#include "posenc/device/device.h"

namespace posenc {

// How long work of so many bytes takes, as measured at start; of biases it is not.
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

// Whether "cuda", or "cuda:1", names the device of that name.
bool IsNamedBy(std::string_view asked, std::string_view name);

// A device for one call, counted as busy until the last copy goes.
using DeviceLease = std::shared_ptr<Device>;

// Thread-safe once all devices are there.
class Devices {
 public:
  struct Kept {
    std::unique_ptr<Device> device;
    Speeds speeds;
    std::atomic<int64_t> busy{0};  // calls
  };

  void Add(std::unique_ptr<Device> device, Speeds speeds);
  void SetCpu(Speeds speeds) { cpu_ = speeds; }

  // The device for a call of so many bytes; null: the CPU. `asked` is "" (whichever takes the least time; for biases
  // the CPU), "cpu", a family ("cuda": the one with the fewest calls) or a name ("cuda:1"). INVALID_ARGUMENT if it is
  // none of these; null if there is no such device, or it is withdrawn. A device takes its time for each of `slabs`;
  // null: there is one.
  using Slabs = std::function<int64_t(const Device& device)>;
  absl::StatusOr<DeviceLease> Choose(std::string_view asked, DeviceWork work, int64_t bytes,
                                     const Slabs& slabs = nullptr) const;

  // That very device, though it be withdrawn; null: there is none.
  Device* Find(std::string_view name) const;

  bool empty() const { return kept_.empty(); }
  const std::vector<std::unique_ptr<Kept>>& all() const { return kept_; }
  const Speeds& cpu() const { return cpu_; }

 private:
  std::vector<std::unique_ptr<Kept>> kept_;
  Speeds cpu_;
};

// What rotations and tables take, on a device or, if null, on the pool: by medians of a few calls, small and large.
Speeds MeasureSpeeds(Device* device, WorkPool& pool);

}  // namespace posenc
