// Digests of rotary tables that need more than one primitive: positions of several axes, and xPos.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "posenc/rotary/table_rows.h"
#include "tests/digests/digest_case.h"
#include "tests/digests/digest_inputs.h"

namespace posenc {
namespace {

struct TableCase {
  std::string name;  // describes `settings`
  RotarySettings settings;
  int64_t axes;
  Frequencies frequencies;
  DType dtype;
  Direction direction;
  Operand operand;
};

constexpr int64_t kRows = 5;

// Consecutive numbers on the first axis, fractions of either sign on the second, large numbers on the third.
double Position(int64_t axis, int64_t row) {
  if (axis % 3 == 0) return static_cast<double>(row);
  if (axis % 3 == 1) return RandomReal(axis, row, -4, 14);
  return static_cast<double>(Random(axis, row) >> 43);
}

PositionIds Ids(const TableCase& c) {
  PositionIds ids = {{{}, 1, kRows, true}, c.axes};
  std::vector<double>& at = ids.ids.values;
  if (c.settings.xpos) {  // xPos has one axis: first the centre, then positions of axis 1
    at.push_back(*c.settings.xpos->centre);
    for (int64_t row = 1; row < kRows; ++row) at.push_back(Position(1, row));
    return ids;
  }
  for (int64_t axis = 0; axis < c.axes; ++axis) {
    for (int64_t row = 0; row < kRows; ++row) at.push_back(Position(axis, row));
  }
  return ids;
}

Block RunTable(const TableCase& c) {
  Positions source;
  source.source = Ids(c);
  if (c.axes > 1) source.axis_dimension = AxisDimension::kFirst;
  const auto rotary = Rotary::Create(c.settings, c.frequencies, {});
  EXPECT_TRUE(rotary.ok()) << rotary.status();
  auto positions = TokenPositions::Create(std::move(source), {1, kRows, false, c.axes}, {});
  EXPECT_TRUE(positions.ok()) << positions.status();
  if (!rotary.ok() || !positions.ok()) return Block(0);
  const auto table = TableRows::Create(*rotary, *std::move(positions), c.direction, {});
  EXPECT_TRUE(table.ok()) << table.status();
  if (!table.ok()) return Block(0);
  const size_t entries = kRows * table->width();
  Block out(2 * entries * SizeOf(c.dtype));
  table->Compute(0, kRows, c.dtype, c.operand, out.data(), out.data() + entries * SizeOf(c.dtype));
  MakeNansEqual(c.dtype, out.data(), 2 * entries);
  return out;
}

RotarySettings Settings(decltype(RotarySettings::frequencies) frequencies) {
  RotarySettings settings;
  settings.frequencies = std::move(frequencies);
  settings.input_pairing = Pairing::kHalfSplit;
  return settings;
}

// Adds a case for each arithmetic and type; directions and operands alternate.
void AddAll(const std::string& name, const RotarySettings& settings, int64_t axes, std::vector<Case>* cases,
            bool has_inverse = true) {
  for (const Frequencies frequencies : kArithmetics) {
    for (const DType dtype : kTypes) {
      const size_t n = cases->size();
      const Direction back = has_inverse ? Direction::kInverse : Direction::kTranspose;
      const TableCase c = {name,
                           settings,
                           axes,
                           frequencies,
                           dtype,
                           Turn(n, {Direction::kForward, back, Direction::kTranspose}),
                           Turn(n / 2, {Operand::kQuery, Operand::kKey})};
      constexpr const char* kDirections[] = {"forward", "transpose", "inverse"};
      cases->push_back(
          {fmt::format("{} frequencies={} dtype={} direction={} operand={}", name, Name(frequencies), Name(dtype),
                       kDirections[static_cast<int>(c.direction)], c.operand == Operand::kKey ? "k" : "q"),
           [c] { return RunTable(c); }});
    }
  }
}

void AddAxial(const std::vector<AxialAxis>& axes, bool alternating, std::vector<Case>* cases) {
  std::vector<int64_t> dims;
  std::vector<double> thetas, starts;
  for (const AxialAxis& axis : axes) {
    dims.push_back(axis.dim);
    thetas.push_back(*axis.rope_theta);
    starts.push_back(axis.frequency_start);
  }
  AddAll(fmt::format("table=axial dim={} rope_theta={} frequency_start={}{}", fmt::join(dims, "+"),
                     fmt::join(thetas, "+"), fmt::join(starts, "+"), alternating ? " alternating=1" : ""),
         Settings(AxialRope{axes, alternating}), static_cast<int64_t>(axes.size()), cases);
}

// V-JEPA 2's and ERNIE-Image's: the angles are laid out by another pairing than the pairs.
void AddOtherPairing(Pairing input, int64_t parts, std::vector<Case>* cases) {
  RotarySettings settings = Settings(AxialRope{{{8, 10000, 0}, {8, 100, 0}, {8, 10000, 0}}, false});
  settings.input_pairing = input;
  settings.table_pairing = input == Pairing::kHalfSplit ? Pairing::kInterleaved : Pairing::kHalfSplit;
  settings.half_split_parts = parts;
  AddAll(fmt::format("table=axial dim=8+8+8 rope_theta=10000+100+10000 frequency_start=0+0+0 input_pairing={} "
                     "table_pairing={} half_split_parts={}",
                     Name(input), Name(*settings.table_pairing), parts),
         settings, 3, cases, false);
}

void AddMrope(const char* order_name, MropeOrder order, std::vector<int64_t> sections, std::vector<Case>* cases) {
  RopeParameters parameters = {.rope_type = "default", .rope_theta = 1000000};
  parameters.mrope_section = sections;
  parameters.mrope_order = order;
  RotarySettings settings = Settings(parameters);
  settings.rotary_dim = 0;
  for (const int64_t section : sections) *settings.rotary_dim += 2 * section;
  AddAll(fmt::format("table=mrope rope_theta=1000000 mrope_order={} mrope_section={}", order_name,
                     fmt::join(sections, "+")),
         settings, static_cast<int64_t>(sections.size()), cases, order != MropeOrder::kElements);
}

// Random frequencies with magnitudes below 1.
GivenFrequencies Given(int64_t pairs) {
  GivenFrequencies given;
  for (int64_t pair = 0; pair < pairs; ++pair) given.inv_freq.push_back(RandomReal(9, pair, -30, 30));
  given.attention_scaling = 1.1386294361119891;
  return given;
}

void AddGiven(std::vector<int64_t> axis, std::vector<Case>* cases) {
  GivenFrequencies given = Given(static_cast<int64_t>(axis.size()));
  given.axis = axis;
  AddAll(fmt::format("table=given attention_scaling={} axis={}", *given.attention_scaling, fmt::join(axis, "+")),
         Settings(given), *std::max_element(axis.begin(), axis.end()) + 1, cases);
}

// Angles that are sums over three axes, for each of two heads.
void AddSums(int64_t pairs, std::vector<Case>* cases) {
  GivenFrequencies given = Given(2 * pairs * 3);
  given.attention_scaling = 1;
  given.heads = 2;
  given.axes = 3;
  AddAll(fmt::format("table=sums pairs={} heads=2 axes=3", pairs), Settings(given), 3, cases);
}

void AddXpos(int64_t pairs, double centre, double scale_base, std::vector<Case>* cases) {
  const GivenFrequencies given = Given(pairs);
  RotarySettings settings = Settings(given);
  settings.xpos = {scale_base, centre};
  AddAll(fmt::format("table=xpos attention_scaling={} pairs={} centre={} scale_base={}", *given.attention_scaling,
                     pairs, centre, scale_base),
         settings, 1, cases);
}

std::vector<Case> TableCases() {
  std::vector<Case> cases;
  AddAxial({{8, 10000, 0}, {6, 100, 0.5}, {10, 500000, 0.25}}, false, &cases);
  AddAxial({{2, 10000, 0}, {34, 10000, 0}}, false, &cases);
  AddMrope("contiguous", MropeOrder::kContiguous, {4, 7, 5}, &cases);
  AddMrope("contiguous", MropeOrder::kContiguous, {1, 0, 3, 5}, &cases);
  AddMrope("interleaved", MropeOrder::kInterleaved, {8, 5, 4}, &cases);
  AddMrope("ernie", MropeOrder::kErnie, {5, 5, 3}, &cases);
  AddGiven({2, 0, 1, 1, 0, 2, 2, 2, 1, 0, 0}, &cases);
  AddXpos(1, 0, 512, &cases);
  AddXpos(7, 2048, 512, &cases);
  AddXpos(20, 3.7, 1.5, &cases);  // most scales overflow or underflow
  AddAxial({{8, 10000, 0}, {8, 100, 0.5}, {8, 500000, 0}}, true, &cases);
  AddOtherPairing(Pairing::kInterleaved, 3, &cases);
  AddOtherPairing(Pairing::kHalfSplit, 1, &cases);
  AddMrope("elements", MropeOrder::kElements, {4, 7, 5}, &cases);
  AddSums(5, &cases);
  return cases;
}

}  // namespace

TEST_P(DigestTest, TableRows) { Check("table_rows", TableCases()); }

}  // namespace posenc
