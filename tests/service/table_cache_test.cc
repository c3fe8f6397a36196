// Calls that need the same table of cosines and sines compute it once; other calls do not use it.
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "posenc/rotary/slab_table.h"
#include "tests/service/call.h"

namespace posenc::table_cache_test {
namespace {

using Request = v1::ApplyRotaryRequest;

// q and k of 64 tokens with 16 pairs.
Request Layer() {
  Request request;
  v1::RotarySettings& settings = *request.mutable_rotary()->mutable_settings();
  settings.mutable_rope_parameters()->set_rope_type("default");
  settings.mutable_rope_parameters()->set_rope_theta(1e5);
  settings.set_rotary_dim(32);
  settings.set_input_pairing(v1::PAIRING_HALF_SPLIT);
  request.mutable_positions()->set_offset(500);
  request.set_layout(v1::LAYOUT_BSHD);
  const auto tensor = [](int64_t heads) {
    std::vector<double> values(64 * heads * 32);
    for (size_t n = 0; n < values.size(); ++n) values[n] = 0.25 + static_cast<double>(n % 37);
    return MakeTensor(DType::kBF16, {1, 64, heads, 32}, values);
  };
  *request.mutable_q()->mutable_tensor() = tensor(3);
  *request.mutable_k()->mutable_tensor() = tensor(1);
  return request;
}

CacheCounters Count(const std::function<void()>& body) {
  const CacheCounters before = TableCache().counters();
  body();
  const CacheCounters after = TableCache().counters();
  return {after.hits - before.hits, after.misses - before.misses, after.bytes - before.bytes};
}

std::string Answer(const Request& request) {
  const auto answer = Call(request);
  EXPECT_TRUE(answer.ok()) << answer.status();
  return answer.ok() ? answer->q().data() + answer->k().data() : "";
}

class TableCacheTest : public testing::Test {
 protected:
  TableCacheTest() {
    TableCache().SetMaxBytes(0);  // drops what other tests have cached
    TableCache().SetMaxBytes(size_t{1} << 20);
  }
};

TEST_F(TableCacheTest, LayersShareATable) {
  std::string first, second;
  CacheCounters counted = Count([&] { first = Answer(Layer()); });
  EXPECT_EQ(counted.misses, 1) << "of q and k";
  EXPECT_GE(counted.bytes, 64 * 16 * 2 * 4);
  counted = Count([&] { second = Answer(Layer()); });
  EXPECT_EQ(counted.misses, 0);
  EXPECT_EQ(counted.hits, 1);
  EXPECT_EQ(first, second);
}

TEST_F(TableCacheTest, WhateverDiffersHasATableOfItsOwn) {
  const std::vector<std::function<void(Request*)>> changes = {
      [](Request* request) { request->mutable_positions()->set_offset(501); },
      [](Request* request) { request->set_direction(v1::DIRECTION_TRANSPOSE); },
      [](Request* request) { request->mutable_precision()->set_preset(v1::PRECISION_PRESET_F32); },
      [](Request* request) { request->mutable_precision()->set_preset(v1::PRECISION_PRESET_HF_EAGER); },
      [](Request* request) { request->mutable_precision()->set_preset(v1::PRECISION_PRESET_FLUX); },
      [](Request* request) {
        v1::PrecisionAxes& axes = *request->mutable_precision()->mutable_axes();
        axes.set_frequencies(v1::FREQUENCY_ARITHMETIC_EXACT);
        axes.set_table_dtype(v1::TABLE_DTYPE_FLOAT64);
        axes.set_rounding(v1::ROUNDING_ONCE);
      },
      [](Request* request) {
        request->mutable_rotary()->mutable_settings()->mutable_rope_parameters()->set_rope_theta(2e5);
      },
      [](Request* request) {
        auto& parameters = *request->mutable_rotary()->mutable_settings()->mutable_rope_parameters();
        parameters.set_rope_type("linear");
        parameters.set_factor(2);
      },
      [](Request* request) { request->mutable_rotary()->mutable_settings()->set_rotary_dim(16); },
      [](Request* request) {
        auto& given = *request->mutable_rotary()->mutable_settings()->mutable_given_frequencies();
        for (int n = 0; n < 16; ++n) given.add_inv_freq(1.0 / (n + 1));
        given.set_attention_scaling(1.5);
      },
  };
  Answer(Layer());
  for (const auto& change : changes) {
    Request request = Layer();
    change(&request);
    std::string first;
    EXPECT_EQ(Count([&] { first = Answer(request); }).misses, 1) << request.ShortDebugString().substr(0, 200);
    EXPECT_EQ(Count([&] { EXPECT_EQ(Answer(request), first); }).misses, 0);
    TableCache().SetMaxBytes(0);
    EXPECT_EQ(Answer(request), first) << "without a cache";
    TableCache().SetMaxBytes(size_t{1} << 20);
    Answer(Layer());
  }
}

TEST_F(TableCacheTest, OfXposEachOperandHasItsOwn) {
  Request request = Layer();
  request.mutable_rotary()->mutable_settings()->mutable_xpos()->set_scale_base(512);
  request.mutable_rotary()->mutable_settings()->mutable_xpos()->set_centre(0);
  EXPECT_EQ(Count([&] { Answer(request); }).misses, 2);
  EXPECT_EQ(Count([&] { Answer(request); }).hits, 2);
}

TEST_F(TableCacheTest, OfAxesEachCounts) {
  Request request = Layer();
  auto& axial = *request.mutable_rotary()->mutable_settings()->mutable_axial();
  for (int n = 0; n < 2; ++n) axial.add_axes()->set_dim(16);
  const auto ids = [&](int64_t column) {
    std::vector<int64_t> values;
    for (int64_t n = 0; n < 64; ++n) values.insert(values.end(), {n / 8, n % 8 + column});
    *request.mutable_positions()->mutable_ids() = MakeTensor<int64_t>(DType::kINT64, {1, 64, 2}, values);
    request.mutable_positions()->set_axis_dimension(v1::AXIS_DIMENSION_LAST);
    return Answer(request);
  };
  EXPECT_EQ(Count([&] { ids(0), ids(0), ids(1); }).misses, 2);
  EXPECT_NE(ids(0), ids(1));
}

TEST_F(TableCacheTest, SmallOnesAndGivenOnesAreNotLookedFor) {
  Request request = Layer();
  for (auto* operand : {request.mutable_q(), request.mutable_k()}) {
    operand->mutable_tensor()->set_shape(1, 2);
    auto& data = *operand->mutable_tensor()->mutable_data();
    data.resize(data.size() / 32);
  }
  const CacheCounters counted = Count([&] { Answer(request); });
  EXPECT_EQ(counted.hits + counted.misses, 0);
}

TEST_F(TableCacheTest, ACallThatWouldTakeMostOfItLeavesItToOthers) {
  TableCache().SetMaxBytes(4 * 64 * 16 * 2 * 4 - 1);
  const CacheCounters counted = Count([&] { Answer(Layer()); });
  EXPECT_EQ(counted.hits + counted.misses, 0);
}

TEST_F(TableCacheTest, HoweverManyWaitOneIsComputed) {
  const CacheCounters counted = Count([] {
    std::vector<std::thread> callers;
    for (int n = 0; n < 4; ++n) callers.emplace_back([] { Answer(Layer()); });
    for (std::thread& caller : callers) caller.join();
  });
  EXPECT_EQ(counted.misses, 1);
  EXPECT_EQ(counted.hits, 3);
}

}  // namespace
}  // namespace posenc::table_cache_test
