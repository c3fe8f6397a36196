#include "posenc/diagnose/scaled_queries.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "posenc/base/interruption.h"
#include "posenc/base/memory_account.h"
#include "posenc/diagnose/blocks.h"
#include "posenc/kernels/convert.h"
#include "posenc/kernels/scale_rows.h"
#include "posenc/methods/rope/query_scale.h"

namespace posenc::diagnose {
namespace {

// Factors of both operands that may have been applied.
struct Scaling {
  std::optional<QueryScale> q, k = std::nullopt;
  int times = 1;
  Departure departure = {};  // no code: as expected
};

// Factors by token; empty: all are 1.
using TokenFactors = std::vector<float>;

class ScaledQueries {
 public:
  ScaledQueries(const Evidence& evidence, const AskedScale& asked) : evidence_(evidence), asked_(asked) {}

  std::vector<Scaling> Scalings() const {
    std::vector<Scaling> all = {{asked_.scale}};
    const auto add = [&all](std::string_view code, std::string message, Scaling scaling) {
      scaling.departure = {fmt::format("QUERY_SCALE_{}", code), std::move(message)};
      all.push_back(std::move(scaling));
    };
    for (const auto& [name, scale] : asked_.others) {
      add("OTHER_LAYERS", fmt::format("q is multiplied by the factor of {}", name), {scale});
    }
    if (!asked_.scale) return all;
    const QueryScale& scale = *asked_.scale;
    add("MISSING", "q is not multiplied by its factor of the position", {std::nullopt});
    add("TWICE", "q is multiplied twice by its factor of the position", {scale, std::nullopt, 2});
    if (evidence_.operands.size() > 1) {
      add("OF_KEYS", "k is multiplied by the factor of q, too", {scale, scale});
      add("EXCHANGED", "k is multiplied by the factor, instead of q", {std::nullopt, scale});
    }
    if (const auto shifted = Shifted(scale)) {
      add("POSITIONS",
          shifted->function == QueryScaleFunction::kLlama4 ? "the factor of q counts positions from 1, not from 0"
                                                           : "the factor of q counts positions from 0, not from 1",
          {shifted});
    }
    if (!asked_.indexes.empty()) {
      QueryScale other = scale;
      const bool cached = scale.position_source == PositionSource::kCacheIndex;
      other.position_source = cached ? PositionSource::kPositionIds : PositionSource::kCacheIndex;
      add("INDEX",
          cached ? "the factor of q is that of the position, not of the index in the cache"
                 : "the factor of q is that of the index in the cache, not of the position",
          {other});
    }
    return all;
  }

  TokenFactors FactorsOf(const Scaling& scaling, Operand which) const {
    const auto& scale = which == Operand::kQuery ? scaling.q : scaling.k;
    if (!scale) return {};
    const bool cached = scale->position_source == PositionSource::kCacheIndex && !asked_.indexes.empty();
    std::vector<double> at = cached ? asked_.indexes : evidence_.tokens.positions[0];
    for (double& position : at) position = std::max(position, 0.0);  // of a factor that is not the expected one
    const std::vector<double> exact = QueryFactors(Frequencies::kExact, *scale, at);
    TokenFactors factors;
    for (const double factor : exact) {
      factors.push_back(static_cast<float>(scaling.times == 2 ? factor * factor : factor));
    }
    if (std::all_of(factors.begin(), factors.end(), [](float factor) { return factor == 1; })) return {};
    return factors;
  }

  // The evidence with `before` multiplied, in float32 or wider.
  Evidence Multiplied(const Scaling& scaling) const {
    Evidence scaled = evidence_;
    for (Rows& rows : scaled.operands) {
      TokenFactors factors = FactorsOf(scaling, rows.which);
      if (factors.empty()) continue;
      if (scaling.q && scaling.q->rounds_factor && SizeOf(rows.after_dtype) == 2) {
        RoundTo(rows.after_dtype, factors.data(), factors.size());
      }
      rows.before = Multiplied(rows, factors);
      rows.before_dtype = WideOf(rows);
    }
    return scaled;
  }

  // The head rows whose factors differ from the expected ones, and the number of their tokens.
  RowSet Differing(const Scaling& scaling, int64_t* tokens) const {
    RowSet differing = NoRows(evidence_);
    for (size_t n = 0; n < evidence_.operands.size(); ++n) {
      const Rows& rows = evidence_.operands[n];
      const TokenFactors got = FactorsOf(scaling, rows.which), want = FactorsOf({asked_.scale}, rows.which);
      const auto at = [](const TokenFactors& factors, int64_t token) { return factors.empty() ? 1 : factors[token]; };
      for (int64_t token = 0; token < rows.tokens(); ++token) {
        if (at(got, token) == at(want, token)) continue;
        ++*tokens;
        std::fill_n(differing[n].begin() + token * rows.heads, rows.heads, 1);
      }
    }
    return differing;
  }

 private:
  // Llama 4's function with positions that count from 0, or Ministral 3's with positions that count from 1.
  static std::optional<QueryScale> Shifted(QueryScale scale) {
    if (scale.function == QueryScaleFunction::kLlama4) {
      scale.function = QueryScaleFunction::kMinistral3;
    } else if (scale.function == QueryScaleFunction::kMinistral3) {
      scale.function = QueryScaleFunction::kLlama4;
    } else {
      return std::nullopt;
    }
    std::swap(scale.attn_scale, scale.llama_4_scaling_beta);
    std::swap(scale.floor_scale, scale.original_max_position_embeddings);
    return scale;
  }

  static DType WideOf(const Rows& rows) { return rows.before_dtype == DType::kFP64 ? DType::kFP64 : DType::kFP32; }

  static std::shared_ptr<const ByteSource> Multiplied(const Rows& rows, const TokenFactors& factors) {
    const int64_t count = rows.tokens() * rows.heads;
    const size_t width = rows.width, out = width * SizeOf(WideOf(rows));
    std::vector<std::byte> bytes(count * out), row(width * SizeOf(rows.before_dtype));
    const bool heads_first = rows.layout == Layout::kBHSD;
    for (int64_t n = 0; n < count; ++n) {
      InterruptionPointOfStep(n);
      const int64_t token = heads_first ? n / rows.length / rows.heads * rows.length + n % rows.length : n / rows.heads;
      Copy(*rows.before, n * row.size(), row.size(), row.data());
      std::byte* const y = bytes.data() + n * out;
      Convert(rows.before_dtype, WideOf(rows), row.data(), y, width);
      if (WideOf(rows) == DType::kFP64) {
        auto* const values = reinterpret_cast<double*>(y);
        for (size_t i = 0; i < width; ++i) values[i] *= factors[token];
      } else {
        ScaleRows({.dtype = DType::kFP32,
                   .elements = width,
                   .factors = &factors[token],
                   .y = y,
                   .tokens = 1,
                   .heads = 1,
                   .token_stride = 0,
                   .head_stride = 0});
      }
    }
    return std::make_shared<const OwnedBytes>(std::move(bytes));
  }

  const Evidence& evidence_;
  const AskedScale& asked_;
};

}  // namespace

absl::StatusOr<Diagnosis> DiagnoseScaled(const Evidence& evidence, const Asked& asked, const AskedScale& asked_scale,
                                         size_t most_explanations, const Limits& limits, WorkPool& pool,
                                         const Cancellation& cancelled) {
  const LargeBlocksMayBeRefused scope;
  const ScaledQueries queries(evidence, asked_scale);
  std::optional<Diagnosis> expected;
  for (const Scaling& scaling : queries.Scalings()) {
    int64_t tokens = 0;
    const RowSet differing = queries.Differing(scaling, &tokens);
    if (expected && tokens == 0) continue;
    const Evidence scaled = queries.Multiplied(scaling);
    Asked of_rotation = asked;
    const bool multiplies = scaled.operands[0].before != evidence.operands[0].before;
    if (multiplies) of_rotation.precision.reset();  // products are rounded otherwise
    POSENC_ASSIGN_OR_RETURN(Diagnosis diagnosis,
                            Diagnose(scaled, of_rotation, most_explanations, limits, pool, cancelled));
    for (Explanation& explanation : diagnosis.explanations) explanation.candidate.settings.query_scale = scaling.q;
    const bool matches = diagnosis.verdict.kind == VerdictKind::kMatches;
    if (!expected) {
      if (matches && multiplies) {
        if (asked.unrotated.empty()) {
          diagnosis.verdict.sentence += "; q multiplied by its factor of the position";
        } else {
          diagnosis.verdict.sentence =
              fmt::format("nothing rotates in {}; q multiplied by its factor of the position", asked.unrotated);
          std::erase_if(diagnosis.undecided, [](const Undecided& u) { return u.code == "NOTHING_CHANGED"; });
        }
        if (asked.precision) {
          diagnosis.verdict.sentence += ", in some precision: the requested one was not compared with the products";
        }
      }
      if (matches || (!asked.settings && asked.unrotated.empty())) return diagnosis;
      expected = std::move(diagnosis);
    } else if (matches && !scaling.q && evidence.operands.size() == 1) {
      diagnosis.verdict.kind = VerdictKind::kUnknown;
      diagnosis.verdict.sentence =
          "if the one tensor is k, it matches; if it is q, its factor of the position is missing";
      return diagnosis;
    } else if (matches) {
      Fault fault{.sentence = scaling.departure.message, .departures = {scaling.departure}, .values = tokens};
      fault.parts = PartsOf(evidence, differing, differing);
      diagnosis.verdict.faults = {std::move(fault)};
      Conclude(evidence, true, &diagnosis.verdict);
      return diagnosis;
    }
  }
  return *std::move(expected);
}

}  // namespace posenc::diagnose
