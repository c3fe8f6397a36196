// The functions of posenc_plugin on one device. Thread-safe. They throw (cuda/runtime/error.h) instead of returning a
// status.
#pragma once

#include "cuda/runtime/device.h"
#include "posenc/device/plugin_abi.h"

namespace posenc::cuda {

void Rotate(Device& device, const posenc_rotate& work);
void Bias(Device& device, const posenc_bias& work);
void Table(Device& device, const posenc_table& work, void* cos, void* sin);

}  // namespace posenc::cuda
