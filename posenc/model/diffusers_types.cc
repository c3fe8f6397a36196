// Rows of diffusers' transformer classes, taken from the source of diffusers 0.42.
#include "posenc/model/diffusers_types.h"

namespace posenc {
namespace {

using enum AxisSplit;

constexpr Pairing kHalf = Pairing::kHalfSplit;
constexpr Precision kF32 = kF32Precision, kVllm = kVllmPrecision, kEager = kHfEagerPrecision;
constexpr Precision kDouble = {Frequencies::kFloat64, TableDtype::kFloat64, Rounding::kOnce};

constexpr std::string_view kImageIds =
    "positions are the ids that the pipeline computes: (0, row, column) for the image, zeros for the text";
constexpr std::string_view kLatents = "positions are (frame, row, column) of the patches, from 0";
constexpr std::string_view kCells = "positions are (row, column) of the patches, from 0; text is not rotated";
constexpr std::string_view kCogVideo =
    "the pipeline computes the tables; with patch_size_t, positions are (frame, row, column) from 0; without it, rows "
    "and columns run from start to stop * (n - 1) / n of the region of the base size into which the grid is resized; "
    "text is not rotated; with use_learned_positional_embeddings the model also adds a learned table to its input";
constexpr std::string_view kKandinsky =
    "positions are (frame, row, column) / scale_factor; text and sound have one axis of as many elements as the three";
constexpr std::string_view kHistory =
    "positions are (frame index, row, column); tables of older frames are means over cells, not of unit length: give "
    "given_table for them";
constexpr std::string_view kFloat32Angles =
    "the class rounds its float64 angles to float32 before cos and sin; the answer does not";
constexpr std::string_view kLtxFractions =
    "for the video's self-attention; positions are 2 * f - 1, where f is (time, row, column) divided by the longest "
    "time and the base size; give q and k as one head with all heads' elements";
constexpr std::string_view kAnySize = "images may be of any size: give height and width, in patches";
constexpr std::string_view kVideoSize =
    "videos may be of any size: give frames, height and width, in patches; text has rows of zeros";

DiffusersRotary Listed(std::vector<int64_t> widths, std::string_view note, std::string_view theta_field = "",
                       double theta = 10000, Precision precision = kFluxPrecision) {
  return {
      .widths = std::move(widths), .theta_field = theta_field, .theta = theta, .precision = precision, .note = note};
}

// Reads the axis widths from another field.
DiffusersRotary ListedAs(std::string_view widths_field, DiffusersRotary rotary) {
  rotary.widths_field = widths_field;
  return rotary;
}

DiffusersRotary Split(AxisSplit split, int64_t head_dim, std::string_view note, Precision precision) {
  return {.split = split, .precision = precision, .width = {.own = head_dim}, .note = note};
}

DiffusersRotary OfHead(FieldWidth width, DiffusersRotary rotary) {
  rotary.width = width;
  return rotary;
}

DiffusersRotary WithTheta(std::string_view field, DiffusersRotary rotary) {
  rotary.theta_field = field;
  return rotary;
}

DiffusersRotary HalfSplit(DiffusersRotary rotary) {
  rotary.pairing = kHalf;
  return rotary;
}

DiffusersRotary OnlyIf(std::string_view flag, DiffusersRotary rotary) {
  rotary.only_if = flag;
  return rotary;
}

DiffusersRotary One(FieldWidth width, double theta, Precision precision, std::string_view note) {
  return {.split = kOne, .theta = theta, .pairing = kHalf, .precision = precision, .width = width, .note = note};
}

// One axis; half of each head rotates.
DiffusersRotary OneOfHalf(FieldWidth width, std::string_view note) {
  DiffusersRotary rotary = One(width, 10000, kF32, note);
  rotary.width_over = 2;
  return rotary;
}

DiffusersRotary Sections(FieldWidth width, std::string_view field, std::string_view note) {
  return {.split = kSections,
          .widths_field = field,
          .widths = {24, 20, 20},
          .theta_field = "rope_theta",
          .theta = 5e6,
          .pairing = kHalf,
          .precision = kEager,
          .width = width,
          .note = note};
}

DiffusersRotary WithBlock(DiffusersRotary rotary) {
  rotary.block_has_sections = true;
  return rotary;
}

DiffusersRotary Ltx(int64_t head_dim) {
  return {.split = kLtx,
          .precision = kF32,
          .width = {"attention_head_dim", head_dim, "num_attention_heads", 32},
          .note = kLtxFractions};
}

// LTX-2, and classes built on it.
DiffusersRotary Ltx2() {
  DiffusersRotary rotary = WithTheta("rope_theta", Ltx(128));
  rotary.pairing_field = "rope_type";
  return rotary;
}

FieldWidth Heads(int64_t heads, int64_t head_dim) {
  return {"attention_head_dim", head_dim, "num_attention_heads", heads};
}

DiffusersGrid Patches(FieldWidth width, GridScale scale, int64_t sample_size, int64_t patch_size) {
  return {.width = width, .scale = scale, .sample_size = sample_size, .patch_size = patch_size, .note = kAnySize};
}

DiffusersGrid Cut(DiffusersGrid grid, int64_t pos_embed_max_size) {
  grid.pos_embed_max_size = pos_embed_max_size;
  return grid;
}

const DiffusersGrid kCogVideoGrid = {.precision = kDouble,
                                     .width = Heads(30, 64),
                                     .scale = GridScale::kOfVideo,
                                     .unless = "use_rotary_positional_embeddings",
                                     .note = kVideoSize};

std::vector<DiffusersType> MakeTypes() {
  const std::vector<int64_t> flux = {16, 56, 56};
  const DiffusersRotary cog_video = OnlyIf("use_rotary_positional_embeddings", Split(kCogVideoX, 64, kCogVideo, kF32));
  const DiffusersRotary wan = Split(kThirds, 128, kLatents, kFluxPrecision);
  // clang-format off
  DiffusersRotary allegro = HalfSplit(Split(kEvenThirds, 96, "the pipeline computes the tables; positions are (frame / interpolation_scale_t, row / interpolation_scale_h, column / interpolation_scale_w)", kF32));
  allegro.half_split_parts = 3;
  const auto joy = [&](std::string_view note) {
    DiffusersRotary rotary = ListedAs("rope_dim_list", OfHead({"hidden_size", 3072, "num_attention_heads", 24}, Listed(flux, note, "theta", 256, kF32)));
    rotary.null_is_thirds = true;
    return rotary;
  };
  DiffusersRotary minimax_h3 = WithTheta("rope_theta", HalfSplit(Split(kEvenThirds, 0, "positions are (t, row, column); the pipeline normalizes rows and columns by the square root of the latents' area; text is at (n, 0, 0)", kEager)));
  minimax_h3.width = {.field = "rope_freq_dim", .own = 16};
  minimax_h3.width_times = 6;
  const DiffusersRotary omni_gen = WithTheta("rope_base", OfHead({"hidden_size", 3072, "num_attention_heads", 32}, HalfSplit(Split(kLongrope, 0, "text, time and image tokens are at 0, 1, 2, ...; image tokens also have a sinusoidal embedding: GenerateEmbedding.grid", kF32))));
  return {
      // Axes whose widths the file lists.
      {"BriaFibo2Transformer2DModel", ListedAs("axes_dims", Listed({32, 48, 48}, kFloat32Angles, "rope_theta", 256))},
      {"BriaFiboTransformer2DModel", Listed(flux, kImageIds, "rope_theta")},
      {"BriaTransformer2DModel", Listed(flux, kImageIds, "rope_theta")},
      {"ChromaTransformer2DModel", Listed(flux, kImageIds)},
      {"Flux2Transformer2DModel", Listed({32, 32, 32, 32}, "positions are (t, row, column, text token)", "rope_theta", 2000)},
      {"Flux3Transformer2DModel", Listed({32, 32, 32, 32}, "positions are (0, row / 2, column / 2, 0) for the image, with -(1 + k) in the last place for reference k, and (0, 0, 0, n) for the text", "rope_theta")},
      {"FluxTransformer2DModel", Listed(flux, kImageIds)},
      {"HeliosTransformer3DModel", ListedAs("rope_dim", Listed({44, 42, 42}, kHistory, "rope_theta", 10000, kF32))},
      {"HiDreamImageTransformer2DModel", Listed({}, kImageIds)},
      {"HunyuanImageTransformer2DModel", ListedAs("rope_axes_dim", Listed({64, 64}, kCells, "rope_theta", 256, kF32))},
      {"HunyuanVideo15Transformer3DModel", ListedAs("rope_axes_dim", Listed(flux, kLatents, "rope_theta", 256, kF32))},
      {"HunyuanVideoFramepackTransformer3DModel", ListedAs("rope_axes_dim", Listed(flux, kHistory, "rope_theta", 256, kF32))},
      {"HunyuanVideoTransformer3DModel", ListedAs("rope_axes_dim", Listed(flux, kLatents, "rope_theta", 256, kF32))},
      {"JoyImageEditPlusTransformer3DModel", joy("positions are (frame, row, column); frame numbers continue from image to image")},
      {"JoyImageEditTransformer3DModel", joy("positions are (frame, row, column); frame numbers continue from image to image; text is rotated only if rope_type is \"mrope\"")},
      {"Kandinsky5Transformer3DModel", ListedAs("axes_dims", Listed({16, 24, 24}, kKandinsky, "", 10000, kF32))},
      {"Kandinsky6SRTransformer3DModel", ListedAs("axes_dims", Listed({16, 24, 24}, kKandinsky, "", 10000, kF32))},
      {"Kandinsky6Transformer3DModel", ListedAs("axes_dims", Listed({32, 48, 48}, kKandinsky, "", 10000, kF32))},
      {"Krea2Transformer2DModel", Listed({32, 48, 48}, kImageIds, "rope_theta", 1000)},
      {"LongCatImageTransformer2DModel", Listed(flux, kImageIds)},
      {"Lumina2Transformer2DModel", ListedAs("axes_dim_rope", Listed({32, 32, 32}, "caption tokens are at (n, 0, 0), image tokens at (number of caption tokens, row, column)", "", 10000, kDouble))},
      {"MotifVideoTransformer3DModel", ListedAs("rope_axes_dim", Listed(flux, kLatents, "rope_theta", 256))},
      {"NucleusMoEImageTransformer2DModel", Listed(flux, "an image's rows and columns are counted from its centre and may be negative; text keys are at n + max(floor(rows / 2), floor(columns / 2)) on all axes", "", 10000, kF32)},
      {"OvisImageTransformer2DModel", Listed(flux, kImageIds)},
      {"PRXTransformer2DModel", ListedAs("axes_dim", Listed({32, 32}, kCells, "theta"))},
      {"QwenImage21Transformer2DModel", Listed(flux, "text positions increase on all axes; an image has one position on the first axis, and its rows and columns are counted from its centre", "", 10000, kF32)},
      {"QwenImageTransformer2DModel", Listed(flux, "an image's rows and columns are counted from its centre and may be negative; text is at n + max(floor(rows / 2), floor(columns / 2)) on all axes", "", 10000, kF32)},
      {"ZImageTransformer2DModel", ListedAs("axes_dims", Listed({32, 48, 48}, kFloat32Angles, "rope_theta", 256))},

      // Axes that divide a head's width.
      {"AllegroTransformer3DModel", allegro},
      {"AnyFlowFARTransformer3DModel", Split(kThirds, 128, "positions are (frame, row, column) of the patches; a compressed patch is at the centre of the patches that it replaces", kDouble)},
      {"AnyFlowTransformer3DModel", Split(kThirds, 128, kLatents, kDouble)},
      {"ChronoEditTransformer3DModel", Split(kThirds, 128, "positions are (frame, row, column) of the patches; if there are two frames, they are at 0 and rope_temporal_skip_len - 1; if attention_head_dim % 6 is 4, the class uses another axis's positions for some pairs; the answer does not", kFluxPrecision)},
      {"CogVideoXTransformer3DModel", cog_video, kCogVideoGrid},
      {"CogView4Transformer2DModel", HalfSplit(Split(kHalves, 40, "positions are floor(row * rope_axes_dim[0] / rows) and floor(column * rope_axes_dim[1] / columns); text is not rotated", kF32))},
      {"ConsisIDTransformer3DModel", cog_video, kCogVideoGrid},
      {"CosmosTransformer3DModel", HalfSplit(Split(kCosmos, 128, "positions are (frame / fps * 24, row, column) of the patches, without fps (frame, row, column); with extra_pos_embed_type the model also adds learned tables to its input", kF32))},
      {"EasyAnimateTransformer3DModel", Split(kCogVideoX, 64, "positions are (frame, row, column); rows and columns run from start to stop * (n - 1) / n of the region of the patches of 60 x 90 latents into which the grid is resized; text is not rotated", kF32)},
      {"GlmImageTransformer2DModel", HalfSplit(Split(kHalves, 40, kCells, kF32))},
      {"HunyuanDiT2DModel", Split(kHalves, 88, "the pipeline computes the tables; positions are (column, row) in the region of the base size into which the grid is resized", kF32)},
      {"LuminaNextDiT2DModel", OfHead({"hidden_size", 2304, "num_attention_heads", 32}, Split(kAlternating, 0, "the pipeline computes the tables; positions are (row, column); depending on the timestep, positions are divided or theta is multiplied by sqrt(pixels) / default size", kF32))},
      {"MiniMaxH3Transformer3DModel", minimax_h3},
      {"SanaVideoTransformer3DModel", Split(kThirds, 112, kLatents, kFluxPrecision)},
      {"SanaWMTransformer3DModel", OfHead({"linear_head_dim", 112}, Split(kThirds, 0, "positions are (frame, row, column) of the patches; the camera's branch has its own, shorter table", kF32))},
      {"SkyReelsV2Transformer3DModel", wan},
      {"WanAnimate2Transformer3DModel", OfHead({"dim", 5120, "num_heads", 40}, Split(kThirds, 0, "positions are (frame, row, column) of the patches; a reference's are shifted by refer_offset_t, refer_offset_h and refer_offset_w", kDouble))},
      {"WanAnimateTransformer3DModel", wan},
      {"WanTransformer3DModel", wan},
      {"WanVACETransformer3DModel", wan},

      // Axes that share all pairs.
      {"Cosmos3OmniTransformer", WithBlock(Sections({"head_dim", 128}, "rope_axes_dim", "positions are (t, row, column); text is at (n, n, n); a video starts unified_3d_mrope_temporal_modality_margin after it"))},
      {"Ideogram4Transformer2DModel", Sections({"attention_head_dim", 256}, "mrope_section", "text is at (n, n, n), the image at (65536, 65536 + row, 65536 + column)")},
      {"LTX2VideoTransformer3DModel", Ltx2()},
      {"LTXVideoTransformer3DModel", Ltx(64)},
      {"SanaWMLTX2RefinerTransformer3DModel", Ltx2()},

      // One axis.
      {"AceStepTransformer1DModel", WithTheta("rope_theta", One({"head_dim", 128}, 1e6, kVllm, "positions count the latents' patches from 0"))},
      {"LongCatAudioDiTTransformer", One({"dit_dim", 1536, "dit_heads", 24}, 1e5, kVllm, "positions count the latents from 0; for the keys of cross-attention they count the text")},
      {"MiniMaxMusic3Transformer1DModel", One({"rotary_dim", 32}, 10000, kEager, "the time token is at 0, the latents start at 1")},
      {"StableAudio3DiTModel", OneOfHalf({"embed_dim", 1536, "num_heads", 24}, "positions count from 0; memory tokens precede the latents")},
      {"StableAudioDiTModel", OneOfHalf({"attention_head_dim", 64}, "the pipeline computes the tables; the duration token is at 0, the latents start at 1")},

      // Sines, added to the input.
      {.class_name = "CogView3PlusTransformer2DModel", .grid = DiffusersGrid{.convention = GridConvention::kMae, .width = Heads(64, 40), .note = "give height and width, in patches, at most pos_embed_max_size each; text has zeros"}},
      {.class_name = "DiTTransformer2DModel", .grid = Patches(Heads(16, 72), GridScale::kOne, 32, 2)},
      {.class_name = "LatteTransformer3DModel", .grid = Patches(Heads(16, 88), GridScale::kOfSampleSize, 64, 0), .sines = DiffusersSines{SinusoidalConvention::kHalves, kFluxPrecision, Heads(16, 88), "", "this is the embedding of the video_length frames; the cells of a frame have a sinusoidal grid embedding: GenerateEmbedding.grid"}},
      {.class_name = "OmniGenTransformer2DModel", .rotary = omni_gen, .grid = Cut({.width = {"hidden_size", 3072}, .base_size = 64, .note = kAnySize}, 192)},
      {.class_name = "PixArtTransformer2DModel", .grid = Patches(Heads(16, 72), GridScale::kBySampleSize, 128, 2)},
      {.class_name = "SD3Transformer2DModel", .grid = Cut(Patches(Heads(18, 64), GridScale::kOne, 128, 2), 96)},
      {.class_name = "SanaTransformer2DModel", .grid = Patches(Heads(70, 32), GridScale::kGiven, 32, 1)},
      {.class_name = "Transformer2DModel", .grid = Patches(Heads(16, 88), GridScale::kBySampleSize, 0, 0)},
      {.class_name = "TransformerTemporalModel", .sines = DiffusersSines{SinusoidalConvention::kInterleaved, kF32, Heads(16, 88), "positional_embeddings", "this is the embedding of the frames; every block adds it before each of its two attentions"}},

      // Learned tables.
      {.class_name = "AuraFlowTransformer2DModel", .table = DiffusersTable{"pos_embed_max_size", 1024, Heads(12, 256), "", 0, "the table covers a square grid, row by row; an image uses the grid's central region: give these row numbers as positions"}},
      {.class_name = "MiniMaxMusic3RVQDepthDecoder", .table = DiffusersTable{"max_position_embeddings", 16, {"hidden_size", 4096}}},
      {.class_name = "PriorTransformer", .table = DiffusersTable{"num_embeddings", 77, Heads(32, 64), "additional_embeddings", 4}},
      {.class_name = "T5FilmDecoder", .table = DiffusersTable{"targets_length", 256, {"d_model", 768}}},

      // Classes that no settings can express.
      {.class_name = "DreamLiteTransformer2DModel", .instead = "it has no positional encoding"},
      {.class_name = "ErnieImageTransformer2DModel", .instead = "it has different angles for the two elements of a pair, which is not a rotation"},
      {.class_name = "MochiTransformer3DModel", .instead = "its frequencies are learned: give given_table"},
      {.class_name = "RFD4ProteinaTransformer", .instead = "its bias is computed from a learned pair representation"},
  };
  // clang-format on
}

}  // namespace

const std::vector<DiffusersType>& DiffusersTypes() {
  static const std::vector<DiffusersType>& types = *new std::vector<DiffusersType>(MakeTypes());
  return types;
}

}  // namespace posenc
