#include "posenc/diagnose/bias_candidates.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "posenc/methods/bias/bias_methods.h"

namespace posenc::diagnose {
namespace {

constexpr double kFarthest = 0x1p30;

void AddOnce(int64_t offset, std::vector<int64_t>* offsets) {
  if (std::find(offsets->begin(), offsets->end(), offset) == offsets->end()) offsets->push_back(offset);
}

// Range of slopes that agree with a head's rounded values.
class SlopeRange {
 public:
  explicit SlopeRange(DType dtype) : mantissa_bits_(dtype == DType::kBF16 ? 7 : dtype == DType::kFP16 ? 10 : 23) {}

  // Adds a value that is `steps` slopes before rounding. Call in order of distance.
  void Add(double value, double steps) {
    const double nearest = value / steps;
    if (std::isnan(slope_)) slope_ = nearest;
    // The rounding error is at most half an ULP away from zero; towards zero, half of that at a power of two.
    const int exponent_of_ulp = std::max(std::ilogb(value), mantissa_bits_ == 10 ? -14 : -126) - mantissa_bits_;
    const double outer = std::ldexp(1, exponent_of_ulp - 1) / std::abs(steps);
    int exponent;
    const double inner = std::abs(std::frexp(value, &exponent)) == 0.5 ? outer / 2 : outer;
    low_ = std::max(low_, nearest - (nearest > 0 ? inner : outer));
    high_ = std::min(high_, nearest + (nearest > 0 ? outer : inner));
  }
  // Prefers the slope at the nearest distance (exact at distance 1 if the type is wide enough), else the interval's
  // midpoint.
  double slope() const {
    if (low_ >= high_ || (low_ < slope_ && slope_ < high_)) return slope_;  // at an end it may round the other way
    return low_ + (high_ - low_) / 2;
  }

 private:
  const int mantissa_bits_;
  double slope_ = std::numeric_limits<double>::quiet_NaN();
  double low_ = -std::numeric_limits<double>::infinity(), high_ = std::numeric_limits<double>::infinity();
};

// The slope towards earlier (side -1) or later keys (side 1) of a head whose value at `origin` is 0; NaN if it has no
// value there.
double Slope(const ByDistance& values, int64_t origin, int64_t side, DType dtype) {
  SlopeRange range(dtype);
  const int64_t nearest =
      side < 0 ? std::max<int64_t>(1, origin - values.last()) : std::max<int64_t>(1, values.first() - origin);
  const int64_t farthest = side < 0 ? origin - values.first() : values.last() - origin;
  for (int64_t n = nearest; n <= farthest; ++n) {
    const double value = values.At(origin + side * n);
    if (!std::isnan(value)) range.Add(value, -static_cast<double>(n));
  }
  return range.slope();
}

// True if a value is the wanted one within roundings; subnormal values of float16 are 2^-24 apart.
bool IsNear(double value, double wanted, DType dtype) {
  const double relative = dtype == DType::kBF16 ? 0x1p-6 : dtype == DType::kFP16 ? 0x1p-9 : 0x1p-20;
  return std::abs(value - wanted) <= relative * std::abs(wanted) + (dtype == DType::kFP16 ? 0x1p-24 : 0);
}

// True if values fall linearly from `origin` to that side, within the type's tolerance.
bool IsLinear(const ByDistance& values, int64_t origin, int64_t side, double slope, DType dtype) {
  const int64_t begin = side < 0 ? values.first() : std::max(origin, values.first());
  const int64_t end = side < 0 ? std::min(origin, values.last()) : values.last();
  for (int64_t d = begin; d <= end; ++d) {
    const double value = values.At(d), wanted = -slope * static_cast<double>(std::abs(d - origin));
    if (!std::isnan(value) && !IsNear(value, wanted, dtype)) return false;
  }
  return true;
}

bool AnyIsUseless(const std::vector<double>& slopes) {
  return std::any_of(slopes.begin(), slopes.end(), [](double s) { return !std::isfinite(static_cast<float>(s)); }) ||
         std::all_of(slopes.begin(), slopes.end(), [](double s) { return s == 0; });
}

// Slopes of lines that are 0 at the key `zero`; empty if a head's values do not lie on such a line.
std::vector<double> KeySlopes(const BiasEvidence& e, const std::vector<std::vector<double>>& values, int64_t zero) {
  std::vector<double> slopes;
  for (const std::vector<double>& head : values) {
    SlopeRange range(e.bias.dtype);
    for (int64_t n = 1; n < e.keys(); ++n) {
      const int64_t key = zero == 0 ? n : zero - n;
      if (!std::isnan(head[key])) range.Add(head[key], static_cast<double>(key - zero));
    }
    const double slope = range.slope();
    for (int64_t j = 0; j < e.keys(); ++j) {
      const double wanted = slope * static_cast<double>(j - zero);
      if (!std::isnan(head[j]) && !IsNear(head[j], wanted, e.bias.dtype)) return {};
    }
    slopes.push_back(slope);
  }
  return slopes;
}

// ALiBi whose values the data show.
class AlibiFinder {
 public:
  AlibiFinder(const BiasEvidence& e, const BiasStructure& structure, const BiasExplanation* asked)
      : e_(e), structure_(structure), asked_(asked) {}

  std::vector<BiasCandidate> Find() {
    const auto* wanted = asked_ == nullptr ? nullptr : std::get_if<AlibiSettings>(&asked_->method.settings);
    if (wanted != nullptr && !asked_->fits()) {
      for (const NamedSlopes& named : Expected(SlopesHere(*asked_, *wanted))) {
        AddVariants(*wanted, named, "ALiBi with the expected slopes", OffsetOf(*asked_));
      }
    }
    if (structure_.follows == Follows::kDistance) {
      for (const int64_t origin : QueryOffsets(e_, structure_)) AddByDistance(origin);
    }
    // For one query, distance and key are equivalent.
    if (structure_.follows == Follows::kKey || (structure_.follows == Follows::kDistance && e_.queries() == 1))
      AddByKey();
    return std::move(found_);
  }

 private:
  // Adds candidates with the expected slopes, by rule, of all heads or of a slice of more heads, and as measured.
  void Add(AlibiForm form, const char* form_name, int64_t offset, const std::vector<double>& slopes,
           const std::vector<double>& future = {}) {
    const bool asymmetric = form == AlibiForm::kAsymmetric;
    if (AnyIsUseless(slopes) || (asymmetric && AnyIsUseless(future))) return;
    std::vector<NamedSlopes> all = Expected(slopes);
    for (NamedSlopes& named : ByRule(slopes)) {
      if (!asymmetric || named.num_heads == e_.heads()) all.push_back(std::move(named));
    }
    all.push_back(AsTheyAre(slopes, e_.bias.dtype));
    for (const NamedSlopes& named : all) {
      AlibiSettings settings{.num_heads = named.num_heads, .slopes = named.slopes, .form = form};
      settings.alibi_bias_max = named.bias_max;
      if (asymmetric) settings.future_slopes = Future(named, slopes, future);
      AddVariants(settings, named, fmt::format("ALiBi, {}, with {}", form_name, named.name), offset);
    }
  }

  void AddVariants(AlibiSettings settings, const NamedSlopes& named, const std::string& sentence, int64_t offset) {
    const bool by_rule = std::holds_alternative<AlibiSlopeRule>(settings.slopes);
    BiasCandidate candidate{.head_start = named.head_start, .query_offset = offset};
    candidate.sentence = sentence + (IsKeyOnly(settings.form) ? "" : Place(e_, offset));
    if (std::holds_alternative<GivenSlopes>(settings.slopes) && !named.expected) candidate.free_values = e_.heads();
    candidate.variants.push_back({{settings}, named.expected ? asked_->precision : Precision(), ""});
    if (by_rule) {
      candidate.variants.push_back(
          {{settings}, {.frequencies = Frequencies::kFloat32}, ", computed in float32 as in the model's own code"});
    }
    if (named.expected || e_.bias.dtype != DType::kFP16) {
      settings.bias_dtype = DType::kBF16;
      candidate.variants.push_back({{settings}, candidate.variants[0].precision, ", computed in bfloat16"});
    }
    found_.push_back(std::move(candidate));
  }

  // The expected slopes, if these are near them.
  std::vector<NamedSlopes> Expected(const std::vector<double>& slopes) const {
    const auto* wanted = asked_ == nullptr ? nullptr : std::get_if<AlibiSettings>(&asked_->method.settings);
    if (wanted == nullptr || !AreAlike(slopes, SlopesHere(*asked_, *wanted))) return {};
    return {{wanted->num_heads, *asked_->geometry.head_start, wanted->slopes, "the expected slopes",
             wanted->alibi_bias_max, true}};
  }
  // Slopes for later keys: the opposite of those for earlier ones if they are alike.
  Matrix<double> Future(const NamedSlopes& named, const std::vector<double>& slopes,
                        const std::vector<double>& future) const {
    std::vector<double> opposite = slopes;
    for (double& slope : opposite) slope = -slope;
    if (!AreAlike(future, opposite)) return AsMatrix(future);
    AlibiSettings same{.num_heads = named.num_heads, .slopes = named.slopes};
    same.alibi_bias_max = named.bias_max.value_or(8);
    Matrix<double> all = AlibiSlopes(Frequencies::kExact, same);
    for (double& slope : all.values) slope = -slope;
    return all;
  }

  void AddByDistance(int64_t origin) {
    std::vector<double> slopes, future;
    bool causal = true, symmetric = true, later = false, linear = true;
    const DType dtype = e_.bias.dtype;
    for (int64_t h = 0; h < e_.heads(); ++h) {
      const ByDistance values(structure_, h);
      const double slope = Slope(values, origin, -1, dtype), right = Slope(values, origin, 1, dtype);
      slopes.push_back(slope);
      future.push_back(right);
      linear &= std::isfinite(slope) && slope != 0 && IsLinear(values, origin, -1, slope, dtype);
      later |= !std::isnan(right);
      for (int64_t d = std::max(origin + 1, values.first()); d <= values.last(); ++d) {
        causal &= std::isnan(values.At(d)) || values.At(d) == 0;
      }
      symmetric &= std::isnan(right) || IsLinear(values, origin, 1, slope, dtype);
      linear &= std::isnan(right) || right == 0 || IsLinear(values, origin, 1, right, dtype);
    }
    if (!linear) return;
    if (causal) Add(AlibiForm::kCausal, "-slope (i - j) up to the query", origin, slopes);
    if (symmetric) Add(AlibiForm::kSymmetric, "-slope |i - j|", origin, slopes);
    if (!later || causal || symmetric) return;
    bool is_signed = true;
    for (size_t h = 0; h < slopes.size(); ++h) is_signed &= AreAlike({future[h]}, {-slopes[h]});
    Add(AlibiForm::kAsymmetric, is_signed ? "-slope (i - j) on both sides" : "other slopes after the query", origin,
        slopes, future);
  }

  void AddByKey() {
    const int64_t offset = e_.query_offset.value_or(e_.keys() - e_.queries());
    const std::vector<double> from_first = KeySlopes(e_, structure_.values, 0),
                              to_last = KeySlopes(e_, structure_.values, e_.keys() - 1);
    if (!from_first.empty()) Add(AlibiForm::kBloom, "slope * j as in BLOOM", offset, from_first);
    if (!to_last.empty()) Add(AlibiForm::kMpt, "slope * (j - (Sk - 1)) as in MPT", offset, to_last);
  }

  const BiasEvidence& e_;
  const BiasStructure& structure_;
  const BiasExplanation* const asked_;
  std::vector<BiasCandidate> found_;
};

}  // namespace

std::vector<int64_t> UsualOffsets(const BiasEvidence& e, const BiasStructure& structure) {
  std::vector<int64_t> offsets;
  if (e.query_offset) AddOnce(*e.query_offset, &offsets);
  const MaskKind kind = structure.mask.kind;
  if (kind == MaskKind::kCausal || kind == MaskKind::kWindow || kind == MaskKind::kPrefix) {
    AddOnce(structure.mask.offset, &offsets);
  }
  AddOnce(e.keys() - e.queries(), &offsets);
  AddOnce(0, &offsets);
  return offsets;
}

bool IsPlaced(const BiasEvidence& e, const BiasStructure& structure) {
  const MaskKind mask = structure.mask.kind;
  return e.query_offset || e.queries() == e.keys() || mask == MaskKind::kCausal || mask == MaskKind::kWindow ||
         mask == MaskKind::kPrefix;
}

std::vector<int64_t> QueryOffsets(const BiasEvidence& e, const BiasStructure& structure) {
  std::vector<int64_t> offsets = UsualOffsets(e, structure);
  if (structure.follows != Follows::kDistance) return offsets;
  const ByDistance values(structure, 0);
  AddOnce(values.Peak(1), &offsets);
  AddOnce(values.Peak(-1), &offsets);  // for slopes of the wrong sign
  const double zero = values.Zero();
  if (std::abs(zero) < kFarthest) AddOnce(std::llround(zero), &offsets);
  return offsets;
}

std::string Place(const BiasEvidence& e, int64_t offset) {
  if (e.query_offset == offset) return "";
  if (e.query_offset) return fmt::format("; the first query is at position {}, not {}", offset, *e.query_offset);
  if (offset == 0 && e.queries() == e.keys()) return "";
  return fmt::format("; the first query is at position {}", offset);
}

std::vector<BiasCandidate> AlibiCandidates(const BiasEvidence& e, const BiasStructure& structure,
                                           const BiasExplanation* asked) {
  return AlibiFinder(e, structure, asked).Find();
}

}  // namespace posenc::diagnose
