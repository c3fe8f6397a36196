#include "posenc/mapping/bias_method.h"

namespace posenc::wire {
namespace {

constexpr EnumPairs<v1::AlibiSlopeRule, AlibiSlopeRule> kRules = {
    {v1::ALIBI_SLOPE_RULE_POWER_OF_TWO, AlibiSlopeRule::kPowerOfTwo},
    {v1::ALIBI_SLOPE_RULE_GEOMETRIC, AlibiSlopeRule::kGeometric},
    {v1::ALIBI_SLOPE_RULE_MPT, AlibiSlopeRule::kMpt},
};
constexpr EnumPairs<v1::AlibiForm, AlibiForm> kForms = {
    {v1::ALIBI_FORM_BLOOM, AlibiForm::kBloom},           {v1::ALIBI_FORM_MPT, AlibiForm::kMpt},
    {v1::ALIBI_FORM_SYMMETRIC, AlibiForm::kSymmetric},   {v1::ALIBI_FORM_CAUSAL, AlibiForm::kCausal},
    {v1::ALIBI_FORM_ASYMMETRIC, AlibiForm::kAsymmetric},
};

}  // namespace

absl::StatusOr<AlibiSettings> ReadAlibi(const Reader& reader, const v1::Alibi& message) {
  AlibiSettings settings;
  settings.num_heads = message.num_heads();
  switch (message.slopes_case()) {
    case v1::Alibi::SLOPES_NOT_SET: break;
    case v1::Alibi::kRule: {
      POSENC_ASSIGN_OR_RETURN(settings.slopes, Choose("rule", message.rule(), kRules));
      break;
    }
    case v1::Alibi::kGiven: {
      POSENC_ASSIGN_OR_RETURN(Matrix<double> slopes, reader.Numbers("given", message.given()));
      settings.slopes = GivenSlopes{std::move(slopes)};
      break;
    }
    case v1::Alibi::kLogSlopes: {
      POSENC_ASSIGN_OR_RETURN(Matrix<double> logs, reader.Numbers("log_slopes", message.log_slopes()));
      settings.slopes = LogSlopes{std::move(logs)};
      break;
    }
  }
  POSENC_ASSIGN_OR_RETURN(settings.form, Choose("form", message.form(), kForms));
  if (message.has_alibi_bias_max()) settings.alibi_bias_max = message.alibi_bias_max();
  if (message.has_future_slopes()) {
    POSENC_ASSIGN_OR_RETURN(settings.future_slopes, reader.Numbers("future_slopes", message.future_slopes()));
  }
  if (message.has_position_mask()) {
    POSENC_ASSIGN_OR_RETURN(settings.position_mask, reader.Flags("position_mask", message.position_mask()));
  }
  if (message.bias_dtype() != v1::DATA_TYPE_UNSPECIFIED) {
    POSENC_ASSIGN_OR_RETURN(settings.bias_dtype, Choose("bias_dtype", message.bias_dtype(), kDataTypes));
  }
  return settings;
}

void WriteAlibi(const AlibiSettings& settings, v1::Alibi* message) {
  message->set_num_heads(settings.num_heads);
  if (const auto* rule = std::get_if<AlibiSlopeRule>(&settings.slopes)) message->set_rule(Name(*rule, kRules));
  if (const auto* given = std::get_if<GivenSlopes>(&settings.slopes)) {
    WriteMatrix(given->slopes, message->mutable_given());
  }
  if (const auto* logs = std::get_if<LogSlopes>(&settings.slopes)) {
    WriteMatrix(logs->log_slopes, message->mutable_log_slopes());
  }
  message->set_form(Name(settings.form, kForms));
  if (settings.alibi_bias_max) message->set_alibi_bias_max(*settings.alibi_bias_max);
  if (settings.future_slopes) WriteMatrix(*settings.future_slopes, message->mutable_future_slopes());
  if (settings.position_mask) WriteMatrix(*settings.position_mask, message->mutable_position_mask());
  if (settings.bias_dtype) message->set_bias_dtype(Name(*settings.bias_dtype, kDataTypes));
}

}  // namespace posenc::wire
