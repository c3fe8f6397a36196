// A device plugin without a device: it computes with the CPU's kernels and fails when told to. The environment variable
// POSENC_FAKE_PLUGIN holds its settings, separated by commas:
//
//   devices=2        number of devices (default 1; 0: posenc_plugin_open reports that there is no driver)
//   slab_bytes=4096  largest slab
//   oom_every=3      every third slab does not fit into the device's memory
//   lost_after=5     from the sixth slab on the device is lost
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "posenc/device/plugin_abi.h"
#include "posenc/kernels/convert.h"
#include "posenc/kernels/distance_bias.h"
#include "posenc/kernels/rotate_pairs.h"
#include "posenc/kernels/sincos_rows.h"

#ifndef POSENC_FAKE_PLUGIN_ABI
#define POSENC_FAKE_PLUGIN_ABI POSENC_PLUGIN_ABI
#endif

namespace {

using namespace posenc;  // NOLINT

uint64_t Setting(std::string_view name, uint64_t otherwise) {
  const char* all = std::getenv("POSENC_FAKE_PLUGIN");
  for (std::string_view rest = all != nullptr ? all : ""; !rest.empty();) {
    const std::string_view one = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(one.size() + 1, rest.size()));
    if (one.starts_with(name)) return std::strtoull(one.data() + name.size() + 1, nullptr, 10);
  }
  return otherwise;
}

int32_t Say(posenc_error* error, posenc_status status, const char* message) {
  error->status = status;
  std::snprintf(error->message, sizeof(error->message), "%s", message);
  return status;
}

// Returns POSENC_OK if the next slab, of `bytes` bytes, succeeds.
int32_t Attempt(uint64_t bytes, posenc_error* error) {
  if (bytes > Setting("slab_bytes", 1 << 20)) return Say(error, POSENC_UNSUPPORTED, "a slab is too large");
  static std::atomic<uint64_t> slabs{0};
  const uint64_t slab = ++slabs, every = Setting("oom_every", 0);
  if (slab > Setting("lost_after", UINT64_MAX)) return Say(error, POSENC_DEVICE_LOST, "the fake device is lost");
  if (every != 0 && slab % every == 0) return Say(error, POSENC_OUT_OF_MEMORY, "the fake device's memory is full");
  return POSENC_OK;
}

DType TypeOf(uint32_t dtype) {
  constexpr DType kTypes[] = {DType::kFP32, DType::kFP16, DType::kBF16, DType::kFP64};
  return kTypes[dtype];
}
Frequencies RecipeOf(uint32_t frequencies) {
  constexpr Frequencies kRecipes[] = {Frequencies::kExact, Frequencies::kFloat64, Frequencies::kFloat32};
  return kRecipes[frequencies];
}
Pairing PairingOf(uint32_t pairing) {
  return pairing == POSENC_INTERLEAVED ? Pairing::kInterleaved : Pairing::kHalfSplit;
}
Rounding RoundingOf(uint32_t rounding) {
  return rounding == POSENC_ROUND_ONCE ? Rounding::kOnce : Rounding::kEachOperation;
}

// Computes [rows, pairs] of the table's type, column by column, because each pair may have its own axis.
void Compute(const posenc_table& table, std::byte* cos, std::byte* sin) {
  const size_t size = SizeOf(TypeOf(table.dtype));
  std::vector<double> one_cos(table.rows), one_sin(table.rows);
  for (uint64_t pair = 0; pair < table.pairs; ++pair) {
    const uint64_t axis = table.axis != nullptr ? table.axis[pair] : 0;
    ComputeSinCosRows(SinCosRows{.frequencies = RecipeOf(table.frequencies),
                                 .dtype = TypeOf(table.dtype),
                                 .positions = table.positions + axis * table.rows,
                                 .inv_freq = table.inv_freq + pair,
                                 .rows = table.rows,
                                 .pairs = 1,
                                 .scale = table.scale,
                                 .divide = table.divide != 0,
                                 .cos = one_cos.data(),
                                 .sin = one_sin.data()},
                      0, table.rows);
    for (uint64_t row = 0; row < table.rows; ++row) {
      const size_t to = (row * table.pairs + pair) * size;
      std::memcpy(cos + to, reinterpret_cast<const std::byte*>(one_cos.data()) + row * size, size);
      std::memcpy(sin + to, reinterpret_cast<const std::byte*>(one_sin.data()) + row * size, size);
      if (table.negate_sin != 0) sin[to + size - 1] ^= std::byte{0x80};
    }
  }
}

uint64_t Bytes(const posenc_tensor& tensor) {
  uint64_t bytes = 0;
  for (uint64_t n = 0; n < tensor.count; ++n) bytes += tensor.pieces[n].bytes;
  return bytes;
}
std::vector<std::byte> Gather(const posenc_tensor& tensor) {
  std::vector<std::byte> all;
  for (uint64_t n = 0; n < tensor.count; ++n) {
    const auto* data = static_cast<const std::byte*>(tensor.pieces[n].data);
    all.insert(all.end(), data, data + tensor.pieces[n].bytes);
  }
  return all;
}
void Scatter(const std::vector<std::byte>& all, const posenc_tensor& tensor) {
  const std::byte* from = all.data();
  for (uint64_t n = 0; n < tensor.count; ++n) {
    std::memcpy(tensor.pieces[n].data, from, tensor.pieces[n].bytes);
    from += tensor.pieces[n].bytes;
  }
}

int32_t Describe(uint32_t device, posenc_device_info* info, posenc_error*) {
  *info = {};
  std::snprintf(info->family, sizeof(info->family), "fake");
  std::snprintf(info->name, sizeof(info->name), "fake device %u", device);
  info->memory_bytes = uint64_t{1} << 30;
  info->slab_bytes = Setting("slab_bytes", 1 << 20);
  info->calls_at_once = 2;
  return POSENC_OK;
}

int32_t Rotate(uint32_t, const posenc_rotate* work, posenc_error* error) {
  if (const int32_t status = Attempt(work->y.device != nullptr ? 0 : Bytes(work->y), error); status != POSENC_OK)
    return status;
  const posenc_table& table = work->table;
  const bool in_place = work->y.device != nullptr;
  std::vector<std::byte> x = Gather(work->x), y(x.size());
  std::vector<double> cos(table.rows * table.pairs), sin(cos.size());
  const DType dtype = TypeOf(table.dtype);
  const DType widened = dtype == DType::kFP64 ? DType::kFP64 : DType::kFP32;
  if (table.cos == nullptr) {
    std::vector<std::byte> narrow_cos(cos.size() * SizeOf(dtype)), narrow_sin(narrow_cos.size());
    Compute(table, narrow_cos.data(), narrow_sin.data());
    Convert(dtype, widened, narrow_cos.data(), cos.data(), cos.size());
    Convert(dtype, widened, narrow_sin.data(), sin.data(), sin.size());
  }
  const size_t row = work->head_dim * SizeOf(TypeOf(work->dtype));
  RotatePairs(PairRotation{.dtype = TypeOf(work->dtype),
                           .head_dim = work->head_dim,
                           .rotary_offset = work->rotary_offset,
                           .pairs = table.pairs,
                           .input_pairing = PairingOf(work->input_pairing),
                           .output_pairing = PairingOf(work->output_pairing),
                           .half_split_parts = work->half_split_parts,
                           .rounding = RoundingOf(work->rounding),
                           .table_dtype = widened,
                           .cos = table.cos != nullptr ? table.cos : cos.data(),
                           .sin = table.sin != nullptr ? table.sin : sin.data(),
                           .x = in_place ? static_cast<const std::byte*>(work->x.device) : x.data(),
                           .y = in_place ? static_cast<std::byte*>(work->y.device) : y.data(),
                           .tokens = work->tokens,
                           .heads = work->heads,
                           .token_stride = in_place                 ? work->token_stride
                                           : work->heads_first != 0 ? row
                                                                    : row * work->heads,
                           .head_stride = in_place                 ? work->head_stride
                                          : work->heads_first != 0 ? row * work->tokens
                                                                   : row},
              0, work->tokens);
  Scatter(y, work->y);
  return POSENC_OK;
}

std::variant<NoBias, LinearBias, GivenBias, GatheredBias> BiasOf(const posenc_bias& work) {
  if (work.values != nullptr) {
    return GatheredBias{work.values,        work.value_count,    work.first,       work.query_positions,
                        work.key_positions, work.cls_query != 0, work.cls_key != 0};
  }
  if (work.key_positions != nullptr) {
    return LinearBias{work.query_positions, work.key_positions, work.past_slope, work.future_slope,
                      TypeOf(work.bias_dtype)};
  }
  if (work.bias != nullptr) return GivenBias{work.bias, work.bias_stride};
  return NoBias();
}

int32_t Bias(uint32_t, const posenc_bias* work, posenc_error* error) {
  if (const int32_t status = Attempt(Bytes(work->out), error); status != POSENC_OK) return status;
  const std::vector<std::byte> scores = Gather(work->scores);
  std::vector<std::byte> out(work->queries * work->keys * SizeOf(TypeOf(work->dtype)));
  ComputeDistanceBias(DistanceBias{.dtype = TypeOf(work->dtype),
                                   .rounding = RoundingOf(work->rounding),
                                   .queries = work->queries,
                                   .keys = work->keys,
                                   .bias = BiasOf(*work),
                                   .mask_query_positions = work->mask_query_positions,
                                   .mask_key_positions = work->mask_key_positions,
                                   .causal = work->causal != 0,
                                   .prefix_end = work->prefix_end,
                                   .window_left = work->window_left,
                                   .window_right = work->window_right,
                                   .query_documents = work->query_documents,
                                   .key_documents = work->key_documents,
                                   .key_valid = work->key_valid,
                                   .fill = work->fill,
                                   .zero_fully_masked_rows = work->zero_fully_masked_rows != 0,
                                   .scores = scores.empty() ? nullptr : scores.data(),
                                   .out = out.data()},
                      0, work->queries);
  Scatter(out, work->out);
  return POSENC_OK;
}

int32_t Table(uint32_t, const posenc_table* work, void* cos, void* sin, posenc_error* error) {
  if (const int32_t status = Attempt(2 * work->rows * work->pairs * SizeOf(TypeOf(work->dtype)), error);
      status != POSENC_OK)
    return status;
  Compute(*work, static_cast<std::byte*>(cos), static_cast<std::byte*>(sin));
  return POSENC_OK;
}

// The device's memory is POSIX shared memory. A handle is its name, padded with zeros.
struct Opened {
  void* begin;
  size_t bytes;
  int times;
};
std::mutex opened_mutex;
std::map<std::string, Opened> opened;

int32_t OpenMemory(uint32_t, const posenc_memory_handle* handle, uint64_t bytes, void** memory, posenc_error* error) {
  const std::string name(reinterpret_cast<const char*>(handle->bytes),
                         strnlen(reinterpret_cast<const char*>(handle->bytes), sizeof(handle->bytes)));
  const std::lock_guard lock(opened_mutex);
  auto found = opened.find(name);
  if (found == opened.end()) {
    const int file = shm_open(name.c_str(), O_RDWR | O_CLOEXEC, 0);
    if (file < 0) return Say(error, POSENC_BAD_HANDLE, "the fake device has no such memory");
    struct stat status {};
    fstat(file, &status);
    void* begin = mmap(nullptr, status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (begin == MAP_FAILED) return Say(error, POSENC_BAD_HANDLE, "the fake device cannot map it");
    found = opened.emplace(name, Opened{begin, static_cast<size_t>(status.st_size), 0}).first;
  }
  if (bytes > found->second.bytes) return Say(error, POSENC_BAD_HANDLE, "it has fewer bytes than that");
  ++found->second.times;
  *memory = found->second.begin;
  return POSENC_OK;
}
int32_t CloseMemory(uint32_t, void* memory, posenc_error* error) {
  const std::lock_guard lock(opened_mutex);
  for (auto found = opened.begin(); found != opened.end(); ++found) {
    if (found->second.begin != memory) continue;
    if (--found->second.times == 0) {
      munmap(memory, found->second.bytes);
      opened.erase(found);
    }
    return POSENC_OK;
  }
  return Say(error, POSENC_BAD_HANDLE, "it is not open");
}

}  // namespace

extern "C" {

[[gnu::visibility("default")]] extern const uint32_t posenc_plugin_abi;
const uint32_t posenc_plugin_abi = POSENC_FAKE_PLUGIN_ABI;

[[gnu::visibility("default")]] const posenc_plugin* posenc_plugin_open(posenc_error* error) {
  static posenc_plugin plugin{};
  plugin.devices = static_cast<uint32_t>(Setting("devices", 1));
  if (plugin.devices == 0) {
    Say(error, POSENC_UNSUPPORTED, "there is no driver");
    return nullptr;
  }
  std::snprintf(plugin.version, sizeof(plugin.version), "fake");
  plugin.describe = Describe;
  plugin.rotate = Rotate;
  plugin.bias = Bias;
  plugin.table = Table;
  plugin.open_memory = OpenMemory;
  plugin.close_memory = CloseMemory;
  return &plugin;
}

}  // extern "C"
