#include "posenc/rotary_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "posenc/methods/methods.h"
#include "posenc/status.h"

namespace posenc {
namespace {

absl::Status CheckFinite(std::string_view name, double value) {
  if (std::isfinite(value)) return absl::OkStatus();
  return InvalidArgument("OUT_OF_RANGE", name, fmt::format("{}", value), "must be finite");
}

// For each field of a RopeParameters: is it set, and is it finite?
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
    for (size_t i = 0; i < field.size() && status.ok(); ++i) {
      status = CheckFinite(fmt::format("{}[{}]", name, i), field[i]);
    }
  }
  void operator()(std::string_view name, LongropeBranch field) {
    if (field != LongropeBranch::kBySeqLen) Read(name);
  }

 private:
  void Read(std::string_view name) {
    if (!status.ok() || name == "rope_theta" || name == "partial_rotary_factor") return;
    if (std::find(method.reads.begin(), method.reads.end(), name) != method.reads.end()) return;
    status = InvalidArgument("NOT_READ", name, "", fmt::format("is not read by rope_type \"{}\"", method.rope_type));
  }
};

// d from rotary_dim, or head_dim and partial_rotary_factor, or the number of given frequencies.
absl::StatusOr<int64_t> RotaryDim(const RotarySettings& settings, const Limits& limits) {
  const auto* parameters = std::get_if<RopeParameters>(&settings.frequencies);
  const auto* given = std::get_if<GivenFrequencies>(&settings.frequencies);
  if (settings.rotary_dim && settings.head_dim) {
    return InvalidArgument("CONFLICT", "rotary_dim", "", "give rotary_dim or head_dim, not both");
  }
  const bool partial = parameters != nullptr && parameters->partial_rotary_factor.has_value();
  if (settings.rotary_dim && partial) {
    return InvalidArgument("CONFLICT", "rope_parameters.partial_rotary_factor", "",
                           "is read beside head_dim only; rotary_dim says the width itself");
  }
  int64_t dim = 0;
  std::string_view field = "rotary_dim";
  if (settings.rotary_dim) {
    dim = *settings.rotary_dim;
  } else if (settings.head_dim) {
    field = "head_dim";
    dim = *settings.head_dim;
    if (dim < 1 || dim > limits.max_rotary_dim) {
      return InvalidArgument("OUT_OF_RANGE", field, fmt::format("{}", dim),
                             fmt::format("must be 1 .. {}", limits.max_rotary_dim));
    }
    if (partial) {
      const double factor = *parameters->partial_rotary_factor;
      if (!(factor > 0 && factor <= 1)) {
        return InvalidArgument("OUT_OF_RANGE", "rope_parameters.partial_rotary_factor", fmt::format("{}", factor),
                               "must be above 0 and at most 1");
      }
      dim = static_cast<int64_t>(static_cast<double>(dim) * factor);
      if (factor != 1) field = "head_dim * partial_rotary_factor";
    }
  } else if (given != nullptr) {
    field = "given_frequencies.inv_freq";
    dim = 2 * static_cast<int64_t>(given->inv_freq.size());
  } else {
    return InvalidArgument("MISSING", "rotary_dim", "", "give rotary_dim or head_dim");
  }
  if (dim < 2 || dim % 2 != 0 || dim > limits.max_rotary_dim) {
    return InvalidArgument("OUT_OF_RANGE", field, fmt::format("{}", dim),
                           fmt::format("the rotary width must be even, 2 .. {}", limits.max_rotary_dim));
  }
  return dim;
}

absl::Status CheckGiven(GivenFrequencies& given, int64_t rotary_dim) {
  if (static_cast<int64_t>(given.inv_freq.size()) != rotary_dim / 2) {
    return InvalidArgument("MISMATCH", "inv_freq", fmt::format("{} values", given.inv_freq.size()),
                           fmt::format("must have rotary_dim/2 = {}", rotary_dim / 2));
  }
  for (size_t i = 0; i < given.inv_freq.size(); ++i) {
    POSENC_RETURN_IF_ERROR(CheckFinite(fmt::format("inv_freq[{}]", i), given.inv_freq[i]));
  }
  if (!given.attention_scaling) given.attention_scaling = 1.0;
  POSENC_RETURN_IF_ERROR(CheckFinite("attention_scaling", *given.attention_scaling));
  return RequireAtLeast("attention_scaling", *given.attention_scaling, 0);
}

}  // namespace

absl::StatusOr<Rotary> Rotary::Create(RotarySettings settings, Frequencies arithmetic, const Limits& limits) {
  if (std::holds_alternative<std::monostate>(settings.frequencies)) {
    return InvalidArgument("MISSING", "frequencies", "", "give rope_parameters or given_frequencies");
  }
  POSENC_ASSIGN_OR_RETURN(settings.rotary_dim, RotaryDim(settings, limits));
  settings.head_dim.reset();
  if (!settings.input_pairing) {
    return InvalidArgument("MISSING", "input_pairing", "", "has no default: PAIRING_INTERLEAVED or PAIRING_HALF_SPLIT");
  }
  if (!settings.output_pairing) settings.output_pairing = settings.input_pairing;
  if (settings.max_position_embeddings) {
    POSENC_RETURN_IF_ERROR(CheckFinite("max_position_embeddings", *settings.max_position_embeddings));
    POSENC_RETURN_IF_ERROR(RequirePositive("max_position_embeddings", *settings.max_position_embeddings));
  }

  Rotary rotary(std::move(settings), arithmetic);
  RotarySettings& s = rotary.settings_;
  if (auto* given = std::get_if<GivenFrequencies>(&s.frequencies)) {
    POSENC_RETURN_IF_ERROR(Within("given_frequencies", CheckGiven(*given, *s.rotary_dim)));
    if (s.max_position_embeddings) {
      return InvalidArgument("NOT_READ", "max_position_embeddings", "", "is not read beside given_frequencies");
    }
    return rotary;
  }

  auto& parameters = std::get<RopeParameters>(s.frequencies);
  parameters.partial_rotary_factor.reset();
  const RopeMethod* method = FindRopeMethod(parameters.rope_type);
  if (method == nullptr) {
    return InvalidArgument(parameters.rope_type.empty() ? "MISSING" : "UNKNOWN_VALUE", "rope_parameters.rope_type",
                           parameters.rope_type, "must be one of " + RopeTypeNames());
  }
  rotary.method_ = method;
  FieldCheck check{*method, absl::OkStatus()};
  VisitFields(std::as_const(parameters), check);
  POSENC_RETURN_IF_ERROR(Within("rope_parameters", check.status));
  const bool reads_length =
      std::find(method->reads.begin(), method->reads.end(), "max_position_embeddings") != method->reads.end();
  if (s.max_position_embeddings && !reads_length) {
    return InvalidArgument("NOT_READ", "max_position_embeddings", "",
                           fmt::format("is not read by rope_type \"{}\"", method->rope_type));
  }
  if (!parameters.rope_theta) parameters.rope_theta = 10000.0;
  POSENC_RETURN_IF_ERROR(Within("rope_parameters", RequirePositive("rope_theta", *parameters.rope_theta)));
  const RopeInput input{parameters, *s.rotary_dim, s.max_position_embeddings};
  POSENC_RETURN_IF_ERROR(Within("rope_parameters", method->complete(parameters, input)));
  return rotary;
}

bool Rotary::NeedsSeqLen() const {
  return method_ != nullptr && method_->needs_seq_len(std::get<RopeParameters>(settings_.frequencies));
}

absl::StatusOr<RotaryPlan> Rotary::Plan(int64_t seq_len) const {
  RotaryPlan plan;
  if (method_ == nullptr) {
    const auto& given = std::get<GivenFrequencies>(settings_.frequencies);
    plan.inv_freq = given.inv_freq;
    if (arithmetic_ == Frequencies::kFloat32) {
      for (double& f : plan.inv_freq) f = static_cast<float>(f);
    }
    plan.attention_scaling = *given.attention_scaling;
  } else {
    plan.seq_len = NeedsSeqLen() ? seq_len : 0;
    const RopeInput input{std::get<RopeParameters>(settings_.frequencies), rotary_dim(),
                          settings_.max_position_embeddings, seq_len};
    Numbers numbers = method_->evaluate(arithmetic_, input);
    plan.branch = method_->branch(input);
    plan.inv_freq = std::move(numbers.list);
    plan.attention_scaling = numbers.scalars[kAttentionScaling];
    plan.softmax_scale_factor = numbers.scalars[kSoftmaxScaleFactor];
  }
  for (size_t i = 0; i < plan.inv_freq.size(); ++i) {
    if (!std::isfinite(plan.inv_freq[i])) {
      return InvalidArgument("OUT_OF_RANGE", fmt::format("inv_freq[{}]", i), fmt::format("{}", plan.inv_freq[i]),
                             "these parameters give a frequency that is not finite");
    }
  }
  if (!std::isfinite(plan.attention_scaling)) {
    return InvalidArgument("OUT_OF_RANGE", "attention_scaling", fmt::format("{}", plan.attention_scaling),
                           "these parameters give a scaling that is not finite");
  }
  return plan;
}

}  // namespace posenc
