// Sequences of messages of one type, as one input: the wire format of `message M { repeated TYPE message = 1; }`.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "google/protobuf/dynamic_message.h"
#include "google/protobuf/message.h"

namespace posenc::fuzz {

// A message type with which the mutator changes a sequence.
class SequenceType {
 public:
  explicit SequenceType(const google::protobuf::Descriptor& element);
  const google::protobuf::Message& prototype() const { return *prototype_; }

 private:
  google::protobuf::DescriptorPool pool_;
  google::protobuf::DynamicMessageFactory factory_;
  const google::protobuf::Message* prototype_;
};

// Returns the first messages of a sequence, at most `most`, which may be malformed, up to the first byte that is not
// part of one. The more messages an input has, the longer it takes, and libFuzzer takes each number for something new.
std::vector<std::string> Split(absl::Span<const uint8_t> sequence, size_t most);

}  // namespace posenc::fuzz
