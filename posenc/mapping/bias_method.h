// Converts bias method messages to settings and back. bias_source.h resolves a config.json.
#pragma once

#include "absl/status/statusor.h"
#include "posenc/mapping/read.h"
#include "posenc/settings/settings.h"
#include "posenc/v1/bias.pb.h"
#include "posenc/v1/service.pb.h"

namespace posenc::wire {

// Errors name the field within the message. A missing method or a model leaves the settings empty.
absl::StatusOr<BiasMethod> ReadBiasMethod(const Reader& reader, const v1::BiasMethod& message);

// Writes canonical settings; a request with them gives the same bytes.
void WriteBiasMethod(const BiasMethod& method, v1::BiasMethod* message);

// Reads a table of values by bucket as [H, buckets], whichever layout the tensor has. tensor: null if absent. The
// layout's field is FIELD_layout.
absl::Status ReadBiasTable(const Reader& reader, std::string_view field, const v1::Tensor* tensor,
                           v1::BiasTableLayout layout, std::optional<BiasTable>* table);

// ALiBi's messages.

absl::StatusOr<AlibiSettings> ReadAlibi(const Reader& reader, const v1::Alibi& message);
// Writes canonical settings. Tensors are written as FP64, position_mask as BOOL.
void WriteAlibi(const AlibiSettings& settings, v1::Alibi* message);

// The messages of geometry (query and key positions) and mask.

// Errors name the field from "geometry" or "mask" on.
absl::StatusOr<BiasGeometry> ReadGeometry(const Reader& reader, const v1::BiasGeometry& message);
absl::StatusOr<Mask> ReadMask(const Reader& reader, const v1::Mask& message);
// A mask of which only counts what it hides: with minus infinity, in every cell. Fill and fully_masked_row must be
// absent.
absl::StatusOr<Mask> ReadMaskWithoutFill(const Reader& reader, const v1::Mask& message);

}  // namespace posenc::wire
