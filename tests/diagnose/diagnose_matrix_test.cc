// Every scaling x pairing x type x precision, with every fault injected: the first explanation must be the right one.
// "Cannot tell" counts only if the applied and the wanted settings give the same bytes, which is computed here.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>

#include "tests/diagnose/diagnose_scalings.h"
#include "tests/kernels/one_in.h"

namespace posenc::diagnose::diagnose_matrix_test {
namespace {

constexpr int64_t kWidth = kScaledWidth, kHeads = 2, kLength = kScaledLength;

struct Case {
  std::string name;
  RotarySettings wanted, applied;
  Tokens said, at;
  std::string code;  // the departure that must be reported; empty: none
  Direction direction = Direction::kForward;
  int64_t offset = 0;
  std::vector<NamedSettings> others = {};
  std::optional<double> attention_power = {};  // exponent of the attention scaling that is applied
};

// Raises the attention scaling to a power. Returns nullopt if the scaling is 1.
std::optional<RotarySettings> WithAttention(const RotarySettings& settings, Frequencies arithmetic,
                                            const Tokens& tokens, double power) {
  const auto rotary = Rotary::Create(settings, arithmetic, {});
  const auto plan = *rotary->Plan(tokens.seq_len.empty() ? 0 : tokens.seq_len[0]);
  if (std::fabs(plan->attention_scaling - 1) < 1e-9) return std::nullopt;
  RotarySettings applied;
  applied.frequencies = GivenFrequencies{plan->inv_freq, std::pow(plan->attention_scaling, power)};
  applied.input_pairing = settings.input_pairing;
  return Completed(applied);
}

// Positions of text, an image of 8 x 12, and text.
Tokens Image() {
  Tokens tokens;
  tokens.positions.resize(3);
  for (int n = 0; n < kLength; ++n) {
    const bool image = n >= 32 && n < 128;
    const double base = n < 32 ? n : n >= 128 ? n - 84 : 32;
    tokens.positions[0].push_back(base);
    const int row = (n - 32) / 12, column = (n - 32) % 12;
    tokens.positions[1].push_back(image ? base + row : base);
    tokens.positions[2].push_back(image ? base + column : base);
  }
  tokens.bounds = {0, kLength};
  return tokens;
}

Tokens Later(Tokens tokens, double by) {
  for (double& position : tokens.positions[0]) position += by;
  return tokens;
}

// Cases of xPos, right and wrong. A plain rotation cannot have its scale.
void AddScaled(const std::string& pairing_name, Pairing pairing, Pairing other, std::vector<Case>* cases) {
  const auto with = [](Pairing p, std::optional<double> centre, double base = 512) {
    RotarySettings settings;
    settings.frequencies = RopeParameters{.rope_type = "default"};
    settings.rotary_dim = kWidth;
    settings.input_pairing = p;
    if (centre) settings.xpos = Xpos{base, centre};
    return Completed(settings);
  };
  const Tokens tokens = Stretch(1000, kLength);
  const std::string name = "xpos" + pairing_name;
  const RotarySettings wanted = with(pairing, 1024);
  cases->push_back({name, wanted, wanted, tokens, tokens, ""});
  cases->push_back({name + ", other pairing", wanted, with(other, 1024), tokens, tokens, "PAIRING"});
  cases->push_back({name + ", positions + 1", wanted, wanted, tokens, Later(tokens, 1), "POSITIONS"});
  cases->push_back({name + ", positions - 1", wanted, wanted, tokens, Later(tokens, -1), "POSITIONS"});
  cases->push_back({name + ", transpose", wanted, wanted, tokens, tokens, "DIRECTION", Direction::kTranspose});
  cases->push_back({name + ", inverse", wanted, wanted, tokens, tokens, "DIRECTION", Direction::kInverse});
  cases->push_back({name + ", scale missing", wanted, with(pairing, {}), tokens, tokens, "XPOS"});
  cases->push_back({name + ", another centre", wanted, with(pairing, 900), tokens, tokens, "XPOS"});
  cases->push_back({name + ", another base", wanted, with(pairing, 1024, 256), tokens, tokens, "XPOS"});
  cases->push_back({name + " not asked for", with(pairing, {}), wanted, tokens, tokens, "XPOS"});
}

// Cases of a table that follows no frequencies.
void AddTables(const std::string& pairing_name, Pairing pairing, Pairing other, std::vector<Case>* cases) {
  const int64_t rows = 512;
  std::vector<float> cos, sin;
  for (int64_t p = 0; p < rows; ++p) {
    for (int64_t k = 0; k < kWidth / 2; ++k) {
      const double angle = std::sqrt(static_cast<double>(p)) * (1 + static_cast<double>(k) / 8);
      cos.push_back(static_cast<float>(std::cos(angle)));
      sin.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  const auto shared = [](const std::vector<float>& values) {
    const auto* bytes = reinterpret_cast<const std::byte*>(values.data());
    return std::make_shared<const std::vector<std::byte>>(bytes, bytes + values.size() * sizeof(float));
  };
  const auto with = [&](Pairing p) {
    RotarySettings settings;
    settings.frequencies = GivenTable{DType::kFP32, rows, kWidth / 2, TableForm::kHalfWidth, shared(cos), shared(sin)};
    settings.rotary_dim = kWidth;
    settings.input_pairing = p;
    return Completed(settings);
  };
  const Tokens tokens = Stretch(100, kLength);
  const std::string name = "given table" + pairing_name;
  const RotarySettings wanted = with(pairing);
  cases->push_back({name, wanted, wanted, tokens, tokens, ""});
  cases->push_back({name + ", other pairing", wanted, with(other), tokens, tokens, "PAIRING"});
  cases->push_back({name + ", positions + 1", wanted, wanted, tokens, Later(tokens, 1), "POSITIONS"});
  cases->push_back({name + ", from 0", wanted, wanted, tokens, Later(tokens, -100), "POSITIONS"});
  cases->push_back({name + ", inverse", wanted, wanted, tokens, tokens, "DIRECTION", Direction::kTranspose});
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  const Pairing half = Pairing::kHalfSplit, inter = Pairing::kInterleaved;
  const auto add = [&](std::string name, RotarySettings wanted, RotarySettings applied, Tokens said, Tokens at,
                       std::string code) -> Case& {
    cases.push_back(
        {std::move(name), std::move(wanted), std::move(applied), std::move(said), std::move(at), std::move(code)});
    return cases.back();
  };
  for (const RopeParameters& p : Scalings()) {
    const Tokens tokens = TokensOf(p);
    const std::string name = p.rope_type + (p.mixed_b ? " mixed" : p.negate_angle ? " negated" : "");
    for (Pairing pairing : {half, inter}) {
      const RotarySettings wanted = Settings(p, pairing), other = Settings(p, pairing == half ? inter : half);
      add(name + (pairing == half ? " half-split" : " interleaved"), wanted, wanted, tokens, tokens, "");
      add(name + ", other pairing", wanted, other, tokens, tokens, "PAIRING");
    }
    const RotarySettings wanted = Settings(p, half);
    Tokens later = tokens, earlier = tokens;
    for (double& position : later.positions[0]) position += 1;
    for (double& position : earlier.positions[0]) position -= 1;
    add(name + ", positions + 1", wanted, wanted, tokens, later, "POSITIONS");
    add(name + ", positions - 1", wanted, wanted, tokens, earlier, "POSITIONS");
    add(name + ", inverse", wanted, wanted, tokens, tokens, "DIRECTION").direction = Direction::kTranspose;
    if (p.rope_theta && *p.rope_theta != 1e4) {
      RopeParameters plain = p;
      plain.rope_theta = 1e4;
      add(name + ", default theta", wanted, Settings(plain, half), tokens, tokens, "ROPE_THETA");
    }
    if (p.rope_type != "default") {
      const RopeParameters plain{.rope_type = "default", .rope_theta = p.rope_theta};
      const char* code = p.rope_type == "proportional" ? "" : "SCALING_MISSING";
      if (*code) add(name + ", scaling ignored", wanted, Settings(plain, half), tokens, tokens, code);
    }
    for (double power : {0.0, 2.0}) {
      if (WithAttention(wanted, Frequencies::kExact, tokens, power) == std::nullopt) continue;
      add(name + (power == 0 ? ", attention factor missing" : ", attention factor twice"), wanted, wanted, tokens,
          tokens, "ATTENTION_FACTOR")
          .attention_power = power;
    }
  }
  const Tokens near = Stretch(0, kLength);
  const RotarySettings partial = Settings({.rope_type = "default"}, half, 32);
  const RotarySettings full = Settings({.rope_type = "default"}, half);
  add("partial asked, all rotate", partial, full, near, near, "ROTARY_WIDTH");
  add("all asked, 32 rotate", full, partial, near, near, "ROTARY_WIDTH");
  add("partial", partial, partial, near, near, "");
  add("partial at 16", partial, partial, near, near, "ROTARY_OFFSET").offset = 16;
  Case& shorter = add("longrope, short factors above L0", Settings(Longrope(), half),
                      Settings(Longrope(LongropeBranch::kShort), half), TokensOf(Longrope()), Stretch(8200, kLength),
                      "SHORT_FACTORS");
  (void)shorter;
  add("longrope, long factors below L0", Settings(Longrope(), half), Settings(Longrope(LongropeBranch::kLong), half),
      TokensOf(Longrope(), 100), Stretch(100, kLength), "LONG_FACTORS");
  RopeParameters truncated = Yarn();
  truncated.truncate = false;
  add("yarn, truncate", Settings(Yarn(), half), Settings(truncated, half), Stretch(8200, kLength),
      Stretch(8200, kLength), "TRUNCATE");
  const auto contiguous = Mrope({8, 12, 12}, MropeOrder::kContiguous);
  const auto uneven = Mrope({8, 16, 8}, MropeOrder::kContiguous), swapped = Mrope({8, 8, 16}, MropeOrder::kContiguous);
  const auto interleaved = Mrope({12, 10, 10}, MropeOrder::kInterleaved);
  add("mrope", Settings(contiguous, half), Settings(contiguous, half), Image(), Image(), "");
  add("mrope interleaved", Settings(interleaved, half), Settings(interleaved, half), Image(), Image(), "");
  add("mrope, sections' sizes exchanged", Settings(uneven, half), Settings(swapped, half), Image(), Image(),
      "SECTIONS");
  Tokens turned = Image();
  std::swap(turned.positions[1], turned.positions[2]);
  add("mrope, h and w exchanged", Settings(contiguous, half), Settings(contiguous, half), Image(), turned,
      "AXES_EXCHANGED");
  add("mrope, order of sections", Settings(Mrope({12, 10, 10}, MropeOrder::kContiguous), half),
      Settings(interleaved, half), Image(), Image(), "SECTION_ORDER");
  add("mrope, sections ignored", Settings(contiguous, half),
      Settings({.rope_type = "default", .rope_theta = 1e6}, half), Image(), Image(), "SECTIONS_IGNORED");
  cases.back().at = Stretch(0, kLength);
  cases.back().at.positions[0] = Image().positions[0];
  RotarySettings axial;
  axial.frequencies = AxialRope{{{16}, {24}, {24}}};
  axial.input_pairing = inter;
  add("axial", Completed(axial), Completed(axial), Image(), Image(), "");
  Tokens image = Image();
  image.positions.erase(image.positions.begin());
  RotarySettings square = axial, by_turns = axial;
  square.frequencies = AxialRope{{{32}, {32}}};
  by_turns.frequencies = AxialRope{{{32}, {32}}, true};
  add("axial, by turns", Completed(by_turns), Completed(by_turns), image, image, "");
  add("axial, by turns and not asked", Completed(square), Completed(by_turns), image, image, "SECTION_ORDER");
  RotarySettings parts = Completed(square);
  parts.input_pairing = parts.output_pairing = half;
  const RotarySettings whole = parts;
  parts.half_split_parts = 2;
  add("halves of parts", parts, parts, image, image, "");
  add("halves of parts, of the whole applied", parts, whole, image, image, "PAIRING");
  add("halves of the whole, of parts applied", whole, parts, image, image, "PAIRING");
  RotarySettings given;
  given.frequencies = GivenFrequencies{{1, 0.7, 0.31, 0.11}, 1.5};
  given.input_pairing = half;
  add("given frequencies", Completed(given), Completed(given), near, near, "");
  for (Pairing pairing : {half, inter}) {
    const std::string name = pairing == half ? " half-split" : " interleaved";
    const Pairing other = pairing == half ? inter : half;
    AddScaled(name, pairing, other, &cases);
    AddTables(name, pairing, other, &cases);
    // Pixel positions run from -1 to 1, from the image's start to its end.
    Tokens pixels = Stretch(0, kLength);
    for (double& position : pixels.positions[0]) position = position / (kLength - 1) * 2 - 1;
    const RopeParameters pixel{.rope_type = "pixel", .max_freq = 10};
    add("pixel" + name, Settings(pixel, pairing), Settings(pixel, pairing), pixels, pixels, "");
    add("pixel" + name + ", other pairing", Settings(pixel, pairing), Settings(pixel, other), pixels, pixels,
        "PAIRING");
    add("pixel" + name + ", inverse", Settings(pixel, pairing), Settings(pixel, pairing), pixels, pixels, "DIRECTION")
        .direction = Direction::kTranspose;
    const auto ernie = Mrope({10, 10, 12}, MropeOrder::kErnie);
    add("mrope ernie" + name, Settings(ernie, pairing), Settings(ernie, pairing), Image(), Image(), "");
    add("mrope ernie" + name + ", other pairing", Settings(ernie, pairing), Settings(ernie, other), Image(), Image(),
        "PAIRING");
    add("mrope ernie" + name + ", contiguous", Settings(ernie, pairing),
        Settings(Mrope({12, 10, 10}, MropeOrder::kContiguous), pairing), Image(), Image(), "SECTION_ORDER");
  }
  RotarySettings local = Settings({.rope_type = "default", .rope_theta = 1e4}, half);
  Case& layers =
      add("another layer's settings", Settings({.rope_type = "linear", .rope_theta = 1e6, .factor = 8}, half), local,
          near, near, "OTHER_LAYERS");
  layers.others = {{"layer type \"sliding_attention\"", local}};
  return cases;
}

struct Setting {
  DType dtype;
  Precision precision;
  const char* name;
};
const Setting kSettings[] = {
    {DType::kBF16, kExactPrecision, "bf16 exact"},      {DType::kBF16, kHfEagerPrecision, "bf16 hf_eager"},
    {DType::kBF16, kVllmPrecision, "bf16 vllm"},        {DType::kFP16, kF32Precision, "fp16 f32"},
    {DType::kFP16, kHfEagerPrecision, "fp16 hf_eager"}, {DType::kFP32, kExactPrecision, "fp32 exact"},
    {DType::kFP32, kHfEagerPrecision, "fp32 hf_eager"}, {DType::kFP32, kFluxPrecision, "fp32 flux"}};

// Checks whether the wanted settings give the same bytes.
bool SameBytes(const Case& c, const Setting& setting, const Made& made) {
  Candidate wanted{.settings = c.wanted, .offsets = {0}};
  WorkPool pool(1);
  const auto proof = Prove(wanted, {setting.precision, {setting.dtype}}, made.evidence, {}, pool, NeverCancelled);
  return proof.ok() && proof->comparison.share() == 1;
}

TEST(DiagnoseMatrix, TheFirstExplanationIsTheRightOne) {
  int passed = 0, failed = 0, untold = 0;
  WorkPool pool(1);
  // In a sample, every case runs with one setting, the next case with the next.
  const size_t one_in = OneIn() == 1 ? 1 : std::size(kSettings);
  for (size_t n = 0; const Case& c : Cases()) {
    std::string line;
    for (size_t s = n++ % one_in; s < std::size(kSettings); s += one_in) {
      const Setting& setting = kSettings[s];
      RotarySettings applied = c.applied;
      if (c.attention_power) {
        applied = *WithAttention(applied, setting.precision.frequencies, c.at, *c.attention_power);
      }
      const Made made =
          Make(applied, setting.precision, setting.dtype, c.at, c.said, kHeads, kWidth, c.direction, c.offset);
      Asked asked = AskFor(c.wanted);
      asked.others = c.others;
      const auto diagnosis = Diagnose(made.evidence, asked, 6, {}, pool, NeverCancelled);
      std::string problem;
      if (!diagnosis.ok()) {
        problem = std::string(diagnosis.status().message());
      } else if (diagnosis->explanations.empty()) {
        problem = "no explanation";
      } else {
        const Explanation& best = diagnosis->explanations[0];
        const auto& departures = best.candidate.departures;
        const bool named = c.code.empty() ? departures.empty() : departures.size() == 1 && departures[0].code == c.code;
        const bool same = !c.code.empty() && departures.empty() && SameBytes(c, setting, made);
        untold += same;
        if ((!named && !same) || best.proof.comparison.share() != 1) {
          problem = best.sentence + " (share " + std::to_string(best.proof.comparison.share()) + ")";
        }
      }
      ++(problem.empty() ? passed : failed);
      if (!problem.empty()) line += std::string("\n      ") + setting.name + ": " + problem;
    }
    std::printf("%-40s %-18s %s%s\n", c.name.c_str(), c.code.c_str(), line.empty() ? "ok" : "FAILED", line.c_str());
  }
  std::printf("%d of them with identical bytes, which no one can tell apart\n%d passed, %d failed\n", untold, passed,
              failed);
  EXPECT_EQ(failed, 0);
}

}  // namespace
}  // namespace posenc::diagnose::diagnose_matrix_test
