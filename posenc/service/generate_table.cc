#include "posenc/rotary/generate_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <tuple>

#include "posenc/mapping/computed_positions.h"
#include "posenc/mapping/read.h"
#include "posenc/mapping/rotary_source.h"
#include "posenc/service/call_context.h"
#include "posenc/service/operations.h"

namespace posenc::wire {
namespace {

constexpr EnumPairs<v1::Operand, Operand> kRotaryOperands = {
    {v1::OPERAND_QUERY, Operand::kQuery},
    {v1::OPERAND_KEY, Operand::kKey},
};

struct PreparedTable {
  std::shared_ptr<const TableGeneration> generation;
  DType dtype;
  v1::AnswerInfo info;
};

absl::StatusOr<PreparedTable> PrepareTable(const v1::GenerateTableRequest& request, const Payloads& payloads,
                                           const CallContext& context) {
  const Reader reader{payloads, context.limits, context.plan_source};
  POSENC_ASSIGN_OR_RETURN(ResolvedRotary resolved, ResolveRotary(reader, request.rotary(), request.precision()));
  POSENC_RETURN_IF_ERROR(KeepRotation(request.rotary(), &resolved));
  GenerateTable call;
  POSENC_ASSIGN_OR_RETURN(call.dtype, ChooseType("dtype", request.dtype(), kTableTypes));
  POSENC_ASSIGN_OR_RETURN(call.form, Choose("form", request.form(), kTableForms));
  if (request.operand() != v1::OPERAND_UNSPECIFIED) {
    POSENC_ASSIGN_OR_RETURN(call.operand, Choose("operand", request.operand(), kRotaryOperands));
  }
  POSENC_ASSIGN_OR_RETURN(call.positions,
                          ReadPositionsOf(reader, request.rotary(), request.positions(), IdsFor::kTable));
  SettleLengthRule(request.rotary(), *resolved.rotary, call.positions, nullptr);
  if (request.rotary().has_model()) call.positions.cache_index.reset();
  const auto count = request.has_count() ? std::optional(request.count()) : std::nullopt;
  POSENC_ASSIGN_OR_RETURN(call.rows, CountRows("positions", call.positions, count, context.limits));
  PreparedTable prepared;
  prepared.dtype = call.dtype;
  auto generation = TableGeneration::Create(*resolved.rotary, std::move(call), context.limits);
  POSENC_RETURN_IF_ERROR(OfParameters(resolved, generation.status()));
  prepared.generation = std::make_shared<const TableGeneration>(*std::move(generation));
  const std::vector<const RotaryPlan*> plans = PlansOf(prepared.generation->table());
  if (request.hints().return_plan()) POSENC_RETURN_IF_ERROR(CheckReturned(plans, context.limits));
  WriteRotaryInfo(resolved, plans, request.hints().return_plan(), &prepared.info);
  return prepared;
}

// Job that writes rows [row_begin, row_begin + rows) to cos and sin. Their size must have been checked.
Job RowsJob(const PreparedTable& table, int64_t row_begin, int64_t rows, v1::Tensor* cos, v1::Tensor* sin,
            DeviceLease device = nullptr) {
  const TensorShape shape{table.dtype, table.generation->Shape(rows)};
  WriteShape(shape, cos);
  WriteShape(shape, sin);
  const size_t bytes = rows * table.generation->row_elements() * SizeOf(table.dtype);
  Job job;
  job.outputs = {{cos, bytes}, {sin, bytes}};
  job.run = [generation = table.generation, row_begin, rows, device = std::move(device)](
                const Payloads&, absl::Span<std::byte* const> buffers, WorkPool& pool, const Cancellation& cancelled) {
    return generation->WriteRows(row_begin, rows, buffers[0], buffers[1], pool, cancelled, device.get());
  };
  return job;
}

// Bytes of `rows` rows of cosines and sines together. RESOURCE_EXHAUSTED above the limit for an answer.
absl::StatusOr<int64_t> CheckedBytes(const PreparedTable& table, int64_t rows, const Limits& limits) {
  POSENC_ASSIGN_OR_RETURN(const int64_t bytes, table.generation->Bytes(rows, limits));
  int64_t both;
  if (__builtin_mul_overflow(bytes, 2, &both)) both = std::numeric_limits<int64_t>::max();
  POSENC_RETURN_IF_ERROR(CheckOutput(both, limits));
  return both;
}

}  // namespace

absl::StatusOr<Job> Prepare(const v1::GenerateTableRequest& request, const Payloads& payloads,
                            const CallContext& context, v1::GenerateTableResponse* response) {
  POSENC_ASSIGN_OR_RETURN(PreparedTable table, PrepareTable(request, payloads, context));
  POSENC_ASSIGN_OR_RETURN(const int64_t bytes, CheckedBytes(table, table.generation->rows(), context.limits));
  if (request.has_cos_output() != request.has_sin_output()) {
    return InvalidArgument("MISSING", request.has_cos_output() ? "sin_output" : "cos_output", "",
                           "must be given: both or neither");
  }
  CopyInfo(table.info, response->mutable_info());
  Devices::Slabs slabs;
  if (table.generation->table().has_recipe()) {
    slabs = [bytes](const Device& one) { return 1 + bytes / static_cast<int64_t>(one.slab_bytes()); };
  }
  POSENC_ASSIGN_OR_RETURN(DeviceLease device, ChooseDevice(request.hints(), DeviceWork::kTable, bytes, slabs, context,
                                                           response->mutable_info()));
  Job job =
      RowsJob(table, 0, table.generation->rows(), response->mutable_cos(), response->mutable_sin(), std::move(device));
  if (!request.has_cos_output()) return job;
  const Reader reader{payloads, context.limits};
  for (const auto& [field, region, output] : {std::tuple{"cos_output", &request.cos_output(), &job.outputs[0]},
                                              {"sin_output", &request.sin_output(), &job.outputs[1]}}) {
    POSENC_ASSIGN_OR_RETURN(*output, reader.Place(field, region, output->bytes, output->tensor));
  }
  return job;
}

absl::StatusOr<TileStream> Prepare(const v1::StreamTableRequest& request, const Payloads& payloads,
                                   const Limits& limits) {
  if (!request.has_table()) return InvalidArgument("MISSING", "table", "", "must be given");
  if (request.table().has_cos_output() || request.table().has_sin_output()) {
    return InvalidArgument("UNSUPPORTED", "table.cos_output", "", "must be absent: a stream's tiles are its answers");
  }
  auto prepared = PrepareTable(request.table(), payloads, limits);
  if (!prepared.ok()) return Within("table", prepared.status());
  auto table = std::make_shared<PreparedTable>(*std::move(prepared));

  TileStream stream;
  stream.rows = table->generation->rows();
  const int64_t row_bytes = 2 * table->generation->row_elements() * static_cast<int64_t>(SizeOf(table->dtype));
  const auto asked = request.has_rows_per_tile() ? std::optional(request.rows_per_tile()) : std::nullopt;
  POSENC_ASSIGN_OR_RETURN(stream.rows_per_tile, RowsPerTile(asked, stream.rows, row_bytes, limits));
  POSENC_RETURN_IF_ERROR(CheckedBytes(*table, stream.RowsAt(0), limits).status());
  stream.tile = [table, stream](int64_t row_begin, google::protobuf::Message* message) {
    auto* response = static_cast<v1::StreamTableResponse*>(message);
    if (row_begin == 0) CopyInfo(table->info, response->mutable_info());
    response->set_row_begin(row_begin);
    return RowsJob(*table, row_begin, stream.RowsAt(row_begin), response->mutable_cos(), response->mutable_sin());
  };
  return stream;
}

}  // namespace posenc::wire
