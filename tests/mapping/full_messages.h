// Messages for mapping tests, with every field set.
#pragma once

#include <google/protobuf/message.h>

#include <cstdint>
#include <string>
#include <vector>

#include "posenc/v1/bias.pb.h"
#include "posenc/v1/tensor.pb.h"

namespace posenc {

// Expects every field of the message, and of nested ones except Tensor, to be set in one of the messages.
void ExpectAllFieldsSet(const std::vector<const google::protobuf::Message*>& messages);

// Fractions of either sign that every type can represent.
std::vector<double> Counted(int64_t count);
// An FP32 tensor of Counted() values.
v1::Tensor SomeWeight(std::vector<int64_t> shape);

// A method message with every field set, some to non-default values.
v1::BiasMethod FullMethod(const std::string& name);

}  // namespace posenc
