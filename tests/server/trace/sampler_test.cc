#include "server/trace/sampler.h"

#include <array>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace posenc::server::sampler_test {
namespace {

using TraceId = std::array<uint8_t, 16>;

// The id with these halves.
TraceId IdOf(uint64_t high, uint64_t low) {
  TraceId id{};
  for (size_t n = 0; n < 8; ++n) {
    id[n] = static_cast<uint8_t>(high >> (56 - 8 * n));
    id[8 + n] = static_cast<uint8_t>(low >> (56 - 8 * n));
  }
  return id;
}

bool SamplesRoot(double ratio, const TraceId& id) {
  return Sampler{.is_parent_based = true, .ratio = ratio}.Samples(nullptr, id);
}

TEST(Sampler, AllAreSampledUnlessAParentIsNot) {
  const TraceContext sampled{.trace_id = {}, .span_id = {}, .flags = 1};
  const TraceContext other{.trace_id = {}, .span_id = {}, .flags = 0xfe};
  const TraceId id = IdOf(1, 2);
  EXPECT_TRUE(Sampler().Samples(nullptr, id));
  EXPECT_TRUE(Sampler().Samples(&sampled, id));
  EXPECT_FALSE(Sampler().Samples(&other, id));
}

TEST(Sampler, AParentDecidesWhateverTheRatioIs) {
  const TraceContext sampled{.trace_id = {}, .span_id = {}, .flags = 1}, other;
  const TraceId first = IdOf(1, 0), last = IdOf(1, UINT64_MAX);
  for (const double ratio : {0.0, 0.5, 1.0}) {
    const Sampler sampler{.is_parent_based = true, .ratio = ratio};
    for (const TraceId& id : {first, last}) {
      EXPECT_TRUE(sampler.Samples(&sampled, id)) << ratio;
      EXPECT_FALSE(sampler.Samples(&other, id)) << ratio;
    }
    const Sampler alone{.is_parent_based = false, .ratio = ratio};
    for (const TraceId& id : {first, last}) {
      EXPECT_EQ(alone.Samples(&sampled, id), alone.Samples(nullptr, id)) << ratio;
      EXPECT_EQ(alone.Samples(&other, id), alone.Samples(nullptr, id)) << ratio;
    }
  }
}

TEST(Sampler, OneIsAllAndZeroIsNone) {
  for (const uint64_t low : {uint64_t{0}, uint64_t{1}, UINT64_MAX / 2, UINT64_MAX - 1, UINT64_MAX}) {
    EXPECT_TRUE(SamplesRoot(1, IdOf(1, low))) << low;
    EXPECT_FALSE(SamplesRoot(0, IdOf(1, low))) << low;
  }
}

// The ids are the examples of W3C's Trace Context and of its tests. Their last 8 bytes, divided by 2^64 in Python, are
// 0.63987, 0.51674 and 0.47095.
TEST(Sampler, KnownIds) {
  struct Case {
    uint64_t high, low;
    double above, below;
  };
  for (const Case& one : {Case{0x4bf92f3577b34da6, 0xa3ce929d0e0e4736, 0.6399, 0.6398},
                          Case{0x0af7651916cd43dd, 0x8448eb211c80319c, 0.5168, 0.5167},
                          Case{0x1234567890123456, 0x7890123456789012, 0.4710, 0.4709}}) {
    EXPECT_TRUE(SamplesRoot(one.above, IdOf(one.high, one.low))) << one.above;
    EXPECT_FALSE(SamplesRoot(one.below, IdOf(one.high, one.low))) << one.below;
  }
}

// Golden: 2 * uint64(ratio * 2^63), computed in Python: the first of the ids' last 8 bytes that the SDK for Go does not
// sample (sdk/trace/sampling.go: BigEndian.Uint64(TraceID[8:16]) >> 1 < traceIDUpperBound). The SDK for Python compares
// with round(ratio * 2^64), which is the same number.
TEST(Sampler, TheBoundIsThatOfOtherProcesses) {
  const std::vector<std::pair<double, uint64_t>> bounds = {
      {0.1, 0x1999999999999a00},       {0.25, 0x4000000000000000},  {0.5, 0x8000000000000000},
      {1.0 / 3.0, 0x5555555555555400}, {0.999, 0xffbe76c8b4395800},
  };
  for (const auto& [ratio, bound] : bounds) {
    EXPECT_FALSE(SamplesRoot(ratio, IdOf(0, bound))) << ratio;
    EXPECT_FALSE(SamplesRoot(ratio, IdOf(0, bound + 1))) << ratio;
    EXPECT_TRUE(SamplesRoot(ratio, IdOf(0, bound - 1))) << ratio;
    EXPECT_TRUE(SamplesRoot(ratio, IdOf(UINT64_MAX, bound - 1))) << ratio << ", whatever the first 8 bytes are";
  }
}

TEST(Sampler, AnIdSampledAtARatioIsSampledAtEachGreaterOne) {
  std::mt19937_64 random(1);
  const std::vector<double> ratios = {0, 1e-12, 0.001, 0.1, 0.25, 0.5, 0.9, 0.999, 1};
  std::vector<int> sampled(ratios.size());
  for (int n = 0; n < 10'000; ++n) {
    const TraceId id = IdOf(random(), random());
    bool before = false;
    for (size_t at = 0; at < ratios.size(); ++at) {
      const bool is_sampled = SamplesRoot(ratios[at], id);
      EXPECT_GE(is_sampled, before) << ratios[at];
      before = is_sampled;
      sampled[at] += is_sampled ? 1 : 0;
    }
  }
  for (size_t at = 0; at < ratios.size(); ++at) EXPECT_NEAR(sampled[at], 10'000 * ratios[at], 200) << ratios[at];
}

}  // namespace
}  // namespace posenc::server::sampler_test
