#include "posenc/methods/rope/methods.h"

#include <fmt/format.h>

#include "posenc/methods/rope/rope.h"

namespace posenc {

const std::vector<RopeMethod>& RopeMethods() {
  static const std::vector<RopeMethod>& methods = *new std::vector<RopeMethod>{
      DefaultRope(), LinearRope(),       LinearPositionsRope(), DynamicRope(),  NtkAlphaRope(),
      NtkRope(),     YarnRope(),         DeepseekYarnRope(),    GgmlYarnRope(), LongropeRope(),
      Llama3Rope(),  ProportionalRope(), PixelRope(),           ConstantRope(),
  };
  return methods;
}

const RopeMethod* FindRopeMethod(std::string_view rope_type) {
  for (const RopeMethod& method : RopeMethods()) {
    if (method.rope_type == rope_type) return &method;
  }
  return nullptr;
}

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

std::string RopeTypeNames() {
  std::string names;
  for (const RopeMethod& method : RopeMethods()) {
    names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", method.rope_type);
  }
  return names;
}

}  // namespace posenc
