// A diagnosis of a bias for people.
#pragma once

#include <cstdint>
#include <string>

#include "posenc/v1/service.pb.h"

namespace posenc::command {

// `queries`: Sq.
std::string BiasReport(const v1::DiagnoseBiasResponse& response, int64_t queries);

}  // namespace posenc::command
