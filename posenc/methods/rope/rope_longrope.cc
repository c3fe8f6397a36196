// LongRoPE (arXiv:2402.13753): f_i = 1 / (ext_i * theta^(2i/d)), one divisor ext_i per pair. Lengths up
// to and including L0 use the short list, longer ones the long list.
#include "posenc/methods/rope/rope.h"

#include <fmt/format.h>

#include "posenc/base/checks.h"
#include "posenc/base/status.h"

namespace posenc {
namespace {

bool Long(const RopeInput& input) {
  switch (input.parameters.longrope_branch) {
    case LongropeBranch::kShort: return false;
    case LongropeBranch::kLong: return true;
    case LongropeBranch::kBySeqLen: break;
  }
  return static_cast<double>(input.seq_len) > *input.parameters.original_max_position_embeddings;
}

template <class A>
Values<A> Formula(const RopeInput& input) {
  using S = typename A::Scalar;
  using E = typename A::Element;
  const RopeParameters& p = input.parameters;
  const std::vector<double>& ext = Long(input) ? p.long_factor : p.short_factor;
  std::vector<E> inv_freq = ThetaPowers<A>(E(*p.rope_theta), input.dim, input.pairs);
  for (size_t i = 0; i < inv_freq.size(); ++i) inv_freq[i] = E(1.0) / (E(ext[i]) * inv_freq[i]);

  S attention_scaling(1.0);
  if (p.attention_factor) {
    attention_scaling = S(*p.attention_factor);
  } else if (*p.factor > 1) {
    attention_scaling = Sqrt(S(1.0) + Log(S(*p.factor)) / Log(S(*p.original_max_position_embeddings)));
  }
  return RopeValues<A>(std::move(inv_freq), attention_scaling);
}

absl::Status Complete(RopeParameters& p, const RopeInput& input) {
  POSENC_RETURN_IF_ERROR(Require("original_max_position_embeddings", p.original_max_position_embeddings, "longrope"));
  POSENC_RETURN_IF_ERROR(CheckPositive("original_max_position_embeddings", *p.original_max_position_embeddings));
  POSENC_RETURN_IF_ERROR(RequireFactors("short_factor", p.short_factor, input.pairs));
  POSENC_RETURN_IF_ERROR(RequireFactors("long_factor", p.long_factor, input.pairs));
  if (p.attention_factor) {
    if (!p.factor) p.factor = 1;  // not read if attention_factor is given
    POSENC_RETURN_IF_ERROR(RequireAtLeast("attention_factor", *p.attention_factor, 0));
  }
  if (!p.factor && input.max_position_embeddings) {
    p.factor = *input.max_position_embeddings / *p.original_max_position_embeddings;
  }
  POSENC_RETURN_IF_ERROR(Require("factor", p.factor, "longrope"));
  POSENC_RETURN_IF_ERROR(CheckPositive("factor", *p.factor));
  if (!p.attention_factor && *p.factor > 1 && *p.original_max_position_embeddings <= 1) {
    return InvalidArgument("OUT_OF_RANGE", "original_max_position_embeddings",
                           fmt::format("{}", *p.original_max_position_embeddings),
                           "must be above 1: rope_type \"longrope\" divides by its logarithm");
  }
  return absl::OkStatus();
}

}  // namespace

RopeMethod LongropeRope() {
  return {
      .rope_type = "longrope",
      .reads = {"factor", "max_position_embeddings", "original_max_position_embeddings", "attention_factor",
                "short_factor", "long_factor", "longrope_branch"},
      .complete = Complete,
      .needs_seq_len = [](const RopeParameters& p) { return p.longrope_branch == LongropeBranch::kBySeqLen; },
      .branch = [](const RopeInput& input) -> std::string_view { return Long(input) ? "long" : "short"; },
      .evaluate =
          [](Frequencies arithmetic, const RopeInput& input) {
            return Evaluate(arithmetic, [&](auto a) { return Formula<decltype(a)>(input); });
          },
  };
}

}  // namespace posenc
