// Data for diagnosis tests: random numbers, and what an implementation makes of them, right or wrong.
#pragma once

#include <memory>
#include <random>
#include <vector>

#include "posenc/base/line_allocator.h"
#include "posenc/diagnose/diagnose.h"
#include "posenc/kernels/convert.h"
#include "posenc/rotary/apply_rotary.h"

namespace posenc::diagnose {

inline std::vector<std::byte> RandomElements(DType dtype, int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<double> values(count);
  for (double& value : values) {
    double sum = 0;  // roughly normal, and equal with every standard library
    for (int n = 0; n < 4; ++n) sum += static_cast<double>(random() >> 11) * 0x1p-53 - 0.5;
    value = 2 * sum;
  }
  std::vector<std::byte> bytes(count * SizeOf(dtype));
  Convert(DType::kFP64, dtype, values.data(), bytes.data(), count);
  return bytes;
}

// Evidence, with x before and y after: [1, length, heads, width].
struct Made {
  Evidence evidence;
  std::vector<std::byte> x, y;
};

inline Tokens Stretch(double first, int64_t length, std::vector<int64_t> seq_len = {}) {
  Tokens tokens;
  tokens.bounds = {0, length};
  tokens.seq_len = std::move(seq_len);
  tokens.positions.resize(1);
  for (int64_t n = 0; n < length; ++n) tokens.positions[0].push_back(first + static_cast<double>(n));
  return tokens;
}

inline Positions AsPositions(const Tokens& tokens, bool needs_seq_len) {
  Positions positions;
  PositionIds ids;
  ids.axes = tokens.axes();
  ids.ids.columns = tokens.count();
  for (const auto& axis : tokens.positions) ids.ids.values.insert(ids.ids.values.end(), axis.begin(), axis.end());
  positions.source = ids;
  if (tokens.axes() > 1) positions.axis_dimension = AxisDimension::kFirst;
  if (needs_seq_len) {
    positions.scaling_length_rule = ScalingLengthRule::kGiven;
    positions.seq_len = tokens.seq_len;
  }
  return positions;
}

// Rotates with the service's code: `applied` at the positions `at`. The evidence claims the positions `said`.
inline Made Make(const RotarySettings& applied, const Precision& precision, DType dtype, const Tokens& at,
                 const Tokens& said, int64_t heads, int64_t width, Direction direction = Direction::kForward,
                 int64_t offset = 0, uint64_t seed = 1) {
  const auto rotary = Rotary::Create(applied, precision.frequencies, {});
  if (!rotary.ok()) throw std::runtime_error(std::string(rotary.status().message()));
  const TensorShape shape{dtype, {1, at.count(), heads, width}};
  ApplyRotary call{.positions = AsPositions(at, rotary->NeedsSeqLen()),
                   .layout = Layout::kBSHD,
                   .direction = direction,
                   .precision = precision,
                   .q = {shape, offset}};
  const auto application = RotaryApplication::Create(*rotary, call, {});
  if (!application.ok()) throw std::runtime_error(std::string(application.status().message()));
  Made made;
  made.x = RandomElements(dtype, at.count() * heads * width, seed);
  made.y.resize(made.x.size());
  const ContiguousBytes from(made.x.data(), made.x.size());
  WorkPool pool(1);
  const absl::Status status = application->Rotate({&from, made.y.data()}, {}, pool, NeverCancelled);
  if (!status.ok()) throw std::runtime_error(std::string(status.message()));
  Rows rows{.layout = Layout::kBSHD, .before_dtype = dtype, .after_dtype = dtype};
  rows.length = at.count();
  rows.heads = heads;
  rows.width = width;
  rows.before = std::make_shared<OwnedBytes>(made.x);
  rows.after = std::make_shared<OwnedBytes>(made.y);
  made.evidence = {{rows}, said};
  return made;
}

// Fills in every default, as a diagnosis request requires.
inline RotarySettings Completed(RotarySettings settings) {
  const auto rotary = Rotary::Create(std::move(settings), Frequencies::kExact, {});
  if (!rotary.ok()) throw std::runtime_error(std::string(rotary.status().message()));
  return rotary->settings();
}

inline RotarySettings Rope(RopeParameters parameters, int64_t rotary_dim, Pairing pairing) {
  RotarySettings settings;
  settings.frequencies = std::move(parameters);
  settings.rotary_dim = rotary_dim;
  settings.input_pairing = pairing;
  return Completed(std::move(settings));
}

inline Asked AskFor(const RotarySettings& settings) { return {.of_model = true, .settings = settings, .offsets = {0}}; }

}  // namespace posenc::diagnose
