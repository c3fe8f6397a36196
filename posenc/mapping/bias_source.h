// Resolves a request's bias method to settings, and writes the answer's info about them.
#pragma once

#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/mapping/read.h"
#include "posenc/model/model.h"
#include "posenc/v1/service.pb.h"

namespace posenc::wire {

struct ResolvedBias {
  BiasMethod method;
  Precision precision;
  std::vector<Note> notes;
};

// Errors name the field by its path from `field`, or from "precision" on.
absl::StatusOr<ResolvedBias> ResolveBias(const Reader& reader, const v1::BiasMethod& method,
                                         const v1::Precision& precision, std::string_view field = "method");
// Gives errors about the resolved method.alibi the path of the field of `method` that was read.
absl::Status InWordsOf(const v1::BiasMethod& method, const absl::Status& status);
// Checks the settings of layers with a bias; errors name the field of the file.
absl::Status CheckBias(const ModelLayers& layers, const Limits& limits);
// Overload for layers already selected; they must have a bias.
ResolvedBias ResolveBias(const ModelLayers& layers, const Precision& precision);

// kAdded: the bias is added to scores, so table_dtype and rounding are part of the fingerprint, too.
enum class BiasUse { kAlone, kAdded };

// Writes the method's fingerprint, and its plan if `slopes` is not null (ALiBi's; empty for other methods). `method`
// must be completed (Complete()).
void WriteBiasInfo(const BiasMethod& method, const Precision& precision, const std::vector<Note>& notes, BiasUse use,
                   const Matrix<double>* slopes, v1::AnswerInfo* info);

}  // namespace posenc::wire
