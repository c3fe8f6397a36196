// What diffusers' transformer classes have: one row a class (diffusers_types.cc).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "posenc/settings/settings.h"

namespace posenc {

// A number of elements that fields of the file say. The second field is divided by, of a head's width, or multiplied
// with, of the whole model's.
struct FieldWidth {
  std::string_view field = "attention_head_dim";
  int64_t own = 128;  // the class's, where the file does not say
  std::string_view heads_field = "";
  int64_t own_heads = 1;
};

// How the elements that turn are divided among the axes.
enum class AxisSplit {
  kListed,       // a field lists the widths
  kThirds,       // h and w have 2 * (D/6), t the rest
  kEvenThirds,   // D/3 each
  kHalves,       // D/2 each
  kAlternating,  // D/2 each, by turns
  kCogVideoX,    // t has D/4, h and w 3D/8
  kCosmos,       // as kThirds, with 10000 * rope_scale^(d/(d-2)) as each axis's theta
  kSections,     // interleaved M-RoPE over all pairs: h and w have what the field says, t the rest
  kOne,          // positions are one number
  kLongrope,     // the same with rope_scaling's factors
  kLtx,          // theta^(j/(n-1)) * pi/2 for each axis by turns, after what does not divide, over all heads together
};

struct DiffusersRotary {
  AxisSplit split = AxisSplit::kListed;
  std::string_view widths_field = "axes_dims_rope";
  std::vector<int64_t> widths = {};  // the class's own; none: the file must say
  bool null_is_thirds = false;  // a field that is null stands for kEvenThirds of the head, one that is absent does not
  bool block_has_sections = false;    // where that field is absent, mrope_section within rope_scaling says them
  std::string_view theta_field = "";  // "": none
  double theta = 10000;
  Pairing pairing = Pairing::kInterleaved;
  Precision precision = kFluxPrecision;
  FieldWidth width = {};
  int64_t width_times = 1, width_over = 1;  // of that width turns
  int64_t half_split_parts = 1;
  std::string_view pairing_field = "";  // kLtx: "split" says half-split, within each head
  std::string_view only_if = "";        // a flag without which there is no rotary embedding
  std::string_view note = "";           // where tokens stand
};

// What divides the coordinates of a grid.
enum class GridScale {
  kOne,
  kOfSampleSize,  // sample_size / 64, where that is more than 1
  kBySampleSize,  // interpolation_scale, else the same
  kGiven,         // interpolation_scale, without which the class has no positions
  kOfVideo,       // spatial_ and temporal_interpolation_scale
};

struct DiffusersGrid {
  GridConvention convention = GridConvention::kDiffusers;
  Precision precision = kFluxPrecision;
  FieldWidth width = {};
  GridScale scale = GridScale::kOne;
  int64_t sample_size = 0, patch_size = 0;  // of which base_size is the quotient; 0: the file must say
  int64_t base_size = 0;                    // of classes that read neither
  int64_t pos_embed_max_size = 0;           // 0: the grid is not cut
  std::string_view unless = "";             // a flag with which there are no sines
  std::string_view note = "";
};

struct DiffusersSines {
  SinusoidalConvention convention;
  Precision precision;
  FieldWidth width;
  std::string_view kind_field = "";  // "": always; else sines only where this is "sinusoidal"
  std::string_view note;
};

struct DiffusersTable {
  std::string_view rows_field;
  int64_t rows;
  FieldWidth width;
  std::string_view more_rows_field = "";
  int64_t more_rows = 0;
  std::string_view note = "";
};

struct DiffusersType {
  std::string_view class_name;
  std::optional<DiffusersRotary> rotary = {};
  std::optional<DiffusersGrid> grid = {};
  std::optional<DiffusersSines> sines = {};
  std::optional<DiffusersTable> table = {};
  std::string_view instead = "";  // of a class with none of these: what it has

  bool selected() const { return rotary || grid || sines || table; }
};

const std::vector<DiffusersType>& DiffusersTypes();

}  // namespace posenc
