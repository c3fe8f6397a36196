// The flags of methods of relative terms, as --METHOD-FIELD.
#pragma once

#include <CLI/CLI.hpp>

#include "posenc/v1/relative.pb.h"

namespace posenc::command {

// What they say of one method is written into *method while flags are parsed.
void AddRelativeMethodFlags(CLI::App& app, v1::RelativeMethod* method);

// Those of Shaw that are read for values.
void AddShawValueFlags(CLI::App& app, v1::Shaw* shaw);

}  // namespace posenc::command
