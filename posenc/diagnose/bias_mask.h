// The mask that a bias should have, compared with the one that it has.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "posenc/diagnose/bias_candidates.h"

namespace posenc::diagnose {

struct CheckedMask {
  FoundMask found;
  // The cells that the mask shows, [Sq, Sk] or, if batched, [B, Sq, Sk]; empty: no mask is expected.
  std::vector<uint8_t> shown;
  bool batched = false;
  // False: the data have no part of the mask that was not stated; or none was expected.
  bool checked = false;
  std::optional<Fault> fault;
};

// Fills in what is expected of mask->found. Errors: INVALID_ARGUMENT if the mask does not fit the bias (fields:
// mask...).
absl::Status CheckMask(const BiasEvidence& evidence, const AskedBias& asked, const BiasCall& call, CheckedMask* mask);

}  // namespace posenc::diagnose
