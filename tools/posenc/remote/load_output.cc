#include "tools/posenc/remote/load_output.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <vector>

#include "absl/strings/str_cat.h"
#include "posenc/base/status.h"
#include "tools/files/file_io.h"
#include "tools/load/compare.h"
#include "tools/load/duration.h"
#include "tools/load/histogram.h"
#include "tools/load/report_html.h"
#include "tools/load/report_json.h"
#include "tools/load/report_text.h"

namespace posenc::command {
namespace {

constexpr uint64_t kMostResultBytes = uint64_t{1} << 30;

// `path`: "-" is standard output.
absl::Status Write(const std::string& path, const std::string& report) {
  if (path != "-") return WriteWholeFile(path, report);
  const bool written = std::fputs(report.c_str(), stdout) >= 0 && std::fflush(stdout) == 0;
  return written ? absl::OkStatus() : absl::ErrnoToStatus(errno, "standard output: cannot write");
}

}  // namespace

absl::StatusOr<load::Results> ReadResults(const std::string& path) {
  POSENC_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path, kMostResultBytes));
  absl::StatusOr<load::Results> results = load::FromJson(text);
  if (results.ok()) return results;
  return absl::Status(results.status().code(), absl::StrCat(path, ": ", results.status().message()));
}

void LoadOutput::Add(CLI::App& app) {
  const auto add = [&](const char* name, auto& variable, const char* help, const char* type) {
    return app.add_option(name, variable, help)->type_name(type)->group(kGroup);
  };
  add("-o,--output", json_,
      "All results, as --json prints them; input of --baseline and `load merge`; -: standard output, in place of the "
      "summary",
      "FILE.json");
  add("--html", html_, "HTML report with charts, a single self-contained file; -: standard output", "FILE");
  CLI::Option* baseline =
      add("--baseline", baseline_, "Results of an earlier run; exits with 1 if a figure is worse", "FILE.json");
  add("--max-regression", max_regression_, "Regression from --baseline that is tolerated; default 5%", "SHARE")
      ->needs(baseline);
}

absl::StatusOr<load::Baseline> LoadOutput::Check() const {
  load::Baseline baseline;
  const absl::StatusOr<double> share = load::ParseShare("--max-regression", max_regression_);
  if (!share.ok()) return UsageError(std::string(share.status().message()));
  baseline.max_regression = *share;
  if (json_ == "-" && html_ == "-") return UsageError("--html: only one of --output and --html can be -");
  for (const std::string& file : {json_, html_}) {
    std::error_code none;
    if (file.empty() || file == "-") continue;
    if (!baseline_.empty() && std::filesystem::equivalent(file, baseline_, none)) {
      return UsageError("--baseline: " + baseline_ + " would be overwritten");
    }
    // Finds out before the test whether its results can be written. Nothing remains of this file.
    POSENC_RETURN_IF_ERROR(OutputFile::Create(file).status());
  }
  if (baseline_.empty()) return baseline;
  POSENC_ASSIGN_OR_RETURN(baseline.results, ReadResults(baseline_));
  baseline.file = baseline_;
  return baseline;
}

absl::Status LoadOutput::Deliver(const Session& session, const load::Baseline& baseline, load::Results* all) const {
  if (baseline.results) all->comparison = load::Compare(baseline, *all);
  const load::Results& results = *all;
  const std::string json = load::ToJson(results);
  const std::string html = html_.empty() ? "" : load::ToHtml(results);
  // Writes every report, also after one could not be written: the results exist nowhere else. The files come first,
  // because a closed pipe ends the process.
  absl::Status written;
  if (!json_.empty() && json_ != "-") written.Update(Write(json_, json));
  if (!html_.empty() && html_ != "-") written.Update(Write(html_, html));
  const bool shown = session.json() || json_ == "-";
  written.Update(Write("-", html_ == "-" ? html : shown ? json : load::ToText(results)));
  POSENC_RETURN_IF_ERROR(written);
  if (results.mismatches > 0) {
    return AnswerIsNo(absl::StrCat(results.mismatches, " of ", results.verified, " verified answers were wrong"));
  }
  if (results.total.counts.succeeded == 0) return absl::FailedPreconditionError("no call succeeded");
  if (results.verify > 0 && results.verified == 0) {
    return AnswerIsNo(
        results.not_verified > 0
            ? absl::StrCat("no answer was verified: the client could not check any of ", results.not_verified)
            : absl::StrCat("no answer was verified: --verify selected none of ", results.total.counts.succeeded));
  }
  const bool search =
      std::any_of(results.steps.begin(), results.steps.end(), [](const auto& step) { return step.tries > 0; });
  if (search && !results.highest_rate) return AnswerIsNo("no tried rate clearly met the objective");
  if (!results.comparison) return absl::OkStatus();
  const absl::Status compared = load::ToStatus(*results.comparison);
  if (compared.ok() || !results.comparison->impossible.empty()) return compared;
  return AnswerIsNo(std::string(compared.message()));
}

}  // namespace posenc::command
