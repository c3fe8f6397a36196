#include "posenc/service/diagnosis.h"

#include "posenc/mapping/read.h"

namespace posenc::wire {
namespace {

constexpr EnumPairs<v1::VerdictKind, diagnose::VerdictKind> kVerdictKinds = {
    {v1::VERDICT_KIND_MATCHES, diagnose::VerdictKind::kMatches},
    {v1::VERDICT_KIND_DIFFERS, diagnose::VerdictKind::kDiffers},
    {v1::VERDICT_KIND_SEVERAL_FAULTS, diagnose::VerdictKind::kSeveralFaults},
    {v1::VERDICT_KIND_UNKNOWN, diagnose::VerdictKind::kUnknown}};

template <class Message>
void WriteDepartures(const std::vector<diagnose::Departure>& departures, Message* message) {
  for (const diagnose::Departure& departure : departures) {
    v1::Departure* one = message->add_departures();
    one->set_code(departure.code);
    one->set_message(departure.message);
  }
}

void WriteRanges(const std::vector<diagnose::IndexRange>& ranges,
                 google::protobuf::RepeatedPtrField<v1::IndexRange>* messages) {
  for (const diagnose::IndexRange& range : ranges) {
    v1::IndexRange* message = messages->Add();
    message->set_first(range.first);
    message->set_last(range.last);
    message->set_step(range.step);
  }
}

}  // namespace

void WriteVerdict(const diagnose::Verdict& verdict, v1::Verdict* message) {
  message->set_kind(Name(verdict.kind, kVerdictKinds));
  message->set_sentence(verdict.sentence);
  message->set_bound(verdict.bound);
  for (const diagnose::Fault& fault : verdict.faults) {
    v1::Fault* one = message->add_faults();
    one->set_sentence(fault.sentence);
    WriteDepartures(fault.departures, one);
    for (const auto& departures : fault.alternatives) WriteDepartures(departures, one->add_alternatives());
    for (const diagnose::Part& part : fault.parts) {
      v1::EvidencePart* written = one->add_parts();
      for (const Operand operand : part.operands) {
        written->add_operands(operand == Operand::kKey ? v1::OPERAND_KEY : v1::OPERAND_QUERY);
      }
      WriteRanges(part.batch_rows, written->mutable_batch_rows());
      WriteRanges(part.heads, written->mutable_heads());
      WriteRanges(part.tokens, written->mutable_tokens());
      WriteRanges(part.pairs, written->mutable_pairs());
      WriteRanges(part.distances, written->mutable_distances());
      WriteRanges(part.keys, written->mutable_keys());
      written->set_cells(part.cells);
    }
    one->set_described(fault.described);
    for (const diagnose::MeasuredPositions& axis : fault.positions) {
      v1::MeasuredPositions* written = one->add_positions();
      written->set_axis(axis.axis);
      written->mutable_batch_rows()->Assign(axis.batch_rows.begin(), axis.batch_rows.end());
      written->mutable_tokens()->Assign(axis.tokens.begin(), axis.tokens.end());
      written->mutable_stated()->Assign(axis.stated.begin(), axis.stated.end());
      written->mutable_measured()->Assign(axis.measured.begin(), axis.measured.end());
      written->mutable_uncertainty()->Assign(axis.uncertainty.begin(), axis.uncertainty.end());
    }
    one->set_free_values(fault.free_values);
    one->set_explained_values(fault.values);
  }
}

}  // namespace posenc::wire
