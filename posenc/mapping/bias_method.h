// The message of a bias method, but for a config.json: from it to settings and back.
#pragma once

#include "absl/status/statusor.h"
#include "posenc/mapping/read.h"
#include "posenc/settings/settings.h"
#include "posenc/v1/bias.pb.h"

namespace posenc::wire {

// Errors name the field within the message. A method that is missing, or a model, leaves the settings empty.
absl::StatusOr<BiasMethod> ReadBiasMethod(const Reader& reader, const v1::BiasMethod& message);

// Canonical settings: sent back, they give the same bytes.
void WriteBiasMethod(const BiasMethod& method, v1::BiasMethod* message);

// What TUPE has too.
T5Settings ReadT5(const v1::T5Bias& message);
void WriteT5(const T5Settings& settings, v1::T5Bias* message);
// A table of values by bucket, [H, buckets] whichever way it came.
absl::StatusOr<BiasTable> ReadBiasTable(const Reader& reader, std::string_view field, const v1::Tensor& tensor,
                                        std::string_view layout_field, v1::BiasTableLayout layout);

}  // namespace posenc::wire
