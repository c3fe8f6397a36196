// Calls of every RPC of the Open Inference Protocol (served_call.h); the stream is ModelStreamInfer. The server has two
// models, "rope" and "alibi", and one region of shared memory, "a", of 4096 bytes.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "server/calls/inference_service.h"
#include "server/shared_memory/registry.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/served_call.h"

namespace posenc::server {

const NumberedRpcs& Inputs() {
  static const auto* const inputs = new NumberedRpcs(InferenceRpcs(), "ModelStreamInfer");
  return *inputs;
}

namespace {

using fuzz::Check;

constexpr char kKeys[] = "/posenc-inference-fuzz-";
constexpr size_t kBytes = 4096;

// Makes a repository of models, and returns its folder.
std::string MakeRepository() {
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

Config ConfigOf() {
  Config config = SmallConfig();
  config.model_control = "on";
  config.max_call_cost = 300;  // the computation is that of the other fuzzer, calls
  return config;
}

class Server {
 public:
  Server() : core_(ConfigOf()), key_(kKeys + std::to_string(getpid())) {
    auto models = Models::Open({.repository = MakeRepository(), .name = "", .limits = core_.config.limits});
    Check(models.ok(), "no models");
    models_ = *std::move(models);
    const int file = shm_open(key_.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    Check(file >= 0 && ftruncate(file, kBytes) == 0, "no shared memory");
    region_ = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    Check(region_ != MAP_FAILED, "shared memory cannot be mapped");
    close(file);
    core_.memory = registry_;
    AddInferenceTo(&methods_, std::make_shared<const InferenceParts>(
                                  InferenceParts{&core_, models_.get(), &memory_, [] { return true; }}));
  }
  ~Server() { shm_unlink(key_.c_str()); }

  Result Call(const wire::RpcDescription& rpc, absl::Span<const uint8_t> request) {
    std::memset(region_, 0x3f, kBytes);  // floats near 0.75
    Check(memory_.Unregister(kScope, "").ok() && memory_.Register(kScope, {"a", key_, 0, kBytes, ""}).ok(),
          "the region cannot be registered");
    Result result = ServeInput(methods_.at(rpc.path).make, Inputs().TakesSequence(rpc), request);
    // Later calls have the same models.
    const grpc::StatusCode code = result.status.error_code();
    const bool refused = code == grpc::INVALID_ARGUMENT || code == grpc::NOT_FOUND;
    if (rpc.name.starts_with("RepositoryModel") && !refused) Check(models_->Reload().ok(), "models cannot be read");
    return result;
  }

 private:
  static constexpr char kScope[] = "unix";  // callers without an address

  Core core_;
  const std::string key_;
  void* region_ = nullptr;
  std::unique_ptr<Models> models_;
  const std::shared_ptr<SharedMemoryRegistry> registry_ = std::make_shared<SharedMemoryRegistry>(16, 1 << 20);
  NamedMemory memory_{registry_.get(), kKeys};
  Methods methods_;
};

// Also brings the entries of maps into order, so that equal answers have equal bytes.
void CheckResult(const wire::RpcDescription& rpc, Result& result) {
  for (std::string& bytes : result.messages) {
    const std::unique_ptr<google::protobuf::Message> message(rpc.response.New());
    Check(message->ParseFromString(bytes), "an answer that cannot be parsed");
    bytes.clear();
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    message->SerializeToCodedStream(&coded);
  }
  if (!result.status.ok()) CheckDetails(result.status, /*of_inference=*/true);
}

}  // namespace
}  // namespace posenc::server

int posenc::fuzz::RunInput(const uint8_t* data, size_t size) {
  using namespace posenc::server;
  if (size == 0) return 0;
  static Server server;  // destroyed at the end: it has a name in the system
  const auto& rpc = Inputs().Of({data, size});
  const absl::Span<const uint8_t> request(data + 1, size - 1);
  Result first = server.Call(rpc, request);
  CheckResult(rpc, first);
  if (!IsOneIn(4, {data, size})) return 0;
  Result second = server.Call(rpc, request);
  CheckResult(rpc, second);
  if (rpc.name != "ModelStatistics") CheckSame(first, second);
  return 0;
}
