// Converts the messages of relative-position methods to settings and back.
#pragma once

#include "absl/status/statusor.h"
#include "posenc/mapping/read.h"
#include "posenc/settings/relative_settings.h"
#include "posenc/v1/relative.pb.h"

namespace posenc::wire {

// Errors name the field within the message.
absl::StatusOr<RelativeMethod> ReadRelativeMethod(const Reader& reader, const v1::RelativeMethod& message);

// Writes canonical settings; a request with them gives the same bytes.
void WriteRelativeMethod(const RelativeMethod& method, v1::RelativeMethod* message);
void WriteRelativeMethod(const ShawSettings& shaw, v1::RelativeMethod* message);

}  // namespace posenc::wire
