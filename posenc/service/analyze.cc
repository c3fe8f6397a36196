#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <numbers>

#include "posenc/base/fingerprint.h"
#include "posenc/mapping/embedding_method.h"
#include "posenc/mapping/read.h"
#include "posenc/mapping/rotary_source.h"
#include "posenc/methods/embedding/encoding.h"
#include "posenc/rotary/distance_curves.h"
#include "posenc/rotary/pair_scaling.h"
#include "posenc/service/explain_text.h"
#include "posenc/service/operations.h"

namespace posenc::wire {
namespace {

// Subject of an analysis: frequencies, and the number of axes of a distance.
struct Subject {
  RotaryPlan plan;
  int64_t axes = 1;
};

absl::StatusOr<int64_t> SeqLen(const v1::AnalyzeRequest& request, const Rotary& rotary) {
  if (rotary.NeedsSeqLen() != request.has_seq_len()) {
    if (request.has_seq_len() && request.rotary().has_model()) return 0;  // one request shape fits all models
    if (request.has_seq_len()) {
      return InvalidArgument("NOT_READ", "seq_len", "",
                             "must be absent: the frequencies do not depend on the sequence's length");
    }
    return InvalidArgument("MISSING", "seq_len", "", "must be given: the frequencies depend on the sequence's length");
  }
  if (request.has_seq_len() && request.seq_len() < 1) {
    return InvalidArgument("OUT_OF_RANGE", "seq_len", fmt::format("{}", request.seq_len()), "must be at least 1");
  }
  return request.seq_len();
}

void WritePairs(const RotaryPlan& plan, const std::vector<ScaledPair>& scaled, v1::AnalyzeResponse* response) {
  for (size_t i = 0; i < plan.inv_freq.size(); ++i) {
    v1::PairAnalysis* pair = response->add_pairs();
    pair->set_inv_freq(plan.inv_freq[i]);
    pair->set_wavelength(2 * std::numbers::pi / std::fabs(plan.inv_freq[i]));
    if (!plan.axis.empty()) pair->set_axis(plan.axis[i]);
    if (scaled.empty()) continue;
    pair->set_unscaled_inv_freq(scaled[i].unscaled_inv_freq);
    pair->set_ratio(scaled[i].ratio);
    pair->set_scaling(Name(scaled[i].scaling, kPairScalings));
  }
}

absl::StatusOr<Subject> AnalyzeRotary(const Reader& reader, const v1::AnalyzeRequest& request,
                                      v1::AnalyzeResponse* response) {
  POSENC_ASSIGN_OR_RETURN(ResolvedRotary resolved, ResolveRotary(reader, request.rotary(), v1::Precision()));
  POSENC_RETURN_IF_ERROR(KeepRotation(request.rotary(), &resolved));
  const Rotary& rotary = *resolved.rotary;
  if (rotary.table() != nullptr) {
    return InvalidArgument("UNSUPPORTED", "rotary.settings.given_table", "",
                           "must be another source: a table has no frequencies");
  }
  POSENC_RETURN_IF_ERROR(RequireOneAngle(request.rotary(), rotary, "rotary"));
  POSENC_ASSIGN_OR_RETURN(const int64_t seq_len, SeqLen(request, rotary));
  Subject subject;
  subject.axes = rotary.axes();
  const auto plan = rotary.Plan(seq_len);
  if (!plan.ok()) return OfParameters(resolved, plan.status());
  subject.plan = **plan;
  POSENC_ASSIGN_OR_RETURN(const auto scaled, CompareWithUnscaled(rotary, subject.plan, reader.limits));
  WriteRotaryInfo(resolved, {&subject.plan}, request.hints().return_plan(), response->mutable_info());
  WritePairs(subject.plan, scaled, response);
  return subject;
}

absl::StatusOr<Subject> AnalyzeSinusoidal(const Reader& reader, const v1::AnalyzeRequest& request,
                                          v1::AnalyzeResponse* response) {
  const v1::Sinusoidal& message = request.sinusoidal();
  if (message.has_token_valid()) {
    return InvalidArgument("NOT_READ", "token_valid", "", "must be absent: makes no difference to distances");
  }
  POSENC_ASSIGN_OR_RETURN(const OfModel<SinusoidalSettings> resolved, ResolveSinusoidal(reader, message));
  SinusoidalSettings settings = resolved.settings;
  // Checks everything except that there is at least one pair.
  POSENC_RETURN_IF_ERROR(Encode(settings, Frequencies::kExact, reader.limits).status());
  POSENC_RETURN_IF_ERROR(Complete(settings, reader.limits));
  if (settings.dim < 2) {
    return InvalidArgument("OUT_OF_RANGE", "dim", fmt::format("{}", settings.dim),
                           "must be at least 2: a sine and a cosine");
  }
  if (settings.convention == SinusoidalConvention::kHalves && settings.dim % 2 != 0) {
    return InvalidArgument("UNSUPPORTED", "dim", fmt::format("{}", settings.dim),
                           "must be even: the last sine of an odd width has no cosine");
  }
  Subject subject;
  subject.plan.inv_freq = SinusoidalFrequencies(Frequencies::kExact, settings);
  WriteCommonInfo(kExactPrecision, resolved.notes, response->mutable_info());
  response->mutable_info()->set_plan_fingerprint(
      Fingerprint().Add("sinusoidal frequencies").Add(subject.plan.inv_freq).Digest());
  WritePairs(subject.plan, {}, response);
  return subject;
}

absl::StatusOr<Subject> Analyze(const Reader& reader, const v1::AnalyzeRequest& request,
                                v1::AnalyzeResponse* response) {
  switch (request.subject_case()) {
    case v1::AnalyzeRequest::SUBJECT_NOT_SET: break;
    case v1::AnalyzeRequest::kRotary: return AnalyzeRotary(reader, request, response);
    case v1::AnalyzeRequest::kSinusoidal: {
      if (request.has_seq_len()) {
        return InvalidArgument("NOT_READ", "seq_len", "",
                               "must be absent: the frequencies do not depend on the sequence's length");
      }
      auto subject = AnalyzeSinusoidal(reader, request, response);
      if (!subject.ok()) return Within("sinusoidal", subject.status());
      return subject;
    }
  }
  return InvalidArgument("MISSING", "subject", "", "must be given: rotary (a config.json or settings) or sinusoidal");
}

}  // namespace

absl::StatusOr<Job> Prepare(const v1::AnalyzeRequest& request, const Payloads& payloads, const Limits& limits,
                            v1::AnalyzeResponse* response) {
  const Reader reader{payloads, limits};
  POSENC_ASSIGN_OR_RETURN(Subject subject, Analyze(reader, request, response));
  Job job;
  if (!request.has_distances()) {
    if (request.has_count()) return InvalidArgument("NOT_READ", "count", "", "must be absent without distances");
    return job;
  }
  auto distances = reader.ReadPositions(request.distances(), "distances");
  POSENC_RETURN_IF_ERROR(distances.status());
  const auto given_count = request.has_count() ? std::optional(request.count()) : std::nullopt;
  POSENC_ASSIGN_OR_RETURN(const int64_t count, CountRows("distances", *distances, given_count, limits));
  auto created = DistanceCurves::Create(std::move(subject.plan), subject.axes, *std::move(distances), count, limits);
  POSENC_RETURN_IF_ERROR(created.status());
  const auto curves = std::make_shared<const DistanceCurves>(*std::move(created));

  const TensorShape shape{DType::kFP64, {count}};
  const size_t bytes = count * sizeof(double);
  job.outputs = {{response->mutable_cosine_sum(), bytes}, {response->mutable_decay_bound(), bytes}};
  for (const Output& output : job.outputs) WriteShape(shape, output.tensor);
  job.run = [curves](const Payloads&, absl::Span<std::byte* const> buffers, WorkPool& pool,
                     const Cancellation& cancelled) { return curves->Write(buffers[0], buffers[1], pool, cancelled); };
  return job;
}

}  // namespace posenc::wire
