#include "posenc/diagnose/scaled_queries.h"

#include <fmt/format.h>

#include <memory>

#include "posenc/base/interruption.h"
#include "posenc/base/memory_account.h"
#include "posenc/mapping/read.h"
#include "posenc/mapping/rotary_source.h"
#include "posenc/service/diagnosis.h"
#include "posenc/service/operations.h"
#include "posenc/service/rotary_offset.h"

namespace posenc::wire {
namespace {

constexpr EnumPairs<v1::Direction, Direction> kDirections = {{v1::DIRECTION_FORWARD, Direction::kForward},
                                                             {v1::DIRECTION_TRANSPOSE, Direction::kTranspose},
                                                             {v1::DIRECTION_INVERSE, Direction::kInverse}};

// The expected settings, and what they were resolved to; absent if the request expects nothing.
struct Expected {
  diagnose::Asked asked;
  std::optional<ResolvedRotary> resolved;
  std::optional<Rotary> scaled;  // set if it has a factor of q
  diagnose::AskedScale scale;
};

absl::Status AddOtherLayers(const v1::ModelConfig& message, const Limits& limits, const std::string& layer_type,
                            Expected* expected) {
  POSENC_ASSIGN_OR_RETURN(ModelSource source, ReadModelSource(message, "expected.model"));
  source.layer = std::monostate();
  POSENC_ASSIGN_OR_RETURN(const auto all, ReadModel(source, limits));
  for (const ModelLayers& layers : all) {
    if (!layers.rotary || layers.layer_type == layer_type) continue;
    POSENC_ASSIGN_OR_RETURN(const Rotary rotary, Rotary::Create(*layers.rotary, Frequencies::kExact, limits));
    const std::string name = fmt::format("layer type \"{}\"", Quote(layers.layer_type));
    if (const auto& scale = rotary.settings().query_scale) expected->scale.others.emplace_back(name, *scale);
    if (rotary.rotates()) expected->asked.others.push_back({name, rotary.WithoutQueryScale().settings()});
  }
  return absl::OkStatus();
}

absl::StatusOr<Expected> ReadExpected(const Reader& reader, const v1::DiagnoseRequest& request) {
  Expected expected;
  diagnose::Asked& asked = expected.asked;
  POSENC_ASSIGN_OR_RETURN(asked.tolerance_ulp, ReadTolerance(request));
  POSENC_ASSIGN_OR_RETURN(
      asked.direction,
      (Choose<v1::Direction, Direction>(
          "direction", request.direction() == v1::DIRECTION_UNSPECIFIED ? v1::DIRECTION_FORWARD : request.direction(),
          kDirections)));
  if (!request.has_expected()) {
    if (request.has_precision()) {
      POSENC_ASSIGN_OR_RETURN(asked.precision, ReadPrecision(request.precision(), std::nullopt));
    }
    return expected;
  }
  // Frequencies are compared as real numbers first; the request's precision is one of those that are tried.
  auto resolved = ResolveRotary(reader, request.expected(), request.precision(), "expected");
  if (!resolved.ok()) return resolved.status();
  if (request.has_precision()) asked.precision = resolved->precision;
  if (resolved->rotary && resolved->rotary->settings().query_scale) {
    expected.scaled = resolved->rotary;
    expected.scale.scale = resolved->rotary->settings().query_scale;
  }
  if (!resolved->rotary || !resolved->rotary->rotates()) {
    if (!request.has_rotation()) return HasNoFrequencies(request.expected(), *resolved, "expected");
    asked.unrotated = request.expected().has_model() ? fmt::format("layers of type \"{}\"", Quote(resolved->layer_type))
                                                     : "settings without frequencies";
    asked.offsets = {0, 0};
    return expected;
  }
  if (request.has_inv_freq() && resolved->rotary->table() != nullptr) {
    return InvalidArgument("UNSUPPORTED", "expected.settings.given_table", "",
                           "must be another source: a table has no frequencies to look for");
  }
  POSENC_RETURN_IF_ERROR(RequireOneAngle(request.expected(), *resolved->rotary, "expected"));
  resolved->rotary = resolved->rotary->WithoutQueryScale();
  asked.settings = resolved->rotary->settings();
  asked.offsets = {0, 0};
  if (request.expected().has_model()) {
    asked.of_model = true;
    POSENC_RETURN_IF_ERROR(Within(
        "expected.model", AddOtherLayers(request.expected().model(), reader.limits, resolved->layer_type, &expected)));
  }
  expected.resolved = *std::move(resolved);
  return expected;
}

absl::StatusOr<diagnose::Rows> ReadRows(const Reader& reader, const std::string& field, Operand which,
                                        const v1::BeforeAndAfter& message, Layout layout,
                                        std::optional<ResolvedRotary>* expected, std::vector<int64_t>* offsets) {
  if (!message.has_before() || !message.has_after()) {
    return InvalidArgument("MISSING", field + (message.has_before() ? ".after" : ".before"), "", "must be given");
  }
  diagnose::TensorPair pair;
  POSENC_ASSIGN_OR_RETURN(pair.before, reader.Shape(field + ".before", message.before()));
  POSENC_ASSIGN_OR_RETURN(pair.after, reader.Shape(field + ".after", message.after()));
  pair.x = std::make_shared<TensorBytes>(reader.payloads, message.before());
  pair.y = std::make_shared<TensorBytes>(reader.payloads, message.after());
  POSENC_ASSIGN_OR_RETURN(diagnose::Rows rows, diagnose::MakeRows(field, which, pair, layout, reader.limits));
  int64_t offset = message.rotary_offset();
  if (*expected) {
    POSENC_ASSIGN_OR_RETURN(offset, RotaryOffset(field, offset, message.rotates_first(), rows.width, &**expected));
  }
  if (offset < 0 || offset >= rows.width) {
    return InvalidArgument("OUT_OF_RANGE", field + ".rotary_offset", fmt::format("{}", offset),
                           fmt::format("must be 0 .. {}", rows.width - 1));
  }
  offsets->push_back(offset);
  return rows;
}

absl::Status ReadRotation(const Reader& reader, const v1::DiagnoseRequest& request, Expected* expected,
                          diagnose::Evidence* evidence) {
  POSENC_ASSIGN_OR_RETURN(
      const Layout layout,
      (Choose<v1::Layout, Layout>(
          "layout", request.layout(),
          {{v1::LAYOUT_BSHD, Layout::kBSHD}, {v1::LAYOUT_BHSD, Layout::kBHSD}, {v1::LAYOUT_THD, Layout::kTHD}})));
  const v1::RotationEvidence& rotation = request.rotation();
  if (!rotation.has_q()) return InvalidArgument("MISSING", "rotation.q", "", "must be given; k alone goes into q");
  std::vector<int64_t>& offsets = expected->asked.offsets;
  offsets.clear();
  POSENC_ASSIGN_OR_RETURN(
      evidence->operands.emplace_back(),
      ReadRows(reader, "rotation.q", Operand::kQuery, rotation.q(), layout, &expected->resolved, &offsets));
  if (!rotation.has_k()) return absl::OkStatus();
  POSENC_ASSIGN_OR_RETURN(evidence->operands.emplace_back(), ReadRows(reader, "rotation.k", Operand::kKey, rotation.k(),
                                                                      layout, &expected->resolved, &offsets));
  const diagnose::Rows &q = evidence->operands[0], &k = evidence->operands[1];
  if (q.sequences == k.sequences && q.length == k.length) return absl::OkStatus();
  return InvalidArgument("MISMATCH", "rotation.k.before.shape", "", "must have the same tokens as q");
}

absl::Status ReadTable(const Reader& reader, const v1::TableEvidence& message,
                       const std::optional<RotarySettings>& expected, diagnose::Evidence* evidence) {
  diagnose::TablePair table;
  if (expected) {
    table.half_split_parts = expected->half_split_parts;
    table.rotary_dim = *expected->rotary_dim;
  }
  if (message.form() != v1::TABLE_FORM_UNSPECIFIED) {
    POSENC_ASSIGN_OR_RETURN(table.form, Choose("table.form", message.form(), kTableForms));
    if (*table.form == TableForm::kPerElement) {
      return InvalidArgument("UNSUPPORTED", "table.form", "TABLE_FORM_PER_ELEMENT",
                             "must be another form: the entries of a pair must be equal here");
    }
  }
  POSENC_ASSIGN_OR_RETURN(table.cos, reader.Shape("table.cos", message.cos()));
  POSENC_ASSIGN_OR_RETURN(table.sin, reader.Shape("table.sin", message.sin()));
  table.cos_bytes = std::make_shared<TensorBytes>(reader.payloads, message.cos());
  table.sin_bytes = std::make_shared<TensorBytes>(reader.payloads, message.sin());
  auto rows = diagnose::MakeTable(table, reader.limits);
  if (!rows.ok()) return Within("table", rows.status());
  evidence->operands = {*std::move(rows)};
  evidence->is_table = true;
  return absl::OkStatus();
}

// Reads the tokens' indexes in the cache, if they are given.
absl::StatusOr<std::vector<double>> ReadIndexes(Positions positions, const TokenGrid& grid, const Limits& limits) {
  std::vector<double> indexes;
  if (!positions.cache_index) return indexes;
  const LargeBlocksMayBeRefused scope;
  positions.source = OffsetPositions{};  // indexes do not depend on positions
  positions.axis_dimension = AxisDimension::kUnspecified;
  POSENC_ASSIGN_OR_RETURN(const auto tokens, TokenPositions::Create(std::move(positions), grid, limits));
  indexes.resize(tokens.tokens());
  for (int64_t n = 0; n < tokens.sequences(); ++n) {
    InterruptionPointOfStep(n);
    const int64_t begin = tokens.begin(n), count = tokens.begin(n + 1) - begin;
    if (count > 0) tokens.FillIndexes(begin, count, indexes.data() + begin);
  }
  return indexes;
}

// Refuses what ApplyRotary refuses of the positions of a factor.
absl::Status CheckIndexes(const v1::RotarySource& source, const Rotary& scaled, Positions positions,
                          const TokenGrid& grid, const Limits& limits) {
  const LargeBlocksMayBeRefused scope;
  std::vector<Note> notes;  // an answer has none
  if (!scaled.ReadsCacheIndex()) positions.cache_index.reset();
  POSENC_RETURN_IF_ERROR(SettleCacheIndex(source, scaled, positions, &notes));
  const auto tokens = TokenPositions::Create(std::move(positions), grid, limits);
  return Within("positions", tokens.ok() ? tokens->CheckIndexesNotNegative() : tokens.status());
}

void Write(const diagnose::Departure& departure, v1::Departure* message) {
  message->set_code(departure.code);
  message->set_message(departure.message);
}

void Write(const diagnose::Difference& difference, const diagnose::Evidence* evidence, v1::FirstDifference* message) {
  message->mutable_index()->Assign(difference.index.begin(), difference.index.end());
  message->set_computed(difference.computed);
  message->set_given(difference.given);
  if (evidence == nullptr) return;
  if (!evidence->is_table) {
    message->set_operand(difference.operand == Operand::kQuery ? v1::OPERAND_QUERY : v1::OPERAND_KEY);
    return;
  }
  const int64_t pairs = evidence->operands[0].width / 2, element = difference.index[2];
  message->clear_index();
  for (int64_t part : {element / pairs, difference.index[0], element % pairs}) message->add_index(part);
}

// evidence: null for frequencies alone.
void Write(const diagnose::Explanation& explanation, const diagnose::Evidence* evidence, v1::Explanation* message) {
  const diagnose::Candidate& candidate = explanation.candidate;
  message->set_sentence(explanation.sentence);
  for (const auto& departure : candidate.departures) Write(departure, message->add_departures());
  RotarySettings settings = candidate.settings;
  if (std::holds_alternative<GivenTable>(settings.frequencies))
    settings.frequencies = std::monostate();  // the caller has the table
  WriteRotarySettings(settings, message->mutable_settings());
  if (candidate.attention_scaling) {
    // given_frequencies have a field for the factor; for other settings only the explanation's own field holds it.
    if (auto* given = message->mutable_settings(); given->has_given_frequencies()) {
      given->mutable_given_frequencies()->set_attention_scaling(*candidate.attention_scaling);
    }
    message->set_attention_scaling(*candidate.attention_scaling);
  }
  const bool rotation = evidence != nullptr && !evidence->is_table;
  if (rotation) {
    message->set_q_rotary_offset(candidate.offsets[0]);
    if (evidence->operands.size() > 1) message->set_k_rotary_offset(candidate.offsets[1]);
    for (size_t n = 0; n < evidence->operands.size(); ++n) {
      if (evidence->operands[n].before_dtype == evidence->operands[n].after_dtype) continue;
      const v1::DataType type = Name(explanation.variant.compute[n], kDataTypes);
      n == 0 ? message->set_computed_in(type) : message->set_k_computed_in(type);
    }
  }
  if (evidence != nullptr) message->set_direction(Name(candidate.direction, kDirections));
  message->set_position_shift(candidate.position_shift);
  message->set_seq_len(candidate.seq_len.value_or(0));
  WritePrecision(explanation.variant.precision, message->mutable_precision());
  for (const Precision& same : explanation.same_precisions) WritePrecision(same, message->add_same_precisions());
  const diagnose::Comparison& comparison = explanation.proof.comparison;
  message->set_elements(static_cast<int64_t>(comparison.elements()));
  message->set_equal_elements(static_cast<int64_t>(comparison.equal()));
  message->set_equal_share(comparison.share());
  message->set_worst_ulp(comparison.worst());
  message->set_median_ulp(comparison.median());
  if (explanation.proof.first) Write(*explanation.proof.first, evidence, message->mutable_first_difference());
  message->set_complete(explanation.complete);
  message->set_same_as(static_cast<int32_t>(explanation.same_as));
}

void Write(const diagnose::Measured& measured, bool rotation, v1::MeasuredRotation* message) {
  if (rotation) {
    message->set_input_pairing(Name(measured.layout.input, kPairings));
    message->set_output_pairing(Name(measured.layout.output, kPairings));
    message->set_rotary_offset(measured.layout.offset);
    message->set_norm_residual(measured.norm_residual);
    message->set_head_residual(measured.scatter);
  }
  message->set_rotary_dim(measured.layout.rotary_dim);
  message->set_attention_scaling(measured.attention_scaling);
  for (const diagnose::MeasuredFrequency& f : measured.frequencies) {
    message->add_inv_freq(f.inv_freq);
    message->add_inv_freq_uncertainty(f.uncertainty);
    message->add_axis(f.axis);
  }
}

void Write(const diagnose::Diagnosis& diagnosis, const diagnose::Evidence* evidence, v1::DiagnoseResponse* response) {
  for (const auto& explanation : diagnosis.explanations) Write(explanation, evidence, response->add_explanations());
  const bool rotation = evidence != nullptr && !evidence->is_table;
  if (diagnosis.measured) Write(*diagnosis.measured, rotation, response->mutable_measured());
  WriteUndecided(diagnosis.undecided, response);
  WriteVerdict(diagnosis.verdict, response->mutable_verdict());
}

absl::Status NotRead(std::string_view field, std::string_view where) {
  return InvalidArgument("NOT_READ", field, "", fmt::format("must be absent: not read with {}", where));
}

absl::StatusOr<Job> PrepareFrequencies(const Reader& reader, const v1::DiagnoseRequest& request, Expected expected,
                                       int32_t most, v1::DiagnoseResponse* response) {
  if (request.has_positions()) {
    std::vector<const google::protobuf::FieldDescriptor*> given;
    const v1::Positions& positions = request.positions();
    positions.GetReflection()->ListFields(positions, &given);
    return NotRead(given.empty() ? "positions" : "positions." + std::string(given[0]->name()), "frequencies alone");
  }
  POSENC_ASSIGN_OR_RETURN(const TensorShape shape, reader.Shape("inv_freq", request.inv_freq()));
  if (shape.dtype != DType::kFP32 && shape.dtype != DType::kFP64) {
    return InvalidArgument("UNSUPPORTED", "inv_freq.dtype", posenc::Name(shape.dtype), "must be FP64 or FP32");
  }
  if (shape.rank() != 1 || shape.empty() || 2 * shape.shape[0] > reader.limits.max_rotary_dim) {
    return InvalidArgument("MISMATCH", "inv_freq.shape", ToString(shape.shape),
                           fmt::format("must be [rotary_dim/2], at most {}", reader.limits.max_rotary_dim / 2));
  }
  POSENC_ASSIGN_OR_RETURN(std::vector<double> values, reader.Values("inv_freq", request.inv_freq()));
  Job job;
  job.decide = [dtype = shape.dtype, values = std::move(values), asked = std::move(expected.asked), most,
                limits = reader.limits, response](WorkPool&, const Cancellation&) -> absl::Status {
    POSENC_ASSIGN_OR_RETURN(const diagnose::Diagnosis diagnosis,
                            diagnose::DiagnoseFrequencies(dtype, values, asked, most, limits));
    Write(diagnosis, nullptr, response);
    return absl::OkStatus();
  };
  return job;
}

// Prefixes the field of an INVALID_ARGUMENT error with the evidence's name.
absl::Status AtEvidence(const v1::DiagnoseRequest& request, const absl::Status& status) {
  const bool named = !status.ok() && absl::IsInvalidArgument(status);
  return named ? Within(request.has_table() ? "table" : "rotation", status) : status;
}

}  // namespace

absl::StatusOr<Job> Prepare(const v1::DiagnoseRequest& request, const Payloads& payloads, const Limits& limits,
                            v1::DiagnoseResponse* response) {
  const Reader reader{payloads, limits};
  POSENC_ASSIGN_OR_RETURN(const int32_t most, MostExplanations(request));
  const auto evidence = std::make_shared<diagnose::Evidence>();
  if (!request.has_rotation() && request.layout() != v1::LAYOUT_UNSPECIFIED) return NotRead("layout", "this evidence");
  POSENC_ASSIGN_OR_RETURN(Expected expected, ReadExpected(reader, request));
  switch (request.evidence_case()) {
    case v1::DiagnoseRequest::EVIDENCE_NOT_SET:
      return InvalidArgument("MISSING", "evidence", "", "must be given: rotation, table or inv_freq");
    case v1::DiagnoseRequest::kRotation:
      POSENC_RETURN_IF_ERROR(ReadRotation(reader, request, &expected, evidence.get()));
      break;
    case v1::DiagnoseRequest::kTable:
      POSENC_RETURN_IF_ERROR(ReadTable(reader, request.table(), expected.asked.settings, evidence.get()));
      break;
    case v1::DiagnoseRequest::kInvFreq: break;
  }
  Job job;
  if (request.has_inv_freq()) {
    POSENC_ASSIGN_OR_RETURN(Job frequencies, PrepareFrequencies(reader, request, std::move(expected), most, response));
    job.decide = std::move(frequencies.decide);
    return job;
  }
  if (!request.has_rotation() && expected.asked.settings) {
    expected.asked.settings->input_pairing = expected.asked.settings->output_pairing = Pairing::kHalfSplit;
    expected.asked.settings->half_split_parts = 1;
  }
  const diagnose::Rows& rows = evidence->operands[0];
  POSENC_ASSIGN_OR_RETURN(Positions positions, reader.ReadPositions(request.positions()));
  const auto rotary = expected.resolved ? expected.resolved->rotary : std::nullopt;
  if (rotary) SettleLengthRule(request.expected(), *rotary, positions, nullptr);
  if (expected.scaled || request.expected().has_model()) {
    if (request.has_rotation()) {
      const TokenGrid grid{rows.sequences, rows.length, rows.layout == Layout::kTHD, 1, true};
      if (expected.scaled) {
        POSENC_RETURN_IF_ERROR(CheckIndexes(request.expected(), *expected.scaled, positions, grid, limits));
      }
      auto indexes = ReadIndexes(positions, grid, limits);
      if (!indexes.ok()) return Within("positions", indexes.status());
      expected.scale.indexes = *std::move(indexes);
    }
    positions.cache_index.reset();
  }
  auto tokens = diagnose::MakeTokens(std::move(positions), rotary, rows.sequences, rows.length,
                                     request.has_rotation() && rows.layout == Layout::kTHD, limits);
  if (!tokens.ok()) return Within("positions", tokens.status());
  evidence->tokens = *std::move(tokens);
  job.decide = [evidence, asked = std::move(expected.asked), scale = std::move(expected.scale), most, limits, response,
                &request](WorkPool& pool, const Cancellation& cancelled) -> absl::Status {
    const bool may_scale = request.has_rotation() && (scale.scale || !scale.others.empty());
    const auto diagnosis = may_scale ? diagnose::DiagnoseScaled(*evidence, asked, scale, most, limits, pool, cancelled)
                                     : diagnose::Diagnose(*evidence, asked, most, limits, pool, cancelled);
    if (!diagnosis.ok()) return AtEvidence(request, diagnosis.status());
    Write(*diagnosis, evidence.get(), response);
    return absl::OkStatus();
  };
  return job;
}

}  // namespace posenc::wire
