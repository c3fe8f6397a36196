#include "posenc/service/devices.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "posenc/base/status.h"
#include "posenc/rotary/apply_rotary.h"
#include "posenc/rotary/generate_table.h"
#include "posenc/service/call_context.h"

namespace posenc {
namespace {

std::string_view FamilyOf(std::string_view name) { return name.substr(0, name.find(':')); }

// Fits a Speed to the median times of one item and of `many` items of item_bytes each. make(items) returns the function
// to time.
template <class Make>
Speed Fit(int64_t item_bytes, int64_t many, const Make& make) {
  constexpr int kTimes = 5;
  const auto seconds = [&](int64_t items) {
    auto run = make(items);
    std::array<double, kTimes> times;
    for (double& time : times) {
      const auto start = std::chrono::steady_clock::now();
      run();
      time = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
    std::sort(times.begin(), times.end());
    return times[kTimes / 2];
  };
  const double one = seconds(1), all = seconds(many);
  const double a_byte = std::max(0.0, (all - one) / static_cast<double>((many - 1) * item_bytes));
  return {std::max(0.0, one - a_byte * static_cast<double>(item_bytes)), a_byte};
}

DeviceLease Lease(Devices::Kept& kept) {
  kept.busy.fetch_add(1);
  return {kept.device.get(), [&kept](Device*) { kept.busy.fetch_sub(1); }};
}

}  // namespace

bool IsNamedBy(std::string_view asked, std::string_view name) {
  return asked == name || (asked.find(':') == asked.npos && FamilyOf(name) == asked);
}

void Devices::Add(std::unique_ptr<Device> device, std::optional<Speeds> speeds) {
  auto kept = std::make_unique<Kept>();
  kept->device = std::move(device);
  kept->speeds = speeds;
  kept_.push_back(std::move(kept));
}

absl::Status Devices::CheckName(std::string_view asked) const {
  const std::string_view family = FamilyOf(asked), number = asked.substr(std::min(asked.size(), family.size() + 1));
  const bool exists = family == "cuda" || std::ranges::any_of(kept_, [family](const auto& kept) {
                        return FamilyOf(kept->device->name()) == family;
                      });
  const bool is_number = !number.empty() && number.find_first_not_of("0123456789") == number.npos;
  if (asked == "cpu" || (exists && (family == asked || is_number))) return absl::OkStatus();
  return InvalidArgument("UNKNOWN_VALUE", "hints.device", asked, "must be \"cpu\", \"cuda\", \"cuda:0\", ...");
}

DeviceLease Devices::Choose(std::string_view asked, DeviceWork work, int64_t bytes, const Slabs& slabs) const {
  if (asked.empty() && work == DeviceWork::kBias) return DeviceLease();
  const auto seconds_of = [&](const Speeds& speeds, int64_t calls) {
    return (work == DeviceWork::kTable ? speeds.table : speeds.rotation).Seconds(bytes, calls);
  };
  Kept* best = nullptr;
  double least = seconds_of(cpu_, 1);
  for (const auto& kept : kept_) {
    if (!kept->device->usable()) continue;
    if (!asked.empty()) {
      if (IsNamedBy(asked, kept->device->name()) && (best == nullptr || kept->busy < best->busy)) best = kept.get();
      continue;
    }
    if (!kept->speeds) continue;
    // The device's calls in flight run before this one.
    const int64_t calls = slabs == nullptr ? 1 : slabs(*kept->device);
    const double seconds = seconds_of(*kept->speeds, calls) * static_cast<double>(kept->busy + 1);
    if (seconds < least) {
      least = seconds;
      best = kept.get();
    }
  }
  return best == nullptr ? DeviceLease() : Lease(*best);
}

Device* Devices::Find(std::string_view name) const {
  for (const auto& kept : kept_) {
    if (kept->device->name() == name) return kept->device.get();
  }
  return nullptr;
}

absl::StatusOr<DeviceLease> wire::ChooseDevice(const v1::CallHints& hints, DeviceWork work, int64_t bytes,
                                               const Devices::Slabs& slabs, const CallContext& context,
                                               v1::AnswerInfo* info) {
  static const Devices& none = *new Devices();
  const Devices& devices = context.devices != nullptr && slabs != nullptr ? *context.devices : none;
  DeviceLease device = devices.Choose(hints.device(), work, bytes, slabs);
  if (device == nullptr) return device;
  if (!context.may_block()) return WouldBlock();
  info->set_device(device->name());
  return device;
}

Speeds MeasureSpeeds(Device* device, WorkPool& pool) {
  constexpr int64_t kHeads = 32, kWidth = 128;
  const auto rotary = Rotary::Create({.frequencies = RopeParameters{.rope_type = "default"},
                                      .rotary_dim = kWidth,
                                      .input_pairing = Pairing::kHalfSplit},
                                     Frequencies::kExact, {});
  Speeds speeds;
  speeds.rotation = Fit(kHeads * kWidth * 2, 4096, [&](int64_t tokens) {
    const auto call = RotaryApplication::Create(
        *rotary,
        {.positions = {OffsetPositions{}}, .layout = Layout::kTHD, .q = {{DType::kBF16, {tokens, kHeads, kWidth}}}},
        {});
    const auto x = std::make_shared<std::vector<std::byte>>(tokens * kHeads * kWidth * 2);
    return [&pool, device, call = *call, x, y = *x]() mutable {
      const ContiguousBytes source(x->data(), x->size());
      (void)call.Rotate({&source, y.data()}, {}, pool, NeverCancelled, device);
    };
  });
  speeds.table = Fit(2 * kWidth / 2 * 4, 32768, [&](int64_t rows) {
    const auto call = TableGeneration::Create(*rotary, {.positions = {OffsetPositions{}}, .rows = rows}, {});
    return [&pool, device, call = *call, rows, cos = std::vector<std::byte>(rows * kWidth / 2 * 4),
            sin = std::vector<std::byte>(rows * kWidth / 2 * 4)]() mutable {
      (void)call.WriteRows(0, rows, cos.data(), sin.data(), pool, NeverCancelled, device);
    };
  });
  return speeds;
}

}  // namespace posenc
