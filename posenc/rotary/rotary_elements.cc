// Rotary's methods for the angles of single elements: which entry of a table row belongs to which element.
#include <algorithm>

#include "posenc/base/status.h"
#include "posenc/methods/rope/elements.h"
#include "posenc/methods/rope/given_table.h"
#include "posenc/rotary/rotary_plan.h"

namespace posenc {

// Reads which element has which angle. Until now axis_ is that of each pair, or of each element with kElements.
absl::Status Rotary::CompleteElements() {
  RotarySettings& s = settings_;
  const int64_t pairs = rotary_dim() / 2;
  const PairPlaces places(*s.input_pairing, pairs, s.half_split_parts);
  if (auto* given = std::get_if<GivenTable>(&s.frequencies)) {
    if (s.table_pairing) return InvalidArgument("CONFLICT", "table_pairing", "", "must be absent with given_table");
    heads_ = given->heads;
    if (given->sequences > 0 && s.query_scale) {
      return InvalidArgument("CONFLICT", "query_scale", "",
                             "must be absent with rows by token: they have no positions");
    }
    ReduceIfEqual(*given, *s.input_pairing, s.half_split_parts);
    differs_in_pair_ = given->form == TableForm::kPerElement;
    if (!differs_in_pair_) return absl::OkStatus();
    for (int64_t head = 0; head < heads_; ++head) {
      for (int64_t entry = 0; entry < 2 * pairs; ++entry) {
        sources_.push_back(head * 2 * pairs + places.Element(entry % pairs, entry / pairs));
      }
    }
    return absl::OkStatus();
  }
  const auto* given = std::get_if<GivenFrequencies>(&s.frequencies);
  if (given != nullptr && s.table_pairing && (given->heads || given->axes)) {
    return InvalidArgument("CONFLICT", "table_pairing", "", "must be absent with given_frequencies.heads and axes");
  }
  const auto* parameters = std::get_if<RopeParameters>(&s.frequencies);
  const bool axis_by_element = parameters != nullptr && parameters->mrope_order == MropeOrder::kElements;
  const Pairing by = s.table_pairing.value_or(*s.input_pairing);
  if (by == *s.input_pairing) s.table_pairing.reset();
  if (by == *s.input_pairing && !axis_by_element) return absl::OkStatus();

  const PairPlaces angles(by, pairs, s.half_split_parts);
  std::vector<size_t> sources;
  std::vector<int64_t> axis;
  for (int64_t entry = 0; entry < 2 * pairs; ++entry) {
    const int64_t element = places.Element(entry % pairs, entry / pairs), pair = angles.Pair(element);
    sources.push_back(pair);
    if (!axis_.empty()) axis.push_back(axis_[axis_by_element ? element : pair]);
  }
  differs_in_pair_ = !std::equal(sources.begin(), sources.begin() + pairs, sources.begin() + pairs) ||
                     !std::equal(axis.begin(), axis.begin() + axis.size() / 2, axis.begin() + axis.size() / 2);
  if (!differs_in_pair_) {
    sources.resize(pairs);
    axis.resize(axis.size() / 2);
  }
  sources_ = std::move(sources);
  axis_ = std::move(axis);
  return absl::OkStatus();
}

absl::Status Rotary::CheckOneAngle() const {
  const auto* given = std::get_if<GivenFrequencies>(&settings_.frequencies);
  const bool elements = differs_in_pair_ && table() == nullptr, by_table = settings_.table_pairing.has_value();
  if (elements) {
    return InvalidArgument("UNSUPPORTED", by_table ? "table_pairing" : "rope_parameters.mrope_order", "",
                           "must give both elements of a pair the same angle here");
  }
  if (given != nullptr && (heads_ > 1 || given->axes.value_or(1) > 1)) {
    return InvalidArgument("UNSUPPORTED", heads_ > 1 ? "given_frequencies.heads" : "given_frequencies.axes", "",
                           "must be absent here: give the frequencies of one head, with one axis for each pair");
  }
  if (table() != nullptr && (heads_ > 1 || differs_in_pair_ || table()->sequences > 0)) {
    return InvalidArgument("UNSUPPORTED", "given_table", "",
                           "must have rows by position here, with one entry for each pair, the same for all heads");
  }
  return absl::OkStatus();
}

}  // namespace posenc
