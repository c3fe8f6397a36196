// The flags of absolute encodings: sinusoidal ones by their own names, the others' as --METHOD-FIELD.
#pragma once

#include <CLI/CLI.hpp>

#include "absl/status/status.h"
#include "posenc/v1/service.pb.h"

namespace posenc::command {

void AddSinusoidalFlags(CLI::App& app, v1::Sinusoidal* sinusoidal);

// Written into while flags are parsed: must stay where it is.
class EmbeddingMethodFlags {
 public:
  void Add(CLI::App& app);
  bool given() const;
  // Sets the one method that flags were given for.
  absl::Status Put(v1::GenerateEmbeddingRequest* request) const;

 private:
  v1::Sinusoidal sinusoidal_;
  v1::Learned learned_;
  v1::Timestep timestep_;
  v1::Grid grid_;
  v1::Fourier fourier_;
};

}  // namespace posenc::command
