// Preparation with cached plans only: what may take long would block.
#include <gtest/gtest.h>

#include <string>

#include "posenc/base/memory_account.h"
#include "posenc/base/status.h"
#include "posenc/rotary/rotary_plan.h"
#include "posenc/service/operations.h"
#include "tests/service/call.h"

namespace posenc::cached_plans_test {
namespace {

v1::ApplyRotaryRequest Request(double rope_theta) {
  v1::ApplyRotaryRequest request;
  v1::RotarySettings& settings = *request.mutable_rotary()->mutable_settings();
  settings.mutable_rope_parameters()->set_rope_type("default");
  settings.mutable_rope_parameters()->set_rope_theta(rope_theta);
  settings.set_rotary_dim(4);
  settings.set_input_pairing(v1::PAIRING_HALF_SPLIT);
  request.mutable_positions()->set_offset(7);
  request.set_layout(v1::LAYOUT_THD);
  v1::Tensor& q = *request.mutable_q()->mutable_tensor();
  q.set_dtype(v1::DATA_TYPE_FP32);
  for (const int64_t size : {2, 1, 4}) q.add_shape(size);
  q.set_data(std::string(32, '\0'));
  return request;
}

absl::Status Prepare(const v1::ApplyRotaryRequest& request, bool cached_plans_only) {
  const wire::InMessage payloads;
  const PlanSource plan_source = cached_plans_only ? PlanSource::kCacheOnly : PlanSource::kCacheOrComputed;
  v1::ApplyRotaryResponse response;
  return wire::Prepare(request, payloads, {Limits(), plan_source}, &response).status();
}

TEST(CachedPlans, APlanThatIsKept) {
  const v1::ApplyRotaryRequest request = Request(12345.5);
  EXPECT_TRUE(IsWouldBlock(Prepare(request, true)));
  EXPECT_TRUE(IsWouldBlock(Prepare(request, true))) << "the question alone keeps none";
  ASSERT_THAT(Prepare(request, false), IsOk());
  EXPECT_THAT(Prepare(request, true), IsOk());
}

// Lengths at which the formula takes the same branch have the same frequencies, unless the branch stretches by length.
TEST(CachedPlans, LengthsOfABranchShareAPlan) {
  v1::ApplyRotaryRequest dynamic = Request(12345.75);
  v1::RotarySettings& settings = *dynamic.mutable_rotary()->mutable_settings();
  settings.mutable_rope_parameters()->set_rope_type("dynamic");
  settings.mutable_rope_parameters()->set_factor(4);
  settings.set_max_position_embeddings(64);
  v1::ApplyRotaryRequest longrope = Request(12345.875);
  v1::RopeParameters& parameters = *longrope.mutable_rotary()->mutable_settings()->mutable_rope_parameters();
  parameters.set_rope_type("longrope");
  parameters.set_factor(4);
  parameters.set_original_max_position_embeddings(64);
  for (const double factor : {1.0, 2.0}) {
    parameters.add_short_factor(factor);
    parameters.add_long_factor(2 * factor);
  }
  for (v1::ApplyRotaryRequest* request : {&dynamic, &longrope}) {
    request->mutable_positions()->set_scaling_length_rule(v1::SCALING_LENGTH_RULE_GIVEN);
    const auto prepare = [&](int64_t length, bool cached_plans_only) {
      request->mutable_positions()->clear_seq_len();
      request->mutable_positions()->add_seq_len(length);
      return Prepare(*request, cached_plans_only);
    };
    EXPECT_TRUE(IsWouldBlock(prepare(9, true)));
    ASSERT_THAT(prepare(9, false), IsOk());
    for (const int64_t length : {9, 1, 63, 64}) EXPECT_THAT(prepare(length, true), IsOk()) << length;
    EXPECT_TRUE(IsWouldBlock(prepare(65, true)));
    ASSERT_THAT(prepare(65, false), IsOk());
    EXPECT_THAT(prepare(65, true), IsOk());
    EXPECT_EQ(IsWouldBlock(prepare(66, true)), request == &dynamic);
  }
}

TEST(CachedPlans, NoAnglesThatTakeLong) {
  v1::ApplyRotaryRequest request = Request(12346.5);
  ASSERT_THAT(Prepare(request, false), IsOk());
  request.mutable_positions()->set_offset(int64_t{1} << 50);
  EXPECT_TRUE(IsWouldBlock(Prepare(request, true)));
  EXPECT_THAT(Prepare(request, false), IsOk());

  v1::GivenFrequencies& given = *request.mutable_rotary()->mutable_settings()->mutable_given_frequencies();
  request.mutable_positions()->set_offset(7);
  for (const double f : {1.0, 0.0}) given.add_inv_freq(f);
  EXPECT_THAT(Prepare(request, true), IsOk());
  given.set_inv_freq(1, 1e-200);
  EXPECT_TRUE(IsWouldBlock(Prepare(request, true)));
}

TEST(CachedPlans, EmptyTensors) {
  for (const v1::Layout layout : {v1::LAYOUT_BSHD, v1::LAYOUT_BHSD}) {
    v1::ApplyRotaryRequest request = Request(12346.75);
    ASSERT_THAT(Prepare(request, false), IsOk());
    request.set_layout(layout);
    v1::Tensor& q = *request.mutable_q()->mutable_tensor();
    q.clear_shape();
    q.clear_data();
    for (const int64_t size : {1, layout == v1::LAYOUT_BSHD ? 0 : 2, layout == v1::LAYOUT_BSHD ? 2 : 0, 4}) {
      q.add_shape(size);
    }
    EXPECT_THAT(Prepare(request, true), IsOk());
  }
}

TEST(CachedPlans, NoXpos) {
  v1::ApplyRotaryRequest request = Request(12347.5);
  request.mutable_rotary()->mutable_settings()->mutable_xpos()->set_centre(0);
  ASSERT_THAT(Prepare(request, false), IsOk());
  EXPECT_TRUE(IsWouldBlock(Prepare(request, true)));
}

// A call that holds a plan keeps it in memory, whoever computed it and whatever the cache evicts.
TEST(CachedPlans, CountForTheCallThatHoldsThem) {
  RotarySettings settings;
  settings.frequencies = RopeParameters{.rope_type = "default", .rope_theta = 12349.5};
  settings.rotary_dim = 8192;
  settings.input_pairing = Pairing::kHalfSplit;
  constexpr int64_t kPlanBytes = 4096 * 8, kOthers = 1000;
  for (const PlanSource source : {PlanSource::kCacheOrComputed, PlanSource::kCacheOnly}) {
    const auto rotary = Rotary::Create(settings, Frequencies::kFloat32, Limits(), source);
    ASSERT_THAT(rotary, IsOk());
    if (source == PlanSource::kCacheOrComputed) {
      ASSERT_THAT(rotary->Plan(0), IsOk());  // caches it
    }
    MemoryAccount account([](int64_t) { return true; });
    const MemoryScope scope(&account);
    account.Add(kOthers);
    for (int n = 1; n < 3; ++n) {
      auto first = rotary->Plan(0), second = rotary->Plan(0);
      ASSERT_THAT(first, IsOk());
      EXPECT_GT(account.held(), 2 * kPlanBytes);
      first->reset();
      EXPECT_GT(account.held(), kPlanBytes);
      EXPECT_LT(account.held(), kPlanBytes + 2 * kOthers);
      second->reset();
      EXPECT_EQ(account.held(), kOthers);
    }
  }
}

TEST(CachedPlans, ErrorsAreStillErrors) {
  v1::ApplyRotaryRequest request = Request(12348.5);
  request.set_layout(v1::LAYOUT_UNSPECIFIED);
  EXPECT_EQ(DetailsOf(Prepare(request, true)).field, "layout");
}

}  // namespace
}  // namespace posenc::cached_plans_test
