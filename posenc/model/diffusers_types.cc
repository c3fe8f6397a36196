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
constexpr std::string_view kTimeImageText = "positions are (t, row, column, text token)";
constexpr std::string_view kErnieIds =
    "positions are (number of text tokens, row, column) for the image, (n, 0, 0) for the text";
constexpr std::string_view kFlux3Ids =
    "positions are (0, row / 2, column / 2, 0) for the image, with -(1 + k) in the last place for reference k, and "
    "(0, 0, 0, n) for the text";
constexpr std::string_view kJoyPositions =
    "positions are (frame, row, column); frame numbers continue from image to image";
constexpr std::string_view kJoyEditPositions =
    "positions are (frame, row, column); frame numbers continue from image to image; text is rotated only if "
    "rope_type is \"mrope\"";
constexpr std::string_view kCaptionThenImage =
    "caption tokens are at (n, 0, 0), image tokens at (number of caption tokens, row, column)";
constexpr std::string_view kNucleusCentred =
    "an image's rows and columns are counted from its centre and may be negative; text keys are at n + max(floor(rows "
    "/ 2), floor(columns / 2)) on all axes";
constexpr std::string_view kTextThenCentredImage =
    "text positions increase on all axes; an image has one position on the first axis, and its rows and columns are "
    "counted from its centre";
constexpr std::string_view kQwenCentred =
    "an image's rows and columns are counted from its centre and may be negative; text is at n + max(floor(rows / 2), "
    "floor(columns / 2)) on all axes";
constexpr std::string_view kAllegroPositions =
    "the pipeline computes the tables; positions are (frame / interpolation_scale_t, row / interpolation_scale_h, "
    "column / interpolation_scale_w)";
constexpr std::string_view kCompressedPatches =
    "positions are (frame, row, column) of the patches; a compressed patch is at the centre of the patches that it "
    "replaces";
constexpr std::string_view kChronoEditFrames =
    "positions are (frame, row, column) of the patches; if there are two frames, they are at 0 and "
    "rope_temporal_skip_len - 1; if attention_head_dim % 6 is 4, the class uses another axis's positions for some "
    "pairs; the answer does not";
constexpr std::string_view kScaledCells =
    "positions are floor(row * rope_axes_dim[0] / rows) and floor(column * rope_axes_dim[1] / columns); text is not "
    "rotated";
constexpr std::string_view kCosmosFrames =
    "positions are (frame / fps * 24, row, column) of the patches, without fps (frame, row, column); with "
    "extra_pos_embed_type the model also adds learned tables to its input";
constexpr std::string_view kEasyAnimateRegion =
    "positions are (frame, row, column); rows and columns run from start to stop * (n - 1) / n of the region of the "
    "patches of 60 x 90 latents into which the grid is resized; text is not rotated";
constexpr std::string_view kHunyuanRegion =
    "the pipeline computes the tables; positions are (column, row) in the region of the base size into which the grid "
    "is resized";
constexpr std::string_view kLuminaNextScaling =
    "the pipeline computes the tables; positions are (row, column); depending on the timestep, positions are divided "
    "or theta is multiplied by sqrt(pixels) / default size";
constexpr std::string_view kMiniMaxPositions =
    "positions are (t, row, column); the pipeline normalizes rows and columns by the square root of the latents' "
    "area; text is at (n, 0, 0)";
constexpr std::string_view kSanaCamera =
    "positions are (frame, row, column) of the patches; the camera's branch has its own, shorter table";
constexpr std::string_view kWanReference =
    "positions are (frame, row, column) of the patches; a reference's are shifted by refer_offset_t, refer_offset_h "
    "and refer_offset_w";
constexpr std::string_view kCosmos3Positions =
    "positions are (t, row, column); text is at (n, n, n); a video starts unified_3d_mrope_temporal_modality_margin "
    "after it";
constexpr std::string_view kIdeogramPositions =
    "text is at (n, n, n), the image at (65536, 65536 + row, 65536 + column)";
constexpr std::string_view kPatchCount = "positions count the latents' patches from 0";
constexpr std::string_view kLatentCount =
    "positions count the latents from 0; for the keys of cross-attention they count the text";
constexpr std::string_view kTimeTokenFirst = "the time token is at 0, the latents start at 1";
constexpr std::string_view kMemoryTokensFirst = "positions count from 0; memory tokens precede the latents";
constexpr std::string_view kDurationTokenFirst =
    "the pipeline computes the tables; the duration token is at 0, the latents start at 1";
constexpr std::string_view kCogView3Sizes =
    "give height and width, in patches, at most pos_embed_max_size each; text has zeros";
constexpr std::string_view kLatteFrames =
    "this is the embedding of the video_length frames; the cells of a frame have a sinusoidal grid embedding: "
    "GenerateEmbedding.grid";
constexpr std::string_view kOmniGenPositions =
    "text, time and image tokens are at 0, 1, 2, ...; image tokens also have a sinusoidal embedding: "
    "GenerateEmbedding.grid";
constexpr std::string_view kFrames =
    "this is the embedding of the frames; every block adds it before each of its two attentions";
constexpr std::string_view kCentralRegion =
    "the table covers a square grid, row by row; an image uses the grid's central region: give these row numbers as "
    "positions";

FieldWidth Heads(int64_t heads, int64_t head_dim) {
  return {"attention_head_dim", head_dim, "num_attention_heads", heads};
}

std::vector<DiffusersType> MakeTypes() {
  // clang-format off
  // Encodings that several classes share.
  const DiffusersRotary bria = {.widths = {16, 56, 56}, .theta_field = "rope_theta", .note = kImageIds};
  const DiffusersRotary flux = {.widths = {16, 56, 56}, .note = kImageIds};
  const DiffusersRotary hunyuan_video = {
      .widths_field = "rope_axes_dim", .widths = {16, 56, 56},
      .theta_field = "rope_theta", .theta = 256, .precision = kF32,
      .note = kLatents};
  const DiffusersRotary kandinsky5 = {
      .widths_field = "axes_dims", .widths = {16, 24, 24}, .precision = kF32, .note = kKandinsky};
  const DiffusersRotary cog_video_x = {
      .split = kCogVideoX, .precision = kF32,
      .width = {.default_size = 64}, .only_if = "use_rotary_positional_embeddings",
      .note = kCogVideo};
  const DiffusersRotary wan = {.split = kThirds, .note = kLatents};
  const DiffusersRotary ltx2 = {
      .split = kLtx, .theta_field = "rope_theta", .precision = kF32,
      .width = Heads(32, 128), .pairing_field = "rope_type",
      .note = kLtxFractions};
  const DiffusersGrid cog_video_x_grid = {
      .precision = kDouble, .width = Heads(30, 64),
      .scale = GridScale::kOfVideo, .unless = "use_rotary_positional_embeddings",
      .note = kVideoSize};

  return {
      // Axes whose widths the file lists.
      {.class_name = "BriaFibo2Transformer2DModel",
       .rotary = DiffusersRotary{
           .widths_field = "axes_dims", .widths = {32, 48, 48}, .theta_field = "rope_theta", .theta = 256,
           .note = kFloat32Angles}},
      {.class_name = "BriaFiboTransformer2DModel", .rotary = bria},
      {.class_name = "BriaTransformer2DModel", .rotary = bria},
      {.class_name = "ChromaTransformer2DModel", .rotary = flux},
      {.class_name = "Flux2Transformer2DModel",
       .rotary = DiffusersRotary{
           .widths = {32, 32, 32, 32}, .theta_field = "rope_theta", .theta = 2000, .note = kTimeImageText}},
      {.class_name = "Flux3Transformer2DModel",
       .rotary = DiffusersRotary{.widths = {32, 32, 32, 32}, .theta_field = "rope_theta", .note = kFlux3Ids}},
      {.class_name = "ErnieImageTransformer2DModel",
       .rotary = DiffusersRotary{
           .widths_field = "rope_axes_dim", .widths = {32, 48, 48}, .theta_field = "rope_theta", .theta = 256,
           .pairing = kHalf, .table_pairing = Pairing::kInterleaved, .precision = kEager, .note = kErnieIds}},
      {.class_name = "FluxTransformer2DModel", .rotary = flux},
      {.class_name = "HeliosTransformer3DModel",
       .rotary = DiffusersRotary{
           .widths_field = "rope_dim", .widths = {44, 42, 42}, .theta_field = "rope_theta", .precision = kF32,
           .note = kHistory}},
      {.class_name = "HiDreamImageTransformer2DModel", .rotary = DiffusersRotary{.note = kImageIds}},
      {.class_name = "HunyuanImageTransformer2DModel",
       .rotary = DiffusersRotary{
           .widths_field = "rope_axes_dim", .widths = {64, 64},
           .theta_field = "rope_theta", .theta = 256, .precision = kF32,
           .note = kCells}},
      {.class_name = "HunyuanVideo15Transformer3DModel", .rotary = hunyuan_video},
      {.class_name = "HunyuanVideoFramepackTransformer3DModel",
       .rotary = DiffusersRotary{
           .widths_field = "rope_axes_dim", .widths = {16, 56, 56},
           .theta_field = "rope_theta", .theta = 256, .precision = kF32,
           .note = kHistory}},
      {.class_name = "HunyuanVideoTransformer3DModel", .rotary = hunyuan_video},
      {.class_name = "JoyImageEditPlusTransformer3DModel",
       .rotary = DiffusersRotary{
           .widths_field = "rope_dim_list", .widths = {16, 56, 56}, .null_is_thirds = true,
           .theta_field = "theta", .theta = 256, .precision = kF32,
           .width = {"hidden_size", 3072, "num_attention_heads", 24},
           .note = kJoyPositions}},
      {.class_name = "JoyImageEditTransformer3DModel",
       .rotary = DiffusersRotary{
           .widths_field = "rope_dim_list", .widths = {16, 56, 56}, .null_is_thirds = true,
           .theta_field = "theta", .theta = 256, .precision = kF32,
           .width = {"hidden_size", 3072, "num_attention_heads", 24},
           .note = kJoyEditPositions}},
      {.class_name = "Kandinsky5Transformer3DModel", .rotary = kandinsky5},
      {.class_name = "Kandinsky6SRTransformer3DModel", .rotary = kandinsky5},
      {.class_name = "Kandinsky6Transformer3DModel",
       .rotary = DiffusersRotary{
           .widths_field = "axes_dims", .widths = {32, 48, 48}, .precision = kF32, .note = kKandinsky}},
      {.class_name = "Krea2Transformer2DModel",
       .rotary = DiffusersRotary{
           .widths = {32, 48, 48}, .theta_field = "rope_theta", .theta = 1000, .note = kImageIds}},
      {.class_name = "LongCatImageTransformer2DModel", .rotary = flux},
      {.class_name = "Lumina2Transformer2DModel",
       .rotary = DiffusersRotary{
           .widths_field = "axes_dim_rope", .widths = {32, 32, 32}, .precision = kDouble, .note = kCaptionThenImage}},
      {.class_name = "MotifVideoTransformer3DModel",
       .rotary = DiffusersRotary{
           .widths_field = "rope_axes_dim", .widths = {16, 56, 56}, .theta_field = "rope_theta", .theta = 256,
           .note = kLatents}},
      {.class_name = "NucleusMoEImageTransformer2DModel",
       .rotary = DiffusersRotary{.widths = {16, 56, 56}, .precision = kF32, .note = kNucleusCentred}},
      {.class_name = "OvisImageTransformer2DModel", .rotary = flux},
      {.class_name = "PRXTransformer2DModel",
       .rotary = DiffusersRotary{
           .widths_field = "axes_dim", .widths = {32, 32}, .theta_field = "theta", .note = kCells}},
      {.class_name = "QwenImage21Transformer2DModel",
       .rotary = DiffusersRotary{.widths = {16, 56, 56}, .precision = kF32, .note = kTextThenCentredImage}},
      {.class_name = "QwenImageTransformer2DModel",
       .rotary = DiffusersRotary{.widths = {16, 56, 56}, .precision = kF32, .note = kQwenCentred}},
      {.class_name = "ZImageTransformer2DModel",
       .rotary = DiffusersRotary{
           .widths_field = "axes_dims", .widths = {32, 48, 48}, .theta_field = "rope_theta", .theta = 256,
           .note = kFloat32Angles}},

      // Axes that divide a head's width.
      {.class_name = "AllegroTransformer3DModel",
       .rotary = DiffusersRotary{
           .split = kEvenThirds, .pairing = kHalf, .precision = kF32,
           .width = {.default_size = 96}, .half_split_parts = 3,
           .note = kAllegroPositions}},
      {.class_name = "AnyFlowFARTransformer3DModel",
       .rotary = DiffusersRotary{.split = kThirds, .precision = kDouble, .note = kCompressedPatches}},
      {.class_name = "AnyFlowTransformer3DModel",
       .rotary = DiffusersRotary{.split = kThirds, .precision = kDouble, .note = kLatents}},
      {.class_name = "ChronoEditTransformer3DModel",
       .rotary = DiffusersRotary{.split = kThirds, .note = kChronoEditFrames}},
      {.class_name = "CogVideoXTransformer3DModel", .rotary = cog_video_x, .grid = cog_video_x_grid},
      {.class_name = "CogView4Transformer2DModel",
       .rotary = DiffusersRotary{
           .split = kHalves, .pairing = kHalf, .precision = kF32, .width = {.default_size = 40},
           .note = kScaledCells}},
      {.class_name = "ConsisIDTransformer3DModel", .rotary = cog_video_x, .grid = cog_video_x_grid},
      {.class_name = "CosmosTransformer3DModel",
       .rotary = DiffusersRotary{.split = kCosmos, .pairing = kHalf, .precision = kF32, .note = kCosmosFrames}},
      {.class_name = "EasyAnimateTransformer3DModel",
       .rotary = DiffusersRotary{
           .split = kCogVideoX, .precision = kF32, .width = {.default_size = 64}, .note = kEasyAnimateRegion}},
      {.class_name = "GlmImageTransformer2DModel",
       .rotary = DiffusersRotary{
           .split = kHalves, .pairing = kHalf, .precision = kF32, .width = {.default_size = 40}, .note = kCells}},
      {.class_name = "HunyuanDiT2DModel",
       .rotary = DiffusersRotary{
           .split = kHalves, .precision = kF32, .width = {.default_size = 88}, .note = kHunyuanRegion}},
      {.class_name = "LuminaNextDiT2DModel",
       .rotary = DiffusersRotary{
           .split = kAlternating, .precision = kF32, .width = {"hidden_size", 2304, "num_attention_heads", 32},
           .note = kLuminaNextScaling}},
      {.class_name = "MiniMaxH3Transformer3DModel",
       .rotary = DiffusersRotary{
           .split = kEvenThirds, .theta_field = "rope_theta", .pairing = kHalf, .precision = kEager,
           .width = {"rope_freq_dim", 16}, .width_times = 6,
           .note = kMiniMaxPositions}},
      {.class_name = "SanaVideoTransformer3DModel",
       .rotary = DiffusersRotary{.split = kThirds, .width = {.default_size = 112}, .note = kLatents}},
      {.class_name = "SanaWMTransformer3DModel",
       .rotary = DiffusersRotary{
           .split = kThirds, .precision = kF32, .width = {"linear_head_dim", 112}, .note = kSanaCamera}},
      {.class_name = "SkyReelsV2Transformer3DModel", .rotary = wan},
      {.class_name = "WanAnimate2Transformer3DModel",
       .rotary = DiffusersRotary{
           .split = kThirds, .precision = kDouble, .width = {"dim", 5120, "num_heads", 40}, .note = kWanReference}},
      {.class_name = "WanAnimateTransformer3DModel", .rotary = wan},
      {.class_name = "WanTransformer3DModel", .rotary = wan},
      {.class_name = "WanVACETransformer3DModel", .rotary = wan},

      // Axes that share all pairs.
      {.class_name = "Cosmos3OmniTransformer",
       .rotary = DiffusersRotary{
           .split = kSections, .widths_field = "rope_axes_dim", .widths = {24, 20, 20}, .block_has_sections = true,
           .cuts_sections = true, .theta_field = "rope_theta", .theta = 5e6, .pairing = kHalf, .precision = kEager,
           .width = {"head_dim", 128},
           .note = kCosmos3Positions}},
      {.class_name = "Ideogram4Transformer2DModel",
       .rotary = DiffusersRotary{
           .split = kSections, .widths_field = "mrope_section", .widths = {24, 20, 20},
           .theta_field = "rope_theta", .theta = 5e6, .pairing = kHalf, .precision = kEager,
           .width = {.default_size = 256},
           .note = kIdeogramPositions}},
      {.class_name = "LTX2VideoTransformer3DModel", .rotary = ltx2},
      {.class_name = "LTXVideoTransformer3DModel",
       .rotary = DiffusersRotary{.split = kLtx, .precision = kF32, .width = Heads(32, 64), .note = kLtxFractions}},
      {.class_name = "SanaWMLTX2RefinerTransformer3DModel", .rotary = ltx2},

      // One axis.
      {.class_name = "AceStepTransformer1DModel",
       .rotary = DiffusersRotary{
           .split = kOne, .theta_field = "rope_theta", .theta = 1e6, .pairing = kHalf, .precision = kVllm,
           .width = {"head_dim", 128},
           .note = kPatchCount}},
      {.class_name = "LongCatAudioDiTTransformer",
       .rotary = DiffusersRotary{
           .split = kOne, .theta = 1e5, .pairing = kHalf, .precision = kVllm,
           .width = {"dit_dim", 1536, "dit_heads", 24},
           .note = kLatentCount}},
      {.class_name = "MiniMaxMusic3Transformer1DModel",
       .rotary = DiffusersRotary{
           .split = kOne, .pairing = kHalf, .precision = kEager, .width = {"rotary_dim", 32},
           .note = kTimeTokenFirst}},
      {.class_name = "StableAudio3DiTModel",
       .rotary = DiffusersRotary{
           .split = kOne, .pairing = kHalf, .precision = kF32,
           .width = {"embed_dim", 1536, "num_heads", 24}, .width_over = 2,
           .note = kMemoryTokensFirst}},
      {.class_name = "StableAudioDiTModel",
       .rotary = DiffusersRotary{
           .split = kOne, .pairing = kHalf, .precision = kF32, .width = {.default_size = 64}, .width_over = 2,
           .note = kDurationTokenFirst}},

      // Sines, added to the input.
      {.class_name = "CogView3PlusTransformer2DModel",
       .grid = DiffusersGrid{.convention = GridConvention::kMae, .width = Heads(64, 40), .note = kCogView3Sizes}},
      {.class_name = "DiTTransformer2DModel",
       .grid = DiffusersGrid{.width = Heads(16, 72), .sample_size = 32, .patch_size = 2, .note = kAnySize}},
      {.class_name = "LatteTransformer3DModel",
       .grid = DiffusersGrid{
           .width = Heads(16, 88), .scale = GridScale::kOfSampleSize, .sample_size = 64, .note = kAnySize},
       .sines = DiffusersSines{
           .convention = SinusoidalConvention::kHalves, .precision = kFluxPrecision, .width = Heads(16, 88),
           .note = kLatteFrames}},
      {.class_name = "OmniGenTransformer2DModel",
       .rotary = DiffusersRotary{
           .split = kLongrope, .theta_field = "rope_base", .pairing = kHalf, .precision = kF32,
           .width = {"hidden_size", 3072, "num_attention_heads", 32},
           .note = kOmniGenPositions},
       .grid = DiffusersGrid{
           .width = {"hidden_size", 3072}, .base_size = 64, .pos_embed_max_size = 192, .note = kAnySize}},
      {.class_name = "PixArtTransformer2DModel",
       .grid = DiffusersGrid{
           .width = Heads(16, 72), .scale = GridScale::kBySampleSize, .sample_size = 128, .patch_size = 2,
           .note = kAnySize}},
      {.class_name = "SD3Transformer2DModel",
       .grid = DiffusersGrid{
           .width = Heads(18, 64), .sample_size = 128, .patch_size = 2, .pos_embed_max_size = 96, .note = kAnySize}},
      {.class_name = "SanaTransformer2DModel",
       .grid = DiffusersGrid{
           .width = Heads(70, 32), .scale = GridScale::kGiven, .sample_size = 32, .patch_size = 1, .note = kAnySize}},
      {.class_name = "Transformer2DModel",
       .grid = DiffusersGrid{.width = Heads(16, 88), .scale = GridScale::kBySampleSize, .note = kAnySize}},
      {.class_name = "TransformerTemporalModel",
       .sines = DiffusersSines{
           .convention = SinusoidalConvention::kInterleaved, .precision = kF32,
           .width = Heads(16, 88), .kind_field = "positional_embeddings",
           .note = kFrames}},

      // Learned tables.
      {.class_name = "AuraFlowTransformer2DModel",
       .table = DiffusersTable{
           .rows_field = "pos_embed_max_size", .rows = 1024, .width = Heads(12, 256), .note = kCentralRegion}},
      {.class_name = "MiniMaxMusic3RVQDepthDecoder",
       .table = DiffusersTable{.rows_field = "max_position_embeddings", .rows = 16, .width = {"hidden_size", 4096}}},
      {.class_name = "PriorTransformer",
       .table = DiffusersTable{
           .rows_field = "num_embeddings", .rows = 77, .width = Heads(32, 64),
           .more_rows_field = "additional_embeddings", .more_rows = 4}},
      {.class_name = "T5FilmDecoder",
       .table = DiffusersTable{.rows_field = "targets_length", .rows = 256, .width = {"d_model", 768}}},

      // Classes that no settings can express.
      {.class_name = "DreamLiteTransformer2DModel", .instead = "it has no positional encoding"},
      {.class_name = "MochiTransformer3DModel",
       .instead = "its frequencies are learned; give given_frequencies with heads and axes"},
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
