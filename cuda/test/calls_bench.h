// Benchmark of plugin calls against copies between host and device.
#pragma once

namespace posenc::cuda {

// Runs the benchmark with the plugin's shared library. Returns the program's exit code.
int BenchCalls(const char* plugin_path);

}  // namespace posenc::cuda
