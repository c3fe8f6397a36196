// The plugin's two exported symbols, and the functions of posenc_plugin.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "cuda/runtime/calls.h"
#include "cuda/runtime/device.h"
#include "cuda/runtime/error.h"
#include "cuda/runtime/foreign_memory.h"
#include "posenc/device/plugin_abi.h"

namespace posenc::cuda {
namespace {

// Created once and never destroyed: CUDA's own state is gone when destructors of static objects run.
struct Plugin {
  std::vector<std::unique_ptr<Device>> devices;  // usable devices, by the plugin's numbers
  ForeignMemory foreign;
  std::string left_out;  // why other devices are unusable
  posenc_plugin functions = {};
};
Plugin* plugin = nullptr;

// Runs `work` on a device and returns its status. POSENC_DEVICE_LOST marks the device as lost.
template <class Work>
int32_t OnDevice(uint32_t number, posenc_error* error, const Work& work) noexcept {
  if (number >= plugin->devices.size()) return Report(POSENC_UNSUPPORTED, "there is no such device", error);
  Device& device = *plugin->devices[number];
  const int32_t status = Guarded(error, [&] {
    device.Use();
    work(device);
  });
  if (status == POSENC_DEVICE_LOST) device.Lose();
  return status;
}

int32_t DescribeDevice(uint32_t number, posenc_device_info* info, posenc_error* error) {
  return OnDevice(number, error, [&](Device& device) { device.Describe(info); });
}
int32_t RotateOn(uint32_t number, const posenc_rotate* work, posenc_error* error) {
  return OnDevice(number, error, [&](Device& device) { Rotate(device, *work); });
}
int32_t BiasOn(uint32_t number, const posenc_bias* work, posenc_error* error) {
  return OnDevice(number, error, [&](Device& device) { Bias(device, *work); });
}
int32_t TableOn(uint32_t number, const posenc_table* work, void* cos, void* sin, posenc_error* error) {
  return OnDevice(number, error, [&](Device& device) { Table(device, *work, cos, sin); });
}
int32_t OpenMemory(uint32_t number, const posenc_memory_handle* handle, uint64_t bytes, void** memory,
                   posenc_error* error) {
  return OnDevice(number, error,
                  [&](Device& device) { *memory = plugin->foreign.Open(device.ordinal(), *handle, bytes); });
}
int32_t CloseMemory(uint32_t number, void* memory, posenc_error* error) {
  return OnDevice(number, error, [&](Device& device) { plugin->foreign.Close(device.ordinal(), memory); });
}

std::string VersionName(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

// "no CUDA device can be used: WHY (driver 13.2, runtime 13.0)". Driver version: the newest CUDA that it supports.
Failure NoDevice(const std::string& why) {
  int driver = 0, runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  const bool has_driver = driver != 0;
  return {POSENC_UNSUPPORTED, "no CUDA device can be used: " + (has_driver ? why : "no driver is installed") + " (" +
                                  (has_driver ? "driver " + VersionName(driver) + ", " : "") + "runtime " +
                                  VersionName(runtime) + ")"};
}

int Attribute(cudaDeviceAttr attribute, int device) {
  int value = 0;
  Check(cudaDeviceGetAttribute(&value, attribute, device), "asking what a device can do");
  return value;
}

// Returns the reason why the device cannot be used, empty if it can.
std::string Lack(int device) {
  const int major = Attribute(cudaDevAttrComputeCapabilityMajor, device);
  const int minor = Attribute(cudaDevAttrComputeCapabilityMinor, device);
  if (10 * major + minor < 75) {
    return "its compute capability is " + std::to_string(major) + "." + std::to_string(minor) + ", below 7.5";
  }
  if (Attribute(cudaDevAttrMemoryPoolsSupported, device) == 0) return "it has no memory pools";
  return "";
}

std::unique_ptr<Plugin> Open() {
  auto opened = std::make_unique<Plugin>();
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) {
    cudaGetLastError();
    throw NoDevice(error != cudaSuccess ? cudaGetErrorString(error) : "there is none");
  }
  for (int device = 0; device < count; ++device) {
    const std::string lack = Lack(device);
    if (lack.empty()) {
      opened->devices.push_back(std::make_unique<Device>(device));
    } else {
      opened->left_out += (opened->left_out.empty() ? "" : "; ") + std::string("CUDA device ") +
                          std::to_string(device) + " is left out: " + lack;
    }
  }
  if (opened->devices.empty()) throw NoDevice(opened->left_out);
  posenc_plugin& functions = opened->functions;
  functions.devices = static_cast<uint32_t>(opened->devices.size());
  std::snprintf(functions.version, sizeof functions.version, "posenc %s, CUDA %s", POSENC_VERSION,
                VersionName(CUDART_VERSION).c_str());
  functions.describe = DescribeDevice;
  functions.rotate = RotateOn;
  functions.bias = BiasOn;
  functions.table = TableOn;
  functions.open_memory = OpenMemory;
  functions.close_memory = CloseMemory;
  return opened;
}

}  // namespace
}  // namespace posenc::cuda

#define POSENC_EXPORTED extern "C" __attribute__((visibility("default")))

POSENC_EXPORTED const uint32_t posenc_plugin_abi = POSENC_PLUGIN_ABI;

// If only some devices are usable, *error says why the others are not, with status POSENC_OK.
POSENC_EXPORTED const posenc_plugin* posenc_plugin_open(posenc_error* error) {
  using namespace posenc::cuda;
  const int32_t status = Guarded(error, [] {
    if (plugin == nullptr) plugin = Open().release();
  });
  if (status != POSENC_OK) return nullptr;
  Report(POSENC_OK, plugin->left_out.c_str(), error);
  return &plugin->functions;
}
