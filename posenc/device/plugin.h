// Loads a device plugin and adapts its devices to posenc::Device.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/device/device.h"
#include "posenc/device/plugin_abi.h"

namespace posenc {

struct LoadedPlugin {
  const posenc_plugin* plugin;
  std::string left_out;  // message about unusable devices; empty if none
};

// Loads the library at `path`, which must contain a '/': no search path is used. FAILED_PRECONDITION if the library is
// unsuitable or has no usable device (no driver, an old one, no GPU). It stays loaded until the process ends.
absl::StatusOr<LoadedPlugin> LoadPlugin(const std::string& path);

// One device of a plugin. A permanent error (POSENC_DEVICE_LOST) withdraws it: it then declines all work. Thread-safe.
class PluginDevice final : public Device {
 public:
  struct Counters {
    int64_t computed = 0, declined = 0;  // slabs
  };

  // FAILED_PRECONDITION if the plugin cannot describe the device. `on_withdrawn` is called at most once, on any thread.
  static absl::StatusOr<std::unique_ptr<PluginDevice>> Create(
      const posenc_plugin* plugin, uint32_t index, std::function<void(const PluginDevice& device)> on_withdrawn);
  ~PluginDevice() override;

  const std::string& name() const override { return name_; }
  bool usable() const override;
  size_t slab_bytes() const override { return info_.slab_bytes; }
  size_t calls_at_once() const override { return info_.calls_at_once; }
  bool Rotate(const RotateSlab& slab) override;
  bool ComputeBias(const DistanceBias& work) override;
  bool ComputeTable(const TableRecipe& recipe, std::byte* cos, std::byte* sin) override;
  absl::StatusOr<DeviceMemory> Open(std::string_view handle, size_t bytes) override;
  absl::Status RotateInPlace(const PairRotation& work, const TableRecipe* recipe) override;

  std::string description() const { return info_.name; }
  int64_t memory_bytes() const { return static_cast<int64_t>(info_.memory_bytes); }
  Counters counters() const;
  // Returns the reason why the device is withdrawn; empty if it is usable.
  std::string withdrawn() const;

 private:
  struct State;
  PluginDevice(const posenc_plugin* plugin, uint32_t index, const posenc_device_info& info);
  // Calls the plugin unless the device is withdrawn, and records the outcome. Returns true on success.
  template <class Call>
  bool Try(const Call& call);
  void Note(int32_t status, const posenc_error& error);
  // Converts a plugin error to the status of a call that has no CPU fallback. `field` is that of an UNSUPPORTED error.
  absl::Status StatusOf(int32_t status, const posenc_error& error, std::string_view field) const;
  const posenc_error& Withdrawn(posenc_error* error) const;

  const posenc_plugin* const plugin_;
  const uint32_t index_;
  const posenc_device_info info_;
  const std::string name_;
  const std::unique_ptr<State> state_;
};

}  // namespace posenc
