// Flags of absolute encodings: sinusoidal ones have plain names, others are named --METHOD-FIELD.
#pragma once

#include <CLI/CLI.hpp>

#include "absl/status/status.h"
#include "posenc/v1/service.pb.h"

namespace posenc::command {

void AddSinusoidalFlags(CLI::App& app, v1::Sinusoidal* sinusoidal);

// Not movable while flags are parsed: parsing writes into the object.
class EmbeddingMethodFlags {
 public:
  void Add(CLI::App& app);
  bool given() const;
  // Sets the method whose flags were given. Returns a usage error if flags of no method or of several were given.
  absl::Status Put(v1::GenerateEmbeddingRequest* request) const;

 private:
  v1::Sinusoidal sinusoidal_;
  v1::Learned learned_;
  v1::TableResize resize_;  // learned_'s
  v1::Timestep timestep_;
  v1::Grid grid_;
  v1::Fourier fourier_;
};

}  // namespace posenc::command
