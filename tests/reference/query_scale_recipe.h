// Reference: factors of q by position, from transformers 5.24 (modeling_llama4.py, modeling_ministral3.py,
// modeling_beam.py, modeling_inkling.py) and Qwen's modeling_qwen.py (use_logn_attn), on MPFR numbers.
#pragma once

#include "posenc/settings/settings.h"
#include "tests/reference/mpfr_number.h"

namespace posenc::reference {

template <class R>
R QueryFactor(const QueryScale& scale, double position) {
  const R p(position), one(1.0);
  switch (scale.function) {
    case QueryScaleFunction::kLlama4:
      return Log(one + Floor((p + one) / R(*scale.floor_scale))) * R(*scale.attn_scale) + one;
    case QueryScaleFunction::kMinistral3:
      return one + R(*scale.llama_4_scaling_beta) * Log(one + Floor(p / R(*scale.original_max_position_embeddings)));
    case QueryScaleFunction::kBeam: return Exp(one / R(10.0) * Log(one + (p + one) / R(2048.0)));
    case QueryScaleFunction::kLogn:
      return p + one > R(*scale.seq_length) ? Log(p + one) / Log(R(*scale.seq_length)) : one;
    case QueryScaleFunction::kInkling: {
      const R ratio = (p + one) / R(*scale.log_scaling_n_floor);
      return one + R(*scale.log_scaling_alpha) * Log(ratio > one ? ratio : one);
    }
  }
  __builtin_unreachable();
}

}  // namespace posenc::reference
