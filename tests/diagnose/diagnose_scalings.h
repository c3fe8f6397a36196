// Every frequency scaling, for diagnosis tests.
#pragma once

#include <string>
#include <vector>

#include "posenc/methods/rope/methods.h"
#include "tests/diagnose/diagnose_case.h"

namespace posenc::diagnose {

constexpr int64_t kScaledWidth = 64, kScaledLength = 160;

inline RopeParameters Yarn() {
  return {.rope_type = "yarn", .rope_theta = 1e6, .factor = 4, .original_max_position_embeddings = 4096};
}
inline RopeParameters Longrope(LongropeBranch branch = LongropeBranch::kBySeqLen) {
  RopeParameters p{.rope_type = "longrope", .factor = 32, .original_max_position_embeddings = 4096};
  for (int i = 0; i < kScaledWidth / 2; ++i) {
    p.short_factor.push_back(1 + 0.01 * i);
    p.long_factor.push_back(1 + 0.5 * i);
  }
  p.longrope_branch = branch;
  return p;
}
inline RopeParameters Llama3() {
  return {.rope_type = "llama3",
          .rope_theta = 5e5,
          .factor = 8,
          .original_max_position_embeddings = 8192,
          .low_freq_factor = 1,
          .high_freq_factor = 4};
}
inline RopeParameters Mrope(std::vector<int64_t> section, MropeOrder order) {
  return {.rope_type = "default", .rope_theta = 1e6, .mrope_section = std::move(section), .mrope_order = order};
}

inline std::vector<RopeParameters> Scalings() {
  return {{.rope_type = "default"},
          {.rope_type = "default", .rope_theta = 1e6},
          {.rope_type = "linear", .factor = 3},
          {.rope_type = "linear_positions", .factor = 3},
          {.rope_type = "dynamic", .factor = 2},
          {.rope_type = "qwen_ntk", .original_max_position_embeddings = 4096},
          {.rope_type = "telechat_ntk", .original_max_position_embeddings = 4096},
          {.rope_type = "ntk", .factor = 4},
          {.rope_type = "ntk", .factor = 4, .mixed_b = 0.625},
          {.rope_type = "ntk_alpha", .alpha = 1000},
          Yarn(),
          {.rope_type = "deepseek_yarn",
           .factor = 40,
           .original_max_position_embeddings = 4096,
           .mscale = 0.707,
           .mscale_all_dim = 1},
          {.rope_type = "ggml_yarn", .factor = 4, .original_max_position_embeddings = 4096},
          Longrope(),
          Llama3(),
          {.rope_type = "proportional", .rope_theta = 1e6, .partial_rotary_factor = 0.25},
          {.rope_type = "constant"},
          {.rope_type = "default", .negate_angle = true}};
}

inline RotarySettings Settings(const RopeParameters& p, Pairing pairing, int64_t rotary_dim = kScaledWidth) {
  RotarySettings settings;
  settings.frequencies = p;
  settings.rotary_dim = rotary_dim;
  settings.input_pairing = pairing;
  if (p.rope_type == "dynamic" || p.rope_type == "telechat_ntk") settings.max_position_embeddings = 4096;
  return Completed(settings);
}

inline Tokens TokensOf(const RopeParameters& p, double first = 8200) {
  const bool by_length = FindRopeMethod(p.rope_type)->needs_seq_len(p);
  return Stretch(
      first, kScaledLength,
      by_length ? std::vector<int64_t>{static_cast<int64_t>(first) + kScaledLength} : std::vector<int64_t>{});
}

}  // namespace posenc::diagnose
