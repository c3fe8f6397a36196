// posenc-bench-cuda PLUGIN: compares the kernels with copies and fills of device memory, and plugin calls with copies
// from and to the host. Prints medians of alternating runs on tensors of 256 MiB and more.
#include <cmath>
#include <string>
#include <vector>

#include "cuda/launch.h"
#include "cuda/test/calls_bench.h"
#include "cuda/test/timing.h"

namespace posenc::cuda {
namespace {

struct Type {
  posenc_dtype dtype;
  const char* name;
  uint64_t size;
};
constexpr Type kTypes[] = {{POSENC_FP32, "f32", 4}, {POSENC_BF16, "bf16", 2}, {POSENC_FP16, "f16", 2}};
constexpr uint64_t kTensorBytes = uint64_t{256} << 20;

void* Allocate(uint64_t bytes) {
  void* memory;
  Check(cudaMalloc(&memory, bytes));
  Check(cudaMemset(memory, 0, bytes));
  return memory;
}
template <class T>
T* Upload(const std::vector<T>& values) {
  void* const memory = Allocate(values.size() * sizeof(T));
  Check(cudaMemcpy(memory, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  return static_cast<T*>(memory);
}

Work Copy(void* to, const void* from, uint64_t bytes) {
  return [=](cudaStream_t stream) { Check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream)); };
}
Work Fill(void* to, uint64_t bytes) {
  return [=](cudaStream_t stream) { Check(cudaMemsetAsync(to, 1, bytes, stream)); };
}

// Llama's shape: 32 heads of head_dim 128.
void BenchRotations(void* x, void* y) {
  constexpr uint64_t kHeads = 32, kHeadDim = 128, kPairs = kHeadDim / 2;
  for (const Type& type : kTypes) {
    const uint64_t row = kHeadDim * type.size, tokens = kTensorBytes / (kHeads * row);
    void* const table = Allocate(2 * tokens * kPairs * sizeof(float));
    RotateArguments work = {};
    work.dtype = type.dtype;
    work.half_split_parts = 1;
    work.head_dim = kHeadDim;
    work.pairs = kPairs;
    work.tokens = tokens;
    work.heads = kHeads;
    work.cos = table;
    work.sin = static_cast<float*>(table) + tokens * kPairs;
    work.x = x;
    work.token_stride = kHeads * row;
    work.head_stride = row;
    const double bytes = 2.0 * kTensorBytes + 2.0 * static_cast<double>(tokens * kPairs) * sizeof(float);
    for (const posenc_pairing pairing : {POSENC_HALF_SPLIT, POSENC_INTERLEAVED}) {
      for (void* const out : {y, x}) {
        work.input_pairing = work.output_pairing = pairing;
        work.y = out;
        const std::string name = std::string("rotate ") + type.name +
                                 (pairing == POSENC_HALF_SPLIT ? " half-split" : " interleaved") +
                                 (out == x ? " in place" : "");
        Compare(
            name, bytes, [work](cudaStream_t stream) { Check(LaunchRotate(work, stream)); }, "memcpy",
            2.0 * kTensorBytes, Copy(y, x, kTensorBytes));
      }
    }
    Check(cudaFree(table));
  }
}

template <class Real>
void BenchBiases(void* scores, void* out) {
  constexpr uint64_t kKeys = 8192;
  std::vector<Query<Real>> queries(kTensorBytes / sizeof(uint16_t) / kKeys);
  for (size_t i = 0; i < queries.size(); ++i) queries[i].position = queries[i].highest = static_cast<Real>(i);
  std::vector<Real> positions(kKeys);
  for (size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<Real>(i);
  Query<Real>* const at_queries = Upload(queries);
  Real* const at_keys = Upload(positions);
  for (const Type& type : kTypes) {
    BiasArguments<Real> work = {};
    work.dtype = type.dtype;
    work.queries = kTensorBytes / type.size / kKeys;
    work.keys = kKeys;
    work.query = at_queries;
    work.key_positions = at_keys;
    work.past_slope = 0.25f;
    work.fill = -HUGE_VALF;
    work.out = out;
    const auto run = [&](const char* what, double bytes, const char* roof_name, double roof_bytes, const Work& roof) {
      Compare(
          std::string("bias ") + type.name + what + (sizeof(Real) == sizeof(double) ? ", float64 positions" : ""),
          bytes, [work](cudaStream_t stream) { Check(LaunchBias(work, stream)); }, roof_name, roof_bytes, roof);
    };
    run(" alone", kTensorBytes, "memset", kTensorBytes, Fill(out, kTensorBytes));
    work.masked = true;
    work.mask_key_positions = at_keys;
    run(" alone, causal", kTensorBytes, "memset", kTensorBytes, Fill(out, kTensorBytes));
    work.scores = scores;
    run(" and scores, causal", 2.0 * kTensorBytes, "memcpy", 2.0 * kTensorBytes, Copy(out, scores, kTensorBytes));
  }
  Check(cudaFree(at_queries));
  Check(cudaFree(at_keys));
}

void BenchTables(void* cos, void* sin) {
  constexpr uint64_t kPairs = 64;
  const uint64_t rows = kTensorBytes / (kPairs * sizeof(double));
  std::vector<double> positions(rows), inv_freq(kPairs);
  for (uint64_t i = 0; i < rows; ++i) positions[i] = static_cast<double>(i % 131072);
  for (uint64_t i = 0; i < kPairs; ++i) inv_freq[i] = std::pow(10000.0, -static_cast<double>(i) / kPairs);
  TableArguments work = {};
  work.rows = rows;
  work.pairs = kPairs;
  work.positions = Upload(positions);
  work.inv_freq = Upload(inv_freq);
  work.scale_hi = work.zero_cos = work.scale = 1;
  work.scale_in_range = true;
  work.cos = cos;
  work.sin = sin;
  void* const count = Allocate(sizeof(unsigned long long));
  work.unproven_count = static_cast<unsigned long long*>(count);
  const auto run = [&](const char* name, posenc_frequencies frequencies, posenc_dtype dtype) {
    work.frequencies = frequencies;
    work.dtype = dtype;
    const uint64_t bytes = 2 * rows * kPairs * (dtype == POSENC_FP64 ? sizeof(double) : sizeof(float));
    Compare(
        name, static_cast<double>(bytes), [work](cudaStream_t stream) { Check(LaunchTable(work, stream)); }, "memset",
        static_cast<double>(bytes),
        [=](cudaStream_t stream) {
          Check(cudaMemsetAsync(cos, 1, bytes / 2, stream));
          Check(cudaMemsetAsync(sin, 1, bytes / 2, stream));
        });
  };
  run("table exact f32", POSENC_EXACT, POSENC_FP32);
  run("table exact bf16", POSENC_EXACT, POSENC_BF16);
  run("table exact f64", POSENC_EXACT, POSENC_FP64);
  run("table float32 f32", POSENC_FLOAT32, POSENC_FP32);
  run("table float64 f32", POSENC_FLOAT64, POSENC_FP32);
}

int Main(const char* plugin_path) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::puts("skipped: no GPU");
    return 0;
  }
  void* const a = Allocate(kTensorBytes);
  void* const b = Allocate(kTensorBytes);
  BenchRotations(a, b);
  BenchBiases<float>(a, b);
  BenchBiases<double>(a, b);
  BenchTables(a, b);
  Check(cudaFree(a));
  Check(cudaFree(b));
  return BenchCalls(plugin_path);
}

}  // namespace
}  // namespace posenc::cuda

int main(int count, char** arguments) {
  if (count != 2) {
    std::puts("posenc-bench-cuda PLUGIN");
    return 2;
  }
  return posenc::cuda::Main(arguments[1]);
}
