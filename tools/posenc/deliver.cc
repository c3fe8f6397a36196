#include "tools/posenc/deliver.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "posenc/base/status.h"
#include "posenc/service/devices.h"
#include "tools/files/json.h"
#include "tools/files/printable.h"
#include "tools/posenc/colour.h"
#include "tools/posenc/report.h"

namespace posenc::command {
namespace {

absl::Status Print(const std::string& text, FILE* out = stdout) {
  if (std::fwrite(text.data(), 1, text.size(), out) != text.size() || std::fflush(out) != 0) {
    return absl::ErrnoToStatus(errno, "standard output: cannot write");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckKept(const std::string& flag, const std::string& output, const std::vector<std::string>& inputs,
                       bool in_place) {
  std::error_code unknown;
  for (const std::string& input : inputs) {
    const std::string path =
        input.substr(0, input.rfind(".safetensors:") == std::string::npos ? std::string::npos : input.rfind(':'));
    if (in_place || output.empty() || !std::filesystem::equivalent(output, path, unknown) || IsStream(output)) continue;
    return UsageError(flag + " " + output + ": would replace the input; give --in-place to allow it");
  }
  return absl::OkStatus();
}

void AddInPlaceFlag(CLI::App& app, bool* in_place) {
  app.add_flag("--in-place", *in_place, "Allow an output to replace a file that is an input");
}

void AddMissingOutput(const Session& session, const std::string& path, const std::string& flag, Missing* missing) {
  missing->Add(path.empty() && !session.json(), "an output: " + flag + " FILE.safetensors or FILE.npy, or --json");
}

absl::Status CheckDevice(const v1::CallHints& hints, const v1::AnswerInfo& info) {
  const std::string& asked = hints.device();
  if (asked.empty() || IsNamedBy(asked, info.device())) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "--device: is ", Quote(asked), "; must be a device that is in use where the call is computed, which ", "used ",
      Quote(info.device()), " instead (posenc info lists the devices of a --server)"));
}

absl::Status PrintJson(const Session& session, const google::protobuf::Message& message) {
  POSENC_ASSIGN_OR_RETURN(std::string text, ToJson(message));
  return Print(WithAssumed(session, std::move(text)));
}

absl::Status PrintReport(const std::string& report, FILE* out) { return Print(Printable(report, "\n"), out); }

absl::Status PrintVerdict(const std::string& report, int exit_code) {
  const size_t end = std::min(report.find(':'), report.size());
  const Colour colour = exit_code == kDone ? Colour::kGreen : exit_code == kNo ? Colour::kRed : Colour::kYellow;
  return Print(Coloured(stdout, colour, Printable(report.substr(0, end))) + Printable(report.substr(end), "\n"));
}

std::string WithAssumed(const Session& session, std::string json) {
  if (session.assumed().empty()) return json;
  json.resize(json.find_last_not_of(" \n", json.rfind('}') - 1) + 1);
  absl::StrAppend(&json, json.back() == '{' ? "" : ",", "\n \"assumed\": {",
                  absl::StrJoin(session.assumed(), ", ",
                                [](std::string* text, const auto& each) {
                                  absl::StrAppend(text, "\"", each.first, "\": \"", each.second, "\"");
                                }),
                  "}\n}\n");
  return json;
}

absl::Status PrintTensor(const Session& session, const std::string& path, const TensorHeader& header) {
  if (session.json()) return absl::OkStatus();
  return PrintReport(path + ": " + header.name + " " + TensorReport(header) + "\n",
                     session.reports_to_stderr() ? stderr : stdout);
}

absl::Status PrintInfo(const Session& session, const v1::AnswerInfo& info) {
  FILE* out = session.reports_to_stderr() ? stderr : stdout;
  if (!session.json()) return PrintReport(InfoReport(info), out);
  POSENC_ASSIGN_OR_RETURN(std::string text, ToJson(info));
  return Print(WithAssumed(session, std::move(text)), out);
}

absl::Status CheckLike(const std::string& name, const v1::Tensor& operand, const v1::Tensor& answer) {
  const TensorHeader is = HeaderOf(name, answer), must_be = HeaderOf(name, operand);
  if (is.dtype == must_be.dtype && is.shape == must_be.shape) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("the answer's ", name, " is ", TensorReport(is), ", not ", TensorReport(must_be)));
}

absl::Status Deliver(const Session& session, const google::protobuf::Message& answer, const v1::AnswerInfo& info,
                     const std::vector<Destination>& files) {
  if (files.empty()) return PrintJson(session, answer);
  for (const Destination& file : files) {
    uint64_t bytes = 0;
    for (const auto& [name, tensor] : file.tensors) bytes += tensor->data().size();
    POSENC_RETURN_IF_ERROR(session.AllowWriting(file.path, bytes));
    POSENC_RETURN_IF_ERROR(WriteTensors(file.path, file.tensors));
    for (const auto& [name, tensor] : file.tensors) {
      POSENC_RETURN_IF_ERROR(PrintTensor(session, file.path, HeaderOf(name, *tensor)));
    }
  }
  return PrintInfo(session, info);
}

Progress::Progress(int64_t total) : total_(total), shown_(total > 0 && isatty(STDERR_FILENO)) {}

Progress::~Progress() {
  if (shown_ && percent_ >= 0) std::fputs("\r\x1b[K", stderr);
}

void Progress::Update(int64_t done) {
  const int percent = shown_ ? static_cast<int>(100.0 * static_cast<double>(done) / static_cast<double>(total_)) : -1;
  if (percent == percent_) return;
  percent_ = percent;
  constexpr int kWidth = 40;
  const int filled = percent * kWidth / 100;
  std::fprintf(stderr, "\r[%s%s] %3d %%", std::string(filled, '#').c_str(), std::string(kWidth - filled, ' ').c_str(),
               percent);
  std::fflush(stderr);
}

}  // namespace posenc::command
