// Human-readable report of a bias diagnosis.
#pragma once

#include <cstdint>
#include <string>

#include "posenc/v1/service.pb.h"

namespace posenc::command {

// `queries` is Sq, the number of query rows.
std::string BiasReport(const v1::DiagnoseBiasResponse& response, int64_t queries);

}  // namespace posenc::command
