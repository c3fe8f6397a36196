#include "posenc/diagnose/bias_mask.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include <fmt/format.h>

#include "posenc/base/status.h"
#include "posenc/bias/bias_layout.h"
#include "posenc/diagnose/bias_cells.h"
#include "posenc/methods/bias/bias_methods.h"

namespace posenc::diagnose {
namespace {

Matrix<double> Line(int64_t first, int64_t count) {
  Matrix<double> line = Constant(0, count);
  std::iota(line.values.begin(), line.values.end(), static_cast<double>(first));
  return line;
}

// True if the layers of such a model attend to earlier keys only.
bool IsCausal(const BiasMethod& method) {
  if (const auto* t5 = std::get_if<T5Settings>(&method.settings)) return !t5->bidirectional.value_or(true);
  const auto* alibi = std::get_if<AlibiSettings>(&method.settings);
  return alibi != nullptr && (IsKeyOnly(alibi->form) || alibi->form == AlibiForm::kCausal);
}

// The mask that is expected, if only because of the method.
std::optional<Mask> MaskOf(const AskedBias& asked, int64_t first, int64_t queries, int64_t keys) {
  const auto* gates = std::get_if<ForgetGateSettings>(&asked.method.settings);
  std::optional<Mask> mask = asked.mask;
  if (!mask && (gates != nullptr || (asked.of_model && IsCausal(asked.method)))) mask.emplace();
  if (!mask) return mask;
  mask->fill = -std::numeric_limits<double>::infinity();
  if (!asked.mask || gates != nullptr) mask->causal = true;
  if (gates != nullptr && gates->cu_seqlens && !mask->query_documents) {
    mask->query_documents = SequencesOf(Line(first, queries), *gates->cu_seqlens);
    mask->key_documents = SequencesOf(Line(0, keys), *gates->cu_seqlens);
  }
  return mask;
}

// The position at which the first query stands as to the mask, if only the mask can tell.
int64_t FirstQuery(const BiasEvidence& e, const FoundMask& found) {
  if (e.query_offset) return *e.query_offset;
  const bool tells = found.kind != MaskKind::kNone && found.kind != MaskKind::kKeys && found.kind != MaskKind::kOther;
  return tells && e.queries() != e.keys() ? found.offset : e.keys() - e.queries();
}

class MaskCheck {
 public:
  MaskCheck(const BiasEvidence& e, const AskedBias& asked, const BiasCall& call, CheckedMask* checked)
      : e_(e), asked_(asked), call_(call), checked_(*checked), found_(checked->found), first_(FirstQuery(e, found_)) {}

  absl::Status Check() {
    const std::optional<Mask> mask = MaskOf(asked_, first_, e_.queries(), e_.keys());
    if (!mask) return absl::OkStatus();
    POSENC_RETURN_IF_ERROR(Compute(*mask));
    CellSet wrong(e_);
    int64_t seen = 0, missing = 0, later_hidden = 0;
    std::vector<double> last(e_.keys());
    POSENC_RETURN_IF_ERROR(VisitRows(e_, call_.cancelled, [&](int64_t b, int64_t h, int64_t i, const auto& row) {
      const uint8_t* shown = Row(b, i);
      if (i == 0) e_.Load(b, h, e_.queries() - 1, last.data());
      bool any = false, sees_all = true;
      for (int64_t j = 0; j < e_.keys(); ++j) {
        any |= shown[j] != 0;
        sees_all &= !found_.Hides(row[j]);
        later_hidden += !shown[j] && found_.Hides(row[j]);
      }
      // Rows that should see no key may see anything. So does a row of padding, which the last query does not see.
      const int64_t own = i + first_;
      if (!any || (!asked_.mask && sees_all && own >= 0 && own < e_.keys() && found_.Hides(last[own]))) {
        return absl::OkStatus();
      }
      for (int64_t j = 0; j < e_.keys(); ++j) {
        const bool hidden = found_.Hides(row[j]);
        if (hidden != (shown[j] != 0) || (hidden && !asked_.mask)) continue;
        ++(hidden ? missing : seen);
        wrong.Add({b, h, i, j});
      }
      return absl::OkStatus();
    }));
    checked_.checked = asked_.mask || (later_hidden > 0 && found_.kind != MaskKind::kKeys);
    if (checked_.checked && !wrong.empty()) {
      checked_.fault = Fault{.sentence = Words(*mask, seen, missing), .values = seen + missing};
      checked_.fault->departures = {{"MASK", checked_.fault->sentence}};
      checked_.fault->parts = wrong.Parts([](const Cell&) { return true; }, &checked_.fault->said);
    }
    // The model's own mask hides no values that could be compared.
    if (!asked_.mask && !std::holds_alternative<ForgetGateSettings>(asked_.method.settings)) checked_.shown.clear();
    return absl::OkStatus();
  }

 private:
  absl::Status Compute(const Mask& mask) {
    GenerateBias bias{.method = {NopeSettings{1}}, .mask = mask};
    bias.geometry = {.query_length = e_.queries(), .key_length = e_.keys(), .query = OffsetPositions{first_}};
    const auto made = BiasGeneration::Create(std::move(bias), call_.limits, BiasGeneration::Extent::kTiles);
    POSENC_RETURN_IF_ERROR(made.status());
    const std::vector<int64_t>& shape = made->shape().shape;
    checked_.batched = shape.size() == 4 && shape[0] > 1;
    if (checked_.batched && shape[0] != e_.batch()) {
      return InvalidArgument("MISMATCH", "mask", fmt::format("{} batch rows", shape[0]),
                             fmt::format("must have {}, as bias", e_.batch()));
    }
    const int64_t matrices = checked_.batched ? e_.batch() : 1;
    checked_.shown.resize(matrices * e_.queries() * e_.keys());
    std::vector<float> rows(matrices * e_.keys());
    for (int64_t i = 0; i < e_.queries(); ++i) {
      auto* bytes = reinterpret_cast<std::byte*>(rows.data());
      POSENC_RETURN_IF_ERROR(made->WriteRows(i, 1, nullptr, bytes, call_.pool, call_.cancelled));
      for (int64_t n = 0; n < matrices * e_.keys(); ++n) {
        checked_.shown[(n / e_.keys() * e_.queries() + i) * e_.keys() + n % e_.keys()] = rows[n] == 0;
      }
    }
    return absl::OkStatus();
  }
  const uint8_t* Row(int64_t b, int64_t i) const {
    return checked_.shown.data() + ((checked_.batched ? b * e_.queries() : 0) + i) * e_.keys();
  }

  std::string Words(const Mask& mask, int64_t seen, int64_t missing) const {
    const bool plain = !mask.key_valid && !mask.query_documents && mask.prefix_length.empty() && !mask.window_right;
    const bool is_window = found_.kind == MaskKind::kWindow;
    if (found_.kind == MaskKind::kNone) return fmt::format("no cell is masked, but {} should be", seen);
    if (plain && mask.causal && (is_window || found_.kind == MaskKind::kCausal)) {
      const int64_t last = found_.offset - first_, most = mask.window_left ? *mask.window_left + 1 : 0;
      if (last != 0) {
        return fmt::format("the mask lets query i see keys up to i{:+}, not i{:+}", found_.offset, first_);
      }
      if (is_window && most > 0) return fmt::format("the mask lets a query see {} keys, not {}", found_.window, most);
    }
    std::string text;
    if (seen > 0) text = fmt::format("the mask shows {} cells that it should hide", seen);
    if (missing > 0) {
      text += fmt::format("{} {} cells that it should show", seen > 0 ? ", and hides" : "the mask hides", missing);
    }
    return text;
  }

  const BiasEvidence& e_;
  const AskedBias& asked_;
  const BiasCall& call_;
  CheckedMask& checked_;
  const FoundMask& found_;
  const int64_t first_;
};

}  // namespace

absl::Status CheckMask(const BiasEvidence& evidence, const AskedBias& asked, const BiasCall& call, CheckedMask* mask) {
  return MaskCheck(evidence, asked, call, mask).Check();
}

}  // namespace posenc::diagnose
