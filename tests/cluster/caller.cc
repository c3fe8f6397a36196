// Calls several servers at a steady rate, as a C++ program that uses the client would: with its retries, and with calls
// spread over the servers. Each tenth call is a StreamApplyRotary. Compares every answer with the result of this
// process. Ends at SIGTERM or SIGINT, and prints its figures as one line of JSON.
// Usage: cluster-caller ADDRESS RATE [CA_FILE]
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "posenc/client/client.h"
#include "posenc/in_process/in_process.h"

namespace posenc {
namespace {

using Clock = std::chrono::steady_clock;

// Enough threads to keep the rate while some calls wait for seconds.
constexpr int kThreads = 256;
constexpr int64_t kStreamEvery = 10;
constexpr ChunkOptions kChunks = {.bytes = 64 << 10, .in_flight = 4};

std::atomic<bool> stopped = false;

// A rotation and its result.
struct Case {
  v1::ApplyRotaryRequest request;
  std::vector<float> input, expected;

  explicit Case(int64_t tokens) : input(static_cast<size_t>(tokens) * 32 * 128), expected(input.size()) {
    for (size_t i = 0; i < input.size(); ++i) input[i] = static_cast<float>(i % 1009) / 1009;
    v1::RotarySettings& settings = *request.mutable_rotary()->mutable_settings();
    settings.mutable_rope_parameters()->set_rope_type("default");
    settings.set_rotary_dim(128);
    settings.set_input_pairing(v1::PAIRING_HALF_SPLIT);
    request.mutable_positions()->set_offset(1000);
    request.set_layout(v1::LAYOUT_BSHD);
    v1::Tensor& tensor = *request.mutable_q()->mutable_tensor();
    tensor.set_dtype(v1::DATA_TYPE_FP32);
    for (const int64_t size : {int64_t{1}, tokens, int64_t{32}, int64_t{128}}) tensor.add_shape(size);
    InProcess here;
    const absl::Status computed = Call(here, &expected);
    if (!computed.ok()) std::abort();
  }

  absl::Status Call(Backend& backend, std::vector<float>* output) const {
    return backend
        .ApplyRotary(request, {.inputs = {{&request.q().tensor(), absl::MakeConstSpan(Bytes(input), Size())}},
                               .outputs = {absl::MakeSpan(reinterpret_cast<std::byte*>(output->data()), Size())}})
        .status();
  }
  absl::Status Stream(Backend& backend, std::vector<float>* output) const {
    return backend.StreamApplyRotary(request, {.q = {input.data(), output->data()}}, kChunks).status();
  }

 private:
  static const std::byte* Bytes(const std::vector<float>& values) {
    return reinterpret_cast<const std::byte*>(values.data());
  }
  size_t Size() const { return input.size() * sizeof(float); }
};

// Figures of all calls. Thread-safe.
class Results {
 public:
  void Add(double milliseconds, bool stream, bool wrong, const absl::Status& status) {
    const std::lock_guard lock(mutex_);
    milliseconds_.push_back(milliseconds);
    streams_ += stream;
    wrong_ += wrong;
    if (status.ok()) return;
    ++failed_;
    if (errors_.size() < 5) errors_.push_back((stream ? "stream: " : "unary: ") + status.ToString());
  }

  nlohmann::json Report() {
    std::sort(milliseconds_.begin(), milliseconds_.end());
    return {{"calls", milliseconds_.size()}, {"streams", streams_},      {"failed", failed_},     {"wrong", wrong_},
            {"p50_ms", Quantile(0.5)},       {"p99_ms", Quantile(0.99)}, {"max_ms", Quantile(1)}, {"errors", errors_}};
  }

 private:
  double Quantile(double share) const {
    if (milliseconds_.empty()) return 0;
    return milliseconds_[static_cast<size_t>(share * static_cast<double>(milliseconds_.size() - 1))];
  }

  std::mutex mutex_;
  std::vector<double> milliseconds_;
  int64_t streams_ = 0, failed_ = 0, wrong_ = 0;
  std::vector<std::string> errors_;
};

int Run(const std::string& address, double rate, std::optional<Tls> tls) {
  const Case decode(1), prefill(64);  // 16 KiB; 1 MiB, which is 16 chunks
  Client client({.address = address, .several_servers = true, .tls = std::move(tls)});
  Results results;
  std::atomic<int64_t> next = 0;
  const Clock::time_point begin = Clock::now();
  const auto work = [&] {
    for (;;) {
      const int64_t n = next++;
      const bool stream = n % kStreamEvery == 0;
      const Case& call = stream ? prefill : decode;
      std::vector<float> output(call.input.size());
      const auto due = begin + std::chrono::duration_cast<Clock::duration>(
                                   std::chrono::duration<double>(static_cast<double>(n) / rate));
      std::this_thread::sleep_until(due);
      if (stopped) return;
      const absl::Status status = stream ? call.Stream(client, &output) : call.Call(client, &output);
      const double milliseconds = std::chrono::duration<double, std::milli>(Clock::now() - due).count();
      const bool wrong =
          status.ok() && std::memcmp(output.data(), call.expected.data(), output.size() * sizeof(float)) != 0;
      results.Add(milliseconds, stream, wrong, status);
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  std::printf("%s\n", results.Report().dump().c_str());
  return 0;
}

}  // namespace
}  // namespace posenc

int main(int argc, char** argv) {
  const double rate = argc >= 3 ? std::strtod(argv[2], nullptr) : 0;
  if (argc < 3 || argc > 4 || !(rate > 0)) {
    std::fprintf(stderr, "Usage: cluster-caller ADDRESS RATE [CA_FILE]\n");
    return 2;
  }
  std::signal(SIGTERM, [](int) { posenc::stopped = true; });
  std::signal(SIGINT, [](int) { posenc::stopped = true; });
  std::optional<posenc::Tls> tls;
  if (argc == 4) {
    auto read = posenc::ReadTlsFiles({.ca = argv[3]});
    if (!read.ok()) {
      std::fprintf(stderr, "%s\n", read.status().ToString().c_str());
      return 2;
    }
    tls = *std::move(read);
  }
  return posenc::Run(argv[1], rate, std::move(tls));
}
