// The methods of the Open Inference Protocol for fuzzers, with two models, "rope" and "alibi", and one region of shared
// memory, "a", of 4096 bytes.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "server/calls/inference_service.h"
#include "server/shared_memory/registry.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/served_call.h"

namespace posenc::server {

// Makes a repository of models, and returns its folder.
inline std::string MakeRepository() {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("posenc-inference-fuzz-" + std::to_string(getpid()));
  for (const auto& [name, text] :
       {std::pair("rope",
                  R"({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2,
                              "max_position_embeddings": 128, "rope_theta": 10000.0})"),
        std::pair("alibi", R"({"model_type": "bloom", "hidden_size": 64, "n_head": 4, "n_layer": 2})")}) {
    std::filesystem::create_directories(folder / name);
    std::ofstream(folder / name / "config.json") << text;
  }
  return folder.string();
}

inline Config ConfigOf() {
  Config config = SmallConfig();
  config.model_control = "on";
  config.max_call_cost = 300;  // the computation is that of the other fuzzer, calls
  return config;
}

class InferenceServer {
 public:
  InferenceServer() : core_(ConfigOf()), key_(kKeys + std::to_string(getpid())) {
    auto models = Models::Open({.repository = MakeRepository(), .name = "", .limits = core_.config.limits});
    fuzz::Check(models.ok(), "no models");
    models_ = *std::move(models);
    const int file = shm_open(key_.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    fuzz::Check(file >= 0 && ftruncate(file, kBytes) == 0, "no shared memory");
    region_ = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    fuzz::Check(region_ != MAP_FAILED, "shared memory cannot be mapped");
    close(file);
    core_.memory = registry_;
    AddInferenceTo(&methods_, std::make_shared<const InferenceParts>(
                                  InferenceParts{&core_, models_.get(), &memory_, [] { return true; }}));
  }
  ~InferenceServer() { shm_unlink(key_.c_str()); }

  Core& core() { return core_; }
  const Methods& methods() const { return methods_; }
  // Fills the region, and leaves it as the only one.
  void Reset() {
    std::memset(region_, 0x3f, kBytes);  // floats near 0.75
    fuzz::Check(memory_.Unregister(kScope, "").ok() && memory_.Register(kScope, {"a", key_, 0, kBytes, ""}).ok(),
                "the region cannot be registered");
  }
  // After a call that changes models: later calls have the same.
  void RestoreModels() { fuzz::Check(models_->Reload().ok(), "models cannot be read"); }

 private:
  static constexpr char kKeys[] = "/posenc-inference-fuzz-";
  static constexpr size_t kBytes = 4096;
  static constexpr char kScope[] = "unix";  // callers without an address

  Core core_;
  const std::string key_;
  void* region_ = nullptr;
  std::unique_ptr<Models> models_;
  const std::shared_ptr<SharedMemoryRegistry> registry_ = std::make_shared<SharedMemoryRegistry>(16, 1 << 20);
  NamedMemory memory_{registry_.get(), kKeys};
  Methods methods_;
};

}  // namespace posenc::server
