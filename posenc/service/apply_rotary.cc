#include "posenc/rotary/apply_rotary.h"

#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "posenc/mapping/read.h"
#include "posenc/mapping/rotary_source.h"
#include "posenc/service/call_context.h"
#include "posenc/service/operations.h"
#include "posenc/service/rotary_stream.h"

namespace posenc::wire {
namespace {

absl::StatusOr<Output> PlaceOf(const Reader& reader, std::string_view name, const v1::RotaryOperand& message,
                               v1::Tensor* answer) {
  return reader.Place(std::string(name) + ".output", OutputOf(message), reader.payloads.Size(message.tensor()), answer);
}

// Device whose memory holds all tensors (RequestRegions ensures that it is one device); null: host memory.
Device* HomeOf(const v1::ApplyRotaryRequest& request, const Payloads& payloads) {
  const v1::Tensor& any = request.has_q() ? request.q().tensor() : request.k().tensor();
  return any.has_region() ? payloads.DeviceOf(any.region()) : nullptr;
}

// Prepares a rotation in the memory of the device `home`.
absl::Status PrepareInPlace(const v1::ApplyRotaryRequest& request, std::shared_ptr<const RotaryApplication> application,
                            Device* home, const CallContext& context, v1::ApplyRotaryResponse* response, Job* job) {
  if (const std::string& asked = request.hints().device(); !asked.empty() && !IsNamedBy(asked, home->name())) {
    return InvalidArgument("CONFLICT", "hints.device", Quote(asked),
                           fmt::format("must be {}, where the tensors lie", home->name()));
  }
  if (!context.may_block()) return WouldBlock();
  if (application == nullptr) {
    return InvalidArgument(
        "UNSUPPORTED", "q.tensor", "",
        fmt::format("must be of a layer that rotates: the tensors stay as they are on {}", home->name()));
  }
  response->mutable_info()->set_device(home->name());
  job->run = [application = std::move(application), operands = job->operands, home, has_q = request.has_q(),
              has_k = request.has_k()](const Payloads& from, absl::Span<std::byte* const> buffers, WorkPool&,
                                       const Cancellation& cancelled) {
    const auto of = [&](bool given, size_t n) -> RotaryApplication::DeviceBuffers {
      if (!given) return {};
      return {from.At(operands[n]->region()), buffers[n]};
    };
    return application->RotateInPlace(of(has_q, 0), of(has_k, operands.size() - 1), *home, cancelled);
  };
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Job> Prepare(const v1::ApplyRotaryRequest& request, const Payloads& payloads, const CallContext& context,
                            v1::ApplyRotaryResponse* response) {
  const Reader reader{payloads, context.limits, context.plan_source};
  int64_t bytes = 0;  // in the answer message itself, not in regions
  Job job;
  if (request.has_q()) {
    job.operands.push_back(&request.q().tensor());
    POSENC_ASSIGN_OR_RETURN(job.outputs.emplace_back(), PlaceOf(reader, "q", request.q(), response->mutable_q()));
  }
  if (request.has_k()) {
    job.operands.push_back(&request.k().tensor());
    POSENC_ASSIGN_OR_RETURN(job.outputs.emplace_back(), PlaceOf(reader, "k", request.k(), response->mutable_k()));
  }
  for (const Output& output : job.outputs) bytes += output.region() == nullptr ? static_cast<int64_t>(output.bytes) : 0;
  POSENC_RETURN_IF_ERROR(CheckOutput(bytes, context.limits));
  POSENC_ASSIGN_OR_RETURN(PreparedRotary prepared, PrepareRotary(reader, request, Bytes::kInRequest));
  if (request.has_q()) WriteShape(prepared.q, response->mutable_q());
  if (request.has_k()) WriteShape(prepared.k, response->mutable_k());
  CopyInfo(prepared.info, response->mutable_info());

  if (Device* home = HomeOf(request, payloads); home != nullptr) {
    POSENC_RETURN_IF_ERROR(PrepareInPlace(request, std::move(prepared.application), home, context, response, &job));
    return job;
  }
  int64_t operand_bytes = 0;
  for (const Output& output : job.outputs) operand_bytes += static_cast<int64_t>(output.bytes);
  Devices::Slabs slabs;
  if (prepared.application != nullptr && prepared.application->CanRunOnDevice()) {
    slabs = [&](const Device& one) { return prepared.application->SlabsOn(one); };
  }
  POSENC_ASSIGN_OR_RETURN(const DeviceLease device, ChooseDevice(request.hints(), DeviceWork::kRotation, operand_bytes,
                                                                 slabs, context, response->mutable_info()));

  // Reads the request's bytes where they are and writes to the answer, without an intermediate copy.
  using Tables = std::shared_ptr<const RotaryApplication::Tables>;
  const auto run_with = [application = prepared.application, operands = job.operands, device](const Tables& tables) {
    return [=](const Payloads& from, absl::Span<std::byte* const> buffers, WorkPool& pool,
               const Cancellation& cancelled) -> absl::Status {
      if (application == nullptr) {  // a layer that does not rotate
        for (size_t n = 0; n < operands.size(); ++n) {
          POSENC_RETURN_IF_ERROR(CopyOperand(from, *operands[n], buffers[n], pool, cancelled));
        }
        return absl::OkStatus();
      }
      const TensorBytes q(from, *operands[0]), k(from, *operands.back());
      return application->Rotate({&q, buffers[0]}, {&k, buffers.back()}, pool, cancelled, device.get(), tables.get());
    };
  };
  job.run = run_with(nullptr);
  if (prepared.application == nullptr) {
    job.make_quick_run = [run = job.run] { return run; };
  } else if (device == nullptr && prepared.application->has_small_tables()) {
    job.make_quick_run = [run_with, application = prepared.application]() -> Job::Run {
      return run_with(std::make_shared<const RotaryApplication::Tables>(application->AllTables()));
    };
  }
  return job;
}

}  // namespace posenc::wire
