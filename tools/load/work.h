// An entry of the mix as messages: its requests, which differ in where the tokens stand, and what they are answered
// with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <google/protobuf/message.h>

#include "absl/status/statusor.h"
#include "posenc/client/backend.h"
#include "tools/load/mix.h"

namespace posenc::load {

struct Method;  // of the service, one of those that can be called here

// A tensor of the answer, in the order of the fields.
struct AnswerTensor {
  std::string name;  // "q"
  v1::DataType dtype;
  std::vector<int64_t> shape;
  size_t bytes;
};

// A tensor's bytes with the gap to the next, in memory that is shared.
constexpr size_t Aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

class Work {
 public:
  // Computes the first request in this process, so that what is wrong with an entry is said before any call is made.
  static absl::StatusOr<std::shared_ptr<const Work>> Create(const Entry& entry, uint64_t seed, Backend& here);

  const Entry& entry() const { return entry_; }
  // "ApplyRotary", and with Transport::kStream "StreamApplyRotary".
  std::string method() const;
  // What the server answers a call with, once or in pieces; a new one.
  std::unique_ptr<google::protobuf::Message> NewResponse() const;

  // One an offset. Without tensors' bytes, which are beside it: inputs(i) says where.
  const google::protobuf::Message& request(size_t i) const { return *requests_[i]; }
  std::vector<wire::TensorView> inputs(size_t i) const;
  // What comes beside the request: q and k, scores, probabilities, or nothing.
  const std::vector<std::vector<std::byte>>& tensors() const { return tensors_; }
  int64_t request_bytes() const;

  const std::vector<AnswerTensor>& answer() const { return answer_; }
  int64_t answer_bytes() const;

  absl::StatusOr<std::unique_ptr<google::protobuf::Message>> Compute(Backend& here, size_t i) const;

 private:
  Work() = default;

  Entry entry_;
  const Method* method_ = nullptr;
  std::vector<std::unique_ptr<google::protobuf::Message>> requests_;
  std::vector<std::vector<std::byte>> tensors_;
  std::vector<AnswerTensor> answer_;
};

// Floating-point numbers of either sign, 0.5 .. 1; FP32, FP16 or BF16.
std::vector<std::byte> RandomNumbers(v1::DataType dtype, size_t bytes, uint64_t seed);

// A message's tensors that are direct fields, and their names.
std::vector<std::pair<std::string, const v1::Tensor*>> TensorsOf(const google::protobuf::Message& message);

}  // namespace posenc::load
