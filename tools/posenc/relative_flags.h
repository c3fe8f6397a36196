// Flags of relative attention methods, named --METHOD-FIELD.
#pragma once

#include <CLI/CLI.hpp>

#include "posenc/v1/relative.pb.h"

namespace posenc::command {

// Parsing writes the given method into *method, which must outlive it. Flags of two methods together are an error.
void AddRelativeMethodFlags(CLI::App& app, v1::RelativeMethod* method);

// Adds the flags of Shaw's method that `posenc values` reads.
void AddShawValueFlags(CLI::App& app, v1::Shaw* shaw);

}  // namespace posenc::command
