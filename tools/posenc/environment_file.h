// Settings of a user: a file with variables that the environment lacks.
#pragma once

#include "absl/status/status.h"

namespace posenc::command {

// Reads $XDG_CONFIG_HOME/posenc/environment, or ~/.config/posenc/environment: lines NAME=VALUE, such as
//   POSENC_SERVER=posenc.example:443
// with names that begin with POSENC_; lines that are empty or begin with # say nothing. Sets those variables that are
// not set, even to nothing. OK if there is no such file. The error names the file and the line.
absl::Status ReadEnvironmentFile();

}  // namespace posenc::command
