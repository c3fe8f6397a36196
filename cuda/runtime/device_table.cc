#include "cuda/runtime/device_table.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "cuda/runtime/error.h"
#include "posenc/kernels/first_scale.h"

namespace posenc::cuda {
namespace {

// Initial capacity for unproven entries. About one entry in four million is unproven, but every entry whose angle is
// beyond 2^44.
constexpr uint64_t kCapacity = 1 << 14;

// Constants of the table's entries, like those of ConstantsOf in posenc/kernels/sincos_rows.cc.
TableRecipe RecipeOf(const posenc_table& table) {
  TableRecipe recipe = {};
  recipe.dtype = static_cast<posenc_dtype>(table.dtype);
  recipe.frequencies = static_cast<posenc_frequencies>(table.frequencies);
  recipe.first_scale = {1.0, 0.0};
  recipe.scale_in_range = true;
  recipe.zero_cos = 1.0;
  recipe.scale = table.scale;
  recipe.divide = table.divide != 0;
  recipe.negate_sin = table.negate_sin != 0;
  if (table.frequencies != POSENC_EXACT || table.scale == 1.0) return recipe;
  double zero_sin;
  table.finish(&table, 0.0, 0.0, &recipe.zero_cos, &zero_sin);
  const FirstScale first = FirstScaleOf(table.scale, recipe.divide);
  recipe.first_scale = first.scale;
  recipe.scale_in_range = first.in_range;
  return recipe;
}

}  // namespace

DeviceTable::DeviceTable(Slot& slot, const posenc_table& table)
    : slot_(slot), table_(table), wide_(table.dtype == POSENC_FP64 ? 8 : 4), arrays_(slot) {
  if (table.cos != nullptr) {
    cos_ = arrays_.UploadBytes(table.cos, wide_bytes());
    sin_ = arrays_.UploadBytes(table.sin, wide_bytes());
    return;
  }
  recipe_ = RecipeOf(table);
  computed_cos_ = Scratch(slot, wide_bytes());
  computed_sin_ = Scratch(slot, wide_bytes());
  unproven_ = Scratch(slot, kCapacity * sizeof(uint64_t));
  count_ = Scratch(slot, sizeof *slot.count);
  cos_ = computed_cos_.data();
  sin_ = computed_sin_.data();
  arguments_.rows = table.rows;
  arguments_.pairs = table.pairs;
  arguments_.dtype = recipe_.dtype;
  arguments_.frequencies = recipe_.frequencies;
  arguments_.positions = arrays_.Upload(table.positions, table.axes * table.rows);
  arguments_.inv_freq = arrays_.Upload(table.inv_freq, table.pairs);
  arguments_.axis = arrays_.Upload(table.axis, table.pairs);
  arguments_.scale_hi = recipe_.first_scale.hi;
  arguments_.scale_lo = recipe_.first_scale.lo;
  arguments_.scale_in_range = recipe_.scale_in_range;
  arguments_.zero_cos = recipe_.zero_cos;
  arguments_.scale = recipe_.scale;
  arguments_.divide = recipe_.divide;
  arguments_.negate_sin = recipe_.negate_sin;
  arguments_.cos = computed_cos_.data();
  arguments_.sin = computed_sin_.data();
  arguments_.unproven = static_cast<uint64_t*>(unproven_.data());
  arguments_.capacity = kCapacity;
  arguments_.unproven_count = static_cast<unsigned long long*>(count_.data());
  Launch();
}

DeviceTable::~DeviceTable() {
  if (!patches_.empty() && cudaStreamSynchronize(slot_.stream) != cudaSuccess) cudaGetLastError();
}

void DeviceTable::Launch() {
  Check(cudaMemsetAsync(count_.data(), 0, sizeof *slot_.count, slot_.stream), "clearing a counter");
  Check(LaunchTable(arguments_, slot_.stream), "computing a table");
  Check(cudaMemcpyAsync(slot_.count, count_.data(), sizeof *slot_.count, cudaMemcpyDeviceToHost, slot_.stream),
        "copying from the device");
  slot_.Record();
}

void DeviceTable::Complete(bool others_can) {
  if (table_.cos != nullptr) return;
  slot_.AwaitRecord();
  if (*slot_.count > kCapacity) {
    if (others_can) {
      throw Failure(POSENC_UNSUPPORTED,
                    std::to_string(*slot_.count) + " entries of a table are for the host to compute");
    }
    arguments_.capacity = *slot_.count;  // second run, with room for all
    unproven_ = Scratch(slot_, arguments_.capacity * sizeof *arguments_.unproven);
    arguments_.unproven = static_cast<uint64_t*>(unproven_.data());
    Launch();
    slot_.AwaitRecord();
  }
  if (*slot_.count == 0) return;
  std::vector<uint64_t> unproven(*slot_.count);
  Check(cudaMemcpyAsync(unproven.data(), unproven_.data(), unproven.size() * sizeof(uint64_t), cudaMemcpyDeviceToHost,
                        slot_.stream),
        "copying from the device");
  slot_.Await();
  // Entries are in arbitrary order. A position too large for the fast path makes a whole row unproven: one copy.
  std::sort(unproven.begin(), unproven.end());
  if (table_.dtype == POSENC_FP64) {
    PatchAll<double>(unproven);
  } else {
    PatchAll<float>(unproven);
  }
}

template <class Wide>
void DeviceTable::PatchAll(const std::vector<uint64_t>& unproven) {
  patches_.resize(2 * unproven.size() * sizeof(Wide));
  auto* cos = reinterpret_cast<Wide*>(patches_.data());
  const uint64_t* const end = unproven.data() + unproven.size();
  for (const uint64_t* first = unproven.data(); first != end;) {
    const uint64_t* last = first + 1;
    while (last != end && *last == last[-1] + 1) ++last;
    Patch(first, last, cos, cos + unproven.size());
    cos += last - first;
    first = last;
  }
}

template <class Wide>
void DeviceTable::Patch(const uint64_t* first, const uint64_t* last, Wide* cos, Wide* sin) {
  for (const uint64_t* entry = first; entry != last; ++entry) {
    const uint64_t row = *entry / table_.pairs, pair = *entry % table_.pairs;
    const uint64_t axis = table_.axis != nullptr ? table_.axis[pair] : 0;
    const double position = PositionIn(recipe_.frequencies, table_.positions[axis * table_.rows + row]);
    Entry value;
    table_.finish(&table_, position, table_.inv_freq[pair], &value.cos, &value.sin);
    value = Finished(recipe_, value);
    cos[entry - first] = static_cast<Wide>(value.cos);
    sin[entry - first] = static_cast<Wide>(value.sin);
  }
  const uint64_t bytes = (last - first) * sizeof(Wide);
  for (const auto& [to, from] : {std::pair{arguments_.cos, cos}, {arguments_.sin, sin}}) {
    Check(cudaMemcpyAsync(static_cast<Wide*>(to) + *first, from, bytes, cudaMemcpyHostToDevice, slot_.stream),
          "copying to the device");
  }
}

}  // namespace posenc::cuda
