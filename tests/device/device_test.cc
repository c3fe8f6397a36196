// A plugin's results equal the CPU's bytes, even if it declines slabs, runs out of memory or loses the device.
#include "posenc/device/plugin.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "posenc/base/memory_account.h"
#include "posenc/bias/generate_bias.h"
#include "posenc/rotary/apply_rotary.h"
#include "posenc/rotary/generate_table.h"
#include "posenc/service/devices.h"
#include "tests/service/call.h"

namespace posenc::device_test {
namespace {

using testing::HasSubstr;

std::unique_ptr<PluginDevice> Open(const char* settings, std::function<void(const PluginDevice&)> on_withdrawn = {}) {
  setenv("POSENC_FAKE_PLUGIN", settings, 1);
  const auto plugin = LoadPlugin(POSENC_FAKE_PLUGIN_PATH);
  EXPECT_TRUE(plugin.ok()) << plugin.status();
  auto device = PluginDevice::Create(plugin->plugin, 0, std::move(on_withdrawn));
  EXPECT_TRUE(device.ok()) << device.status();
  return *std::move(device);
}

// A device whose estimated time is always below the CPU's.
Devices Only(std::unique_ptr<PluginDevice> device) {
  Devices devices;
  devices.SetCpu({{1, 1}, {1, 1}});
  devices.Add(std::move(device), Speeds());
  return devices;
}

// A device that computes nothing.
struct Declining final : Device {
  explicit Declining(size_t slab_bytes, std::string its_name = "none:0", const bool* usable = nullptr)
      : name_(std::move(its_name)), slab_bytes_(slab_bytes), usable_(usable) {}
  const std::string& name() const override { return name_; }
  bool usable() const override { return usable_ == nullptr || *usable_; }
  size_t slab_bytes() const override { return slab_bytes_; }
  size_t calls_at_once() const override { return 1; }
  bool Rotate(const RotateSlab&) override { return false; }
  bool ComputeBias(const DistanceBias&) override { return false; }
  bool ComputeTable(const TableRecipe&, std::byte*, std::byte*) override { return false; }
  absl::StatusOr<DeviceMemory> Open(std::string_view, size_t) override { return absl::UnimplementedError(""); }
  absl::Status RotateInPlace(const PairRotation&, const TableRecipe*) override { return absl::UnimplementedError(""); }
  const std::string name_;
  const size_t slab_bytes_;
  const bool* const usable_;
};

template <class Request>
auto CallOn(const Devices& devices, const Request& request) {
  return Call(request, {Limits(), PlanSource::kCacheOrComputed, &devices});
}

v1::ApplyRotaryRequest Rotation(v1::Layout layout, DType dtype, bool several_axes) {
  v1::ApplyRotaryRequest request;
  auto* settings = request.mutable_rotary()->mutable_settings();
  settings->set_input_pairing(v1::PAIRING_HALF_SPLIT);
  if (several_axes) {
    for (int axis = 0; axis < 2; ++axis) settings->mutable_axial()->add_axes()->set_dim(8);
    settings->set_half_split_parts(2);
    std::vector<double> ids;
    for (int n = 0; n < 2 * 50 * 2; ++n) ids.push_back(n % 7 * 1.5);
    *request.mutable_positions()->mutable_ids() = MakeTensor(DType::kFP64, {2, 50, 2}, ids);
    request.mutable_positions()->set_axis_dimension(v1::AXIS_DIMENSION_LAST);
  } else {
    settings->mutable_rope_parameters()->set_rope_type("default");
    settings->set_rotary_dim(16);
    request.mutable_positions()->set_offset(100000);
  }
  request.set_layout(layout);
  request.set_direction(v1::DIRECTION_INVERSE);
  const std::vector<int64_t> shape =
      layout == v1::LAYOUT_BSHD ? std::vector<int64_t>{2, 50, 3, 20} : std::vector<int64_t>{2, 3, 50, 20};
  std::vector<double> x;
  for (int n = 0; n < 2 * 50 * 3 * 20; ++n) x.push_back(n * 7 % 23 / 4.0 - 2);
  *request.mutable_q()->mutable_tensor() = MakeTensor(dtype, shape, x);
  *request.mutable_k()->mutable_tensor() = MakeTensor(dtype, shape, x);
  request.mutable_k()->set_rotary_offset(4);
  return request;
}

// Each slab holds some tokens; some slabs do not fit into the device's memory.
TEST(Device, RotatesLikeTheCpu) {
  for (const char* settings : {"slab_bytes=3000", "slab_bytes=3000,oom_every=2", "slab_bytes=1"}) {
    const Devices devices = Only(Open(settings));
    for (v1::Layout layout : {v1::LAYOUT_BSHD, v1::LAYOUT_BHSD}) {
      for (DType dtype : {DType::kFP32, DType::kBF16}) {
        for (bool several_axes : {false, true}) {
          const v1::ApplyRotaryRequest request = Rotation(layout, dtype, several_axes);
          const auto expected = Call(request), response = CallOn(devices, request);
          ASSERT_THAT(expected, IsOk());
          ASSERT_THAT(response, IsOk());
          EXPECT_EQ(response->q().data(), expected->q().data());
          EXPECT_EQ(response->k().data(), expected->k().data());
          EXPECT_EQ(response->info().device(), "fake:0");
          EXPECT_EQ(expected->info().device(), "cpu");
        }
      }
    }
    const auto counters = static_cast<const PluginDevice&>(*devices.all()[0]->device).counters();
    // With slab_bytes=1 no head row fits into a slab, so every slab is declined.
    EXPECT_EQ(counters.computed > 0, std::string_view(settings) != "slab_bytes=1");
    EXPECT_EQ(counters.declined > 0, std::string_view(settings) != "slab_bytes=3000");
    EXPECT_EQ(devices.all()[0]->busy, 0);
  }
}

// Reshapes to [tokens, heads, D].
void Reshape(int64_t tokens, int64_t heads, v1::Tensor* tensor) {
  int64_t elements = 1;
  for (int64_t size : tensor->shape()) elements *= size;
  tensor->clear_shape();
  for (int64_t size : {tokens, heads, elements / tokens / heads}) tensor->add_shape(size);
}

// Sequences with different lengths and offsets, several per slab; different numbers of heads; without k.
TEST(Device, SeveralSequencesASlab) {
  const Devices devices = Only(Open("slab_bytes=100000"));
  const auto& device = static_cast<const PluginDevice&>(*devices.all()[0]->device);
  for (bool with_k : {true, false}) {
    v1::ApplyRotaryRequest request = Rotation(v1::LAYOUT_BSHD, DType::kFP32, false);
    request.set_layout(v1::LAYOUT_THD);
    request.mutable_positions()->clear_source();
    const std::vector<int64_t> ends = {0, 1, 1, 40, 41, 100};
    v1::Tensor& bounds = *request.mutable_positions()->mutable_cu_seqlens();
    bounds.set_dtype(v1::DATA_TYPE_INT64);
    bounds.add_shape(6);
    bounds.set_data(ends.data(), ends.size() * sizeof(int64_t));
    for (int64_t offset : {7, 0, 100, 3000, -5}) {
      request.mutable_positions()->mutable_offsets()->add_offset(offset);
    }
    Reshape(100, 3, request.mutable_q()->mutable_tensor());
    if (with_k) {
      Reshape(100, 1, request.mutable_k()->mutable_tensor());
    } else {
      request.clear_k();
    }
    const auto expected = Call(request);
    ASSERT_THAT(expected, IsOk());
    const int64_t before = device.counters().computed;
    const auto response = CallOn(devices, request);
    ASSERT_THAT(response, IsOk());
    EXPECT_EQ(response->q().data(), expected->q().data());
    EXPECT_EQ(response->k().data(), expected->k().data());
    EXPECT_EQ(device.counters().computed - before, with_k ? 2 : 1);
  }
}

// Work that has no device recipe, such as xPos, stays on the CPU.
TEST(Device, WhatTheCpuKeeps) {
  const Devices devices = Only(Open(""));
  v1::ApplyRotaryRequest request = Rotation(v1::LAYOUT_BSHD, DType::kFP32, false);
  request.mutable_rotary()->mutable_settings()->mutable_xpos()->set_centre(100);
  const auto expected = Call(request);
  request.mutable_hints()->set_device("fake");
  const auto response = CallOn(devices, request);
  ASSERT_THAT(response, IsOk());
  EXPECT_EQ(response->info().device(), "cpu");
  EXPECT_EQ(response->q().data(), expected->q().data());
}

TEST(Device, TablesAndBiases) {
  const Devices devices = Only(Open("slab_bytes=4096,oom_every=3"));
  v1::GenerateTableRequest table;
  *table.mutable_rotary() = Rotation(v1::LAYOUT_BSHD, DType::kFP32, false).rotary();
  table.mutable_positions()->set_offset(-70);
  table.set_count(500);
  for (v1::DataType dtype : {v1::DATA_TYPE_FP64, v1::DATA_TYPE_FP32, v1::DATA_TYPE_FP16}) {
    table.set_dtype(dtype);
    table.set_form(v1::TABLE_FORM_DUPLICATED);
    const auto expected = Call(table), response = CallOn(devices, table);
    ASSERT_THAT(response, IsOk());
    EXPECT_EQ(response->cos().data() + response->sin().data(), expected->cos().data() + expected->sin().data());
    EXPECT_EQ(response->info().device(), "fake:0");
  }

  // Biases gathered in several slabs: by position, and with a cls token.
  std::vector<double> values;
  for (int n = 0; n < 3 * (13 * 13 + 3); ++n) values.push_back(n % 127 - 60.5);
  std::vector<int64_t> places;
  for (int n = 0; n < 200; ++n) places.push_back(n * 37 % 211);
  for (const bool in_window : {false, true}) {
    v1::GenerateBiasRequest gathered;
    v1::BiasMethod& method = *gathered.mutable_method();
    const int64_t rows = in_window ? 13 * 13 + 3 : 32;
    if (in_window) {
      method.mutable_beit()->set_window_height(7);
      method.mutable_beit()->set_window_width(7);
      method.mutable_beit()->set_table(v1::BEIT_TABLE_PLAIN);
    } else {
      method.mutable_t5()->set_bidirectional(true);
      gathered.mutable_geometry()->set_query_length(100);
      gathered.mutable_geometry()->set_key_length(100);
      *gathered.mutable_geometry()->mutable_query_positions() = MakeTensor(DType::kINT64, {2, 100}, places);
    }
    *method.mutable_table() =
        MakeTensor(DType::kFP32, {3, rows}, std::vector<double>(values.begin(), values.begin() + 3 * rows));
    method.set_table_layout(v1::BIAS_TABLE_LAYOUT_HEADS_BY_BUCKETS);
    gathered.set_form(v1::BIAS_FORM_DENSE);
    gathered.set_dtype(v1::DATA_TYPE_FP32);
    const auto expected = Call(gathered);
    ASSERT_THAT(expected, IsOk());
    gathered.mutable_hints()->set_device("fake");
    const auto response = CallOn(devices, gathered);
    ASSERT_THAT(response, IsOk());
    EXPECT_EQ(response->info().device(), "fake:0");
    EXPECT_EQ(response->bias().data(), expected->bias().data());
  }

  v1::AddBiasRequest bias;
  v1::Alibi& alibi = *bias.mutable_method()->mutable_alibi();
  alibi.set_form(v1::ALIBI_FORM_SYMMETRIC);
  alibi.set_rule(v1::ALIBI_SLOPE_RULE_POWER_OF_TWO);
  alibi.set_num_heads(4);
  bias.mutable_geometry()->set_query_offset(10);
  bias.mutable_mask()->set_causal(true);
  bias.mutable_mask()->set_window_left(9);
  bias.mutable_mask()->set_fill_kind(v1::MASK_FILL_NEGATIVE_INFINITY);
  bias.mutable_mask()->set_fully_masked_row(v1::FULLY_MASKED_ROW_FILL);
  std::vector<double> scores;
  for (int n = 0; n < 4 * 30 * 40; ++n) scores.push_back(n % 11 - 5);
  *bias.mutable_scores() = MakeTensor(DType::kBF16, {1, 4, 30, 40}, scores);
  const auto expected = Call(bias);
  ASSERT_THAT(expected, IsOk());
  const auto by_cpu = CallOn(devices, bias);  // the server chooses the device
  EXPECT_EQ(by_cpu->info().device(), "cpu");
  bias.mutable_hints()->set_device("fake");
  const auto response = CallOn(devices, bias);
  ASSERT_THAT(response, IsOk());
  EXPECT_EQ(response->info().device(), "fake:0");
  EXPECT_EQ(response->scores().data(), expected->scores().data());
}

// The CPU computes such a slab in pieces, between which it may be interrupted.
TEST(Device, DeclinesABiasSlab) {
  constexpr int64_t kQueries = 2048, kKeys = 1024, kBytes = 2 * kQueries * kKeys;
  GenerateBias call{.dtype = DType::kBF16};
  call.method.settings =
      AlibiSettings{.num_heads = 1, .slopes = AlibiSlopeRule::kPowerOfTwo, .form = AlibiForm::kSymmetric};
  call.geometry = {.query_length = kQueries, .key_length = kKeys, .query = OffsetPositions{7}};
  const auto bias = BiasGeneration::Create(std::move(call), Limits(), BiasGeneration::Extent::kWhole);
  ASSERT_THAT(bias, IsOk());
  const auto write = [&](Device* device, int* points) {
    const Cancellation count = [points] { return ++*points, absl::OkStatus(); };
    std::vector<std::byte> out(kBytes);
    WorkPool pool(1);
    EXPECT_THAT(bias->Write(nullptr, out.data(), pool, count, device), IsOk());
    return out;
  };
  Declining device(kBytes);
  int by_cpu = 0, declined = 0;
  EXPECT_EQ(write(&device, &declined), write(nullptr, &by_cpu));
  EXPECT_GE(declined, by_cpu);
}

// After the loss the CPU computes the rest of this call and all later calls.
TEST(Device, IsWithdrawnWhenItIsLost) {
  int told = 0;
  auto device = Open("", [&told](const PluginDevice& lost) {
    ++told;
    EXPECT_EQ(lost.withdrawn(), "the fake device is lost");
  });
  const PluginDevice& at = *device;
  const Devices devices = Only(std::move(device));
  const v1::ApplyRotaryRequest request = Rotation(v1::LAYOUT_BSHD, DType::kFP16, false);
  const auto expected = Call(request);
  setenv("POSENC_FAKE_PLUGIN", "lost_after=0", 1);
  const auto during = CallOn(devices, request), after = CallOn(devices, request);
  for (const auto& response : {during, after}) {
    ASSERT_THAT(response, IsOk());
    EXPECT_EQ(response->q().data() + response->k().data(), expected->q().data() + expected->k().data());
  }
  EXPECT_EQ(during->info().device(), "fake:0");
  EXPECT_EQ(after->info().device(), "cpu");
  EXPECT_EQ(told, 1);
  EXPECT_EQ(at.withdrawn(), "the fake device is lost");
}

TEST(LoadPlugin, SaysWhatIsWrong) {
  const auto why = [](const std::string& path) { return std::string(LoadPlugin(path).status().message()); };
  EXPECT_THAT(why("libposenc_cuda.so"), HasSubstr("must be a path"));
  EXPECT_THAT(why("/no/such/plugin.so"), HasSubstr("No such file"));
  EXPECT_THAT(why(POSENC_OTHER_ABI_PLUGIN_PATH), HasSubstr("has version 99"));
  EXPECT_THAT(why(POSENC_NO_PLUGIN_PATH), HasSubstr("is not a posenc plugin"));
  setenv("POSENC_FAKE_PLUGIN", "devices=0", 1);
  EXPECT_THAT(why(POSENC_FAKE_PLUGIN_PATH), HasSubstr("there is no driver"));
}

Rotary RotaryOf(int64_t rotary_dim, Pairing output = Pairing::kInterleaved) {
  return *Rotary::Create({.frequencies = RopeParameters{.rope_type = "default"},
                          .rotary_dim = rotary_dim,
                          .input_pairing = Pairing::kInterleaved,
                          .output_pairing = output},
                         Frequencies::kExact, {});
}

// OK, except for one call: the clock was set back after that. The deadline of a call is such a cancellation.
struct OnceStopped {
  explicit OnceStopped(int at) : left(at) {}
  int left;
  Cancellation cancelled = [this] {
    return left-- == 0 ? absl::DeadlineExceededError("deadline exceeded") : absl::OkStatus();
  };
};

// The CPU stops before it computes what the device declined. The answer keeps its bytes then: scratch holds those of
// other calls.
TEST(Device, WhatIsNotComputedIsNotWritten) {
  constexpr int64_t kRows = 3000;
  Declining device(1 << 20);
  WorkPool pool(1);
  for (const TableForm form : {TableForm::kHalfWidth, TableForm::kDuplicated, TableForm::kRepeatInterleaved}) {
    const auto table =
        TableGeneration::Create(RotaryOf(2), {.positions = {OffsetPositions{}}, .rows = kRows, .form = form}, {});
    ASSERT_THAT(table, IsOk());
    // The elements are not aligned, so half-width rows need scratch, too.
    std::vector<std::byte> out(1 + 2 * kRows * table->row_elements() * sizeof(float), std::byte{0xee});
    const std::vector<std::byte> before = out;
    std::byte *cos = out.data() + 1, *sin = cos + kRows * table->row_elements() * sizeof(float);
    OnceStopped second(1);
    const auto status = table->WriteRows(0, kRows, cos, sin, pool, second.cancelled, &device);
    EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
    EXPECT_EQ(out, before);
  }
}

TEST(Device, ARotationThatStopsIsNotOk) {
  constexpr int64_t kTokens = 5000;
  const auto call = RotaryApplication::Create(
      RotaryOf(4), {.positions = {OffsetPositions{}}, .layout = Layout::kTHD, .q = {{DType::kFP32, {kTokens, 1, 4}}}},
      {});
  ASSERT_THAT(call, IsOk());
  Declining device(1 << 20);
  WorkPool pool(1);
  std::vector<std::byte> x(kTokens * 16);
  const ContiguousBytes source(x.data(), x.size());
  for (const int at : {0, 1, 2, 3}) {
    OnceStopped stopped(at);
    const auto status = call->Rotate({&source, x.data()}, {}, pool, stopped.cancelled, &device);
    EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << at;
  }
}

// Returns the bytes that `work` charges to its call.
template <class Work>
int64_t ChargedBy(const Work& work) {
  MemoryAccount account([](int64_t) { return true; });
  const MemoryScope scope(&account);
  work();
  return account.charged();
}

// The loop charges what a slab for a device takes besides its bytes.
TEST(Device, PositionsAndScratchAreCharged) {
  constexpr int64_t kRows = 100000;
  Declining device(32 << 20);
  WorkPool pool(1);
  std::vector<std::byte> x(kRows * 4), y(kRows * 4);
  const auto table = TableGeneration::Create(
      RotaryOf(2),
      {.positions = {OffsetPositions{}}, .rows = kRows, .dtype = DType::kFP16, .form = TableForm::kDuplicated}, {});
  ASSERT_THAT(table, IsOk());
  EXPECT_GE(ChargedBy([&] {
              EXPECT_THAT(table->WriteRows(0, kRows, x.data(), y.data(), pool, NeverCancelled, &device), IsOk());
            }),
            kRows * (8 + 2 * 2));
  const auto rotation = RotaryApplication::Create(
      RotaryOf(2), {.positions = {OffsetPositions{}}, .layout = Layout::kTHD, .q = {{DType::kFP16, {kRows, 1, 2}}}},
      {});
  ASSERT_THAT(rotation, IsOk());
  const ContiguousBytes source(x.data(), x.size());
  EXPECT_GE(ChargedBy([&] {
              EXPECT_THAT(rotation->Rotate({&source, y.data()}, {}, pool, NeverCancelled, &device), IsOk());
            }),
            kRows * 8);
}

// A slab of so many pieces is the CPU's.
TEST(Device, ManyRuns) {
  constexpr int64_t kHeads = 20000;
  const Devices devices = Only(Open("slab_bytes=1000000"));
  v1::ApplyRotaryRequest request = Rotation(v1::LAYOUT_BHSD, DType::kFP16, false);
  request.clear_k();
  request.mutable_rotary()->mutable_settings()->set_rotary_dim(2);
  *request.mutable_q()->mutable_tensor() =
      MakeTensor(DType::kFP16, {1, kHeads, 3, 2}, std::vector<double>(kHeads * 3 * 2, 1.5));
  const auto expected = Call(request), response = CallOn(devices, request);
  ASSERT_THAT(response, IsOk());
  EXPECT_EQ(response->q().data(), expected->q().data());
  const auto counters = static_cast<const PluginDevice&>(*devices.all()[0]->device).counters();
  EXPECT_EQ(counters.computed, 0);
  EXPECT_GT(counters.declined, 0);
}

// Rotations in a device's memory that need no device.
TEST(Device, InItsMemory) {
  Declining device(1);
  std::byte memory[16];
  const RotaryApplication::DeviceBuffers in_place{memory, memory}, elsewhere{memory, memory + 8};
  const auto rotate = [&](const Rotary& rotary, TensorShape q, RotaryApplication::DeviceBuffers buffers) {
    const auto call = RotaryApplication::Create(rotary, {.positions = {OffsetPositions{}}, .q = {std::move(q)}}, {});
    EXPECT_THAT(call, IsOk());
    int asked = 0;
    const absl::Status status = call->RotateInPlace(buffers, {}, device, [&asked] {
      ++asked;
      return absl::OkStatus();
    });
    EXPECT_LE(asked, 1);
    return status;
  };
  EXPECT_THAT(rotate(RotaryOf(8), {DType::kFP32, {1, 8 << 20, 0, 8}}, in_place), IsOk());
  // The device would have to hold more than 48 KiB of each head row.
  for (const auto& [dtype, most] : {std::pair{DType::kFP32, 12288}, {DType::kBF16, 24576}}) {
    const Rotary fits = RotaryOf(most, Pairing::kHalfSplit), exceeds = RotaryOf(most + 2, Pairing::kHalfSplit);
    const TensorShape q{dtype, {1, 1, 1, most + 2}};
    EXPECT_TRUE(absl::IsUnimplemented(rotate(fits, q, in_place)));
    EXPECT_TRUE(absl::IsUnimplemented(rotate(exceeds, q, elsewhere)));
    EXPECT_TRUE(absl::IsUnimplemented(rotate(RotaryOf(most + 2), q, in_place)));
    EXPECT_THAT(rotate(exceeds, q, in_place), IsInvalid("UNSUPPORTED", "q.tensor"));
  }
}

// A plugin whose tables are all the host's.
int32_t FinishAll(uint32_t, const posenc_table* table, void* cos, void* sin, posenc_error*) {
  for (uint64_t n = 0; n < table->rows; ++n) {
    table->finish(table, table->positions[n], table->inv_freq[0], static_cast<double*>(cos) + n,
                  static_cast<double*>(sin) + n);
  }
  return POSENC_OK;
}

TEST(Device, TheHostsPartEndsWithItsFirstStop) {
  posenc_plugin plugin{};
  plugin.devices = 1;
  plugin.describe = [](uint32_t, posenc_device_info* info, posenc_error*) -> int32_t {
    *info = {};
    info->slab_bytes = info->calls_at_once = 1;
    return POSENC_OK;
  };
  plugin.table = FinishAll;
  const auto device = PluginDevice::Create(&plugin, 0, {});
  ASSERT_THAT(device, IsOk());
  constexpr size_t kRows = 1000;
  const TableRecipe recipe{
      .dtype = DType::kFP64, .rows = kRows, .positions = std::vector<double>(kRows, 3), .inv_freq = {1}};
  std::vector<double> cos(kRows), sin(kRows);
  int asked = 0;
  const Cancellation cancelled = [&asked] {
    ++asked;
    return absl::CancelledError("by the caller");
  };
  const InterruptionScope scope(&cancelled);
  EXPECT_THROW((*device)->ComputeTable(recipe, reinterpret_cast<std::byte*>(cos.data()),
                                       reinterpret_cast<std::byte*>(sin.data())),
               ComputationStopped);
  EXPECT_EQ(asked, 1);
}

// Two devices that rotate ten times and a hundred times as fast as the CPU, after a fixed cost per call.
class Choosing : public testing::Test {
 protected:
  Choosing() {
    devices_.SetCpu({{0, 1e-9}, {0, 1e-9}});
    for (int n : {0, 1}) {
      devices_.Add(std::make_unique<Declining>(1, "cuda:" + std::to_string(n), &usable_[n]),
                   Speeds{{1e-3, n == 0 ? 1e-10 : 1e-11}, {1e-3, 1e-10}});
    }
  }
  std::string Chosen(std::string_view asked, int64_t bytes, DeviceWork work = DeviceWork::kRotation) {
    const auto device = devices_.Choose(asked, work, bytes);
    return device == nullptr ? "cpu" : device->name();
  }

  Devices devices_;
  bool usable_[2] = {true, true};
};

TEST_F(Choosing, WhoeverTakesTheLeastTime) {
  EXPECT_EQ(Chosen("", 100'000), "cpu");
  EXPECT_EQ(Chosen("", 100'000'000), "cuda:1");
  EXPECT_EQ(Chosen("", 100'000'000, DeviceWork::kTable), "cuda:0");
  const auto device = devices_.Choose("", DeviceWork::kRotation, 100'000'000, [](const Device&) { return 1000; });
  EXPECT_EQ(device, nullptr) << "a thousand calls take longer";
  EXPECT_EQ(Chosen("", 100'000'000, DeviceWork::kBias), "cpu");
  usable_[1] = false;
  EXPECT_EQ(Chosen("", 100'000'000), "cuda:0");
  usable_[0] = false;
  EXPECT_EQ(Chosen("", 100'000'000), "cpu");
}

TEST_F(Choosing, WhatIsAskedForIfItIsThere) {
  EXPECT_EQ(Chosen("cpu", 1 << 30), "cpu");
  EXPECT_EQ(Chosen("cuda:1", 1), "cuda:1");
  EXPECT_EQ(Chosen("cuda:7", 1), "cpu");
  usable_[1] = false;
  EXPECT_EQ(Chosen("cuda:1", 1), "cpu");
  for (const char* wrong : {"CUDA", "cuda:", "cuda:x", ":1", "cu da", "rocm", "banana", "cpu:0", "cuda1"}) {
    EXPECT_THAT(devices_.CheckName(wrong), IsInvalid("UNKNOWN_VALUE", "hints.device"));
  }
}

TEST_F(Choosing, WhoseSpeedIsUnknownIfItIsAskedFor) {
  devices_.Add(std::make_unique<Declining>(1, "fake:0"), std::nullopt);
  EXPECT_EQ(Chosen("", 1 << 30), "cuda:1");
  EXPECT_EQ(Chosen("fake", 1), "fake:0");
}

TEST_F(Choosing, TheLeastBusy) {
  const auto first = devices_.Choose("cuda", DeviceWork::kRotation, 1);
  const auto second = devices_.Choose("cuda", DeviceWork::kRotation, 1);
  EXPECT_EQ(first->name(), "cuda:0");
  EXPECT_EQ(second->name(), "cuda:1");
  // A device with many calls in flight takes longer than the CPU.
  std::vector<DeviceLease> leases;
  for (int n = 0; n < 200; ++n) leases.push_back(devices_.Choose("cuda", DeviceWork::kRotation, 1));
  EXPECT_EQ(Chosen("", 100'000'000), "cpu");
  leases.clear();
  EXPECT_EQ(Chosen("", 100'000'000), "cuda:1");
}

}  // namespace
}  // namespace posenc::device_test
