// Pieces of a serialized message of the Open Inference Protocol.
#pragma once

#include <cstddef>
#include <string>

namespace posenc::server {

// The tag and length of a length-delimited field.
std::string Delimited(int number, size_t length);

}  // namespace posenc::server
