// Which server computes, if any. remote/ has these functions with gRPC, and local/ without: such a command computes in
// its own process only.
#pragma once

#include <functional>
#include <memory>

#include <CLI/CLI.hpp>

#include "absl/status/status.h"
#include "posenc/backend/backend.h"
#include "tools/posenc/session.h"

namespace posenc::command {

// Adds the flags of the connection. The function that it returns reads the files that they name, after parsing.
std::function<absl::Status()> AddConnectionFlags(CLI::App& app, GlobalFlags& flags);

std::unique_ptr<Backend> Connect(const GlobalFlags& flags);

Duration SecondsOf(double seconds);

// Returns the backend that computes in this process, on the whole machine.
std::unique_ptr<Backend> ComputeHere(double timeout_seconds);

}  // namespace posenc::command
