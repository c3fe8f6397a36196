// Positions: the ids that a model's class computes before the rotation.
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "posenc/base/interruption.h"
#include "posenc/base/memory_account.h"
#include "posenc/base/version.h"
#include "posenc/mapping/computed_positions.h"
#include "posenc/mapping/read.h"
#include "posenc/service/operations.h"

namespace posenc::wire {
namespace {

constexpr EnumPairs<v1::SpanKind, SpanKind> kSpanKinds = {
    {v1::SPAN_KIND_TEXT, SpanKind::kText},
    {v1::SPAN_KIND_IMAGE, SpanKind::kImage},
    {v1::SPAN_KIND_VIDEO, SpanKind::kVideo},
    {v1::SPAN_KIND_AUDIO, SpanKind::kAudio},
    {v1::SPAN_KIND_VIDEO_AND_AUDIO, SpanKind::kVideoAndAudio},
};

// Tokens begin .. end-1 of each sequence.
struct Chunk {
  int64_t begin, end;
};

absl::StatusOr<Chunk> ChunkOf(const v1::PositionsRequest& request, int64_t length) {
  const int64_t begin = request.token_begin();
  if (begin < 0 || begin > length) {
    return InvalidArgument("OUT_OF_RANGE", "token_begin", fmt::format("{}", begin),
                           fmt::format("must be 0 .. {}, the number of tokens", length));
  }
  const int64_t count = request.has_token_count() ? request.token_count() : length - begin;
  if (count < 0 || count > length - begin) {
    return InvalidArgument("OUT_OF_RANGE", "token_count", fmt::format("{}", count),
                           fmt::format("must be 0 .. {}, the tokens from token_begin on", length - begin));
  }
  return Chunk{begin, begin + count};
}

// Writes rows of `ids`, cut to the chunk, as INT64 or FP32.
void WriteIds(const std::vector<double>& ids, std::vector<int64_t> shape, Chunk chunk, bool fractions,
              v1::Tensor* tensor) {
  const int64_t width = shape.back();
  shape.back() = chunk.end - chunk.begin;
  WriteShape({fractions ? DType::kFP32 : DType::kINT64, shape}, tensor);
  std::string bytes;
  const auto append = [&bytes](auto value) { bytes.append(reinterpret_cast<const char*>(&value), sizeof(value)); };
  const int64_t rows = width == 0 ? 0 : static_cast<int64_t>(ids.size()) / width;
  bytes.reserve(rows * shape.back() * sizeof(int64_t));
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t n = chunk.begin; n < chunk.end; ++n) {
      InterruptionPointOfStep(n);
      const double id = ids[row * width + n];
      fractions ? append(static_cast<float>(id)) : append(static_cast<int64_t>(id));
    }
  }
  WriteData(bytes, tensor);
}

void WriteSpan(const PositionSpan& span, v1::PositionSpan* message) {
  message->set_sequence(span.sequence);
  message->set_kind(Name(span.kind, kSpanKinds));
  message->set_begin(span.begin);
  message->set_end(span.end);
  if (span.grid) message->set_grid(*span.grid);
  if (span.frame) message->set_frame(*span.frame);
  if (span.audio) message->set_audio(*span.audio);
}

absl::Status Compute(const v1::PositionsRequest& request, const Payloads& payloads, const Limits& limits,
                     v1::PositionsResponse* response) {
  const LargeBlocksMayBeRefused scope;
  const Reader reader{payloads, limits};
  POSENC_ASSIGN_OR_RETURN(const ComputedPositions computed, ComputePositions(reader, request));
  const CountedPositions& counted = computed.counted;
  POSENC_ASSIGN_OR_RETURN(const Chunk chunk, ChunkOf(request, computed.length));
  const auto axes = static_cast<int64_t>(counted.axes.size());
  const int64_t sequences = computed.sequences;
  WriteIds(counted.ids, {axes, sequences, computed.length}, chunk, counted.fractions, response->mutable_ids());
  const auto whole = [](int64_t width) { return Chunk{0, width}; };
  const auto deltas = static_cast<int64_t>(counted.deltas.size());
  WriteIds(counted.deltas, {deltas}, whole(deltas), counted.fractions, response->mutable_rope_deltas());
  for (const PositionSpan& span : counted.spans) {
    InterruptionPointOfStep(response->spans_size());
    WriteSpan(span, response->add_spans());
  }
  for (const std::string& axis : counted.axes) response->add_axes(axis);
  response->set_rule(std::string(computed.rule));
  response->set_sentence(std::string(computed.sentence));
  response->set_config_rules(kConfigRules);
  if (counted.decode_count > 0) {
    WriteIds(counted.decode_ids, {axes, sequences, counted.decode_count}, whole(counted.decode_count),
             counted.fractions, response->mutable_decode_ids());
  }
  if (counted.key_count > 0) {
    WriteIds(counted.key_ids, {axes, sequences, counted.key_count}, whole(counted.key_count), counted.fractions,
             response->mutable_key_ids());
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Job> Prepare(const v1::PositionsRequest& request, const Payloads& payloads, const Limits& limits,
                            v1::PositionsResponse* response) {
  Job job;
  job.decide = [&request, &payloads, limits, response](WorkPool&, const Cancellation& cancelled) {
    const InterruptionScope scope(&cancelled);
    return Compute(request, payloads, limits, response);
  };
  return job;
}

}  // namespace posenc::wire
