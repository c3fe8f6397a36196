// ALiBi's messages.
#pragma once

#include "posenc/mapping/read.h"
#include "posenc/settings/settings.h"
#include "posenc/v1/service.pb.h"

namespace posenc::wire {

absl::StatusOr<AlibiSettings> ReadAlibi(const Reader& reader, const v1::Alibi& message);
// Canonical settings. Tensors are written as FP64.
void WriteAlibi(const AlibiSettings& settings, v1::Alibi* message);

}  // namespace posenc::wire
