// Test vectors for other projects' test suites: inputs and outputs of a rotary embedding, at positions at which
// implementations often fail.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/backend/backend.h"
#include "posenc/v1/rotary.pb.h"

namespace posenc {

// docs/test-vectors.md describes names, contents and metadata. A seed gives the same vectors on every machine.
struct TestVectors {
  std::vector<std::pair<std::string, v1::Tensor>> tensors;
  // JSON by tensor name: how the tensor was made. Also "settings" of each group of layers, and for the whole file
  // "posenc", "numerics_version" and "seed".
  std::map<std::string, std::string> metadata;
};

// Makes vectors for every distinct group of layers that rotates. Returns INVALID_ARGUMENT if none does.
absl::StatusOr<TestVectors> MakeTestVectors(Backend& backend, const v1::RotarySource& source, uint64_t seed);

}  // namespace posenc
