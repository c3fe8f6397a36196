#include <memory>
#include <optional>
#include <utility>

#include "posenc/bias/generate_bias.h"
#include "posenc/mapping/bias_method.h"
#include "posenc/mapping/bias_source.h"
#include "posenc/mapping/read.h"
#include "posenc/mapping/rotary_source.h"
#include "posenc/service/call_context.h"
#include "posenc/service/operations.h"

namespace posenc::wire {
namespace {

// Reads the fields that GenerateBias and AddBias share; not form, dtype and scores. Takes the method.
template <class Request>
absl::StatusOr<GenerateBias> ReadCall(const Reader& reader, const Request& request, ResolvedBias& resolved) {
  GenerateBias call;
  call.method = std::move(resolved.method);
  call.precision = resolved.precision;
  POSENC_ASSIGN_OR_RETURN(call.geometry, ReadGeometry(reader, request.geometry()));
  if (request.has_mask()) {
    POSENC_ASSIGN_OR_RETURN(call.mask, ReadMask(reader, request.mask()));
  }
  return call;
}

template <class Request>
void WriteInfoOfBias(const Request& request, const BiasGeneration& bias, const ResolvedBias& resolved, BiasUse use,
                     v1::AnswerInfo* info) {
  WriteBiasInfo(bias.method(), resolved.precision, resolved.notes, use,
                request.hints().return_plan() ? &bias.slopes() : nullptr, info);
}

// Writes what was used straight to where it is kept: with a plan, a copy can be large.
absl::StatusOr<std::shared_ptr<const BiasGeneration>> PrepareBias(const v1::GenerateBiasRequest& request,
                                                                  const Payloads& payloads, const Limits& limits,
                                                                  BiasGeneration::Extent extent, v1::AnswerInfo* info) {
  const Reader reader{payloads, limits};
  POSENC_ASSIGN_OR_RETURN(ResolvedBias resolved, ResolveBias(reader, request.method(), request.precision()));
  POSENC_ASSIGN_OR_RETURN(GenerateBias call, ReadCall(reader, request, resolved));
  POSENC_ASSIGN_OR_RETURN(call.form,
                          (Choose<v1::BiasForm, BiasForm>("form", request.form(),
                                                          {{v1::BIAS_FORM_DENSE, BiasForm::kDense},
                                                           {v1::BIAS_FORM_COMPACT, BiasForm::kCompact},
                                                           {v1::BIAS_FORM_INDEX, BiasForm::kIndex},
                                                           {v1::BIAS_FORM_COMPACT_INDEX, BiasForm::kCompactIndex}})));
  const bool is_index = call.form == BiasForm::kIndex || call.form == BiasForm::kCompactIndex;
  POSENC_ASSIGN_OR_RETURN(call.dtype, ChooseType("dtype", request.dtype(), is_index ? kIndexTypes : kOperandTypes));
  auto created = BiasGeneration::Create(std::move(call), limits, extent);
  if (!created.ok()) return InWordsOf(request.method(), created.status());
  auto generation = std::make_shared<const BiasGeneration>(*std::move(created));
  WriteInfoOfBias(request, *generation, resolved, BiasUse::kAlone, info);
  return generation;
}

// Job that writes the rows of `count` queries from `first` on. Their size must have been checked.
Job RowsJob(const std::shared_ptr<const BiasGeneration>& bias, int64_t first, int64_t count, Output output,
            DeviceLease device = nullptr) {
  Job job;
  job.outputs = {output};
  job.run = [bias, first, count, device = std::move(device)](const Payloads&, absl::Span<std::byte* const> buffers,
                                                             WorkPool& pool, const Cancellation& cancelled) {
    return bias->WriteRows(first, count, nullptr, buffers[0], pool, cancelled, device.get());
  };
  return job;
}

// Slab count for ChooseDevice; null if only the CPU can compute the bias. The number does not matter, because biases go
// to a device only on request.
Devices::Slabs SlabsOf(const BiasGeneration& bias) {
  if (!bias.IsForDevices()) return nullptr;
  return [](const Device&) { return 1; };
}

}  // namespace

absl::StatusOr<Job> Prepare(const v1::GenerateBiasRequest& request, const Payloads& payloads,
                            const CallContext& context, v1::GenerateBiasResponse* response) {
  POSENC_ASSIGN_OR_RETURN(const auto bias, PrepareBias(request, payloads, context.limits,
                                                       BiasGeneration::Extent::kWhole, response->mutable_info()));
  const BiasGeneration& generation = *bias;
  WriteShape(generation.shape(), response->mutable_bias());
  POSENC_ASSIGN_OR_RETURN(const Output output,
                          (Reader{payloads, context.limits}.Place("output", OutputOf(request),
                                                                  *ByteSize("bias", generation.shape(), context.limits),
                                                                  response->mutable_bias())));
  POSENC_ASSIGN_OR_RETURN(DeviceLease device,
                          ChooseDevice(request.hints(), DeviceWork::kBias, static_cast<int64_t>(output.bytes),
                                       SlabsOf(generation), context, response->mutable_info()));
  return RowsJob(bias, 0, generation.queries(), output, std::move(device));
}

absl::StatusOr<TileStream> Prepare(const v1::StreamBiasRequest& request, const Payloads& payloads,
                                   const Limits& limits) {
  if (!request.has_bias()) return InvalidArgument("MISSING", "bias", "", "must be given");
  if (request.bias().form() != v1::BIAS_FORM_DENSE) {
    return InvalidArgument("UNSUPPORTED", "bias.form", v1::BiasForm_Name(request.bias().form()),
                           "must be BIAS_FORM_DENSE in a stream of query rows");
  }
  if (request.bias().has_output()) {
    return InvalidArgument("NOT_READ", "bias.output", "", "must be absent: a stream has no region for its answers");
  }
  const auto info = std::make_shared<v1::AnswerInfo>();
  auto prepared = PrepareBias(request.bias(), payloads, limits, BiasGeneration::Extent::kTiles, info.get());
  if (!prepared.ok()) return Within("bias", prepared.status());
  const std::shared_ptr<const BiasGeneration> bias = *std::move(prepared);

  TileStream stream;
  TensorShape shape = bias->shape();
  const size_t query_axis = shape.rank() - 2;
  stream.rows = shape.shape[query_axis];
  shape.shape[query_axis] = 1;
  POSENC_ASSIGN_OR_RETURN(const int64_t row_bytes, ByteSize("answer", shape, limits));
  const auto asked = request.has_rows_per_tile() ? std::optional(request.rows_per_tile()) : std::nullopt;
  POSENC_ASSIGN_OR_RETURN(stream.rows_per_tile, RowsPerTile(asked, stream.rows, row_bytes, limits));
  stream.tile = [bias, info, stream, shape, query_axis](int64_t row_begin, google::protobuf::Message* message) {
    auto* response = static_cast<v1::StreamBiasResponse*>(message);
    if (row_begin == 0) CopyInfo(*info, response->mutable_info());
    response->set_row_begin(row_begin);
    TensorShape tile = shape;
    tile.shape[query_axis] = stream.RowsAt(row_begin);
    WriteShape(tile, response->mutable_bias());
    const auto bytes = static_cast<size_t>(*ByteSize("bias", tile, Limits()));
    return RowsJob(bias, row_begin, tile.shape[query_axis], {response->mutable_bias(), bytes});
  };
  return stream;
}

absl::StatusOr<Job> Prepare(const v1::AddBiasRequest& request, const Payloads& payloads, const CallContext& context,
                            v1::AddBiasResponse* response) {
  const Reader reader{payloads, context.limits};
  POSENC_ASSIGN_OR_RETURN(ResolvedBias resolved, ResolveBias(reader, request.method(), request.precision()));
  if (!request.has_scores()) return InvalidArgument("MISSING", "scores", "", "must be given");
  POSENC_ASSIGN_OR_RETURN(GenerateBias call, ReadCall(reader, request, resolved));
  POSENC_ASSIGN_OR_RETURN(call.scores, reader.Shape("scores", request.scores()));
  call.dtype = call.scores->dtype;
  auto created = BiasGeneration::Create(std::move(call), context.limits);
  if (!created.ok()) return InWordsOf(request.method(), created.status());
  const auto bias = std::make_shared<const BiasGeneration>(*std::move(created));

  WriteInfoOfBias(request, *bias, resolved, BiasUse::kAdded, response->mutable_info());
  WriteShape(bias->shape(), response->mutable_scores());
  Job job;
  POSENC_ASSIGN_OR_RETURN(
      job.outputs.emplace_back(),
      reader.Place("output", OutputOf(request), payloads.Size(request.scores()), response->mutable_scores()));
  POSENC_ASSIGN_OR_RETURN(const DeviceLease device,
                          ChooseDevice(request.hints(), DeviceWork::kBias, static_cast<int64_t>(job.outputs[0].bytes),
                                       SlabsOf(*bias), context, response->mutable_info()));
  job.run = [bias, scores = &request.scores(), device](const Payloads& from, absl::Span<std::byte* const> buffers,
                                                       WorkPool& pool, const Cancellation& cancelled) {
    POSENC_RETURN_IF_ERROR(CopyOperand(from, *scores, buffers[0], pool, cancelled));
    return bias->Write(buffers[0], buffers[0], pool, cancelled, device.get());
  };
  return job;
}

}  // namespace posenc::wire
