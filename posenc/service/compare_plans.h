// Comparison of encodings that are not rotary, by their canonical settings and by the sizes of their learned weights.
#pragma once

#include <map>
#include <string>

#include "posenc/model/model.h"
#include "posenc/v1/compare.pb.h"
#include "posenc/v1/info.pb.h"

namespace posenc::wire {

// An encoding as Compare sees it.
struct ComparedPlan {
  v1::Plan plan;  // canonical settings; ALiBi's slopes
  // Sizes of learned weights that the model's file gives, by name: {"rows", "1024"}; {"heads", "3, 6, 12, 24"} by
  // stage.
  std::map<std::string, std::string> sizes;
};

// Returns the sizes that a model's file gives.
std::map<std::string, std::string> SizesOfWeights(const ModelLayers& layers);

// Prepares the plan of a given bias: ALiBi's slopes become the numbers that the bias is computed with, and the bytes of
// tensors a digest, which is all that a comparison needs, so that copies are small.
void PrepareBiasPlan(v1::Plan* plan);

// True if both are ALiBi and differ at most in the form: by a constant per query for keys up to the query, which
// softmax cancels.
bool SameSoftmax(const v1::Plan& a, const v1::Plan& b);

// Compares two encodings of the same `method`, and appends the fields and sizes that differ. Returns true if none does.
// Sizes are compared if both sides have them. `lacks_weights` becomes true if the method has learned weights that were
// not compared, because they are not given on both sides.
bool ComparePlans(const std::string& method, const ComparedPlan& a, const ComparedPlan& b, bool* lacks_weights,
                  v1::LayerComparison* message);

}  // namespace posenc::wire
