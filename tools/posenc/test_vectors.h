// Test vectors for other projects' test suites: inputs and answers of a rotary embedding, at the positions at which
// implementations break.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/client/backend.h"
#include "posenc/v1/rotary.pb.h"

namespace posenc {

// Names, contents and metadata are described in docs/test-vectors.md. The same on every machine for one seed.
struct TestVectors {
  std::vector<std::pair<std::string, v1::Tensor>> tensors;
  // How each tensor was made, in JSON, by its name; the "settings" of a group of layers; and of all: "posenc",
  // "numerics_version", "seed".
  std::map<std::string, std::string> metadata;
};

// Of every distinct group of layers that rotates; INVALID_ARGUMENT where none does.
absl::StatusOr<TestVectors> MakeTestVectors(Backend& backend, const v1::RotarySource& source, uint64_t seed);

}  // namespace posenc
