#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <exception>
#include <limits>
#include <mutex>
#include <optional>

#include "absl/status/status.h"
#include "posenc/base/status.h"
#include "posenc/device/plugin.h"
#include "posenc/kernels/sincos_slow.h"

namespace posenc {
namespace {

uint32_t Code(DType dtype) {
  switch (dtype) {
    case DType::kFP32: return POSENC_FP32;
    case DType::kFP16: return POSENC_FP16;
    case DType::kBF16: return POSENC_BF16;
    default: return POSENC_FP64;
  }
}
uint32_t Code(Pairing pairing) { return pairing == Pairing::kInterleaved ? POSENC_INTERLEAVED : POSENC_HALF_SPLIT; }
uint32_t Code(Rounding rounding) {
  return rounding == Rounding::kOnce ? POSENC_ROUND_ONCE : POSENC_ROUND_EACH_OPERATION;
}
uint32_t Code(Frequencies frequencies) {
  switch (frequencies) {
    case Frequencies::kExact: return POSENC_EXACT;
    case Frequencies::kFloat64: return POSENC_FLOAT64;
    case Frequencies::kFloat32: return POSENC_FLOAT32;
  }
  __builtin_unreachable();
}

// Most pieces of a slab's x or y: bounds the memory that their list takes. A slab that has more is for the CPU, which
// needs no list.
constexpr size_t kMostPieces = 1 << 14;

// Context of Finish(): its input, and the exception that stopped it.
struct SlowPath {
  SinCosRows rows;
  std::atomic<bool> has_stopped{false};
  std::mutex mutex;
  std::exception_ptr stopped;  // guarded by mutex
};

// Computes with MPFR an entry that the device's fast path cannot prove. An exception must not unwind through the
// plugin's frames, which may be in another language: it is stored for Rethrow(), and the entry is NaN. So are all
// further entries, at once, because nobody wants the table any more.
void Finish(const posenc_table* table, double position, double inv_freq, double* cos, double* sin) {
  auto& slow = *static_cast<SlowPath*>(const_cast<void*>(table->context));
  *cos = *sin = std::numeric_limits<double>::quiet_NaN();
  if (slow.has_stopped) return;
  try {
    const CosSin value = SinCosSlow(slow.rows, position, inv_freq);
    *cos = value.cos;
    *sin = value.sin;
  } catch (...) {
    const std::lock_guard lock(slow.mutex);
    slow.stopped = std::current_exception();
    slow.has_stopped = true;
  }
}

// A posenc_table with the context that it points to. The recipe or work must outlive it.
class TableOf {
 public:
  explicit TableOf(const TableRecipe& recipe)
      : slow_{.rows = {.frequencies = recipe.frequencies,
                       .dtype = recipe.dtype,
                       .positions = nullptr,
                       .inv_freq = nullptr,
                       .rows = 0,
                       .pairs = 0,
                       .scale = recipe.scale,
                       .divide = recipe.divide,
                       .cos = nullptr,
                       .sin = nullptr}} {
    table_.rows = recipe.rows;
    table_.pairs = recipe.inv_freq.size();
    table_.dtype = Code(recipe.dtype);
    table_.frequencies = Code(recipe.frequencies);
    table_.positions = recipe.positions.data();
    table_.axes = recipe.rows == 0 ? 1 : recipe.positions.size() / recipe.rows;
    table_.inv_freq = recipe.inv_freq.data();
    table_.axis = recipe.axis.empty() ? nullptr : recipe.axis.data();
    table_.scale = recipe.scale;
    table_.divide = recipe.divide ? 1 : 0;
    table_.negate_sin = recipe.negate_sin ? 1 : 0;
    table_.finish = Finish;
    table_.context = &slow_;
  }
  explicit TableOf(const PairRotation& work) : slow_{} {
    table_.rows = work.tokens;
    table_.pairs = work.pairs;
    table_.dtype = Code(work.table_dtype);
    table_.cos = work.cos;
    table_.sin = work.sin;
  }
  TableOf(const TableOf&) = delete;
  const posenc_table& get() const { return table_; }

  // Rethrows the exception that stopped the slow path, if any. Call it after the plugin has returned.
  void Rethrow() {
    if (slow_.stopped) std::rethrow_exception(slow_.stopped);
  }

 private:
  SlowPath slow_;
  posenc_table table_{};
};

// Returns the rotation's parameters, without x, y and their strides.
posenc_rotate RotationOf(const PairRotation& work, const posenc_table& table) {
  posenc_rotate rotate{};
  rotate.dtype = Code(work.dtype);
  rotate.rounding = Code(work.rounding);
  rotate.input_pairing = Code(work.input_pairing);
  rotate.output_pairing = Code(work.output_pairing);
  rotate.half_split_parts = work.half_split_parts;
  rotate.head_dim = work.head_dim;
  rotate.rotary_offset = work.rotary_offset;
  rotate.tokens = work.tokens;
  rotate.heads = work.heads;
  rotate.table = table;
  return rotate;
}

// Returns the memory pieces of a slab's x, run after run; nullopt if they are more than kMostPieces.
std::optional<std::vector<posenc_piece>> PiecesOf(const RotateSlab& slab) {
  if (slab.runs > kMostPieces) return std::nullopt;
  std::vector<posenc_piece> pieces;
  for (size_t run = 0; run < slab.runs; ++run) {
    const size_t start = slab.start + run * slab.run_stride;
    for (size_t done = 0; done < slab.run_bytes;) {
      const absl::Span<const std::byte> piece = slab.x->From(start + done);
      const size_t bytes = std::min(piece.size(), slab.run_bytes - done);
      if (pieces.size() == kMostPieces) return std::nullopt;
      pieces.push_back({const_cast<std::byte*>(piece.data()), bytes});  // the plugin only reads it
      done += bytes;
    }
  }
  return pieces;
}

}  // namespace

struct PluginDevice::State {
  std::atomic<int64_t> computed{0}, declined{0};
  std::atomic<bool> is_withdrawn{false};
  std::mutex mutex;
  std::string why;
  std::function<void(const PluginDevice& device)> on_withdrawn;
};

PluginDevice::PluginDevice(const posenc_plugin* plugin, uint32_t index, const posenc_device_info& info)
    : plugin_(plugin),
      index_(index),
      info_(info),
      name_(fmt::format("{}:{}", info.family, index)),
      state_(std::make_unique<State>()) {}
PluginDevice::~PluginDevice() = default;

absl::StatusOr<std::unique_ptr<PluginDevice>> PluginDevice::Create(
    const posenc_plugin* plugin, uint32_t index, std::function<void(const PluginDevice& device)> on_withdrawn) {
  posenc_device_info info{};
  posenc_error error{};
  if (plugin->describe(index, &info, &error) != POSENC_OK) return absl::FailedPreconditionError(error.message);
  if (info.slab_bytes == 0 || info.calls_at_once == 0) {
    return absl::FailedPreconditionError("the plugin's device must have slab_bytes and calls_at_once above 0");
  }
  std::unique_ptr<PluginDevice> device(new PluginDevice(plugin, index, info));
  device->state_->on_withdrawn = std::move(on_withdrawn);
  return device;
}

bool PluginDevice::usable() const { return !state_->is_withdrawn; }

void PluginDevice::Note(int32_t status, const posenc_error& error) {
  (status == POSENC_OK ? state_->computed : state_->declined).fetch_add(1, std::memory_order_relaxed);
  if (status != POSENC_DEVICE_LOST) return;
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->is_withdrawn) return;
    state_->why = error.message[0] != '\0' ? error.message : "the device was lost";
    state_->is_withdrawn = true;
  }
  if (state_->on_withdrawn) state_->on_withdrawn(*this);
}

template <class Call>
bool PluginDevice::Try(const Call& call) {
  if (!usable()) return false;
  posenc_error error{};
  const int32_t status = call(&error);
  Note(status, error);
  return status == POSENC_OK;
}

bool PluginDevice::Rotate(const RotateSlab& slab) {
  TableOf table(slab.recipe);
  const auto from = PiecesOf(slab);
  if (!from) {
    Note(POSENC_UNSUPPORTED, {});
    return false;
  }
  std::vector<posenc_piece> to;
  to.reserve(slab.runs);
  for (size_t run = 0; run < slab.runs; ++run) {
    to.push_back({slab.y + slab.start + run * slab.run_stride, slab.run_bytes});
  }
  posenc_rotate rotate = RotationOf(slab.work, table.get());
  rotate.heads_first = slab.runs > 1 ? 1 : 0;
  rotate.x = {from->data(), from->size(), nullptr};
  rotate.y = {to.data(), to.size(), nullptr};
  const bool done = Try([&](posenc_error* error) { return plugin_->rotate(index_, &rotate, error); });
  table.Rethrow();
  return done;
}

bool PluginDevice::ComputeBias(const DistanceBias& work) {
  const size_t bytes = work.queries * work.keys * SizeOf(work.dtype);
  const posenc_piece scores{const_cast<std::byte*>(work.scores), bytes}, out{work.out, bytes};
  posenc_bias bias{};
  bias.dtype = Code(work.dtype);
  bias.rounding = Code(work.rounding);
  bias.queries = work.queries;
  bias.keys = work.keys;
  bias.bias_dtype = Code(DType::kFP32);
  if (const auto* linear = std::get_if<LinearBias>(&work.bias)) {
    bias.query_positions = linear->query_positions;
    bias.key_positions = linear->key_positions;
    bias.past_slope = linear->past_slope;
    bias.future_slope = linear->future_slope;
    bias.bias_dtype = Code(linear->bias_dtype);
  } else if (const auto* given = std::get_if<GivenBias>(&work.bias)) {
    bias.bias = given->values;
    bias.bias_stride = given->stride;
  } else if (const auto* gathered = std::get_if<GatheredBias>(&work.bias)) {
    bias.values = gathered->values;
    bias.value_count = gathered->value_count;
    bias.first = gathered->first;
    bias.cls_query = gathered->cls_query ? 1 : 0;
    bias.cls_key = gathered->cls_key ? 1 : 0;
    bias.query_positions = gathered->query_positions;
    bias.key_positions = gathered->key_positions;
  }
  bias.causal = work.causal ? 1 : 0;
  bias.mask_query_positions = work.mask_query_positions;
  bias.mask_key_positions = work.mask_key_positions;
  bias.prefix_end = work.prefix_end;
  bias.window_left = work.window_left;
  bias.window_right = work.window_right;
  bias.query_documents = work.query_documents;
  bias.key_documents = work.key_documents;
  bias.key_valid = work.key_valid;
  bias.fill = work.fill;
  bias.zero_fully_masked_rows = work.zero_fully_masked_rows ? 1 : 0;
  if (work.scores != nullptr) bias.scores = {&scores, 1, nullptr};
  bias.out = {&out, 1, nullptr};
  return Try([&](posenc_error* error) { return plugin_->bias(index_, &bias, error); });
}

bool PluginDevice::ComputeTable(const TableRecipe& recipe, std::byte* cos, std::byte* sin) {
  TableOf table(recipe);
  const bool done = Try([&](posenc_error* error) { return plugin_->table(index_, &table.get(), cos, sin, error); });
  table.Rethrow();
  return done;
}

absl::Status PluginDevice::StatusOf(int32_t status, const posenc_error& error, std::string_view field) const {
  const auto say = [this](absl::StatusCode code, const char* reason, std::string_view why) {
    return Restore(code, fmt::format("{}: {}", name_, why), {reason, "", name_, std::string(why)});
  };
  switch (status) {
    case POSENC_OK: return absl::OkStatus();
    case POSENC_OUT_OF_MEMORY: return say(absl::StatusCode::kResourceExhausted, "OUT_OF_MEMORY", error.message);
    case POSENC_BAD_HANDLE: return InvalidArgument("BAD_HANDLE", "handle", "", error.message);
    case POSENC_DEVICE_LOST: return say(absl::StatusCode::kFailedPrecondition, "DEVICE_LOST", error.message);
    default:
      return InvalidArgument("UNSUPPORTED", field, field == "device" ? name_ : "",
                             fmt::format("must suit {}: {}", name_, error.message));
  }
}

absl::StatusOr<DeviceMemory> PluginDevice::Open(std::string_view handle, size_t bytes) {
  posenc_memory_handle its;
  if (handle.size() != sizeof(its.bytes)) {
    return InvalidArgument("MISMATCH", "handle", fmt::format("{} bytes", handle.size()),
                           fmt::format("must be {} bytes", sizeof(its.bytes)));
  }
  posenc_error error{};
  if (!usable()) return StatusOf(POSENC_DEVICE_LOST, Withdrawn(&error), "device");
  std::memcpy(its.bytes, handle.data(), sizeof(its.bytes));
  void* begin = nullptr;
  const int32_t status = plugin_->open_memory(index_, &its, bytes, &begin, &error);
  if (status == POSENC_DEVICE_LOST) Note(status, error);
  POSENC_RETURN_IF_ERROR(StatusOf(status, error, "device"));
  const auto close = [this](void* memory) {
    posenc_error ignored{};
    plugin_->close_memory(index_, memory, &ignored);
  };
  return DeviceMemory{std::shared_ptr<void>(begin, close), bytes};
}

absl::Status PluginDevice::RotateInPlace(const PairRotation& work, const TableRecipe* recipe) {
  posenc_error error{};
  if (!usable()) return StatusOf(POSENC_DEVICE_LOST, Withdrawn(&error), "tensor");
  std::optional<TableOf> table;
  if (recipe != nullptr) {
    table.emplace(*recipe);
  } else {
    table.emplace(work);
  }
  posenc_rotate rotate = RotationOf(work, table->get());
  rotate.x = {nullptr, 0, const_cast<std::byte*>(work.x)};
  rotate.y = {nullptr, 0, work.y};
  rotate.token_stride = work.token_stride;
  rotate.head_stride = work.head_stride;
  const int32_t status = plugin_->rotate(index_, &rotate, &error);
  Note(status, error);
  table->Rethrow();
  return StatusOf(status, error, "tensor");
}

const posenc_error& PluginDevice::Withdrawn(posenc_error* error) const {
  std::snprintf(error->message, sizeof(error->message), "the device is withdrawn: %s", withdrawn().c_str());
  return *error;
}

PluginDevice::Counters PluginDevice::counters() const { return {state_->computed, state_->declined}; }

std::string PluginDevice::withdrawn() const {
  const std::lock_guard lock(state_->mutex);
  return state_->why;
}

}  // namespace posenc
