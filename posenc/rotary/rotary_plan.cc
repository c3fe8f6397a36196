#include "posenc/rotary/rotary_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "posenc/base/checks.h"
#include "posenc/base/fingerprint.h"
#include "posenc/base/memory_account.h"
#include "posenc/base/status.h"
#include "posenc/methods/rope/axes.h"
#include "posenc/methods/rope/given_table.h"
#include "posenc/methods/rope/methods.h"
#include "posenc/methods/rope/query_scale.h"

namespace posenc {
namespace {

struct NamedWidth {
  std::string_view field;
  int64_t dim;
};

// Rotary width that the frequencies imply; nullopt if they imply none.
std::optional<NamedWidth> OwnWidth(const RotarySettings& settings) {
  if (const auto* given = std::get_if<GivenFrequencies>(&settings.frequencies)) {
    const int64_t together = given->heads.value_or(1) * given->axes.value_or(1);
    return NamedWidth{"given_frequencies.inv_freq", 2 * static_cast<int64_t>(given->inv_freq.size()) / together};
  }
  if (const auto* axial = std::get_if<AxialRope>(&settings.frequencies))
    return NamedWidth{"axial.axes", AxialWidth(*axial)};
  if (const auto* table = std::get_if<GivenTable>(&settings.frequencies)) {
    return NamedWidth{"given_table.cos.shape", table->form == TableForm::kPerElement ? table->width : 2 * table->width};
  }
  return std::nullopt;
}

// partial_rotary_factor if it narrows the width. Null if absent, or if the rope_type's formula reads it itself.
const double* PartialFactor(const RotarySettings& settings) {
  const auto* parameters = std::get_if<RopeParameters>(&settings.frequencies);
  if (parameters == nullptr || !parameters->partial_rotary_factor) return nullptr;
  const RopeMethod* method = FindRopeMethod(parameters->rope_type);
  if (method != nullptr && Reads(*method, "partial_rotary_factor")) return nullptr;
  return &*parameters->partial_rotary_factor;
}

// Rotary width: the number of elements of a head row that rotate. It comes from rotary_dim, from head_dim and
// partial_rotary_factor, or from the frequencies (completed axes and tables). INVALID_ARGUMENT if they contradict each
// other, or if the width is odd or out of range.
absl::StatusOr<int64_t> RotaryDim(const RotarySettings& settings, const Limits& limits) {
  if (settings.rotary_dim && settings.head_dim) {
    return Against("head_dim", InvalidArgument("CONFLICT", "rotary_dim", fmt::format("{}", *settings.rotary_dim),
                                               "must be absent with head_dim"));
  }
  const double* partial = PartialFactor(settings);
  if (settings.rotary_dim && partial != nullptr) {
    return Against("rotary_dim",
                   InvalidArgument("CONFLICT", "rope_parameters.partial_rotary_factor", fmt::format("{}", *partial),
                                   "must be absent with rotary_dim: it is a share of head_dim"));
  }
  const std::optional<NamedWidth> own = OwnWidth(settings);
  NamedWidth width{"rotary_dim", 0};
  if (settings.rotary_dim) {
    width.dim = *settings.rotary_dim;
  } else if (settings.head_dim) {
    width = {"head_dim", *settings.head_dim};
    if (width.dim < 1 || width.dim > limits.max_rotary_dim) {
      return InvalidArgument("OUT_OF_RANGE", width.field, fmt::format("{}", width.dim),
                             fmt::format("must be 1 .. {}", limits.max_rotary_dim));
    }
    if (partial != nullptr) {
      width.dim = static_cast<int64_t>(static_cast<double>(width.dim) * *partial);
      if (*partial != 1 && (width.dim < 2 || width.dim % 2 != 0)) {
        return Against(
            "head_dim",
            InvalidArgument("OUT_OF_RANGE", "rope_parameters.partial_rotary_factor", fmt::format("{}", *partial),
                            fmt::format("must give an even rotary width, 2 or more: int({} * {}) is {}",
                                        *settings.head_dim, *partial, width.dim)));
      }
    }
  } else if (own) {
    width = *own;
  } else {
    return InvalidArgument("MISSING", "rotary_dim", "", "must be given: rotary_dim or head_dim");
  }
  if (width.dim < 2 || width.dim % 2 != 0 || width.dim > limits.max_rotary_dim) {
    return InvalidArgument("OUT_OF_RANGE", width.field, fmt::format("{}", width.dim),
                           fmt::format("must be even, 2 .. {}: the rotary width", limits.max_rotary_dim));
  }
  if (own && own->dim != width.dim) {
    return InvalidArgument("MISMATCH", own->field, fmt::format("a width of {}", own->dim),
                           fmt::format("must be the rotary width {}", width.dim));
  }
  return width.dim;
}

// Visitor of RopeParameters: checks that each field that is set is finite and is read by the method.
struct FieldCheck {
  const RopeMethod& method;
  absl::Status status;

  void operator()(std::string_view name, const std::optional<double>& field) {
    if (!field) return;
    Read(name);
    if (status.ok()) status = CheckFinite(name, *field);
  }
  void operator()(std::string_view name, const std::optional<bool>& field) {
    if (field) Read(name);
  }
  void operator()(std::string_view name, const std::vector<double>& field) {
    if (!field.empty()) Read(name);
    if (status.ok()) status = CheckFinite(name, field);
  }
  void operator()(std::string_view name, const std::vector<int64_t>& field) {
    if (!field.empty()) Read(name);
  }
  template <class Enum>
  requires std::is_enum_v<Enum>
  void operator()(std::string_view name, Enum field) {
    if (field != Enum()) Read(name);
  }

 private:
  void Read(std::string_view name) {
    if (!status.ok() || Reads(method, name)) return;
    for (std::string_view all :
         {"partial_rotary_factor", "negate_angle", "resonance", "mrope_section", "mrope_order"}) {
      if (name == all) return;
    }
    if (method.has_theta && (name == "rope_theta" || name == "frequency_dim")) return;
    status =
        InvalidArgument("NOT_READ", name, "", fmt::format("must be absent with rope_type \"{}\"", method.rope_type));
  }
};

constexpr size_t kPlanCacheBytes = size_t{16} << 20;

int64_t BytesOf(const RotaryPlan& plan) {
  size_t values = plan.inv_freq.capacity() + plan.axis.capacity();
  if (plan.xpos) values += plan.xpos->zeta.capacity() + plan.xpos->log_zeta.capacity();
  return static_cast<int64_t>(sizeof(plan) + plan.branch.capacity() + values * sizeof(double));
}

// Returns a cached plan whose bytes count for the current thread's account like a copy's: the plan stays in memory
// while it is held, also after the cache has evicted it. `computed`: the account has counted its allocation.
std::shared_ptr<const RotaryPlan> Held(std::shared_ptr<const RotaryPlan> plan, bool computed) {
  MemoryAccount* const account = CurrentMemoryAccount();
  if (account == nullptr) return plan;
  const int64_t bytes = BytesOf(*plan);
  if (!computed) account->Add(bytes);
  const RotaryPlan* const held = plan.get();
  const auto release = [plan = std::move(plan), bytes](const RotaryPlan*) mutable {
    {
      const MemoryScope uncounted(nullptr);
      plan.reset();
    }
    // The account may be another one, as when another call frees a block.
    if (MemoryAccount* const current = CurrentMemoryAccount(); current != nullptr) current->Remove(bytes);
  };
  return {held, release};
}

// Returns the plan for another length with the same frequencies. Its copy counts for the account like any allocation.
std::shared_ptr<const RotaryPlan> WithLength(std::shared_ptr<const RotaryPlan> plan, int64_t seq_len, bool computed) {
  if (plan->seq_len == seq_len) return Held(std::move(plan), computed);
  RotaryPlan copy = *plan;
  copy.seq_len = seq_len;
  return std::make_shared<const RotaryPlan>(std::move(copy));
}

// Visitor of settings: adds each field's name and value to a cache key if the field is set.
struct AddToKey {
  Fingerprint& key;

  template <class T>
  void operator()(std::string_view name, const T& field) {
    if constexpr (HasFields<T>) {
      VisitFields(field, *this);
    } else {
      key.Add(name).Add(static_cast<double>(field));
    }
  }
  template <class T>
  void operator()(std::string_view name, const std::optional<T>& field) {
    if (field) (*this)(name, *field);
  }
  template <class T>
  void operator()(std::string_view name, const std::vector<T>& field) {
    if (!field.empty()) key.Add(name).Add(static_cast<int64_t>(field.size()));
    for (const T& element : field) (*this)("", element);
  }
};

absl::Status CompleteGiven(GivenFrequencies& given, const Limits& limits) {
  POSENC_RETURN_IF_ERROR(CheckFinite("inv_freq", given.inv_freq));
  for (const auto& [name, number, most] :
       {std::tuple{"heads", given.heads, limits.max_heads}, {"axes", given.axes, kMaxAxes}}) {
    if (!number || (*number >= 1 && *number <= most)) continue;
    return InvalidArgument("OUT_OF_RANGE", name, fmt::format("{}", *number), fmt::format("must be 1 .. {}", most));
  }
  const size_t together = given.heads.value_or(1) * given.axes.value_or(1), pairs = given.inv_freq.size() / together;
  if (pairs * together != given.inv_freq.size()) {
    return InvalidArgument("MISMATCH", "inv_freq", fmt::format("{} values", given.inv_freq.size()),
                           fmt::format("must be [heads, rotary_dim/2, axes], a multiple of {}", together));
  }
  if (given.axes && !given.axis.empty()) {
    return InvalidArgument("CONFLICT", "axis", "", "must be absent with axes: each pair rotates by all of them");
  }
  if (given.axes && given.attention_scaling.value_or(1) != 1) {
    return InvalidArgument("CONFLICT", "attention_scaling", fmt::format("{}", *given.attention_scaling),
                           "must be 1 with axes");
  }
  if (!given.axis.empty() && given.axis.size() != pairs) {
    return InvalidArgument("MISMATCH", "axis", fmt::format("{} values", given.axis.size()),
                           fmt::format("must be one per pair: {}", pairs));
  }
  const int64_t most = std::min(static_cast<int64_t>(pairs), kMaxAxes) - 1;
  for (size_t i = 0; i < given.axis.size(); ++i) {
    if (given.axis[i] < 0 || given.axis[i] > most) {
      return InvalidArgument("OUT_OF_RANGE", fmt::format("axis[{}]", i), fmt::format("{}", given.axis[i]),
                             fmt::format("must be 0 .. {}", most));
    }
  }
  if (!given.attention_scaling) given.attention_scaling = 1.0;
  POSENC_RETURN_IF_ERROR(CheckFinite("attention_scaling", *given.attention_scaling));
  return RequireAtLeast("attention_scaling", *given.attention_scaling, 0);
}

// INVALID_ARGUMENT unless query_scale is the only setting.
absl::Status CheckScalesOnly(const RotarySettings& settings) {
  const std::pair<bool, std::string_view> others[] = {
      {settings.xpos.has_value(), "xpos"},
      {settings.rotary_dim.has_value(), "rotary_dim"},
      {settings.head_dim.has_value(), "head_dim"},
      {settings.max_position_embeddings.has_value(), "max_position_embeddings"},
      {settings.input_pairing.has_value(), "input_pairing"},
      {settings.output_pairing.has_value(), "output_pairing"},
      {settings.half_split_parts != 1, "half_split_parts"}};
  for (const auto& [given, name] : others) {
    if (!given) continue;
    return Against("query_scale", InvalidArgument("CONFLICT", name, "",
                                                  "must be absent without frequencies: then nothing rotates, and "
                                                  "query_scale multiplies q"));
  }
  return absl::OkStatus();
}

// Completes what does not depend on the rotary width. The formula of rope_parameters does and is completed later.
absl::Status CompleteFrequencies(RotarySettings& settings, const Limits& limits) {
  if (std::holds_alternative<std::monostate>(settings.frequencies)) {
    return InvalidArgument("MISSING", "frequencies", "",
                           "must be given: rope_parameters, given_frequencies, axial or given_table");
  }
  if (const auto* parameters = std::get_if<RopeParameters>(&settings.frequencies)) {
    const double partial = parameters->partial_rotary_factor.value_or(1);
    if (partial > 0 && partial <= 1) return absl::OkStatus();
    return InvalidArgument("OUT_OF_RANGE", "rope_parameters.partial_rotary_factor", fmt::format("{}", partial),
                           "must be above 0 and at most 1");
  }
  if (auto* given = std::get_if<GivenFrequencies>(&settings.frequencies)) {
    return Within("given_frequencies", CompleteGiven(*given, limits));
  }
  if (auto* axial = std::get_if<AxialRope>(&settings.frequencies)) return Within("axial", Complete(*axial, limits));
  if (auto* table = std::get_if<GivenTable>(&settings.frequencies)) {
    if (table->heads < 1 || table->heads > limits.max_heads) {
      return InvalidArgument("OUT_OF_RANGE", "given_table.cos.shape", fmt::format("{} heads", table->heads),
                             fmt::format("must have 1 .. {} heads with per_head", limits.max_heads));
    }
    return Within("given_table", Complete(*table, settings.half_split_parts));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Rotary> Rotary::Create(RotarySettings settings, Frequencies arithmetic, const Limits& limits,
                                      PlanSource plan_source) {
  if (settings.half_split_parts < 1) {
    return InvalidArgument("OUT_OF_RANGE", "half_split_parts", fmt::format("{}", settings.half_split_parts),
                           "must be at least 1");
  }
  if (settings.query_scale) POSENC_RETURN_IF_ERROR(Within("query_scale", Check(*settings.query_scale)));
  if (settings.query_scale && std::holds_alternative<std::monostate>(settings.frequencies)) {
    POSENC_RETURN_IF_ERROR(CheckScalesOnly(settings));
    return Rotary(std::move(settings), arithmetic, plan_source);
  }
  POSENC_RETURN_IF_ERROR(CompleteFrequencies(settings, limits));
  POSENC_ASSIGN_OR_RETURN(settings.rotary_dim, RotaryDim(settings, limits));
  if (*settings.rotary_dim / 2 % settings.half_split_parts != 0) {
    return InvalidArgument("OUT_OF_RANGE", "half_split_parts", fmt::format("{}", settings.half_split_parts),
                           fmt::format("must divide the {} pairs", *settings.rotary_dim / 2));
  }
  settings.head_dim.reset();
  if (!settings.input_pairing) {
    return InvalidArgument("MISSING", "input_pairing", "", "must be given: PAIRING_INTERLEAVED or PAIRING_HALF_SPLIT");
  }
  if (!settings.output_pairing) settings.output_pairing = settings.input_pairing;
  if (settings.max_position_embeddings) {
    POSENC_RETURN_IF_ERROR(CheckPositive("max_position_embeddings", *settings.max_position_embeddings));
  }

  Rotary rotary(std::move(settings), arithmetic, plan_source);
  RotarySettings& s = rotary.settings_;
  if (auto* parameters = std::get_if<RopeParameters>(&s.frequencies)) {
    POSENC_RETURN_IF_ERROR(rotary.CompleteParameters(*parameters));
  } else if (s.max_position_embeddings) {
    return InvalidArgument("NOT_READ", "max_position_embeddings", "", "must be absent without rope_parameters");
  }
  if (const auto* given = std::get_if<GivenFrequencies>(&s.frequencies)) {
    rotary.heads_ = given->heads.value_or(1);
    for (int64_t head = 0; head < rotary.heads_; ++head) {
      rotary.axis_.insert(rotary.axis_.end(), given->axis.begin(), given->axis.end());
    }
    rotary.axes_ = given->axes.value_or(1);
  }
  if (const auto* axial = std::get_if<AxialRope>(&s.frequencies)) rotary.axis_ = AxialAxes(*axial);
  if (!rotary.axis_.empty()) rotary.axes_ = *std::max_element(rotary.axis_.begin(), rotary.axis_.end()) + 1;
  POSENC_RETURN_IF_ERROR(rotary.CompleteElements());
  if (s.xpos) POSENC_RETURN_IF_ERROR(Within("xpos", rotary.CompleteXpos()));
  if (s.query_scale && rotary.axes_ > 1) {
    return InvalidArgument("CONFLICT", "query_scale", "", "must be absent with positions of several axes");
  }
  return rotary;
}

Rotary Rotary::WithoutQueryScale() const {
  Rotary rotary = *this;
  rotary.settings_.query_scale.reset();
  return rotary;
}

absl::Status Rotary::CompleteParameters(RopeParameters& parameters) {
  method_ = FindRopeMethod(parameters.rope_type);
  if (method_ == nullptr) {
    return InvalidArgument(parameters.rope_type.empty() ? "MISSING" : "UNKNOWN_VALUE", "rope_parameters.rope_type",
                           parameters.rope_type, "must be one of " + RopeTypeNames());
  }
  if (parameters.resonance.value_or(false) && arithmetic_ != Frequencies::kExact) {
    return InvalidArgument(
        "UNSUPPORTED", "rope_parameters.resonance", "true",
        "must be false without exact frequencies: the published code takes positions modulo the wavelength");
  }
  FieldCheck check{*method_, absl::OkStatus()};
  VisitFields(std::as_const(parameters), check);
  POSENC_RETURN_IF_ERROR(Within("rope_parameters", check.status));
  if (settings_.max_position_embeddings && !Reads(*method_, "max_position_embeddings")) {
    return InvalidArgument("NOT_READ", "max_position_embeddings", "",
                           fmt::format("must be absent with rope_type \"{}\"", method_->rope_type));
  }
  if (!Reads(*method_, "partial_rotary_factor")) parameters.partial_rotary_factor.reset();
  if (!parameters.rope_theta && method_->has_theta) parameters.rope_theta = 10000.0;
  POSENC_RETURN_IF_ERROR(Within("rope_parameters", CheckPositive("rope_theta", parameters.rope_theta.value_or(1))));
  POSENC_RETURN_IF_ERROR(
      Within("rope_parameters", CheckPositive("frequency_dim", parameters.frequency_dim.value_or(1))));
  POSENC_RETURN_IF_ERROR(Within("rope_parameters", method_->complete(parameters, Input(0))));
  auto axis = MropeAxes(parameters, rotary_dim() / 2);
  if (!axis.ok()) return Within("rope_parameters", axis.status());
  axis_ = *std::move(axis);
  return absl::OkStatus();
}

absl::Status Rotary::CompleteXpos() {
  const char* rival = axes_ > 1            ? "positions of several axes"
                      : heads_ > 1         ? "frequencies for each head"
                      : differs_in_pair_   ? "two angles in a pair"
                      : table() != nullptr ? "given_table"
                      : method_ != nullptr && method_->rope_type == "linear_positions"
                          ? "rope_type \"linear_positions\""
                          : nullptr;
  if (rival != nullptr) return InvalidArgument("CONFLICT", "", "", fmt::format("must be absent with {}", rival));
  return Complete(*settings_.xpos);
}

RopeInput Rotary::Input(int64_t seq_len) const {
  const auto& parameters = std::get<RopeParameters>(settings_.frequencies);
  return {parameters, rotary_dim() / 2, parameters.frequency_dim.value_or(static_cast<double>(rotary_dim())),
          settings_.max_position_embeddings, seq_len};
}

bool Rotary::NeedsSeqLen() const {
  return method_ != nullptr && method_->needs_seq_len(std::get<RopeParameters>(settings_.frequencies));
}

SharedCache<RotaryPlan>& PlanCache() {
  static SharedCache<RotaryPlan> cache(kPlanCacheBytes,
                                       [](const RotaryPlan& plan) { return static_cast<size_t>(BytesOf(plan)); });
  return cache;
}

void RotaryPlan::AddTo(Fingerprint& fingerprint) const {
  fingerprint.Add(attention_scaling).Add(inv_freq);
  // Few plans have the fields below. Plans without them keep the fingerprints from before these fields existed.
  if (!axis.empty()) fingerprint.Add("axis").Add(std::vector<double>(axis.begin(), axis.end()));
  if (terms != 1) fingerprint.Add("terms").Add(terms);
  if (position_divisor != 1) fingerprint.Add("position_divisor").Add(position_divisor);
  if (xpos) fingerprint.Add("xpos").Add(xpos->centre).Add(xpos->scale_base);
  if (!from_inv_freq.empty()) fingerprint.Add("from_inv_freq").Add(from_inv_freq);
  if (query_scale) {
    fingerprint.Add("query_scale");
    VisitFields(*query_scale, AddToKey{fingerprint});
  }
}

std::string Rotary::CacheKey(int64_t seq_len) const {
  std::string text;
  Fingerprint key(&text);
  key.Add(static_cast<int64_t>(arithmetic_)).Add(rotary_dim());
  if (NeedsSeqLen()) {
    const RopeInput input = Input(seq_len);
    key.Add(method_->branch(input)).Add(method_->branch_needs_seq_len(input) ? seq_len : 0);
  }
  AddToKey add{key};
  add("max_position_embeddings", settings_.max_position_embeddings);
  add("xpos", settings_.xpos);
  add("query_scale", settings_.query_scale);
  if (!sources_.empty()) key.Add("sources").Add(std::vector<double>(sources_.begin(), sources_.end()));
  if (const auto* parameters = std::get_if<RopeParameters>(&settings_.frequencies)) {
    key.Add(parameters->rope_type);
    VisitFields(*parameters, add);
  } else if (const auto* axial = std::get_if<AxialRope>(&settings_.frequencies)) {
    VisitFields(*axial, add);
  }
  return text;
}

absl::StatusOr<std::shared_ptr<const RotaryPlan>> Rotary::Plan(int64_t seq_len) const {
  const bool computes = method_ != nullptr || std::holds_alternative<AxialRope>(settings_.frequencies);
  const int64_t length = NeedsSeqLen() ? seq_len : 0;
  if (computes && plan_source_ == PlanSource::kCacheOnly) {
    std::shared_ptr<const RotaryPlan> plan = PlanCache().Find(CacheKey(length));
    if (plan == nullptr) return WouldBlock();
    return WithLength(std::move(plan), length, false);
  }
  if (computes) {
    bool computed = false;
    POSENC_ASSIGN_OR_RETURN(auto plan, PlanCache().Get(CacheKey(length), [&] {
      computed = true;
      return MakePlan(length);
    }));
    return WithLength(std::move(plan), length, computed);
  }
  POSENC_ASSIGN_OR_RETURN(RotaryPlan plan, MakePlan(seq_len));
  return std::make_shared<const RotaryPlan>(std::move(plan));
}

absl::StatusOr<RotaryPlan> Rotary::MakePlan(int64_t seq_len) const {
  RotaryPlan plan;
  plan.axis = axis_;
  if (const auto* given = std::get_if<GivenFrequencies>(&settings_.frequencies)) {
    plan.inv_freq = given->inv_freq;
    if (arithmetic_ == Frequencies::kFloat32) {
      for (double& f : plan.inv_freq) f = static_cast<float>(f);
    }
    plan.attention_scaling = *given->attention_scaling;
    plan.terms = given->axes.value_or(1);
  } else if (const auto* axial = std::get_if<AxialRope>(&settings_.frequencies)) {
    plan.inv_freq = AxialFrequencies(arithmetic_, *axial);
  } else if (method_ != nullptr) {
    plan.seq_len = NeedsSeqLen() ? seq_len : 0;
    const RopeInput input = Input(seq_len);
    Numbers numbers = method_->evaluate(arithmetic_, input);
    plan.branch = method_->branch(input);
    plan.inv_freq = std::move(numbers.list);
    if (input.parameters.negate_angle.value_or(false)) {
      for (double& f : plan.inv_freq) f = -f;
    }
    plan.attention_scaling = numbers.scalars[kAttentionScaling];
    plan.softmax_scale_factor = numbers.scalars[kSoftmaxScaleFactor];
    plan.position_divisor = numbers.scalars[kPositionDivisor];
  }
  plan.query_scale = settings_.query_scale;
  if (settings_.xpos) plan.xpos = MakeXposPlan(arithmetic_, *settings_.xpos, rotary_dim());
  for (size_t i = 0; i < plan.inv_freq.size(); ++i) {
    if (!std::isfinite(plan.inv_freq[i])) {
      return InvalidArgument("OUT_OF_RANGE", fmt::format("inv_freq[{}]", i), fmt::format("{}", plan.inv_freq[i]),
                             fmt::format("must give finite frequencies: that of pair {} is not", i));
    }
  }
  if (const auto* p = std::get_if<RopeParameters>(&settings_.frequencies);
      p != nullptr && p->resonance.value_or(false)) {
    for (size_t i = 0; i < plan.inv_freq.size(); ++i) {
      const std::optional<double> resonant = ResonantFrequency(plan.inv_freq[i]);
      if (!resonant) {
        return InvalidArgument(
            "OUT_OF_RANGE", fmt::format("inv_freq[{}]", i), fmt::format("{}", plan.inv_freq[i]),
            fmt::format("must give a wavelength of at least half a position with resonance: that of pair {} is shorter",
                        i));
      }
      plan.inv_freq[i] = *resonant;
    }
  }
  if (!sources_.empty() && table() == nullptr) {
    std::vector<double> expanded;
    for (const size_t source : sources_) expanded.push_back(plan.inv_freq[source]);
    plan.inv_freq = std::move(expanded);
  }
  if (!std::isfinite(plan.attention_scaling)) {
    return InvalidArgument("OUT_OF_RANGE", "attention_scaling", fmt::format("{}", plan.attention_scaling),
                           "must give a finite attention scaling");
  }
  if (plan.query_scale && plan.attention_scaling > 1e300) {
    return InvalidArgument("OUT_OF_RANGE", "attention_scaling", fmt::format("{}", plan.attention_scaling),
                           "must be at most 1e300 with query_scale, which multiplies it");
  }
  return plan;
}

}  // namespace posenc
