// Where answers go: tensors into files, or everything to standard output as JSON; and what the user is told.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <google/protobuf/message.h>

#include "absl/status/status.h"
#include "posenc/v1/info.pb.h"
#include "tools/files/tensor_file.h"
#include "tools/files/tensor_header.h"
#include "tools/posenc/session.h"

namespace posenc::command {

struct Destination {
  std::string path;
  std::vector<NamedTensor> tensors;
};

// Usage error where an answer has nowhere to go: neither `path` nor --json.
absl::Status CheckDestination(const Session& session, const std::string& path, const std::string& flag);

// With files: writes them and prints a line for each tensor and what was computed (--json: AnswerInfo). Without: prints
// the whole answer as JSON, tensors included.
absl::Status Deliver(const Session& session, const google::protobuf::Message& answer, const v1::AnswerInfo& info,
                     const std::vector<Destination>& files);

// "FILE: NAME BF16 [2, 8, 128]"; nothing with --json.
absl::Status PrintTensor(const Session& session, const std::string& path, const TensorHeader& header);

// Prints what was computed, as Deliver() does.
absl::Status PrintInfo(const Session& session, const v1::AnswerInfo& info);

absl::Status PrintJson(const google::protobuf::Message& message);

// A line on standard error that shows how much is done, while that is a terminal; nothing otherwise.
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
