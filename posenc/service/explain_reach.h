// How many positions a model's encoding has, and what happens beyond them, in words.
#pragma once

#include <string>

#include "posenc/mapping/rotary_source.h"
#include "posenc/model/model.h"
#include "posenc/rotary/rotary_plan.h"

namespace posenc::wire {

// 131072 as "131,072"; numbers that are not whole as they are.
std::string Thousands(double number);

bool HasNote(const ResolvedRotary& resolved, std::string_view code);

// The file's lengths: the model's, the one that the scaling begins at, and the one that its factor makes of it. Empty
// without a length in the file.
std::string Lengths(const ResolvedRotary& resolved);

// Rows and bytes of a table of cosines and sines for all positions of the model, and what happens beyond them.
std::string Reach(const ResolvedRotary& resolved, const RotaryPlan& plan);

// The window that the layer's attention reaches back to; empty without one.
std::string Window(const ResolvedRotary& resolved);

// How far layers without a rotary embedding reach: a learned table, sinusoids, a bias. Empty if it is not known.
std::string ReachWithoutRotary(const ModelLayers& layers);

}  // namespace posenc::wire
