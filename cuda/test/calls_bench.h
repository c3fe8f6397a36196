// Calls of the plugin beside copies between host and device.
#pragma once

namespace posenc::cuda {

// The program's exit code.
int BenchCalls(const char* plugin_path);

}  // namespace posenc::cuda
