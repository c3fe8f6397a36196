#include "posenc/methods/rope/methods.h"

#include <fmt/format.h>

#include "posenc/methods/rope/rope.h"

namespace posenc {

// The scalings, each in a file rope_NAME.cc, alone or with its relatives.
RopeMethod DefaultRope();
RopeMethod LinearRope();
RopeMethod LinearPositionsRope();
RopeMethod DynamicRope();
RopeMethod NtkAlphaRope();
RopeMethod NtkRope();
RopeMethod QwenNtkRope();
RopeMethod TelechatNtkRope();
RopeMethod YarnRope();
RopeMethod DeepseekYarnRope();
RopeMethod GgmlYarnRope();
RopeMethod LongropeRope();
RopeMethod Llama3Rope();
RopeMethod ProportionalRope();
RopeMethod PixelRope();
RopeMethod ConstantRope();

const std::vector<RopeMethod>& RopeMethods() {
  static const std::vector<RopeMethod>& methods = *new std::vector<RopeMethod>{
      DefaultRope(),  LinearRope(),       LinearPositionsRope(), DynamicRope(),
      NtkAlphaRope(), NtkRope(),          QwenNtkRope(),         TelechatNtkRope(),
      YarnRope(),     DeepseekYarnRope(), GgmlYarnRope(),        LongropeRope(),
      Llama3Rope(),   ProportionalRope(), PixelRope(),           ConstantRope(),
  };
  return methods;
}

const RopeMethod* FindRopeMethod(std::string_view rope_type) {
  for (const RopeMethod& method : RopeMethods()) {
    if (method.rope_type == rope_type) return &method;
  }
  return nullptr;
}

std::string RopeTypeNames() {
  std::string names;
  for (const RopeMethod& method : RopeMethods()) {
    names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", method.rope_type);
  }
  return names;
}

}  // namespace posenc
