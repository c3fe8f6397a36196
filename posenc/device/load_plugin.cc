#include <dlfcn.h>
#include <fmt/format.h>

#include "absl/status/status.h"
#include "posenc/base/input_file.h"
#include "posenc/device/plugin.h"

namespace posenc {
namespace {

absl::Status Refused(const std::string& path, std::string_view why) {
  return absl::FailedPreconditionError(fmt::format("device plugin {}: {}", path, why));
}

}  // namespace

absl::StatusOr<LoadedPlugin> LoadPlugin(const std::string& path) {
  if (path.find('/') == path.npos) {
    return Refused(path, "must be a path, such as ./libposenc_cuda.so: no directories are searched");
  }
  // dlopen() of a pipe would wait for a writer.
  if (const absl::Status file = InputFile::Open(path, 0).status(); !file.ok())
    return Refused(path, std::string(file.message()));
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    const char* why = dlerror();
    return Refused(path, why != nullptr ? why : "cannot be loaded");
  }
  // The ABI version is data, so that no code of an incompatible plugin is called before the check.
  const auto* abi = static_cast<const uint32_t*>(dlsym(library, "posenc_plugin_abi"));
  if (abi == nullptr) return Refused(path, "is not a posenc plugin: it has no symbol posenc_plugin_abi");
  if (*abi != POSENC_PLUGIN_ABI) {
    return Refused(path, fmt::format("has version {} of the plugin interface, this posenc has version {}: both must be "
                                     "from the same release",
                                     *abi, POSENC_PLUGIN_ABI));
  }
  const auto open = reinterpret_cast<posenc_plugin_open_function>(dlsym(library, "posenc_plugin_open"));
  if (open == nullptr) return Refused(path, "has no symbol posenc_plugin_open");
  posenc_error error{};
  const posenc_plugin* plugin = open(&error);
  if (plugin == nullptr) return Refused(path, error.message);
  if (plugin->devices == 0) return Refused(path, "found no device");
  return LoadedPlugin{plugin, error.message};
}

}  // namespace posenc
