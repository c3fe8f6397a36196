// What is called: a list of calls with weights, and a seed that says in which order. docs/load-testing.md has the
// file's format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace posenc::load {

enum class Transport { kUnary, kStream, kSharedMemory };

// Shapes are those that a model's attention has; what else a request says is in request_json, and defaults stand in
// for what is in neither (methods.cc).
struct Entry {
  std::string name;  // default: the method's
  int64_t weight = 1;
  std::string method = "ApplyRotary";
  Transport transport = Transport::kUnary;
  std::string dtype = "bf16";
  int64_t batch = 1, tokens = 1, heads = 32, key_heads = 8, head_dim = 128;  // key_heads 0: q alone
  std::vector<int64_t> offsets = {0};  // the first token's position: each call has one of them
  std::string config_json;             // a model's; empty: none
  std::string request_json;            // fields of the method's request, in proto3's JSON; empty: none
};

struct Mix {
  uint64_t seed = 1;
  std::vector<Entry> entries;  // one at least
};

// Which of the mix's requests a call makes.
struct Choice {
  size_t entry, offset;  // indices
  double verify;         // in [0, 1): verified where it is below the share asked for
};

// Chooses for the n-th call of a step with this seed; the same whoever asks, and however often.
class Chooser {
 public:
  explicit Chooser(const Mix& mix);
  Choice At(uint64_t step_seed, int64_t number) const;

 private:
  std::vector<uint64_t> ends_;  // running sums of the weights
  std::vector<size_t> offsets_;
};

// `directory` is what paths of config.json files are relative to. INVALID_ARGUMENT names the field.
absl::StatusOr<Mix> ParseMix(const std::string& json, const std::string& directory);
absl::StatusOr<Mix> ReadMix(const std::string& path);

// Holds all that a replay needs, the config.json files too.
std::string MixToJson(const Mix& mix);

// INVALID_ARGUMENT where a number is out of range.
absl::Status CheckMix(const Mix& mix);

absl::StatusOr<Transport> ParseTransport(const std::string& text);

}  // namespace posenc::load
