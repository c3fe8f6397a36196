// Command-line flags of the attention geometry, heads and mask: which queries attend to which keys.
#pragma once

#include <CLI/CLI.hpp>

#include "posenc/v1/bias.pb.h"
#include "tools/posenc/session.h"

namespace posenc::command {

// Adds all geometry flags except head_start and head_count.
void AddGeometryFlags(CLI::App& app, v1::BiasGeometry* geometry);
void AddHeadFlags(CLI::App& app, v1::BiasGeometry* geometry);
void AddMaskFlags(CLI::App& app, v1::Mask* mask);
// The flags that say which keys a mask hides, without its values.
void AddHidingFlags(CLI::App& app, v1::Mask* mask);
// Sets the fill to -inf and fully masked rows to zeros where no flag did.
void CompleteMask(v1::Mask* mask, Session* session);

}  // namespace posenc::command
