// Benchmark cases: whole in-process rotations with several kinds of tables, cached (a model's later layers) and not
// cached (its first layer).
#include "bench/rotation.h"
#include "posenc/rotary/apply_rotary.h"
#include "posenc/rotary/slab_table.h"

namespace posenc::bench {
namespace {

constexpr int64_t kWidth = 128;

struct Settings {
  const char* name;
  RotarySettings rotary;
  int64_t axes = 1;
};

std::vector<Settings> AllSettings() {
  const RotarySettings one = {.frequencies = RopeParameters{.rope_type = "default"},
                              .rotary_dim = kWidth,
                              .input_pairing = Pairing::kHalfSplit};
  RotarySettings mrope = one, axial = one, xpos = one;
  std::get<RopeParameters>(mrope.frequencies).mrope_section = {16, 24, 24};
  std::get<RopeParameters>(mrope.frequencies).mrope_order = MropeOrder::kContiguous;
  axial.frequencies = AxialRope{.axes = {{.dim = kWidth / 2}, {.dim = kWidth / 2}}};
  xpos.xpos = Xpos{.scale_base = 512, .centre = 0};
  return {{"one axis", one}, {"mrope", mrope, 3}, {"2-D", axial, 2}, {"xpos", xpos}};
}

// Returns a line of positions, or a grid that is 16 patches wide.
Positions PositionsOf(int64_t tokens, int64_t axes) {
  Positions positions;
  if (axes == 1) {
    positions.source = OffsetPositions{0};
    return positions;
  }
  PositionGrid grid{.size = std::vector<int64_t>(axes, 1), .start = std::vector<double>(axes, 0), .step = {}};
  grid.step.assign(axes, 1);
  grid.size.back() = std::min<int64_t>(tokens, 16);
  grid.size[axes - 2] = tokens / grid.size.back();
  positions.source = PositionSegments{{grid}};
  return positions;
}

Contest Prepare(const Settings& settings, DType dtype, size_t bytes, bool cold, Team& team) {
  const auto tokens = static_cast<int64_t>(bytes / (kHeads * kWidth * SizeOf(dtype)));
  const Rotary rotary = *Rotary::Create(settings.rotary, Frequencies::kExact, {});
  ApplyRotary call;
  call.q.tensor = {dtype, {1, tokens, kHeads, kWidth}};
  call.layout = Layout::kBSHD;
  call.positions = PositionsOf(tokens, settings.axes);
  const auto application = std::make_shared<RotaryApplication>(*RotaryApplication::Create(rotary, std::move(call), {}));
  RotationContest rotation = PrepareRotation(dtype, Pairing::kHalfSplit, kWidth, bytes, team);
  const auto pool = std::make_shared<WorkPool>(1);
  rotation.contest.subject = [application, pool, bytes, cold, x = rotation.x, y = rotation.y] {
    TableCache().SetMaxBytes(cold ? 0 : size_t{64} << 20);
    const ContiguousBytes from(x.get(), bytes);
    (void)application->Rotate({&from, y.get()}, {}, *pool, NeverCancelled);
  };
  return std::move(rotation.contest);
}

}  // namespace

std::vector<Case> MethodCases() {
  std::vector<Case> cases;
  for (const Settings& settings : AllSettings()) {
    for (const DType dtype : {DType::kFP32, DType::kBF16}) {
      for (const size_t bytes : {size_t{256} << 10, size_t{4} << 20, size_t{64} << 20}) {
        for (const bool cold : {false, true}) {
          cases.push_back({.work = "call",
                           .dtype = ShortName(dtype),
                           .pairing = settings.name,
                           .head_dim = kWidth,
                           .heads = kHeads,
                           .bytes = bytes,
                           .variant = cold ? "first" : "again",
                           .goal = 0.9,
                           .threads = {1},
                           .prepare = [=](Team& team) { return Prepare(settings, dtype, bytes, cold, team); }});
        }
      }
    }
  }
  return cases;
}

}  // namespace posenc::bench
