// A diagnosis for people.
#pragma once

#include <string>

#include "posenc/v1/service.pb.h"

namespace posenc::command {

// What the command decided where nothing was said.
struct DiagnosisContext {
  bool assumed_positions = false;
  bool inferred_layout = false;
  v1::Layout layout = v1::LAYOUT_UNSPECIFIED;
};

// A line on what the data leave open, and one on what would decide.
std::string DoubtReport(const v1::Undecided& undecided);

std::string DiagnosisReport(const v1::DiagnoseResponse& response, const DiagnosisContext& context);

}  // namespace posenc::command
