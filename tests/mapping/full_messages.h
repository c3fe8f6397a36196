// Messages for the tests of the mapping: none of their fields is left out.
#pragma once

#include <google/protobuf/message.h>

#include <cstdint>
#include <string>
#include <vector>

#include "posenc/v1/bias.pb.h"
#include "posenc/v1/tensor.pb.h"

namespace posenc {

// Whether every field of the message, and of those within but Tensor, is set in one of the messages.
void ExpectAllFieldsSet(const std::vector<const google::protobuf::Message*>& messages);

// Fractions of either sign that every type holds.
std::vector<double> Counted(int64_t count);
// FP32, of those.
v1::Tensor SomeWeight(std::vector<int64_t> shape);

// A method message in which every field is set, some of them to what is not their default.
v1::BiasMethod FullMethod(const std::string& name);

}  // namespace posenc
