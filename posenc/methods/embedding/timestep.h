// The timestep embedding of diffusion models, as diffusers computes it (get_timestep_embedding).
#pragma once

#include "posenc/methods/embedding/encoding.h"

namespace posenc {

// kExact: the frequency is scale * max_period^(-k/(dim/2 - shift)), rounded once to float64. Otherwise diffusers'
// chain: w = exp(-ln(max_period) * k / (dim/2 - shift)), angle = scale * (t * w), each operation rounded.
EncodingOr Encode(TimestepSettings settings, Frequencies arithmetic, const Limits& limits);

}  // namespace posenc
