// Digests of frequencies. No vector code computes them, but they could depend on the C library.
#include <fmt/format.h>

#include <cstring>

#include "posenc/rotary/rotary_plan.h"
#include "tests/digests/digest_case.h"

namespace posenc {
namespace {

Block RunPlan(const RopeParameters& parameters, int64_t rotary_dim, Frequencies arithmetic, int64_t seq_len) {
  RotarySettings settings;
  settings.frequencies = parameters;
  settings.rotary_dim = rotary_dim;
  if (parameters.rope_type == "dynamic") settings.max_position_embeddings = 4096;
  settings.input_pairing = Pairing::kHalfSplit;
  const auto rotary = Rotary::Create(settings, arithmetic, {});
  EXPECT_TRUE(rotary.ok()) << rotary.status();
  if (!rotary.ok()) return Block(0);
  const auto plan = rotary->Plan(seq_len);
  EXPECT_TRUE(plan.ok()) << plan.status();
  if (!plan.ok()) return Block(0);
  std::vector<double> numbers = (*plan)->inv_freq;
  numbers.push_back((*plan)->attention_scaling);
  Block bytes(numbers.size() * sizeof(double));
  std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return bytes;
}

std::vector<Case> PlanCases() {
  std::vector<Case> cases;
  for (const Frequencies arithmetic : kArithmetics) {
    for (const int64_t dim : {4, 64, 96, 128}) {
      for (const double theta : {10000.0, 500000.0, 150000.0}) {
        for (const char* type : {"default", "linear", "dynamic", "yarn", "longrope", "llama3", "ntk_alpha"}) {
          constexpr int64_t kSeqLen = 10000;
          RopeParameters p = {.rope_type = type, .rope_theta = theta};
          if (p.rope_type != "default" && p.rope_type != "ntk_alpha") p.factor = 5;
          if (p.rope_type == "yarn" || p.rope_type == "longrope" || p.rope_type == "llama3") {
            p.original_max_position_embeddings = 4096;
          }
          if (p.rope_type == "llama3") {
            p.low_freq_factor = 1;
            p.high_freq_factor = 4;
          }
          if (p.rope_type == "longrope") {
            for (int64_t i = 0; i < dim / 2; ++i) p.short_factor.push_back(1 + static_cast<double>(i) / 64);
            for (int64_t i = 0; i < dim / 2; ++i) p.long_factor.push_back(1 + static_cast<double>(i) / 3);
          }
          if (p.rope_type == "ntk_alpha") p.alpha = 1000;
          cases.push_back(
              {fmt::format("rope_type={} frequencies={} rotary_dim={} theta={}", type, Name(arithmetic), dim, theta),
               [=] { return RunPlan(p, dim, arithmetic, kSeqLen); }});
        }
      }
    }
  }
  return cases;
}

}  // namespace

TEST(Digest, Plans) { Check("plans", PlanCases()); }

}  // namespace posenc
