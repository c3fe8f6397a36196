#include "server/grpc/server_devices.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "server/core/log.h"

namespace posenc::server {
namespace {

void Write(const Speeds& speeds, v1::Device* device) {
  for (const auto& [speed, message] :
       {std::pair{speeds.rotation, device->mutable_rotation()}, {speeds.table, device->mutable_table()}}) {
    message->set_seconds_a_call(speed.seconds_a_call);
    message->set_seconds_a_byte(speed.seconds_a_byte);
  }
}

std::string Rate(const Speed& speed) {
  return speed.seconds_a_byte > 0 ? fmt::format("{:.3g} GB/s", 1e-9 / speed.seconds_a_byte) : "too fast to say";
}

}  // namespace

void ServerDevices::Load(const std::string& plugin_path, WorkPool& pool) {
  if (plugin_path.empty()) return;
  const absl::StatusOr<LoadedPlugin> loaded = LoadPlugin(plugin_path);
  if (!loaded.ok()) {
    problem_ = std::string(loaded.status().message());
    Log(LogLevel::warn, "no device but the CPU", {{"why", problem_}});
    return;
  }
  const posenc_plugin* plugin = loaded->plugin;
  if (!loaded->left_out.empty()) {
    problem_ = loaded->left_out;
    Log(LogLevel::warn, "some devices cannot be used", {{"why", problem_}});
  }
  devices_.SetCpu(MeasureSpeeds(nullptr, pool));
  for (uint32_t n = 0; n < plugin->devices; ++n) {
    auto created = PluginDevice::Create(plugin, n, [this](const PluginDevice& device) { OnWithdrawn(device); });
    if (!created.ok()) {
      const std::string why(created.status().message());
      problem_ += fmt::format("{}device {}: {}", problem_.empty() ? "" : "; ", n, why);
      Log(LogLevel::warn, "a device cannot be used", {{"number", n}, {"why", why}});
      continue;
    }
    PluginDevice* device = created->get();
    std::optional<Speeds> speeds = MeasureSpeeds(device, pool);
    if (device->counters().declined > 0) speeds.reset();  // some of the work was the CPU's
    devices_.Add(*std::move(created), speeds);
    plugin_devices_.push_back(device);
    Log(LogLevel::info, "device",
        {{"name", device->name()},
         {"description", device->description()},
         {"plugin", plugin->version},
         {"rotation", speeds ? Rate(speeds->rotation) : "unknown"},
         {"rotation_by_cpu", Rate(devices_.cpu().rotation)},
         {"table", speeds ? Rate(speeds->table) : "unknown"},
         {"table_by_cpu", Rate(devices_.cpu().table)}});
  }
}

void ServerDevices::OnWithdrawn(const PluginDevice& device) {
  Log(LogLevel::err, "a device is withdrawn until the next start; the CPU computes",
      {{"name", device.name()}, {"why", device.withdrawn()}});
  SetHealth(device);
}

void ServerDevices::SetHealth(const PluginDevice& device) {
  const std::lock_guard lock(mutex_);
  if (health_ != nullptr) health_->Set("posenc.device." + device.name(), device.usable());
}

void ServerDevices::ReportTo(Health* health) {
  {
    const std::lock_guard lock(mutex_);
    health_ = health;
  }
  for (const PluginDevice* device : plugin_devices_) SetHealth(*device);
}

void ServerDevices::Describe(v1::GetServerInfoResponse* response) const {
  response->set_device_problem(problem_);
  if (!devices_.empty()) Write(devices_.cpu(), response->mutable_devices(0));
  for (size_t n = 0; n < plugin_devices_.size(); ++n) {
    const PluginDevice& device = *plugin_devices_[n];
    v1::Device* message = response->add_devices();
    message->set_name(device.name());
    message->set_description(device.description());
    message->set_memory_bytes(device.memory_bytes());
    message->set_slabs_computed(device.counters().computed);
    message->set_slabs_declined(device.counters().declined);
    message->set_withdrawn(device.withdrawn());
    if (const auto& speeds = devices_.all()[n]->speeds) Write(*speeds, message);
  }
}

}  // namespace posenc::server
