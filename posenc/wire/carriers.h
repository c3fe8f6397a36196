// Which message types can contain a given type: what a search in a message need not look into is skipped.
#pragma once

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/types/span.h"
#include "google/protobuf/descriptor.h"

namespace posenc::wire {

// Returns `root` and the types that it contains at any depth, without repeats, `root` first.
std::vector<const google::protobuf::Descriptor*> TypesWithin(const google::protobuf::Descriptor* root);

// Returns those of `types` that contain one of `wanted` at any depth, and `wanted` itself.
absl::flat_hash_set<const google::protobuf::Descriptor*> Carriers(
    const std::vector<const google::protobuf::Descriptor*>& types,
    absl::flat_hash_set<const google::protobuf::Descriptor*> wanted);

// The fields that lead to messages of the wanted types, in each type of message that can contain one.
class LeadingFields {
 public:
  // `roots`: the types of messages that are searched.
  LeadingFields(absl::Span<const google::protobuf::Descriptor* const> roots,
                const absl::flat_hash_set<const google::protobuf::Descriptor*>& wanted);

  // Returns those of a type; none if it cannot contain a wanted message.
  absl::Span<const google::protobuf::FieldDescriptor* const> Of(const google::protobuf::Descriptor* type) const;

 private:
  absl::flat_hash_map<const google::protobuf::Descriptor*, std::vector<const google::protobuf::FieldDescriptor*>>
      fields_;
};

}  // namespace posenc::wire
