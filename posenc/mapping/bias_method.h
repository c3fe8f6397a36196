// The message of a bias method, but for a config.json: from it to settings and back.
#pragma once

#include "absl/status/statusor.h"
#include "posenc/mapping/read.h"
#include "posenc/settings/settings.h"
#include "posenc/v1/bias.pb.h"
#include "posenc/v1/service.pb.h"

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

// ALiBi's messages.

absl::StatusOr<AlibiSettings> ReadAlibi(const Reader& reader, const v1::Alibi& message);
// Canonical settings. Tensors are written as FP64.
void WriteAlibi(const AlibiSettings& settings, v1::Alibi* message);

// Which queries meet which keys, and which cells are hidden: from messages to the library's types.

// Errors name the field from "geometry" or "mask" on.
absl::StatusOr<BiasGeometry> ReadGeometry(const Reader& reader, const v1::BiasGeometry& message);
absl::StatusOr<Mask> ReadMask(const Reader& reader, const v1::Mask& message);

}  // namespace posenc::wire
