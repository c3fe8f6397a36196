#include "posenc/service/method_families.h"

#include <utility>

#include "posenc/methods/rope/methods.h"

namespace posenc {

std::vector<MethodFamily> MethodFamilies() {
  MethodFamily rope{"rope", {}};
  for (const RopeMethod& method : RopeMethods()) rope.methods.push_back(method.rope_type);
  for (std::string_view other : {"given_frequencies", "axial", "given_table", "mrope", "xpos", "query_scale"}) {
    rope.methods.push_back(other);
  }
  return {
      std::move(rope),
      {"sinusoidal", {"interleaved", "halves", "tensor2tensor", "fairseq"}},
      {"learned", {"table"}},
      {"timestep", {"diffusers"}},
      {"grid", {"mae", "diffusers", "big_vision", "detr"}},
      {"fourier", {"given_frequencies"}},
      {"alibi", {"bloom", "mpt", "symmetric", "causal", "asymmetric"}},
      {"t5", {"bidirectional", "causal"}},
      {"kerple", {"log", "power"}},
      {"sandwich", {"paper", "snippet"}},
      {"swin", {"v1", "v2"}},
      {"beit", {"plain", "transformers"}},
      {"relative", {"shaw", "transformer_xl", "tupe", "deberta", "wpr", "cope", "inkling"}},
      {"fire", {"paper"}},
      {"forget_gate", {"log_gates"}},
      {"mask", {"causal", "prefix", "window", "key_valid", "documents"}},
  };
}

}  // namespace posenc
