// An entry of the mix as messages: its requests, which differ in the offset of the tokens, and the form of their
// answers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <google/protobuf/message.h>

#include "absl/status/statusor.h"
#include "posenc/backend/backend.h"
#include "tools/load/mix.h"

namespace posenc::load {

struct Method;  // see methods.h

// Description of one tensor of the answer.
struct AnswerTensor {
  std::string name;  // "q"
  v1::DataType dtype;
  std::vector<int64_t> shape;
  size_t bytes;
};

// Bytes of a tensor in shared memory, padded to a multiple of 64.
constexpr size_t Aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

class Work {
 public:
  // Computes the first request in this process, so that errors of an entry are reported before any call is made.
  static absl::StatusOr<std::shared_ptr<const Work>> Create(const Entry& entry, uint64_t seed, Backend& here);

  const Entry& entry() const { return entry_; }
  // ApplyRotary, or StreamApplyRotary with Transport::kStream.
  const wire::RpcDescription& rpc() const;
  // Creates an empty response message: the whole answer, or one message of a stream.
  std::unique_ptr<google::protobuf::Message> NewResponse() const;

  // The request with the i-th offset, without tensor bytes; inputs(i) refers to them.
  const google::protobuf::Message& request(size_t i) const { return *requests_[i]; }
  std::vector<wire::TensorView> inputs(size_t i) const;
  // Tensor bytes passed beside each request: q and k, scores, probabilities, or none.
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

// Random floating-point numbers of either sign with magnitude 0.5 .. 1; FP32, FP16 or BF16.
std::vector<std::byte> RandomNumbers(v1::DataType dtype, size_t bytes, uint64_t seed);

// Names and tensors of a message's direct fields.
std::vector<std::pair<std::string, const v1::Tensor*>> TensorsOf(const google::protobuf::Message& message);

}  // namespace posenc::load
