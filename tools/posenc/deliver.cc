#include "tools/posenc/deliver.h"

#include <unistd.h>

#include <cstdio>

#include "posenc/base/status.h"
#include "tools/files/json.h"
#include "tools/posenc/report.h"

namespace posenc::command {
namespace {

absl::Status Print(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    return absl::ErrnoToStatus(errno, "standard output: cannot write");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckDestination(const Session& session, const std::string& path, const std::string& flag) {
  if (!path.empty() || session.json()) return absl::OkStatus();
  return UsageError("no output is given: use " + flag + " FILE.safetensors or FILE.npy, or --json");
}

absl::Status PrintJson(const google::protobuf::Message& message) {
  POSENC_ASSIGN_OR_RETURN(const std::string text, ToJson(message));
  return Print(text);
}

absl::Status PrintTensor(const Session& session, const std::string& path, const TensorHeader& header) {
  return session.json() ? absl::OkStatus() : Print(path + ": " + header.name + " " + TensorReport(header) + "\n");
}

absl::Status PrintInfo(const Session& session, const v1::AnswerInfo& info) {
  return session.json() ? PrintJson(info) : Print(InfoReport(info));
}

absl::Status Deliver(const Session& session, const google::protobuf::Message& answer, const v1::AnswerInfo& info,
                     const std::vector<Destination>& files) {
  if (files.empty()) return PrintJson(answer);
  for (const Destination& file : files) {
    POSENC_RETURN_IF_ERROR(WriteTensors(file.path, file.tensors));
    for (const auto& [name, tensor] : file.tensors) {
      POSENC_RETURN_IF_ERROR(
          PrintTensor(session, file.path, {name, tensor->dtype(), {tensor->shape().begin(), tensor->shape().end()}}));
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
