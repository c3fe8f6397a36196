#include "bench/wire/inference.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "bench/wire/requests.h"
#include "bench/wire/row.h"
#include "bench/wire/traffic.h"
#include "posenc/client/shared_memory.h"

namespace posenc::bench {
namespace {

constexpr char kService[] = "/inference.GRPCInferenceService/";
// The goal beside ApplyRotary, which computes the same.
constexpr double kOfTyped = 1.05;
// Triton 2.51 with a C++ backend takes 1.3 to 1.5 times as long as a copy over shared memory.
constexpr double kOfSharedCopy = 1.5;

// A POSIX object of shared memory, registered with the server under its own key.
class NamedObject {
 public:
  NamedObject(const std::string& address, size_t bytes)
      : key_(fmt::format("/posenc-bench-{}", getpid())), bytes_(bytes) {
    const int file = shm_open(key_.c_str(), O_RDWR | O_CREAT | O_TRUNC, S_IRUSR | S_IWUSR);
    if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0)
      Fail(fmt::format("{}: {}", key_, std::strerror(errno)));
    data_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (data_ == MAP_FAILED) Fail(fmt::format("{}: {}", key_, std::strerror(errno)));
    inference::SystemSharedMemoryRegisterRequest request;
    request.set_name(key_);
    request.set_key(key_);
    request.set_byte_size(bytes);
    Caller(address, std::string(kService) + "SystemSharedMemoryRegister").Run(Serialize(request), 1, 0, 1);
    inference::SystemSharedMemoryUnregisterRequest unregister;
    unregister.set_name(key_);
    unregister_ = [address, unregister] {
      Caller(address, std::string(kService) + "SystemSharedMemoryUnregister").Run(Serialize(unregister), 1, 0, 1);
    };
  }
  ~NamedObject() {
    unregister_();
    munmap(data_, bytes_);
    shm_unlink(key_.c_str());
  }
  NamedObject(const NamedObject&) = delete;
  NamedObject& operator=(const NamedObject&) = delete;

  char* data() const { return static_cast<char*>(data_); }

  // Sets the parameters of an input or output that is this part of it.
  template <typename Tensor>
  void Place(size_t offset, size_t bytes, Tensor* tensor) const {
    auto& parameters = *tensor->mutable_parameters();
    parameters["shared_memory_region"].set_string_param(key_);
    parameters["shared_memory_offset"].set_int64_param(static_cast<int64_t>(offset));
    parameters["shared_memory_byte_size"].set_int64_param(static_cast<int64_t>(bytes));
  }

 private:
  const std::string key_;
  const size_t bytes_;
  void* data_ = nullptr;
  std::function<void()> unregister_;
};

// Returns the milliseconds of a copy, the median of many.
double CopyMilliseconds(const char* from, char* to, size_t bytes) {
  constexpr int kCopies = 101;
  std::vector<double> milliseconds;
  for (int n = 0; n < kCopies; ++n) {
    const auto begin = std::chrono::steady_clock::now();
    std::memcpy(to, from, bytes);
    const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - begin;
    milliseconds.push_back(taken.count());
  }
  return Median(std::move(milliseconds));
}

void PrintP50(const std::string& name, const char* against, const std::vector<double>& ours,
              const std::vector<double>& theirs, double goal) {
  Print({name, against, Median(ours), Median(theirs), "ms", Ratios(ours, theirs), goal, false});
}

// The requests of a round: to ModelInfer, to ApplyRotary, and to the copying server.
struct Round {
  grpc::ByteBuffer infer, apply, copy;
  double milliseconds_more = 0;                     // for each call of the copying server
  std::vector<std::shared_ptr<const void>> memory;  // that the requests name
};

// Returns the requests of a new round.
using MakeRound = std::function<Round()>;

class InferenceBench {
 public:
  InferenceBench(const InferenceAddresses& addresses, const Effort& effort)
      : addresses_(addresses),
        // Many short rounds, for a narrow confidence interval.
        effort_{12 * effort.rounds, effort.seconds / 4} {}

  void InMessages(const std::string& name, size_t bytes, double goal) {
    Measure(name, goal, [bytes] {
      Round round{.infer = InferenceOfSize(bytes), .apply = RotationOfSize(bytes)};
      round.copy = round.apply;
      return round;
    });
  }

  // The reference is a call that copies the same message, and a copy of the tensor in shared memory.
  void InSharedMemory(const std::string& name, size_t bytes) {
    Measure(name, kOfSharedCopy, [this, bytes] {
      const auto object = std::make_shared<NamedObject>(addresses_.posenc, 2 * bytes);
      Fill(object->data(), 2 * bytes);
      inference::ModelInferRequest infer = InferenceWithoutData(bytes);
      object->Place(0, bytes, infer.mutable_inputs(0));
      auto& output = *infer.add_outputs();
      output.set_name("q");
      object->Place(bytes, bytes, &output);

      auto memory = SharedMemory::Create(addresses_.shared_memory_socket, 2 * bytes);
      if (!memory.ok()) Fail(memory.status().ToString());
      Fill(reinterpret_cast<char*>(memory->data()), 2 * bytes);
      v1::ApplyRotaryRequest apply = RotationWithoutData(bytes);
      *apply.mutable_q()->mutable_tensor()->mutable_region() = memory->Part(0, bytes);
      *apply.mutable_q()->mutable_output() = memory->Part(bytes, bytes);

      Round round{.infer = Serialize(infer),
                  .apply = Serialize(apply),
                  .milliseconds_more = CopyMilliseconds(object->data(), object->data() + bytes, bytes),
                  .memory = {object, std::make_shared<SharedMemory>(*std::move(memory))}};
      round.copy = round.infer;
      return round;
    });
  }

 private:
  // Prints the p50 of ModelInfer beside those of ApplyRotary and of the copying server, which has the goal `of_copy`.
  // Each round has new connections and new memory, so that the interval covers how they differ; both methods of posenc
  // use the same connection. Many calls come before: a connection's window grows with them. Within a round the callers
  // take turns, in all orders, so that a change of the machine reaches all of them.
  void Measure(const std::string& name, double of_copy, const MakeRound& make) {
    constexpr size_t kWarmUp = 100, kTurns = 6, kCalls = 5;
    std::array<std::vector<double>, 3> p50;
    std::array<size_t, 3> order = {0, 1, 2};
    for (int n = 0; n < effort_.rounds; ++n) {
      const Round round = make();
      Caller infer(addresses_.posenc, std::string(kService) + "ModelInfer");
      Caller apply(infer, "ApplyRotary"), copy(addresses_.copy, "ApplyRotary");
      const std::array<std::pair<Caller*, const grpc::ByteBuffer*>, 3> callers = {
          {{&infer, &round.infer}, {&apply, &round.apply}, {&copy, &round.copy}}};
      for (const auto& [caller, request] : callers) caller->Run(*request, 1, 0, kWarmUp);
      std::array<std::vector<double>, 3> seconds;
      for (size_t turn = 0; turn < kTurns; ++turn) {
        for (const size_t which : order) {
          const auto& [caller, request] = callers[which];
          const Load load = caller->Run(*request, 1, effort_.seconds / kTurns, kCalls);
          seconds[which].insert(seconds[which].end(), load.seconds.begin(), load.seconds.end());
        }
        std::next_permutation(order.begin(), order.end());
      }
      for (size_t which = 0; which < p50.size(); ++which) p50[which].push_back(1e3 * Median(std::move(seconds[which])));
      p50[2].back() += round.milliseconds_more;
    }
    PrintP50(name, "ApplyRotary", p50[0], p50[1], kOfTyped);
    PrintP50(name, "copy", p50[0], p50[2], of_copy);
  }

  const InferenceAddresses addresses_;
  const Effort effort_;
};

}  // namespace

void MeasureInference(const InferenceAddresses& addresses, const Effort& effort,
                      const std::function<bool(const std::string& name)>& wanted) {
  InferenceBench bench(addresses, effort);
  // The goals beside the copying server are what Triton 2.51 with a C++ backend reaches.
  for (const auto& [bytes, goal] : {std::pair(16 * kKiB, 1.33), {64 * kKiB, 1.18}, {kMiB, 1.13}, {4 * kMiB, 1.02}}) {
    const std::string name = fmt::format("ModelInfer {}, p50", SizeName(bytes));
    if (wanted(name)) bench.InMessages(name, bytes, goal);
    const std::string shared = fmt::format("ModelInfer in shared memory {}, p50", SizeName(bytes));
    if (wanted(shared)) bench.InSharedMemory(shared, bytes);
  }
}

}  // namespace posenc::bench
