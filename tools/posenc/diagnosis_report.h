// Human-readable report of a diagnosis.
#pragma once

#include <string>

#include "posenc/v1/service.pb.h"

namespace posenc::command {

// Defaults that the command chose because no flag gave a value.
struct DiagnosisContext {
  bool assumed_positions = false;
  bool inferred_layout = false;
  v1::Layout layout = v1::LAYOUT_UNSPECIFIED;
};

// Returns two lines: what the data leave undecided, and which data would decide it.
std::string DoubtReport(const v1::Undecided& undecided);

std::string DiagnosisReport(const v1::DiagnoseResponse& response, const DiagnosisContext& context);

}  // namespace posenc::command
