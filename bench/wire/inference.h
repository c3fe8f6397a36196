// Rows about the Open Inference Protocol: ModelInfer beside ApplyRotary, and beside a server that copies.
#pragma once

#include <functional>
#include <string>

#include "bench/measure.h"

namespace posenc::bench {

struct InferenceAddresses {
  std::string posenc, copy, shared_memory_socket;  // the last one: posenc's
};

// Measures the cases whose names are `wanted`: tensors in the messages, and in shared memory.
void MeasureInference(const InferenceAddresses& addresses, const Effort& effort,
                      const std::function<bool(const std::string& name)>& wanted);

}  // namespace posenc::bench
