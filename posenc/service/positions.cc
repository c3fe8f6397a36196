// Positions: the ids that a model's class computes before the rotation.
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "posenc/base/interruption.h"
#include "posenc/base/memory_account.h"
#include "posenc/base/version.h"
#include "posenc/mapping/computed_positions.h"
#include "posenc/mapping/read.h"
#include "posenc/positions/difference.h"
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

constexpr EnumPairs<v1::PositionFault, PositionFault> kPositionFaults = {
    {v1::POSITION_FAULT_UNSPECIFIED, PositionFault::kNone},
    {v1::POSITION_FAULT_COUNTERS, PositionFault::kCounters},
    {v1::POSITION_FAULT_AXES_EXCHANGED, PositionFault::kAxesExchanged},
    {v1::POSITION_FAULT_DELTA, PositionFault::kDelta},
    {v1::POSITION_FAULT_RESTART, PositionFault::kRestart},
    {v1::POSITION_FAULT_SECONDS_IGNORED, PositionFault::kSecondsIgnored},
    {v1::POSITION_FAULT_PADDING_COUNTED, PositionFault::kPaddingCounted},
    {v1::POSITION_FAULT_OFFSET, PositionFault::kOffset},
    {v1::POSITION_FAULT_SPAN_COUNTED, PositionFault::kSpanCounted},
    {v1::POSITION_FAULT_OTHER, PositionFault::kOther},
};

absl::StatusOr<TokenChunk> ChunkOf(const v1::PositionsRequest& request, int64_t length) {
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
  return TokenChunk{begin, begin + count};
}

// Writes rows of `ids`, cut to the chunk, as INT64 or FP32.
void WriteIds(const std::vector<double>& ids, std::vector<int64_t> shape, TokenChunk chunk, bool fractions,
              v1::Tensor* tensor) {
  const LargeBlocksMayBeRefused scope;
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

// `sequences` and `width`: those of the answer's ids.
absl::StatusOr<GivenPositionIds> ReadGiven(const Reader& reader, const v1::GivenPositions& message, int64_t sequences,
                                           int64_t width) {
  if (!message.has_ids()) return InvalidArgument("MISSING", "ids", "", "must be given: rope_deltas belong to them");
  POSENC_ASSIGN_OR_RETURN(TensorShape shape, reader.Shape("ids", message.ids()));
  if (shape.rank() == 1 && sequences == 1) shape.shape.insert(shape.shape.begin(), 1);
  const bool has_axes = shape.rank() == 3;
  if (!(has_axes || shape.rank() == 2) || shape.shape.end()[-2] != sequences || shape.shape.back() != width) {
    return InvalidArgument(
        "MISMATCH", "ids.shape", ToString(shape.shape),
        fmt::format("must be [axes, {0}, {1}] or [{0}, {1}], as the answer's ids", sequences, width));
  }
  GivenPositionIds given;
  if (has_axes) given.axes = shape.shape[0];
  POSENC_ASSIGN_OR_RETURN(given.ids, reader.Values("ids", message.ids()));
  if (message.has_rope_deltas()) {
    POSENC_ASSIGN_OR_RETURN(given.deltas, reader.Values("rope_deltas", message.rope_deltas()));
  }
  return given;
}

absl::Status WriteComparison(const Reader& reader, const v1::PositionsRequest& request,
                             const ComputedPositions& computed, const TokenChunk& chunk,
                             v1::PositionComparison* message) {
  POSENC_ASSIGN_OR_RETURN(const GivenPositionIds given,
                          ReadGiven(reader, request.given(), computed.tokens.sequences, chunk.end - chunk.begin));
  POSENC_ASSIGN_OR_RETURN(
      const PositionsComparison comparison,
      ComparePositions(*computed.rule, computed.model, computed.tokens, computed.counted, chunk, given, reader.limits));
  message->set_same(comparison.fault == PositionFault::kNone);
  message->set_fault(Name(comparison.fault, kPositionFaults));
  message->set_sentence(comparison.sentence);
  message->set_differing(comparison.differing);
  if (!comparison.first) return absl::OkStatus();
  message->set_sequence(comparison.first->sequence);
  message->set_token(comparison.first->token);
  message->set_axis(comparison.first->axis);
  message->set_expected(comparison.first->expected);
  message->set_given(comparison.first->given);
  return absl::OkStatus();
}

absl::Status AnswerPositions(const v1::PositionsRequest& request, const Payloads& payloads, const Limits& limits,
                             v1::PositionsResponse* response) {
  const Reader reader{payloads, limits};
  POSENC_ASSIGN_OR_RETURN(const ComputedPositions computed, ComputePositions(reader, request));
  const CountedPositions& counted = computed.counted;
  POSENC_ASSIGN_OR_RETURN(const TokenChunk chunk, ChunkOf(request, computed.tokens.length));
  const auto axes = static_cast<int64_t>(counted.axes.size());
  const int64_t sequences = computed.tokens.sequences;
  WriteIds(counted.ids, {axes, sequences, computed.tokens.length}, chunk, counted.fractions, response->mutable_ids());
  const auto whole = [](int64_t width) { return TokenChunk{0, width}; };
  const auto deltas = static_cast<int64_t>(counted.deltas.size());
  WriteIds(counted.deltas, {deltas}, whole(deltas), counted.fractions, response->mutable_rope_deltas());
  for (const PositionSpan& span : counted.spans) {
    InterruptionPointOfStep(response->spans_size());
    WriteSpan(span, response->add_spans());
  }
  for (const std::string& axis : counted.axes) response->add_axes(axis);
  response->set_rule(std::string(computed.rule->model_type));
  response->set_sentence(std::string(computed.rule->sentence));
  response->set_config_rules(kConfigRules);
  if (counted.decode_count > 0) {
    WriteIds(counted.decode_ids, {axes, deltas, counted.decode_count}, whole(counted.decode_count), counted.fractions,
             response->mutable_decode_ids());
  }
  if (counted.key_count > 0) {
    WriteIds(counted.key_ids, {axes, sequences, counted.key_count}, whole(counted.key_count), counted.fractions,
             response->mutable_key_ids());
  }
  if (!request.has_given()) return absl::OkStatus();
  return Within("given", WriteComparison(reader, request, computed, chunk, response->mutable_comparison()));
}

}  // namespace

absl::StatusOr<Job> Prepare(const v1::PositionsRequest& request, const Payloads& payloads, const Limits& limits,
                            v1::PositionsResponse* response) {
  Job job;
  job.decide = [&request, &payloads, limits, response](WorkPool&, const Cancellation&) {
    return AnswerPositions(request, payloads, limits, response);
  };
  return job;
}

}  // namespace posenc::wire
