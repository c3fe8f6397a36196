// The calls of a load test: a weighted list and a seed that fixes their order. docs/load-testing.md describes the file
// format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace posenc::load {

enum class Transport { kUnary, kStream, kSharedMemory };

// Shapes are those of a model's attention. request_json sets other fields of a request; defaults fill in the rest
// (methods.cc).
struct Entry {
  std::string name;  // default: the method's name
  int64_t weight = 1;
  std::string method = "ApplyRotary";
  Transport transport = Transport::kUnary;
  std::string dtype = "bf16";
  int64_t batch = 1, tokens = 1, heads = 32, key_heads = 8, head_dim = 128;  // key_heads 0: q only
  std::vector<int64_t> offsets = {0};  // positions of the first token; each call uses one
  std::string config_json;             // content of a model's config.json; empty if none
  std::string gguf;                    // a model's GGUF without its tokenizer; empty if none
  std::string request_json;            // fields of the method's request in proto3 JSON; empty if none

  bool has_model() const { return !config_json.empty() || !gguf.empty(); }
};

// Sets the entry's config_json or gguf from a file or folder (posenc/wire/model_file.h).
absl::Status ReadModel(const std::string& path, Entry* entry);

struct Mix {
  uint64_t seed = 1;
  std::vector<Entry> entries;  // at least one
};

// The request of the mix that a call makes.
struct Choice {
  size_t entry, offset;  // indices into Mix::entries and Entry::offsets
  double verify;         // in [0, 1); verified if below the requested share
};

// Chooses the request of a step's n-th call: a pure function of mix, step seed and number. Thread-safe.
class Chooser {
 public:
  explicit Chooser(const Mix& mix);
  Choice At(uint64_t step_seed, int64_t number) const;

 private:
  std::vector<uint64_t> ends_;  // running sums of the weights
  std::vector<size_t> offsets_;
};

// `directory`: base of relative config.json paths. Errors are INVALID_ARGUMENT with the field.
absl::StatusOr<Mix> ParseMix(const std::string& json, const std::string& directory);
absl::StatusOr<Mix> ReadMix(const std::string& path);

// JSON with all that a replay needs, including the contents of config.json files.
std::string MixToJson(const Mix& mix);

// Returns INVALID_ARGUMENT if a field is out of range or malformed.
absl::Status CheckMix(const Mix& mix);

absl::StatusOr<Transport> ParseTransport(const std::string& text);

}  // namespace posenc::load
