// Calls of a fuzzer, served by the server's own reactors on a transport without gRPC (tests/fake_grpc). An input is the
// number of an RPC in its service, one byte, and the request; for one RPC, a stream of requests, a sequence of them.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "grpcpp/support/status.h"
#include "posenc/wire/rpcs.h"
#include "server/calls/rpc.h"
#include "server/core/config.h"
#include "tests/fuzz/random.h"
#include "tests/fuzz/sequence.h"

namespace posenc::server {

// Small enough that no legal call takes a second with sanitizers.
Config SmallConfig();

struct Result {
  grpc::Status status;
  std::vector<std::string> messages;
};

// Sends the request, or its messages, to a reactor. The call ends after 200 ms by its deadline, or once 64 messages
// have come: a request of a few bytes can ask for billions.
Result ServeInput(const MakeReactor& make, bool takes_sequence, absl::Span<const uint8_t> request);

// Checks that details of an error reach the caller, and that they are legal (fuzz::CheckError).
void CheckDetails(const grpc::Status& status, bool of_inference = false);

// Whether the input's bytes choose it out of `inputs`.
bool IsOneIn(size_t inputs, absl::Span<const uint8_t> input);

// Checks that the second call of an input has the first one's answer, unless one of them was stopped.
void CheckSame(const Result& first, const Result& second);

// How inputs are read and changed.
class NumberedRpcs {
 public:
  // Changes a request after the mutator.
  using Change = std::function<void(google::protobuf::Message* request, fuzz::Random& random)>;
  // `streamed`: name of the RPC whose requests are a sequence. `rpcs` must outlive this object.
  NumberedRpcs(
      const std::vector<wire::RpcDescription>& rpcs, std::string_view streamed, Change change = [](auto*, auto&) {});

  const wire::RpcDescription& Of(absl::Span<const uint8_t> input) const { return rpcs_[input[0] % rpcs_.size()]; }
  bool TakesSequence(const wire::RpcDescription& rpc) const { return &rpc == streamed_; }

  // Changes an input in place, or joins parts of two inputs in `out`. Both return the size of the result.
  size_t Mutate(uint8_t* data, size_t size, size_t max_size, unsigned seed) const;
  size_t Cross(absl::Span<const uint8_t> to, absl::Span<const uint8_t> from, uint8_t* out, size_t max_size,
               unsigned seed) const;

 private:
  const google::protobuf::Message& PrototypeOf(const wire::RpcDescription& rpc) const;

  const std::vector<wire::RpcDescription>& rpcs_;
  const wire::RpcDescription* streamed_;
  fuzz::SequenceType sequence_;
  const Change change_;
};

// The RPCs of the fuzzer, which defines this. libFuzzer's functions for changing inputs, in served_call.cc, call it.
const NumberedRpcs& Inputs();

}  // namespace posenc::server
