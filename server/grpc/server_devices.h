// Devices of a server: loaded from a plugin and measured at its start, then described and reported to health checks.
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
  // Fixed after Load().
  const Devices& devices() const { return devices_; }

  // Call it once, before the first call is served. Plugin errors are logged and described; the CPU is always available.
  void Load(const std::string& plugin_path, WorkPool& pool);
  // Reports to `health` from now on; null stops it. Each device is a health service, such as "posenc.device.cuda:0".
  void ReportTo(Health* health);
  void Describe(v1::GetServerInfoResponse* response) const;

 private:
  void OnWithdrawn(const PluginDevice& device);
  void SetHealth(const PluginDevice& device);

  Devices devices_;
  std::vector<const PluginDevice*> plugin_devices_;  // owned by devices_, in its order
  std::string problem_;
  std::mutex mutex_;
  Health* health_ = nullptr;
};

}  // namespace posenc::server
