#include "posenc/mapping/bias_method.h"
#include "posenc/mapping/fields.h"

namespace posenc::wire {

template <>
inline constexpr EnumPairs<v1::AlibiSlopeRule, AlibiSlopeRule> kEnumPairs<AlibiSlopeRule> = {
    {v1::ALIBI_SLOPE_RULE_POWER_OF_TWO, AlibiSlopeRule::kPowerOfTwo},
    {v1::ALIBI_SLOPE_RULE_GEOMETRIC, AlibiSlopeRule::kGeometric},
    {v1::ALIBI_SLOPE_RULE_MPT, AlibiSlopeRule::kMpt},
};
template <>
inline constexpr EnumPairs<v1::AlibiForm, AlibiForm> kEnumPairs<AlibiForm> = {
    {v1::ALIBI_FORM_BLOOM, AlibiForm::kBloom},           {v1::ALIBI_FORM_MPT, AlibiForm::kMpt},
    {v1::ALIBI_FORM_SYMMETRIC, AlibiForm::kSymmetric},   {v1::ALIBI_FORM_CAUSAL, AlibiForm::kCausal},
    {v1::ALIBI_FORM_ASYMMETRIC, AlibiForm::kAsymmetric},
};

absl::StatusOr<AlibiSettings> ReadAlibi(const Reader& reader, const v1::Alibi& message) {
  AlibiSettings settings;
  switch (message.slopes_case()) {
    case v1::Alibi::SLOPES_NOT_SET: break;
    case v1::Alibi::kRule: {
      POSENC_ASSIGN_OR_RETURN(settings.slopes, Choose("rule", message.rule(), kEnumPairs<AlibiSlopeRule>));
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
  POSENC_RETURN_IF_ERROR(ReadFields(reader, message, &settings));
  return settings;
}

void WriteAlibi(const AlibiSettings& settings, v1::Alibi* message) {
  WriteFields(settings, message);
  if (const auto* rule = std::get_if<AlibiSlopeRule>(&settings.slopes)) {
    message->set_rule(Name(*rule, kEnumPairs<AlibiSlopeRule>));
  }
  if (const auto* given = std::get_if<GivenSlopes>(&settings.slopes)) {
    WriteMatrix(given->slopes, message->mutable_given());
  }
  if (const auto* logs = std::get_if<LogSlopes>(&settings.slopes)) {
    WriteMatrix(logs->log_slopes, message->mutable_log_slopes());
  }
}

}  // namespace posenc::wire
