// Positional encodings of diffusers' transformer classes: one row per class (diffusers_types.cc).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "posenc/settings/settings.h"

namespace posenc {

// A number of elements that one or two fields give. The first field is divided by heads_field (width of a head) or
// multiplied by it (width of the model): see HeadWidth and ModelWidth.
struct FieldWidth {
  std::string_view field = "attention_head_dim";
  int64_t default_size = 128;  // the class's default; 0: the file must give it
  std::string_view heads_field = "";
  int64_t default_heads = 1;
};

// Division of the D elements that rotate among the axes. t: time, h: rows, w: columns.
enum class AxisSplit {
  kListed,       // a field lists the widths
  kThirds,       // h and w have 2 * (D/6), t the rest
  kEvenThirds,   // D/3 each
  kHalves,       // D/2 each
  kAlternating,  // D/2 each, pairs alternate between the axes
  kCogVideoX,    // t has D/4, h and w 3D/8
  kCosmos,       // kThirds, where an axis of width d has theta 10000 * rope_scale^(d/(d-2))
  kSections,     // interleaved M-RoPE over all pairs: the field gives h and w, t has the rest
  kOne,          // one axis
  kLongrope,     // one axis with rope_scaling's factors
  kLtx,          // over all heads: leftover pairs unrotated, then the axes alternate with theta^(j/(n-1)) * pi/2
};

struct DiffusersRotary {
  AxisSplit split = AxisSplit::kListed;
  std::string_view widths_field = "axes_dims_rope";
  std::vector<int64_t> widths = {};   // the class's default; empty: the file must list them
  bool null_is_thirds = false;        // a null widths_field (but not an absent one) means kEvenThirds of the head
  bool block_has_sections = false;    // if widths_field is absent, rope_scaling.mrope_section replaces it
  bool cuts_sections = false;         // kSections: the class ignores pairs of h and w that the head does not have
  std::string_view theta_field = "";  // "": none
  double theta = 10000;
  Pairing pairing = Pairing::kInterleaved;
  std::optional<Pairing> table_pairing = {};  // if it differs from `pairing`: not a rotation
  Precision precision = kFluxPrecision;
  FieldWidth width = {};
  int64_t width_times = 1, width_over = 1;  // width * width_times / width_over elements rotate
  int64_t half_split_parts = 1;
  std::string_view pairing_field = "";  // kLtx: "split" means half-split within each head
  std::string_view only_if = "";        // a flag without which there is no rotary embedding
  std::string_view note = "";           // the tokens' positions, for callers
};

// Divisor of a grid's coordinates.
enum class GridScale {
  kOne,
  kOfSampleSize,  // sample_size / 64 rounded down, at least 1
  kBySampleSize,  // interpolation_scale, or kOfSampleSize if absent
  kGiven,         // interpolation_scale; without it, the class has no grid
  kOfVideo,       // spatial_ and temporal_interpolation_scale
};

struct DiffusersGrid {
  GridConvention convention = GridConvention::kDiffusers;
  Precision precision = kFluxPrecision;
  FieldWidth width = {};
  GridScale scale = GridScale::kOne;
  int64_t sample_size = 0, patch_size = 0;  // defaults; base_size is the quotient; 0: required
  int64_t base_size = 0;                    // for classes that read neither; else 0
  int64_t pos_embed_max_size = 0;           // default; 0: the grid is not cut
  std::string_view unless = "";             // a flag that, if true, switches the sines off
  std::string_view note = "";
};

struct DiffusersSines {
  SinusoidalConvention convention;
  Precision precision;
  FieldWidth width;
  std::string_view kind_field = "";  // "": always; else sines only if it is "sinusoidal"
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
  std::string_view instead = "";  // for a class with none of these: its encoding, in words

  bool selected() const { return rotary || grid || sines || table; }
};

const std::vector<DiffusersType>& DiffusersTypes();

}  // namespace posenc
