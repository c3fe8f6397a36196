#include "posenc/in_process/in_process.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "posenc/backend/tensor_memory.h"
#include "posenc/base/cgroup.h"
#include "posenc/base/status.h"
#include "posenc/model/model_types.h"
#include "posenc/service/hints.h"
#include "posenc/service/operations.h"
#include "posenc/service/rotary_stream.h"
#include "posenc/wire/parse.h"
#include "posenc/wire/payloads.h"

namespace posenc {
namespace {

// The request's tensor that the n-th tensor of the answer may overwrite while it is computed; null: none.
const google::protobuf::Message* InPlaceOf(const google::protobuf::Message& request, size_t n) {
  if (const auto* rotary = dynamic_cast<const v1::ApplyRotaryRequest*>(&request)) {
    return n == 0 && rotary->has_q() ? &rotary->q().tensor() : &rotary->k().tensor();
  }
  if (const auto* bias = dynamic_cast<const v1::AddBiasRequest*>(&request)) return &bias->scores();
  const auto* add_to = request.GetDescriptor()->FindFieldByName("add_to");
  return add_to == nullptr ? nullptr : &request.GetReflection()->GetMessage(request, add_to);
}

// True if the output overlaps an input that is still read while the output is written.
bool ReadsWhatItWrites(absl::Span<std::byte> output, const google::protobuf::Message* in_place,
                       const std::vector<wire::TensorView>& inputs) {
  return std::any_of(inputs.begin(), inputs.end(), [&](const wire::TensorView& input) {
    const bool same = input.bytes.data() == output.data() && input.bytes.size() == output.size();
    return Overlap(input.bytes, output) && !(same && input.tensor == in_place);
  });
}

// Returns RESOURCE_EXHAUSTED for a message that is too large with its inputs.
absl::Status CheckSize(const google::protobuf::Message& request, const CallOptions& options, const Limits& limits) {
  int64_t bytes = static_cast<int64_t>(request.ByteSizeLong());
  for (const wire::TensorView& input : options.inputs) bytes += static_cast<int64_t>(input.bytes.size());
  if (bytes <= limits.max_request_bytes) return absl::OkStatus();
  return TooLarge("request", absl::StrCat(bytes, " bytes"),
                  absl::StrCat("must be at most ", limits.max_request_bytes, " bytes (max_request_bytes)"));
}

// Returns the chunk's rows: those of the message, or the one input.
absl::StatusOr<absl::Span<const std::byte>> RowsOf(const v1::RotaryChunk& chunk, const CallOptions& options) {
  const std::string& data = chunk.rows().data();
  if (options.inputs.empty()) return absl::Span(reinterpret_cast<const std::byte*>(data.data()), data.size());
  if (options.inputs.size() > 1 || options.inputs[0].tensor != &chunk.rows()) {
    return InvalidArgument("NOT_READ", "inputs", absl::StrCat(options.inputs.size()), "must be chunk.rows alone");
  }
  if (!data.empty()) {
    return InvalidArgument("CONFLICT", "inputs[0]", absl::StrCat(data.size(), " bytes"),
                           "chunk.rows has data of its own");
  }
  return options.inputs[0].bytes;
}

// Computes into the caller's memory for outputs that have some, else into the response's own tensors.
absl::Status RunInto(const wire::Job& job, const wire::Payloads& payloads, const google::protobuf::Message& request,
                     const google::protobuf::Message& response, const CallOptions& options, WorkPool& pool,
                     const Cancellation& cancelled) {
  const auto bytes_of = [&job](const v1::Tensor& tensor) {
    for (const wire::Output& output : job.outputs) {
      if (output.tensor == &tensor) return output.bytes;
    }
    return size_t{0};
  };
  POSENC_ASSIGN_OR_RETURN(const Destinations destinations, DestinationsOf(response, options, bytes_of));
  std::vector<std::byte*> buffers;
  std::vector<std::vector<std::byte>> apart(job.outputs.size());
  for (size_t n = 0; n < job.outputs.size(); ++n) {
    const wire::Output& output = job.outputs[n];
    const auto found = destinations.find(output.tensor);
    if (found == destinations.end()) {
      output.tensor->mutable_data()->resize(output.bytes);
      buffers.push_back(reinterpret_cast<std::byte*>(output.tensor->mutable_data()->data()));
    } else if (ReadsWhatItWrites({found->second, output.bytes}, InPlaceOf(request, n), options.inputs)) {
      apart[n].resize(output.bytes);
      buffers.push_back(apart[n].data());
    } else {
      buffers.push_back(found->second);
    }
  }
  POSENC_RETURN_IF_ERROR(job.run(payloads, buffers, pool, cancelled));
  for (size_t n = 0; n < apart.size(); ++n) {
    if (!apart[n].empty()) std::memcpy(destinations.at(job.outputs[n].tensor), apart[n].data(), apart[n].size());
  }
  return absl::OkStatus();
}

}  // namespace

InProcessOptions WholeMachine() {
  InProcessOptions options;
  const int64_t memory = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  options.limits.max_request_bytes = options.limits.max_output_bytes = memory / 2;
  return options;
}

InProcess::InProcess(const InProcessOptions& options)
    : options_(options), threads_(options.threads > 0 ? options.threads : static_cast<size_t>(AvailableCpus())) {
  // A child forked while another thread makes one of these would wait for it forever.
  wire::LibraryOperations();
  ForEachTensor(v1::ApplyRotaryRequest(), [](const v1::Tensor&) {});
  FindModelType("");
  Pool();
}

WorkPool& InProcess::Pool() {
  const std::lock_guard lock(pool_mutex_);
  if (pool_ == nullptr) pool_ = std::make_unique<WorkPool>(threads_);
  return *pool_;
}

Cancellation InProcess::DeadlineOf(const CallOptions& options) const {
  const Duration timeout = options.timeout.value_or(options_.timeout);
  const auto start = std::chrono::steady_clock::now();
  return [timeout, start]() -> absl::Status {
    if (std::chrono::steady_clock::now() - start < timeout) return absl::OkStatus();
    return absl::DeadlineExceededError("the time limit has passed; the work was stopped");
  };
}

absl::Status InProcess::DoUnary(const wire::RpcDescription& rpc, const google::protobuf::Message& request,
                                const CallOptions& options, google::protobuf::Message* response) {
  const wire::UnaryOperation& operation = wire::LibraryOperations().UnaryOf(rpc);
  const Cancellation cancelled = [deadline = DeadlineOf(options), outer = InterruptionScope::Current()] {
    const absl::Status stopped = outer == nullptr ? absl::OkStatus() : (*outer)();
    return stopped.ok() ? deadline() : stopped;
  };
  POSENC_RETURN_IF_ERROR(CheckMemory(request, options));
  POSENC_RETURN_IF_ERROR(CheckSize(request, options, options_.limits));
  POSENC_RETURN_IF_ERROR(wire::RejectUnknown(request));
  POSENC_RETURN_IF_ERROR(wire::CheckHints(request, nullptr));
  if (operation.prepare == nullptr) {
    DescribeProcess(static_cast<v1::GetServerInfoResponse*>(response));
    return absl::OkStatus();
  }
  const wire::BesideMessage payloads(options.inputs);
  return RunInterruptibly(cancelled, [&]() -> absl::Status {
    POSENC_ASSIGN_OR_RETURN(const wire::Job job, operation.prepare(request, payloads, options_.limits, response));
    if (job.decide) POSENC_RETURN_IF_ERROR(job.decide(Pool(), cancelled));
    return job.run ? RunInto(job, payloads, request, *response, options, Pool(), cancelled) : absl::OkStatus();
  });
}

void InProcess::DescribeProcess(v1::GetServerInfoResponse* response) const {
  wire::DescribeLibrary(options_.limits, response);
  v1::Device& device = *response->add_devices();
  device.set_name("cpu");
  device.set_threads(static_cast<int32_t>(threads_));
}

// StreamTable and StreamBias.
class InProcess::Tiles final : public Stream {
 public:
  Tiles(const wire::RpcDescription& rpc, wire::TileStream stream, InProcess* process, Cancellation cancelled)
      : rpc_(rpc), stream_(std::move(stream)), process_(*process), cancelled_(std::move(cancelled)) {}

  absl::StatusOr<std::unique_ptr<google::protobuf::Message>> Next(const v1::StreamApplyRotaryRequest* part,
                                                                  const CallOptions& options) override {
    if (part != nullptr) return InvalidArgument("NOT_READ", "part", "", "must be absent: the stream takes one request");
    POSENC_RETURN_IF_ERROR(CheckMemory(rpc_.request, options));
    if (ended_) return nullptr;
    std::unique_ptr<google::protobuf::Message> tile(rpc_.response.New());
    POSENC_RETURN_IF_ERROR(RunInterruptibly(cancelled_, [&] {
      return RunInto(stream_.tile(row_, tile.get()), wire::InMessage(), rpc_.request, *tile, options, process_.Pool(),
                     cancelled_);
    }));
    row_ += stream_.RowsAt(row_);
    ended_ = row_ >= stream_.rows;
    return tile;
  }

 private:
  const wire::RpcDescription& rpc_;
  const wire::TileStream stream_;
  InProcess& process_;
  const Cancellation cancelled_;
  int64_t row_ = 0;
  bool ended_ = false;
};

// StreamApplyRotary.
class InProcess::Chunks final : public Stream {
 public:
  Chunks(wire::RotaryStream stream, InProcess* process, Cancellation cancelled)
      : stream_(std::move(stream)), process_(*process), cancelled_(std::move(cancelled)) {}

  absl::StatusOr<std::unique_ptr<google::protobuf::Message>> Next(const v1::StreamApplyRotaryRequest* part,
                                                                  const CallOptions& options) override {
    auto answer = std::make_unique<v1::StreamApplyRotaryResponse>();
    if (part == nullptr) {
      *answer->mutable_info() = stream_.info();
      return answer;
    }
    POSENC_RETURN_IF_ERROR(CheckSize(*part, options, process_.options_.limits));
    POSENC_RETURN_IF_ERROR(wire::RejectUnknown(*part));
    if (part->has_header()) return InvalidArgument("CONFLICT", "header", "", "must be sent once");
    const v1::RotaryChunk& chunk = part->chunk();
    POSENC_ASSIGN_OR_RETURN(absl::Span<const std::byte> rows, RowsOf(chunk, options));
    POSENC_RETURN_IF_ERROR(stream_.Check(chunk, rows.size()));
    answer->mutable_chunk()->set_operand(chunk.operand());
    v1::TensorChunk& rotated = *answer->mutable_chunk()->mutable_rows();
    rotated.set_byte_offset(chunk.rows().byte_offset());
    if (options.outputs.size() > 1) {
      return InvalidArgument("NOT_READ", "outputs[1]", "", "must be left out: a chunk has one tensor");
    }
    std::byte* output = options.outputs.empty() ? nullptr : options.outputs[0].data();
    if (output == nullptr) {
      rotated.mutable_data()->resize(rows.size());
      output = reinterpret_cast<std::byte*>(rotated.mutable_data()->data());
    } else if (options.outputs[0].size() != rows.size()) {
      return InvalidArgument("MISMATCH", "outputs[0]", absl::StrCat(options.outputs[0].size(), " bytes"),
                             absl::StrCat("must be the ", rows.size(), " bytes of the chunk"));
    }
    std::vector<std::byte> apart;
    if (output != rows.data() && Overlap(rows, {output, rows.size()})) {
      apart.assign(rows.begin(), rows.end());
      rows = apart;
    }
    POSENC_RETURN_IF_ERROR(RunInterruptibly(cancelled_, [&] {
      return stream_.Rotate(chunk.operand(), chunk.rows().byte_offset(), static_cast<int64_t>(rows.size()),
                            ContiguousBytes(rows.data(), rows.size()), output, process_.Pool(), cancelled_);
    }));
    return answer;
  }

 private:
  const wire::RotaryStream stream_;
  InProcess& process_;
  const Cancellation cancelled_;
};

absl::StatusOr<std::unique_ptr<InProcess::Stream>> InProcess::Open(const google::protobuf::Message& request,
                                                                   const CallOptions& options) {
  const wire::RpcDescription& rpc = wire::RpcOf(*request.GetDescriptor());
  const Cancellation cancelled = DeadlineOf(options);
  POSENC_RETURN_IF_ERROR(CheckMemory(request, options));
  POSENC_RETURN_IF_ERROR(CheckSize(request, options, options_.limits));
  POSENC_RETURN_IF_ERROR(wire::RejectUnknown(request));
  POSENC_RETURN_IF_ERROR(wire::CheckHints(request, nullptr));
  const wire::BesideMessage payloads(options.inputs);
  return RunInterruptibly(cancelled, [&]() -> absl::StatusOr<std::unique_ptr<Stream>> {
    if (const auto* parts = dynamic_cast<const v1::StreamApplyRotaryRequest*>(&request)) {
      if (!parts->has_header()) return InvalidArgument("MISSING", "header", "", "must be given, first");
      POSENC_ASSIGN_OR_RETURN(wire::RotaryStream stream,
                              wire::RotaryStream::Create(parts->header(), payloads, options_.limits));
      return std::make_unique<Chunks>(std::move(stream), this, cancelled);
    }
    POSENC_ASSIGN_OR_RETURN(wire::TileStream stream,
                            wire::LibraryOperations().TilesOf(rpc).prepare(request, payloads, options_.limits));
    return std::make_unique<Tiles>(rpc, std::move(stream), this, cancelled);
  });
}

absl::Status InProcess::DoTiles(const wire::RpcDescription&, const google::protobuf::Message& request, AnyTileSink sink,
                                const CallOptions& options) {
  POSENC_RETURN_IF_ERROR(RefuseMemory(options));
  POSENC_ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream, Open(request, options));
  for (;;) {
    POSENC_ASSIGN_OR_RETURN(const std::unique_ptr<google::protobuf::Message> tile, stream->Next(nullptr, {}));
    if (tile == nullptr) return absl::OkStatus();
    POSENC_RETURN_IF_ERROR(sink(*tile));
  }
}

absl::StatusOr<v1::AnswerInfo> InProcess::DoStreamApplyRotary(const v1::ApplyRotaryRequest& header,
                                                              const RotaryMemory& memory, const ChunkOptions&,
                                                              const CallOptions& options) {
  POSENC_RETURN_IF_ERROR(RefuseMemory(options));
  const Cancellation cancelled = DeadlineOf(options);
  POSENC_RETURN_IF_ERROR(Within("header", wire::RejectUnknown(header)));
  POSENC_RETURN_IF_ERROR(Within("header", wire::CheckHints(header, nullptr)));
  POSENC_ASSIGN_OR_RETURN(const auto stream, RunInterruptibly(cancelled, [&] {
                            return wire::RotaryStream::Create(header, wire::InMessage(), options_.limits);
                          }));
  POSENC_RETURN_IF_ERROR(CheckMemory(stream.Size(v1::OPERAND_QUERY), stream.Size(v1::OPERAND_KEY), memory));
  for (const auto& [operand, tensor] : {std::pair{v1::OPERAND_QUERY, memory.q}, {v1::OPERAND_KEY, memory.k}}) {
    const int64_t size = stream.Size(operand);
    const ContiguousBytes x(static_cast<const std::byte*>(tensor.input), size);
    auto* y = static_cast<std::byte*>(tensor.output);
    POSENC_RETURN_IF_ERROR(stream.Rotate(operand, 0, size, x, y, Pool(), cancelled));
  }
  return stream.info();
}

absl::StatusOr<ServingStatus> InProcess::DoCheckHealth(const std::string&, const CallOptions&) {
  return ServingStatus::kServing;
}

}  // namespace posenc
