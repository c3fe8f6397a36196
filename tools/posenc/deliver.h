// Output of answers: tensors to files, or the whole answer as JSON to standard output; and messages to the user.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <google/protobuf/message.h>

#include "absl/status/status.h"
#include "posenc/v1/info.pb.h"
#include "tools/files/tensor_file.h"
#include "tools/files/tensor_header.h"
#include "tools/posenc/messages.h"
#include "tools/posenc/session.h"

namespace posenc::command {

struct Destination {
  std::string path;
  std::vector<NamedTensor> tensors;
};

// Adds an output to what is missing, if neither `path` nor --json was given.
void AddMissingOutput(const Session& session, const std::string& path, const std::string& flag, Missing* missing);

// Returns a usage error if the output would replace one of the inputs and --in-place was not given.
absl::Status CheckKept(const std::string& flag, const std::string& output, const std::vector<std::string>& inputs,
                       bool in_place);
void AddInPlaceFlag(CLI::App& app, bool* in_place);

// Returns INTERNAL unless the answer to an operand has the operand's type and shape.
absl::Status CheckLike(const std::string& name, const v1::Tensor& operand, const v1::Tensor& answer);

// Returns an error if the answer was computed on another device than --device asked for. A server then computes on the
// CPU, but who names a device wants that one.
absl::Status CheckDevice(const v1::CallHints& hints, const v1::AnswerInfo& info);

// Writes the files and prints a line for each tensor and a summary of what was computed (--json: only AnswerInfo). If
// `files` is empty, prints the whole answer as JSON, tensors included.
absl::Status Deliver(const Session& session, const google::protobuf::Message& answer, const v1::AnswerInfo& info,
                     const std::vector<Destination>& files);

// Prints "FILE: NAME BF16 [2, 8, 128]"; prints nothing with --json.
absl::Status PrintTensor(const Session& session, const std::string& path, const TensorHeader& header);

// Prints a summary of what was computed; with --json, AnswerInfo as JSON, and what was assumed.
absl::Status PrintInfo(const Session& session, const v1::AnswerInfo& info);

absl::Status PrintJson(const Session& session, const google::protobuf::Message& message);

// Prints a report, which may contain a server's text, without control characters.
absl::Status PrintReport(const std::string& report, FILE* out = stdout);

// Prints a report that begins with a verdict and a colon: on a terminal it is green if the exit code is kDone, red for
// kNo, and yellow otherwise.
absl::Status PrintVerdict(const std::string& report, int exit_code);

// Returns the JSON object with "assumed": {"layout": "bshd", ...} as its last field, if anything was assumed.
std::string WithAssumed(const Session& session, std::string json);

// Progress bar on standard error. Shown only if standard error is a terminal and total > 0.
class Progress {
 public:
  explicit Progress(int64_t total);
  ~Progress();
  void Update(int64_t done);

 private:
  const int64_t total_;
  const bool shown_;
  int percent_ = -1;
};

}  // namespace posenc::command
