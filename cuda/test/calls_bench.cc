#include "cuda/test/calls_bench.h"

#include <dlfcn.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <thread>

#include "cuda/test/timing.h"
#include "posenc/device/plugin_abi.h"

namespace posenc::cuda {
namespace {

constexpr uint64_t kSlabBytes = uint64_t{32} << 20;
constexpr int kSlabs = 8;  // calls per thread, in sequence

// A rotation of one bf16 slab in Llama's shape, with a table to compute. Entries that the device cannot prove become 0.
struct Slab {
  static constexpr uint64_t kHeads = 32, kHeadDim = 128, kPairs = kHeadDim / 2;
  static constexpr uint64_t kTokens = kSlabBytes / (kHeads * kHeadDim * 2);
  std::vector<double> positions, inv_freq;
  posenc_piece x, y;
  posenc_rotate work = {};

  Slab(void* from, void* to) : positions(kTokens), inv_freq(kPairs), x{from, kSlabBytes}, y{to, kSlabBytes} {
    for (uint64_t i = 0; i < kTokens; ++i) positions[i] = static_cast<double>(i);
    for (uint64_t i = 0; i < kPairs; ++i) inv_freq[i] = 1.0 / static_cast<double>(i + 1);
    work.dtype = POSENC_BF16;
    work.input_pairing = work.output_pairing = POSENC_HALF_SPLIT;
    work.half_split_parts = 1;
    work.head_dim = kHeadDim;
    work.tokens = kTokens;
    work.heads = kHeads;
    work.table.rows = kTokens;
    work.table.pairs = kPairs;
    work.table.positions = positions.data();
    work.table.axes = 1;
    work.table.inv_freq = inv_freq.data();
    work.table.scale = 1;
    work.table.finish = [](const posenc_table*, double, double, double* cos, double* sin) { *cos = *sin = 0; };
    work.x = {&x, 1, nullptr};
    work.y = {&y, 1, nullptr};
  }
  Slab(const Slab&) = delete;
};

// Returns the seconds that `function` takes by the host's clock.
template <class Function>
double HostSeconds(const Function& function) {
  const auto begin = std::chrono::steady_clock::now();
  function();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Returns the seconds for kSlabs copies from pinned memory to the device and kSlabs back, both ways at once.
double CopyBothWays(void* pinned, void* device) {
  cudaStream_t in, out;
  Check(cudaStreamCreateWithFlags(&in, cudaStreamNonBlocking));
  Check(cudaStreamCreateWithFlags(&out, cudaStreamNonBlocking));
  auto* const host = static_cast<std::byte*>(pinned);
  auto* const there = static_cast<std::byte*>(device);
  const double seconds = HostSeconds([&] {
    for (int i = 0; i < kSlabs; ++i) {
      Check(cudaMemcpyAsync(there, host, kSlabBytes, cudaMemcpyHostToDevice, in));
      Check(cudaMemcpyAsync(host + kSlabBytes, there + kSlabBytes, kSlabBytes, cudaMemcpyDeviceToHost, out));
    }
    Check(cudaStreamSynchronize(in));
    Check(cudaStreamSynchronize(out));
  });
  Check(cudaStreamDestroy(in));
  Check(cudaStreamDestroy(out));
  return seconds;
}

// Returns the seconds for kSlabs calls per slab. Each slab has its own thread, which calls in sequence.
double Calls(const posenc_plugin& plugin, const std::vector<std::unique_ptr<Slab>>& slabs) {
  return HostSeconds([&] {
    std::vector<std::thread> threads;
    for (const auto& slab : slabs) {
      threads.emplace_back([&] {
        for (int i = 0; i < kSlabs; ++i) {
          posenc_error error;
          if (plugin.rotate(0, &slab->work, &error) == POSENC_OK) continue;
          std::printf("posenc-bench-cuda: %s\n", error.message);
          std::exit(1);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
}

void BenchThreads(const posenc_plugin& plugin, unsigned threads, std::byte* memory, const char* kind, void* pinned,
                  void* device) {
  std::vector<std::unique_ptr<Slab>> slabs;
  for (unsigned i = 0; i < threads; ++i) {
    slabs.push_back(std::make_unique<Slab>(memory + 2 * i * kSlabBytes, memory + (2 * i + 1) * kSlabBytes));
  }
  Calls(plugin, slabs);
  CopyBothWays(pinned, device);
  constexpr double kBytes = 2.0 * kSlabs * kSlabBytes;  // in and out
  std::vector<double> speeds, roofs, ratios;
  for (int round = 0; round < 9; ++round) {
    speeds.push_back(threads * kBytes / Calls(plugin, slabs));
    roofs.push_back(kBytes / CopyBothWays(pinned, device));
    ratios.push_back(speeds.back() / roofs.back());
  }
  std::printf("calls of rotate bf16, %u at once, from %s memory: %.1f GB/s, %.2f of copies both ways (%.1f GB/s)\n",
              threads, kind, Median(speeds) / 1e9, Median(ratios), Median(roofs) / 1e9);
}

}  // namespace

int BenchCalls(const char* plugin_path) {
  void* const library = dlopen(plugin_path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    std::printf("posenc-bench-cuda: %s\n", dlerror());
    return 1;
  }
  const auto open = reinterpret_cast<posenc_plugin_open_function>(dlsym(library, "posenc_plugin_open"));
  posenc_error error;
  const posenc_plugin* const plugin = open(&error);
  if (plugin == nullptr) {
    std::printf("posenc-bench-cuda: %s\n", error.message);
    return 1;
  }
  posenc_device_info info;
  if (plugin->describe(0, &info, &error) != POSENC_OK) return 1;
  const uint64_t bytes = 2 * info.calls_at_once * kSlabBytes;
  void *pinned, *device;
  Check(cudaMallocHost(&pinned, bytes));
  Check(cudaMalloc(&device, 2 * kSlabBytes));
  std::memset(pinned, 0, bytes);
  std::vector<std::byte> pageable(bytes);
  for (const unsigned threads : {1u, 2u, info.calls_at_once}) {
    BenchThreads(*plugin, threads, pageable.data(), "pageable", pinned, device);
    BenchThreads(*plugin, threads, static_cast<std::byte*>(pinned), "pinned", pinned, device);
  }
  return 0;
}

}  // namespace posenc::cuda
