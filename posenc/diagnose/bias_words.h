// What is said of a bias: its mask and structure in words, and what the data leave open.
#pragma once

#include <string>
#include <vector>

#include "posenc/diagnose/bias.h"

namespace posenc::diagnose {

std::string Describe(const BiasEvidence& evidence, const BiasStructure& structure);

// Of explanations in their order, all of them.
std::vector<Undecided> Doubts(const BiasEvidence& evidence, const BiasDiagnosis& diagnosis);

}  // namespace posenc::diagnose
