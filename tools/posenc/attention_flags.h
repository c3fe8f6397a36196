// Flags of which queries meet which keys.
#pragma once

#include <CLI/CLI.hpp>

#include "posenc/v1/bias.pb.h"

namespace posenc::command {

// All but the heads.
void AddGeometryFlags(CLI::App& app, v1::BiasGeometry* geometry);
void AddHeadFlags(CLI::App& app, v1::BiasGeometry* geometry);
void AddMaskFlags(CLI::App& app, v1::Mask* mask);

}  // namespace posenc::command
