// Which message types can contain a given type: what a search in a message need not look into is skipped.
#pragma once

#include <vector>

#include "absl/container/flat_hash_set.h"
#include "google/protobuf/descriptor.h"

namespace posenc::wire {

// Returns `root` and the types that it contains at any depth, without repeats, `root` first.
std::vector<const google::protobuf::Descriptor*> TypesWithin(const google::protobuf::Descriptor* root);

// Returns those of `types` that contain one of `wanted` at any depth, and `wanted` itself.
absl::flat_hash_set<const google::protobuf::Descriptor*> Carriers(
    const std::vector<const google::protobuf::Descriptor*>& types,
    absl::flat_hash_set<const google::protobuf::Descriptor*> wanted);

}  // namespace posenc::wire
