// Loops whose length a small request decides look often enough whether their result is still wanted.
#include <gtest/gtest.h>

#include <numeric>

#include "posenc/base/interruption.h"
#include "posenc/bias/bias_geometry.h"
#include "posenc/kernels/sincos_turns.h"
#include "posenc/methods/bias/bias_methods.h"
#include "posenc/methods/bias/fire.h"
#include "posenc/methods/bias/forget_gate.h"
#include "posenc/methods/relative/relative_methods.h"
#include "tests/service/call.h"

namespace posenc::interruption_points_test {
namespace {

constexpr int64_t kMany = 1 << 20;
constexpr int kOften = 16;  // once in 2^16 of kMany fast steps

template <class Work>
int PointsOf(const Work& work) {
  int points = 0;
  const Cancellation count = [&points] {
    ++points;
    return absl::OkStatus();
  };
  const InterruptionScope scope(&count);
  work();
  return points;
}

TEST(InterruptionPoints, OfLongGeometries) {
  EXPECT_GE(PointsOf([] { Line(0, kMany); }), kOften);
  EXPECT_GE(PointsOf([] { QueryPositions({.query = OffsetPositions{7}}, 0, kMany); }), kOften);
  const Matrix<double> line = Line(0, kMany);
  EXPECT_GE(PointsOf([&] { EXPECT_THAT(CheckPositions("keys", line), IsOk()); }), kOften);
  EXPECT_GE(PointsOf([&] { EXPECT_THAT(CheckWhole("keys", line), IsOk()); }), kOften);
}

TEST(InterruptionPoints, OfManyHeads) {
  constexpr int64_t kHeads = 4096;
  const KerpleSettings kerple{KerpleKernel::kLog, std::vector<double>(kHeads, 1), std::vector<double>(kHeads, 1)};
  EXPECT_GE(PointsOf([&] { KerpleValues(Frequencies::kExact, kerple, 0, 60); }), 60);
  const BiasTable table{std::vector<float>(kHeads * 18, 1), kHeads, 18, false};
  const BeitSettings beit{.window = {2, 3}, .table = BeitTable::kTransformers};
  EXPECT_GE(PointsOf([&] { BeitTableAsRead(Frequencies::kExact, beit, table); }), 15 * kHeads / 64);
}

TEST(InterruptionPoints, OfManyDistances) {
  EXPECT_GE(PointsOf([] { T5Buckets(Frequencies::kExact, {32, 128, true}, 0, kMany); }), kOften);
  WorkPool pool(1);
  constexpr int64_t kDim = 256;
  EXPECT_GE(PointsOf([&] {
              const WprSettings wpr{.wavelet = Wavelet::kHaar, .scales = 1, .first_exponent = 0};
              const RelativeShape shape{.head_dim = kDim, .distances = {0, kMany / kDim - 1}};
              EXPECT_THAT(MakeTables(wpr, shape, Frequencies::kExact, pool, NeverCancelled), IsOk());
            }),
            kMany / kDim / 64 + kOften);
  EXPECT_GE(PointsOf([&] {
              const DebertaSettings deberta{.relative_embeddings = {{0, 0, 0, 0}, 4, 1}, .max_relative_positions = 2};
              const RelativeShape shape{.head_dim = 1, .distances = {0, kMany - 1}};
              EXPECT_THAT(MakeTables(deberta, shape, Frequencies::kExact, pool, NeverCancelled), IsOk());
            }),
            kOften);
}

TEST(InterruptionPoints, OfManyQueries) {
  const FireRows fire(Frequencies::kExact, {.c = 0.1, .threshold = 512, .epsilon = 0}, 0);
  std::vector<double> positions(kMany);
  EXPECT_GE(PointsOf([&] { fire.Normalisers(positions); }), 2 * kOften);
  std::iota(positions.begin(), positions.end(), -static_cast<double>(kMany));
  const int descending = PointsOf([&] { fire.Normalisers({positions.rbegin(), positions.rend()}); });
  EXPECT_GE(descending, 2 * kOften);
}

TEST(InterruptionPoints, OfOneLongRowOfGates) {
  const ForgetGateSettings gates{.log_gates = std::vector<float>(kMany, -0.5f), .num_heads = 1, .keys = kMany};
  EXPECT_GE(PointsOf([&] { ForgetGateRows rows(gates); }), kOften);
}

}  // namespace
}  // namespace posenc::interruption_points_test
