// Read off the source of diffusers 0.42: one row a class.
#include "posenc/model/diffusers.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "posenc/real.h"
#include "posenc/status.h"

namespace posenc {
namespace {

// How a head of attention_head_dim elements is divided among the axes.
enum class AxisSplit {
  kListed,     // a field lists the widths
  kThirds,     // h and w have 2 * (D/6), t the rest
  kCogVideoX,  // t has D/4, h and w 3D/8
  kCosmos,     // as kThirds, with 10000 * rope_scale^(d/(d-2)) as each axis's theta
  kNone,       // no settings say what the class does
};

struct DiffusersType {
  std::string_view class_name;
  AxisSplit split = AxisSplit::kListed;
  std::string_view widths_field = "axes_dims_rope";
  std::vector<int64_t> widths;        // the class's own
  std::string_view theta_field = "";  // "": none
  double theta = 10000;
  Pairing pairing = Pairing::kInterleaved;
  Precision precision = kFluxPrecision;
  int64_t head_dim = 128;         // the class's own attention_head_dim
  std::string_view only_if = "";  // a flag without which there is no rotary embedding
  std::string_view note = "";     // where tokens stand
};

constexpr std::string_view kImageIds =
    "positions are the ids that the pipeline makes: (0, row, column) of the image, zeros of the text";
constexpr std::string_view kLatents = "positions are (frame, row, column) of the patches, from 0";
constexpr std::string_view kCaption =
    "the caption's tokens stand at (n, 0, 0), the image's at (number of caption tokens, row, column)";
constexpr Precision kComplex128 = {Frequencies::kFloat64, TableDtype::kFloat64, Rounding::kOnce};

const std::vector<DiffusersType>& Types() {
  const std::vector<int64_t> flux = {16, 56, 56};
  // clang-format off
  static const std::vector<DiffusersType>& types = *new std::vector<DiffusersType>{
      // Axes whose widths the file lists.
      {.class_name = "BriaTransformer2DModel", .widths = flux, .theta_field = "rope_theta", .note = kImageIds},
      {.class_name = "ChromaTransformer2DModel", .widths = flux, .note = kImageIds},
      {.class_name = "Flux2Transformer2DModel", .widths = {32, 32, 32, 32}, .theta_field = "rope_theta", .theta = 2000, .note = "positions are (t, row, column, text token)"},
      {.class_name = "FluxTransformer2DModel", .widths = flux, .note = kImageIds},
      {.class_name = "HunyuanImageTransformer2DModel", .widths_field = "rope_axes_dim", .widths = {64, 64}, .theta_field = "rope_theta", .theta = 256, .precision = kF32Precision, .note = "positions are (row, column) of the image's patches, from 0; text does not turn"},
      {.class_name = "HunyuanVideo15Transformer3DModel", .widths_field = "rope_axes_dim", .widths = flux, .theta_field = "rope_theta", .theta = 256, .precision = kF32Precision, .note = kLatents},
      {.class_name = "HunyuanVideoTransformer3DModel", .widths_field = "rope_axes_dim", .widths = flux, .theta_field = "rope_theta", .theta = 256, .precision = kF32Precision, .note = kLatents},
      {.class_name = "LongCatImageTransformer2DModel", .widths = flux, .note = kImageIds},
      {.class_name = "Lumina2Transformer2DModel", .widths_field = "axes_dim_rope", .widths = {32, 32, 32}, .precision = kComplex128, .note = kCaption},
      {.class_name = "OvisImageTransformer2DModel", .widths = flux, .note = kImageIds},
      {.class_name = "QwenImageTransformer2DModel", .widths = flux, .precision = kF32Precision, .note = "an image's rows and columns are counted from its middle, and may be negative; text stands at n + max(rows, columns) / 2 on all axes"},

      // Axes that divide attention_head_dim.
      {.class_name = "CogVideoXTransformer3DModel", .split = AxisSplit::kCogVideoX, .precision = kF32Precision, .head_dim = 64, .only_if = "use_rotary_positional_embeddings", .note = kLatents},
      {.class_name = "CosmosTransformer3DModel", .split = AxisSplit::kCosmos, .pairing = Pairing::kHalfSplit, .precision = kF32Precision, .note = "positions are (frame / fps * 24, row, column) of the patches; without fps the frame itself"},
      {.class_name = "SkyReelsV2Transformer3DModel", .split = AxisSplit::kThirds, .note = kLatents},
      {.class_name = "WanAnimateTransformer3DModel", .split = AxisSplit::kThirds, .note = kLatents},
      {.class_name = "WanTransformer3DModel", .split = AxisSplit::kThirds, .note = kLatents},
      {.class_name = "WanVACETransformer3DModel", .split = AxisSplit::kThirds, .note = kLatents},

      {.class_name = "LTXVideoTransformer3DModel", .split = AxisSplit::kNone, .note = "its axes alternate from pair to pair, over the width of the whole model: give given_frequencies with axis"},
      {.class_name = "MochiTransformer3DModel", .split = AxisSplit::kNone, .note = "its frequencies are learned: give given_table"},
      {.class_name = "SD3Transformer2DModel", .split = AxisSplit::kNone, .note = "it has a 2-D grid of sinusoidal positions: GenerateEmbedding.grid"},
      {.class_name = "PixArtTransformer2DModel", .split = AxisSplit::kNone, .note = "it has a 2-D grid of sinusoidal positions: GenerateEmbedding.grid"},
      {.class_name = "ZImageTransformer2DModel", .split = AxisSplit::kNone, .note = "it rounds float64 angles to float32 before the cosine: give axial settings, theta 256, and accept 1e-4, or given_table"},
  };
  // clang-format on
  return types;
}

absl::StatusOr<std::vector<AxialAxis>> ListedAxes(const ConfigObject& config, const DiffusersType& type) {
  double theta = type.theta;
  if (!type.theta_field.empty()) {
    POSENC_ASSIGN_OR_RETURN(const auto given, config.Number({type.theta_field}));
    theta = given.value_or(theta);
  }
  POSENC_ASSIGN_OR_RETURN(const auto listed, config.Numbers(type.widths_field));
  std::vector<double> widths(type.widths.begin(), type.widths.end());
  if (listed) widths = *listed;
  std::vector<AxialAxis> axes;
  for (double width : widths) {
    if (!(width >= 0 && width <= 1e6) || width != std::floor(width)) {
      return InvalidArgument("OUT_OF_RANGE", config.Path(type.widths_field), fmt::format("{}", width),
                             "must be whole numbers of elements");
    }
    axes.push_back({static_cast<int64_t>(width), theta, 0});
  }
  return axes;
}

absl::StatusOr<std::vector<AxialAxis>> Divided(const ConfigObject& config, const DiffusersType& type) {
  POSENC_ASSIGN_OR_RETURN(const auto given, config.Integer({"attention_head_dim"}));
  const int64_t head_dim = given.value_or(type.head_dim);
  const int64_t side = type.split == AxisSplit::kCogVideoX ? head_dim / 8 * 3 : head_dim / 6 * 2;
  const int64_t time = type.split == AxisSplit::kCogVideoX ? head_dim / 4 : head_dim - 2 * side;
  std::vector<AxialAxis> axes = {{time, type.theta, 0}, {side, type.theta, 0}, {side, type.theta, 0}};
  if (type.split != AxisSplit::kCosmos) return axes;
  POSENC_ASSIGN_OR_RETURN(const auto listed, config.Numbers("rope_scale"));
  const std::vector<double> scale = listed.value_or(std::vector<double>{2, 1, 1});
  if (scale.size() != axes.size()) {
    return InvalidArgument("MISMATCH", config.Path("rope_scale"), fmt::format("{} values", scale.size()),
                           "must be one an axis: 3");
  }
  for (size_t n = 0; n < axes.size(); ++n) {
    if (axes[n].dim <= 2) {
      return InvalidArgument("OUT_OF_RANGE", config.Path("attention_head_dim"), fmt::format("{}", head_dim),
                             "must leave each axis more than 2 elements");
    }
    const auto dim = static_cast<double>(axes[n].dim);
    axes[n].rope_theta = 10000 * RoundedPow(scale[n], dim / (dim - 2));
  }
  return axes;
}

}  // namespace

absl::StatusOr<ModelLayers> ReadDiffusersModel(const ConfigObject& config) {
  POSENC_ASSIGN_OR_RETURN(const auto name, config.String(kClassName));
  if (!name) return InvalidArgument("MISSING", kClassName, "", "and model_type: one of them says what the file is of");
  const DiffusersType* type = nullptr;
  for (const DiffusersType& known : Types()) {
    if (known.class_name == *name) type = &known;
  }
  if (type == nullptr) {
    return InvalidArgument("UNSUPPORTED", kClassName, *name, "is not known: give axial settings instead");
  }
  if (type->split == AxisSplit::kNone) return InvalidArgument("UNSUPPORTED", kClassName, *name, type->note);
  if (!type->only_if.empty()) {
    POSENC_ASSIGN_OR_RETURN(const auto flag, config.Bool(type->only_if));
    if (!flag.value_or(false)) {
      return InvalidArgument("UNSUPPORTED", config.Path(type->only_if), "false",
                             fmt::format("{} has a rotary embedding only where this is true", type->class_name));
    }
  }
  ModelLayers layers;
  layers.precision = type->precision;
  AxialRope axial;
  if (type->split == AxisSplit::kListed) {
    POSENC_ASSIGN_OR_RETURN(axial.axes, ListedAxes(config, *type));
  } else {
    POSENC_ASSIGN_OR_RETURN(axial.axes, Divided(config, *type));
  }
  layers.rotary.emplace();
  layers.rotary->frequencies = std::move(axial);
  layers.rotary->input_pairing = layers.rotary->output_pairing = type->pairing;
  layers.notes.push_back({"RULES", std::string(kClassName), "read as diffusers 0.42 does"});
  layers.notes.push_back({"POSITIONS", "", std::string(type->note)});
  return layers;
}

std::vector<std::string_view> DiffusersClasses(bool selected) {
  std::vector<std::string_view> names;
  for (const DiffusersType& type : Types()) {
    if ((type.split != AxisSplit::kNone) == selected) names.push_back(type.class_name);
  }
  return names;
}

}  // namespace posenc
