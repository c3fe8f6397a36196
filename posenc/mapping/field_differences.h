// Differences of two messages by field, as text.
#pragma once

#include <google/protobuf/message.h>

#include <string>

#include "posenc/v1/compare.pb.h"

namespace posenc::wire {

void AppendDifference(const std::string& path, const std::string& a, const std::string& b,
                      google::protobuf::RepeatedPtrField<v1::FieldDifference>* differences);

// Appends an entry for each field that differs, nested messages' fields included. Both messages must have the same
// type. Paths begin with `prefix`, which is empty or ends with a dot. Of a list of numbers the first element that
// differs is named, or the lists' sizes. Tensors are compared with their data in the message.
void AppendFieldDifferences(const google::protobuf::Message& a, const google::protobuf::Message& b,
                            const std::string& prefix,
                            google::protobuf::RepeatedPtrField<v1::FieldDifference>* differences);

}  // namespace posenc::wire
