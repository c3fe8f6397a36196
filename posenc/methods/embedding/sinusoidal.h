// Sinusoidal absolute encodings (arXiv:1706.03762), in the conventions of proto/posenc/v1/embedding.proto.
#pragma once

#include "posenc/base/limits.h"
#include "posenc/exact/arithmetic.h"
#include "posenc/methods/embedding/encoding.h"

namespace posenc {

// Fills in defaults; INVALID_ARGUMENT for what the convention does not read or cannot take. token_valid is not looked
// at.
absl::Status Complete(SinusoidalSettings& settings, const Limits& limits);

// w_k for k = 0 .. floor(dim/2)-1, of completed settings. In float32 and float64 by the chain of the convention's own
// code: 1/(max^(2k/D)) for interleaved and halves, min*exp(k * -(ln(max/min)/(n-1))) for tensor2tensor and fairseq.
std::vector<double> SinusoidalFrequencies(Frequencies arithmetic, const SinusoidalSettings& settings);

EncodingOr Encode(SinusoidalSettings settings, Frequencies arithmetic, const Limits& limits);

}  // namespace posenc
