#include <cuda.h>
#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <vector>

#include "cuda/test/host/stream.h"

// A stream counts its work items; an event stores that count when it is recorded. Not thread-safe: one thread at a time
// uses a stream, like a slot.
struct CUstream_st {
  std::deque<std::function<void()>> work;
  uint64_t put = 0, done = 0;
};
struct CUevent_st {
  CUstream_st* stream = nullptr;
  uint64_t number = 0;
};

namespace posenc::cuda::host {
namespace {

std::mutex mutex;
std::map<const std::byte*, size_t> pinned, device, opened;  // bytes by start address
long fail_at = -1, calls = 0;
bool fail_ever = false;
cudaError_t fault = cudaSuccess;

void RunUntil(CUstream_st* stream, uint64_t number) {
  while (stream->done < number) {
    stream->work.front()();
    stream->work.pop_front();
    ++stream->done;
  }
}

bool Contains(const std::map<const std::byte*, size_t>& ranges, const void* pointer) {
  const std::lock_guard lock(mutex);
  const auto* const at = static_cast<const std::byte*>(pointer);
  const auto next = ranges.upper_bound(at);
  return next != ranges.begin() && at < std::prev(next)->first + std::prev(next)->second;
}

// Allocate and Free fill memory with bytes that no test expects, to expose reads of unset or freed memory.
void* Allocate(std::map<const std::byte*, size_t>& ranges, size_t bytes) {
  void* const memory = std::malloc(bytes);
  std::memset(memory, 0xcd, bytes);
  const std::lock_guard lock(mutex);
  ranges[static_cast<std::byte*>(memory)] = bytes;
  return memory;
}
void Free(std::map<const std::byte*, size_t>& ranges, void* memory) {
  if (memory == nullptr) return;
  const std::lock_guard lock(mutex);
  const auto at = ranges.find(static_cast<std::byte*>(memory));
  if (at == ranges.end()) std::abort();
  std::memset(memory, 0xdd, at->second);
  ranges.erase(at);
  std::free(memory);
}

CUresult AddressRange(CUdeviceptr* base, size_t* size, CUdeviceptr pointer) {
  const std::lock_guard lock(mutex);
  const auto at = device.find(reinterpret_cast<const std::byte*>(pointer));
  if (at == device.end()) return CUDA_ERROR_INVALID_VALUE;
  *base = pointer;
  *size = at->second;
  return CUDA_SUCCESS;
}

}  // namespace

cudaError_t Fault() {
  const std::lock_guard lock(mutex);
  const long call = calls++;
  return fail_at >= 0 && (call == fail_at || (fail_ever && call > fail_at)) ? fault : cudaSuccess;
}

void Enqueue(cudaStream_t stream, std::function<void()> work) {
  stream->work.push_back(std::move(work));
  ++stream->put;
}

}  // namespace posenc::cuda::host

using namespace posenc::cuda::host;

#define POSENC_EXPORTED extern "C" __attribute__((visibility("default")))
// Makes call number `at` (and all later ones, if `ever`) fail with `error`; -1: none fails. Resets the call counter.
POSENC_EXPORTED void posenc_host_fail(long at, int error, int ever) {
  const std::lock_guard lock(mutex);
  fail_at = at;
  fault = static_cast<cudaError_t>(error);
  fail_ever = ever != 0;
  calls = 0;
}
POSENC_EXPORTED long posenc_host_calls() { return calls; }
POSENC_EXPORTED long posenc_host_allocations() { return static_cast<long>(device.size()); }

#define FAIL_IF_ASKED() \
  if (const cudaError_t error = Fault(); error != cudaSuccess) return error

cudaError_t cudaGetDeviceCount(int* count) {
  FAIL_IF_ASKED();
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  FAIL_IF_ASKED();
  *value = attribute == cudaDevAttrComputeCapabilityMajor ? 9 : attribute == cudaDevAttrMemoryPoolsSupported ? 1 : 0;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  FAIL_IF_ASKED();
  *properties = {};
  std::strcpy(properties->name, "the host in place of a GPU");
  properties->totalGlobalMem = size_t{1} << 30;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int) {
  FAIL_IF_ASKED();
  return cudaSuccess;
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorName(cudaError_t) { return "an error"; }
const char* cudaGetErrorString(cudaError_t) { return "as the test wants"; }

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  FAIL_IF_ASKED();
  *stream = new CUstream_st;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  RunUntil(stream, stream->put);
  return Fault();
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) { return delete stream, cudaSuccess; }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  FAIL_IF_ASKED();
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) { return delete event, cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  FAIL_IF_ASKED();
  *event = {stream, stream->put};
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  FAIL_IF_ASKED();
  RunUntil(event->stream, event->number);
  return cudaSuccess;
}

cudaError_t cudaMallocHost(void** memory, size_t bytes) {
  FAIL_IF_ASKED();
  *memory = Allocate(pinned, bytes);
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) { return Free(pinned, memory), cudaSuccess; }
cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps*) {
  FAIL_IF_ASKED();
  static int any;
  *pool = reinterpret_cast<cudaMemPool_t>(&any);
  return cudaSuccess;
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) {
  FAIL_IF_ASKED();
  return cudaSuccess;
}
cudaError_t cudaMemPoolDestroy(cudaMemPool_t) { return cudaSuccess; }
cudaError_t cudaMallocFromPoolAsync(void** memory, size_t bytes, cudaMemPool_t, cudaStream_t) {
  FAIL_IF_ASKED();
  *memory = Allocate(device, bytes);
  return cudaSuccess;
}
cudaError_t cudaFreeAsync(void* memory, cudaStream_t stream) {
  Enqueue(stream, [memory] { Free(device, memory); });
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** memory, size_t bytes) { return *memory = Allocate(device, bytes), cudaSuccess; }
cudaError_t cudaFree(void* memory) { return Free(device, memory), cudaSuccess; }

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  FAIL_IF_ASKED();
  Enqueue(stream, [=] { std::memset(to, value, bytes); });
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  FAIL_IF_ASKED();
  if (kind == cudaMemcpyHostToDevice && !Contains(pinned, from)) {  // pageable memory: read now
    const auto* const begin = static_cast<const std::byte*>(from);
    Enqueue(stream,
            [to, copy = std::vector<std::byte>(begin, begin + bytes)] { std::memcpy(to, copy.data(), copy.size()); });
    return cudaSuccess;
  }
  Enqueue(stream, [=] { std::memcpy(to, from, bytes); });
  if (kind == cudaMemcpyDeviceToHost && !Contains(pinned, to)) RunUntil(stream, stream->put);
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  return std::memcpy(to, from, bytes), cudaSuccess;
}

// A handle holds the pointer. Opening it a second time fails, as in CUDA within one process.
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* memory) {
  *handle = {};
  std::memcpy(handle, &memory, sizeof memory);
  return cudaSuccess;
}
cudaError_t cudaIpcOpenMemHandle(void** memory, cudaIpcMemHandle_t handle, unsigned) {
  FAIL_IF_ASKED();
  void* shared;
  std::memcpy(&shared, &handle, sizeof shared);
  if (!Contains(device, shared)) return cudaErrorInvalidValue;
  const std::lock_guard lock(mutex);
  if (!opened.try_emplace(static_cast<std::byte*>(shared), 1).second) return cudaErrorAlreadyMapped;
  *memory = shared;
  return cudaSuccess;
}
cudaError_t cudaIpcCloseMemHandle(void* memory) {
  const std::lock_guard lock(mutex);
  return opened.erase(static_cast<std::byte*>(memory)) == 1 ? cudaSuccess : cudaErrorInvalidValue;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void*) {
  FAIL_IF_ASKED();
  *attributes = {};
  return cudaSuccess;
}
#if CUDART_VERSION >= 12050
cudaError_t cudaGetDriverEntryPointByVersion(const char*, void** function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
#else
cudaError_t cudaGetDriverEntryPoint(const char*, void** function, unsigned long long,
                                    cudaDriverEntryPointQueryResult* result) {
#endif
  FAIL_IF_ASKED();
  *function = reinterpret_cast<void*>(AddressRange);
  *result = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}
