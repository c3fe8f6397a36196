#include "tests/server/calls/fake_operations.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>
#include <thread>

#include "absl/strings/str_cat.h"
#include "posenc/base/status.h"
#include "posenc/service/operations.h"

namespace posenc::wire {
namespace {

absl::Status Wait(int64_t milliseconds, const Cancellation& cancelled) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
  ++FakeOperations::begun;
  ++FakeOperations::waiting;
  absl::Status status = cancelled();
  while (status.ok() && (FakeOperations::gate_shut || std::chrono::steady_clock::now() < end)) {
    // Seldom, because a small task that has used 20 milliseconds of its thread begins again.
    std::this_thread::sleep_for(std::chrono::milliseconds(FakeOperations::gate_shut ? 10 : 1));
    if (FakeOperations::polls) status = cancelled();
  }
  --FakeOperations::waiting;
  return status;
}

v1::Tensor* Bytes(v1::Tensor* tensor, int64_t size) {
  tensor->set_dtype(v1::DATA_TYPE_BOOL);
  tensor->add_shape(size);
  return tensor;
}

absl::StatusOr<Job> FakeExplain(const v1::ExplainRequest&, const Payloads&, const Limits&,
                                v1::ExplainResponse* response) {
  response->add_layers()->set_layer_type("fake");
  return Job();
}

absl::StatusOr<Job> FakeApplyRotary(const v1::ApplyRotaryRequest& request, const Payloads& payloads,
                                    const CallContext& context, v1::ApplyRotaryResponse* response) {
  if (!context.may_block() && !FakeOperations::plan_at_hand) return WouldBlock();
  if (request.layout() == v1::LAYOUT_UNSPECIFIED) {
    return InvalidArgument("MISSING", "layout", "", "one of LAYOUT_BSHD, LAYOUT_BHSD, LAYOUT_THD");
  }
  Job job;
  std::vector<const v1::Tensor*> inputs = {&request.q().tensor()};
  v1::Tensor* outputs[] = {response->mutable_q(), nullptr};
  if (request.has_k()) {
    inputs.push_back(&request.k().tensor());
    outputs[1] = response->mutable_k();
  }
  for (size_t n = 0; n < inputs.size(); ++n) {
    outputs[n]->set_dtype(inputs[n]->dtype());
    *outputs[n]->mutable_shape() = inputs[n]->shape();
    job.outputs.push_back({outputs[n], payloads.Size(*inputs[n])});
  }
  job.run = [inputs](const Payloads& from, absl::Span<std::byte* const> buffers, WorkPool&, const Cancellation&) {
    while (FakeOperations::hangs) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    for (size_t n = 0; n < inputs.size(); ++n) from.CopyTo(*inputs[n], buffers[n]);
    return absl::OkStatus();
  };
  job.make_quick_run = [run = job.run] { return run; };
  return job;
}

absl::StatusOr<Job> FakeGenerateTable(const v1::GenerateTableRequest& request, const Payloads&, const Limits&,
                                      v1::GenerateTableResponse* response) {
  Job job;
  job.outputs = {{Bytes(response->mutable_cos(), 1), 1}};
  job.run = [&request](const Payloads&, absl::Span<std::byte* const> buffers, WorkPool&,
                       const Cancellation& cancelled) {
    buffers[0][0] = std::byte{1};
    return Wait(request.count(), cancelled);
  };
  return job;
}

absl::StatusOr<Job> FakeGenerateBias(const v1::GenerateBiasRequest& request, const Payloads&, const Limits&,
                                     v1::GenerateBiasResponse* response) {
  const int64_t size = request.geometry().query_length();
  Job job;
  job.outputs = {{Bytes(response->mutable_bias(), size), static_cast<size_t>(size)}};
  job.run = [size](const Payloads&, absl::Span<std::byte* const> buffers, WorkPool&, const Cancellation&) {
    std::memset(buffers[0], 'b', size);
    return absl::OkStatus();
  };
  return job;
}

absl::StatusOr<Job> FakeAddBias(const v1::AddBiasRequest&, const Payloads&, const Limits&, v1::AddBiasResponse*) {
  Job job;
  job.run = [](const Payloads&, absl::Span<std::byte* const>, WorkPool&, const Cancellation&) -> absl::Status {
    throw std::bad_alloc();
  };
  return job;
}

absl::StatusOr<TileStream> FakeStreamTable(const v1::StreamTableRequest& request, const Payloads&, const Limits&) {
  TileStream stream;
  stream.rows = request.table().count();
  stream.rows_per_tile = request.rows_per_tile();
  stream.tile = [stream, held = std::make_shared<std::string>(FakeOperations::held_bytes, 'x')](
                    int64_t begin, google::protobuf::Message* message) {
    auto* response = static_cast<v1::StreamTableResponse*>(message);
    const int64_t rows = std::min(stream.rows_per_tile, stream.rows - begin);
    response->set_row_begin(begin);
    if (begin == 0) response->mutable_info()->set_device("fake");
    Job job;
    job.outputs = {{Bytes(response->mutable_cos(), rows), static_cast<size_t>(rows)}};
    job.run = [begin, rows](const Payloads&, absl::Span<std::byte* const> buffers, WorkPool&,
                            const Cancellation& cancelled) {
      for (int64_t row = 0; row < rows; ++row) buffers[0][row] = static_cast<std::byte>(begin + row);
      return Wait(0, cancelled);
    };
    return job;
  };
  return stream;
}

// Replaces `prepare` of the operation that takes this request. Context is CallContext or Limits.
template <typename Request, typename Context, typename Response>
void Replace(absl::StatusOr<Job> (*prepare)(const Request&, const Payloads&, const Context&, Response*),
             Operations* operations) {
  for (UnaryOperation& operation : operations->unary) {
    if (&operation.rpc != &RpcOf(*Request::descriptor())) continue;
    operation.prepare = UnaryOperation::Of<Request, Response>(prepare).prepare;
  }
}

}  // namespace

const Operations& FakeOperations::Table() {
  static const auto* const operations = [] {
    auto* all = new Operations(LibraryOperations());
    Replace(&FakeExplain, all);
    Replace(&FakeApplyRotary, all);
    Replace(&FakeGenerateTable, all);
    Replace(&FakeGenerateBias, all);
    Replace(&FakeAddBias, all);
    for (TileOperation& operation : all->tiles) {
      if (operation.rpc.name == "StreamTable") {
        operation.prepare = TileOperation::Of<v1::StreamTableRequest>(&FakeStreamTable).prepare;
      }
    }
    return all;
  }();
  return *operations;
}

}  // namespace posenc::wire
