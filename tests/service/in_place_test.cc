// A rotation in place equals one into another buffer and one from pieces, for any thread count and slab borders.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <random>

#include "posenc/rotary/apply_rotary.h"
#include "tests/service/call.h"

namespace posenc::in_place_test {
namespace {

// The bytes in pieces of 1 to `most` bytes.
class Pieces final : public ByteSource {
 public:
  Pieces(absl::Span<const std::byte> bytes, size_t most, std::mt19937& random) : bytes_(bytes) {
    for (size_t end = 0; end < bytes.size(); ends_.push_back(end)) {
      end = std::min<size_t>(end + 1 + random() % most, bytes.size());
    }
  }
  absl::Span<const std::byte> From(size_t offset) const override {
    return bytes_.subspan(offset, *std::upper_bound(ends_.begin(), ends_.end(), offset) - offset);
  }

 private:
  absl::Span<const std::byte> bytes_;
  std::vector<size_t> ends_;
};

class RotaryBytes : public testing::TestWithParam<std::tuple<DType, Pairing, Layout>> {};

TEST_P(RotaryBytes, AreTheSameInPlaceAndFromPieces) {
  constexpr uint32_t kSeed = 5;
  std::mt19937 random(kSeed);
  const auto [dtype, output, layout] = GetParam();
  const auto rotary = Rotary::Create({.frequencies = RopeParameters{.rope_type = "default"},
                                      .rotary_dim = 20,
                                      .input_pairing = Pairing::kInterleaved,
                                      .output_pairing = output},
                                     Frequencies::kExact, {});
  ASSERT_THAT(rotary, IsOk());
  const bool heads_first = layout == Layout::kBHSD;
  const TensorShape shape{dtype, {3, heads_first ? 3 : 1500, heads_first ? 1500 : 3, 26}};
  const auto application = RotaryApplication::Create(
      *rotary, {.positions = {PerSequenceOffsets{{0, 77, -5}}, {}, {}, {}}, .layout = layout, .q = {shape, 3}}, {});
  ASSERT_THAT(application, IsOk());
  // Random bits, so that NaN and infinities pass through too; one byte off any alignment.
  const size_t size = *ByteSize("x", shape, {});
  std::vector<std::byte> x(size + 1), y(size + 1), z(size + 1);
  for (std::byte& b : x) b = static_cast<std::byte>(random());
  const ContiguousBytes bytes(x.data() + 1, size);
  WorkPool many(4), one(1);
  ASSERT_THAT(application->Rotate({&bytes, y.data() + 1}, {}, many, NeverCancelled), IsOk());
  // Pieces shorter than an element, shorter than a head row, of some rows, and of some tokens.
  for (const size_t most : {3, 60, 300, 3000}) {
    const Pieces pieces({x.data() + 1, size}, most, random);
    ASSERT_THAT(application->Rotate({&pieces, z.data() + 1}, {}, many, NeverCancelled), IsOk());
    EXPECT_TRUE(std::equal(y.begin() + 1, y.end(), z.begin() + 1)) << "pieces of at most " << most;
  }
  ASSERT_THAT(application->Rotate({&bytes, x.data() + 1}, {}, one, NeverCancelled), IsOk());
  EXPECT_TRUE(std::equal(y.begin() + 1, y.end(), x.begin() + 1)) << "in place";
}

std::string NameOf(const std::tuple<DType, Pairing, Layout>& chosen) {
  const auto [dtype, output, layout] = chosen;
  return fmt::format("{}{}{}", Name(dtype), output == Pairing::kInterleaved ? "Interleaved" : "HalfSplit",
                     layout == Layout::kBSHD ? "BSHD" : "BHSD");
}

INSTANTIATE_TEST_SUITE_P(All, RotaryBytes,
                         testing::Combine(testing::Values(DType::kFP32, DType::kFP16, DType::kBF16),
                                          testing::Values(Pairing::kInterleaved, Pairing::kHalfSplit),
                                          testing::Values(Layout::kBSHD, Layout::kBHSD)),
                         [](const auto& chosen) { return NameOf(chosen.param); });

// A token's heads take several slabs, with a table of their own or not. Rotates like a few heads at a time.
TEST(InPlace, ManyHeads) {
  constexpr int64_t kHeads = 600000, kVeryMany = 4500000, kFew = 1000, kWidth = 2;
  constexpr uint32_t kSeed = 7;
  std::mt19937 random(kSeed);
  WorkPool many(4), one(1);
  const auto rotary = Rotary::Create({.frequencies = RopeParameters{.rope_type = "default"},
                                      .rotary_dim = kWidth,
                                      .input_pairing = Pairing::kInterleaved},
                                     Frequencies::kExact, {});
  const auto application_of = [&](Layout layout, int64_t length, int64_t heads) {
    const auto shape = [=](int64_t of) -> TensorShape {
      const bool heads_first = layout == Layout::kBHSD;
      return {DType::kFP16, {1, heads_first ? of : length, heads_first ? length : of, kWidth}};
    };
    auto application = RotaryApplication::Create(
        *rotary, {.positions = {OffsetPositions{5}}, .layout = layout, .q = {shape(heads)}, .k = {{shape(3)}}}, {});
    EXPECT_THAT(application, IsOk());
    return *std::move(application);
  };
  struct Case {
    Layout layout;
    int64_t length, heads;
  };
  for (const auto& [layout, length, heads] : {Case{Layout::kBSHD, 1, kHeads},
                                              {Layout::kBHSD, 1, kHeads},
                                              {Layout::kBHSD, 2, kHeads},
                                              {Layout::kBSHD, 1, kVeryMany},
                                              {Layout::kBHSD, 2, kVeryMany}}) {
    const size_t few_bytes = kFew * length * kWidth * 2, size = few_bytes * (heads / kFew);
    std::vector<std::byte> x(size), y(size), z(size), k(3 * length * kWidth * 2), expected(k.size());
    for (std::byte& b : x) b = static_cast<std::byte>(random());
    // No NaN, whose sign and payload depend on the compiler.
    for (size_t high = 1; high < size; high += 2) x[high] &= std::byte{0xbf};
    const ContiguousBytes bytes(x.data(), size), k_bytes(k.data(), k.size());
    const RotaryApplication few = application_of(layout, length, kFew), all = application_of(layout, length, heads);
    for (size_t at = 0; at < size; at += few_bytes) {
      const ContiguousBytes part(x.data() + at, few_bytes);
      ASSERT_THAT(few.Rotate({&part, y.data() + at}, {&k_bytes, expected.data()}, one, NeverCancelled), IsOk());
    }
    std::atomic<int> steps = 0;
    const Cancellation count = [&steps] {
      ++steps;
      return absl::OkStatus();
    };
    const int64_t slabs = (size >> 20) / length;
    for (const size_t most : {heads == kHeads ? 3 : 300, 3000, 30000000}) {
      const Pieces pieces({x.data(), size}, most, random);
      ASSERT_THAT(all.Rotate({&pieces, z.data()}, {&k_bytes, k.data()}, many, count), IsOk());
      EXPECT_EQ(z, y) << "pieces of at most " << most;
      EXPECT_EQ(k, expected);
      EXPECT_GE(steps.exchange(0), slabs * length);
    }
    // A stream also begins within a token.
    constexpr int64_t kFirst = 7;
    const size_t skipped = kFirst * kWidth * 2;
    const ContiguousBytes rest(x.data() + skipped, size - skipped);
    std::fill(z.begin(), z.end(), std::byte{0});
    ASSERT_THAT(
        all.RotateRows(Operand::kQuery, kFirst, heads * length - kFirst, {&rest, z.data() + skipped}, many, count),
        IsOk());
    EXPECT_TRUE(std::equal(y.begin() + skipped, y.end(), z.begin() + skipped));
    EXPECT_GE(steps.exchange(0), slabs * length);
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
  const ContiguousBytes bytes(x.data(), x.size());
  EXPECT_TRUE(absl::IsCancelled(application->Rotate({&bytes, x.data()}, {}, pool, cancelled)));
}

}  // namespace
}  // namespace posenc::in_place_test
