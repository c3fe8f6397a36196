// A rotation in place is the rotation into another buffer, whatever the thread count and the slabs' borders.
#include <gtest/gtest.h>

#include <random>

#include "posenc/apply_rotary.h"
#include "tests/unit/call.h"

namespace posenc {
namespace {

TEST(InPlace, EqualsOutOfPlace) {
  constexpr uint32_t kSeed = 5;
  std::mt19937 random(kSeed);
  for (DType dtype : {DType::kFP32, DType::kFP16, DType::kBF16}) {
    for (Pairing output : {Pairing::kInterleaved, Pairing::kHalfSplit}) {
      const auto rotary = Rotary::Create({.frequencies = RopeParameters{.rope_type = "default"},
                                          .rotary_dim = 20,
                                          .input_pairing = Pairing::kInterleaved,
                                          .output_pairing = output},
                                         Frequencies::kExact, {});
      ASSERT_THAT(rotary, IsOk());
      const TensorShape shape{dtype, {3, 2, 1500, 26}};
      const auto application = RotaryApplication::Create(
          *rotary,
          {.positions = {PerSequenceOffsets{{0, 77, -5}}, {}, {}, {}}, .layout = Layout::kBHSD, .q = {shape, 3}}, {});
      ASSERT_THAT(application, IsOk());
      // Any bits, so that NaN and infinities pass through too; one byte off any alignment.
      std::vector<std::byte> x(*ByteSize("x", shape, {}) + 1), y(x.size());
      for (std::byte& b : x) b = static_cast<std::byte>(random());
      WorkPool many(4), one(1);
      ASSERT_THAT(application->Run({x.data() + 1, y.data() + 1}, {nullptr, nullptr}, many, NeverCancelled), IsOk());
      ASSERT_THAT(application->Run({x.data() + 1, x.data() + 1}, {nullptr, nullptr}, one, NeverCancelled), IsOk());
      EXPECT_TRUE(std::equal(x.begin() + 1, x.end(), y.begin() + 1)) << Name(dtype) << ", seed " << kSeed;
    }
  }
}

TEST(InPlace, StopsWhenCancelled) {
  const auto rotary = Rotary::Create(
      {.frequencies = RopeParameters{.rope_type = "default"}, .rotary_dim = 4, .input_pairing = Pairing::kInterleaved},
      Frequencies::kExact, {});
  const TensorShape shape{DType::kFP32, {1, 100000, 1, 4}};
  const auto application = RotaryApplication::Create(
      *rotary, {.positions = {OffsetPositions{0}, {}, {}, {}}, .layout = Layout::kBSHD, .q = {shape, 0}}, {});
  ASSERT_THAT(application, IsOk());
  std::vector<std::byte> x(*ByteSize("x", shape, {}));
  WorkPool pool(1);
  const auto cancelled = [] { return absl::CancelledError("by the caller"); };
  EXPECT_TRUE(absl::IsCancelled(application->Run({x.data(), x.data()}, {nullptr, nullptr}, pool, cancelled)));
}

}  // namespace
}  // namespace posenc
