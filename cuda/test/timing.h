// Device timings of alternating works, so that a busy moment does not affect only one of them.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

namespace posenc::cuda {

inline void Check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::printf("posenc-bench-cuda: %s\n", cudaGetErrorString(error));
  std::exit(1);
}

inline double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

using Work = std::function<void(cudaStream_t)>;

// Returns the seconds of one run of `work`, by the device's clock.
inline double Seconds(const Work& work) {
  static cudaStream_t stream = nullptr;
  static cudaEvent_t begin = nullptr, end = nullptr;
  if (stream == nullptr) {
    Check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    Check(cudaEventCreate(&begin));
    Check(cudaEventCreate(&end));
  }
  Check(cudaEventRecord(begin, stream));
  work(stream);
  Check(cudaEventRecord(end, stream));
  Check(cudaEventSynchronize(end));
  float milliseconds = 0;
  Check(cudaEventElapsedTime(&milliseconds, begin, end));
  return milliseconds / 1e3;
}

// Prints one line: the median GB/s of both works, and the first relative to the second. Bytes are read plus written.
inline void Compare(const std::string& name, double bytes, const Work& work, const std::string& roof_name,
                    double roof_bytes, const Work& roof) {
  constexpr int kRounds = 21;
  std::vector<double> times, roof_times, ratios;
  work(nullptr);  // loads the code
  roof(nullptr);
  Check(cudaDeviceSynchronize());
  for (int round = 0; round < kRounds; ++round) {
    times.push_back(bytes / Seconds(work));
    roof_times.push_back(roof_bytes / Seconds(roof));
    ratios.push_back(times.back() / roof_times.back());
  }
  std::printf("%-52s %8.0f GB/s  %5.2f of %s (%.0f GB/s)\n", name.c_str(), Median(times) / 1e9, Median(ratios),
              roof_name.c_str(), Median(roof_times) / 1e9);
}

}  // namespace posenc::cuda
