#include "posenc/methods/relative/relative.h"

#include <cmath>
#include <iterator>

#include "posenc/base/status.h"
#include "posenc/methods/relative/relative_methods.h"

namespace posenc {

absl::Status Complete(RelativeMethod& method, const RelativeShape& shape, const Limits& limits) {
  const absl::Status status = std::visit([&](auto& s) { return Complete(s, shape, limits); }, method);
  return Within(NameOf(method), status);
}

std::string_view NameOf(const RelativeMethod& method) {
  constexpr std::string_view kNames[] = {"shaw", "transformer_xl", "tupe", "deberta", "wpr", "cope", "inkling"};
  static_assert(std::size(kNames) == std::variant_size_v<RelativeMethod>);
  return kNames[method.index()];
}

bool ReadsKeys(const RelativeMethod& method) {
  if (const auto* shaw = std::get_if<ShawSettings>(&method)) return shaw->key_term;
  if (const auto* deberta = std::get_if<DebertaSettings>(&method)) return deberta->query.has_value();
  return std::holds_alternative<CopeSettings>(method);
}

bool IsOfWholeDistances(const RelativeMethod& method) { return !std::holds_alternative<CopeSettings>(method); }

double ScaleOf(const RelativeMethod& method, int64_t head_dim) {
  if (std::holds_alternative<InklingSettings>(method)) return 1;
  double terms = 1;
  if (std::holds_alternative<TupeSettings>(method)) terms = 2;
  if (const auto* deberta = std::get_if<DebertaSettings>(&method)) {
    terms = 1.0 + (deberta->key ? 1 : 0) + (deberta->query ? 1 : 0);
  }
  return 1 / std::sqrt(static_cast<double>(head_dim) * terms);
}

absl::Status CheckPositions(const RelativeMethod& method, const RelativeShape& shape, const Limits& limits) {
  const absl::Status status = std::visit([&](const auto& s) { return CheckPositions(s, shape, limits); }, method);
  return Within(NameOf(method), status);
}

absl::StatusOr<RelativeTables> MakeTables(const RelativeMethod& method, const RelativeShape& shape,
                                          Frequencies arithmetic, WorkPool& pool, const Cancellation& cancelled) {
  return std::visit([&](const auto& s) { return MakeTables(s, shape, arithmetic, pool, cancelled); }, method);
}

}  // namespace posenc
