// The devices of a server: found by a plugin and measured at its start, described and reported to health checks after.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "posenc/base/work_pool.h"
#include "posenc/device/plugin.h"
#include "posenc/service/devices.h"
#include "posenc/v1/service.pb.h"
#include "server/grpc/health.h"

namespace posenc::server {

class ServerDevices {
 public:
  // For Limits::devices.
  const Devices& devices() const { return devices_; }

  // Once, before the first call. Whatever is wrong with a plugin is logged, and described: the CPU is always there.
  void Load(const std::string& plugin_path, WorkPool& pool);
  // From now on, and null: no more. Each device is a service of its own there, "posenc.device.cuda:0".
  void ReportTo(Health* health);
  void Describe(v1::GetServerInfoResponse* response) const;

 private:
  void OnWithdrawn(const PluginDevice& device);
  void SetHealth(const PluginDevice& device);

  Devices devices_;
  std::vector<const PluginDevice*> plugin_devices_;  // those of devices_, in their order
  std::string problem_;
  std::mutex mutex_;
  Health* health_ = nullptr;
};

}  // namespace posenc::server
