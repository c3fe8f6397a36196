// Changes serialized messages by their fields, with protobuf's reflection, so that most stay legal and reach the code
// behind the parser. Debian has no package of libprotobuf-mutator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "absl/types/span.h"
#include "google/protobuf/message.h"
#include "tests/fuzz/random.h"

namespace posenc::fuzz {

// Changes up to three fields of a message and of those within it.
void ChangeFields(google::protobuf::Message* message, Random& random);

// Changes a serialized message of the prototype's type, which has `size` of `bytes`: its fields, and then what `also`
// changes. Returns the new size. One in eight changes is libFuzzer's own, of the bytes, so that the parser sees
// malformed input too.
size_t MutateMessage(
    const google::protobuf::Message& prototype, absl::Span<uint8_t> bytes, size_t size, Random& random,
    const std::function<void(google::protobuf::Message*, Random&)>& also = [](auto*, Random&) {});

// Writes to `out` the message `to` with one of its parts replaced by, or merged with, a part of `from` that has the
// same type. Returns its size; 0 if they have no such parts.
size_t CrossMessages(const google::protobuf::Message& to_type, absl::Span<const uint8_t> to,
                     const google::protobuf::Message& from_type, absl::Span<const uint8_t> from,
                     absl::Span<uint8_t> out, Random& random);

}  // namespace posenc::fuzz
