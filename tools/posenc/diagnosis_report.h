// Human-readable report of a diagnosis.
#pragma once

#include <cstdio>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "posenc/base/status.h"
#include "posenc/v1/service.pb.h"
#include "tools/files/json.h"
#include "tools/posenc/deliver.h"

namespace posenc::command {

// "250810 of 262144 elements (95.68 %); worst 1 ulp, median 0"
std::string AgreementText(const v1::Explanation& explanation);
// "MATCHES", "DIFFERS", "SEVERAL FAULTS" or "UNKNOWN".
std::string KindOf(const v1::Verdict& verdict);
// The kind and the sentence.
std::string InOneLine(const v1::Verdict& verdict);
// InOneLine() and the end of the line.
std::string VerdictReport(const v1::Verdict& verdict);
// Exit code for a verdict (tools/posenc/session.h).
int ExitCode(const v1::Verdict& verdict);

// Prints the answer of a diagnosis as JSON, its verdict first.
template <class Response>
absl::Status PrintVerdictFirst(const Session& session, Response response) {
  POSENC_ASSIGN_OR_RETURN(const std::string verdict, ToJson(response.verdict()));
  response.clear_verdict();
  POSENC_ASSIGN_OR_RETURN(const std::string rest, ToJson(response));
  const std::string fields = rest.substr(rest.find('{') + 1);
  const bool none = fields.find('"') == std::string::npos;
  const std::string first = verdict.substr(0, verdict.rfind('}') + 1);
  const std::string json = absl::StrCat("{\n \"verdict\": ", first, none ? "" : ",", fields);
  std::fputs(WithAssumed(session, json).c_str(), stdout);
  return absl::OkStatus();
}

// Returns two lines: what the data leave undecided, and which data would decide it.
std::string DoubtReport(const v1::Undecided& undecided);

std::string DiagnosisReport(const v1::DiagnoseResponse& response);

}  // namespace posenc::command
