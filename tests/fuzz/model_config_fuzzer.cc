// The readers of config.json. An input is a posenc.v1.ModelConfig: the file, and which part and layer to read.
#include <array>
#include <functional>
#include <string_view>

#include "posenc/base/status.h"
#include "posenc/mapping/read.h"
#include "posenc/model/model.h"
#include "posenc/v1/rotary.pb.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/message_mutator.h"

namespace posenc {
namespace {

using fuzz::Check;

constexpr std::array kWanted = {Wanted::kAny,     Wanted::kRotaryOrBias, Wanted::kTerms,
                                Wanted::kLearned, Wanted::kSinusoidal,   Wanted::kGrid};

void CheckReading(const ModelSource& source) {
  const auto layers = ReadModel(source, Limits());
  if (!layers.ok()) return fuzz::CheckError(layers.status());  // SelectLayer() begins with ReadModel()
  const auto selected = SelectLayer(source, Limits());
  if (!selected.ok()) fuzz::CheckError(selected.status());
  Check(!layers->empty(), "a file without layers");
  for (const ModelLayers& layer : *layers) {
    const int settings = layer.rotary.has_value() + layer.bias.has_value() + layer.terms.has_value() +
                         layer.table.has_value() + layer.sinusoidal.has_value() + layer.grid.has_value();
    Check(settings <= 1, "a layer with two encodings");
  }
}

}  // namespace
}  // namespace posenc

int posenc::fuzz::RunInput(const uint8_t* data, size_t size) {
  posenc::v1::ModelConfig message;
  if (!message.ParseFromArray(data, static_cast<int>(size))) return -1;  // not for the corpus
  auto source = posenc::wire::ReadModelSource(message, "model");
  if (source.ok()) {
    // The input's bytes choose the kind of encoding: six readings of each input would be six times slower, and find
    // less.
    source->wanted = posenc::kWanted[std::hash<std::string_view>()({reinterpret_cast<const char*>(data), size}) %
                                     posenc::kWanted.size()];
    posenc::CheckReading(*source);
  } else {
    posenc::fuzz::CheckError(source.status());
  }
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  posenc::fuzz::Random random(seed);
  return posenc::fuzz::MutateMessage(posenc::v1::ModelConfig::default_instance(), absl::MakeSpan(data, max_size), size,
                                     random);
}

extern "C" size_t LLVMFuzzerCustomCrossOver(const uint8_t* to, size_t to_size, const uint8_t* from, size_t from_size,
                                            uint8_t* out, size_t max_size, unsigned seed) {
  posenc::fuzz::Random random(seed);
  const auto& type = posenc::v1::ModelConfig::default_instance();
  return posenc::fuzz::CrossMessages(type, {to, to_size}, type, {from, from_size}, absl::MakeSpan(out, max_size),
                                     random);
}
