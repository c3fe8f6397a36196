#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "posenc/base/status.h"
#include "tools/files/tensor_file.h"
#include "tools/posenc/deliver.h"
#include "tools/posenc/field_flags.h"
#include "tools/posenc/report.h"
#include "tools/posenc/request_flags.h"
#include "tools/posenc/session.h"
#include "tools/posenc/values.h"

namespace posenc::command {
namespace {

struct PositionsFlags {
  v1::PositionsRequest request;
  v1::TokenDescription tokens;
  v1::CacheWindow window;
  v1::LatentDescription latents;
  v1::GivenPositions given;
  ModelFlags model;
  std::string out;
};

absl::StatusOr<v1::Tensor> ParseGrids3(const std::string& text) { return ParseGrids(text, 3); }
absl::StatusOr<v1::Tensor> ParseGrids2(const std::string& text) { return ParseGrids(text, 2); }

using TensorField = v1::Tensor* (v1::TokenDescription::*)();

// Adds a flag for a field of `tokens`, which must outlive the parsing.
void AddTensorFlag(CLI::App& app, const std::string& flag, const char* type, const char* help,
                   v1::TokenDescription* tokens, TensorField field,
                   absl::StatusOr<v1::Tensor> (*parse)(const std::string& text)) {
  app.add_option_function<std::string>(
         flag,
         [=](const std::string& text) {
           auto parsed = parse(text);
           if (!parsed.ok()) Refuse(flag, parsed.status());
           *(tokens->*field)() = *std::move(parsed);
         },
         help)
      ->type_name(type)
      ->group("Tokens");
}

template <typename Value>
double ValueAt(const v1::Tensor& tensor, int64_t n) {
  Value value;
  std::memcpy(&value, tensor.data().data() + n * static_cast<int64_t>(sizeof(value)), sizeof(value));
  return static_cast<double>(value);
}

double At(const v1::Tensor& tensor, int64_t n) {
  switch (tensor.dtype()) {
    case v1::DATA_TYPE_FP32: return ValueAt<float>(tensor, n);
    case v1::DATA_TYPE_INT32: return ValueAt<int32_t>(tensor, n);
    default: return ValueAt<int64_t>(tensor, n);
  }
}

// "5..8", or "5" if all are equal.
std::string Range(double first, double last) {
  return first == last ? Decimal(first) : absl::StrCat(Decimal(first), "..", Decimal(last));
}

// "t 5, h 5..8, w 5..6" of tokens begin .. end-1 of a row of ids; axes of equal ranges are one entry.
std::string Ranges(const v1::PositionsResponse& response, const v1::Tensor& ids, int64_t row, int64_t begin,
                   int64_t end) {
  const int64_t sequences = ids.shape(1), width = ids.shape(2);
  std::vector<std::string> ranges;
  for (int axis = 0; axis < response.axes_size(); ++axis) {
    double least = 0, most = 0;
    for (int64_t token = begin; token < end; ++token) {
      const double id = At(ids, (axis * sequences + row) * width + token);
      least = token == begin ? id : std::min(least, id);
      most = token == begin ? id : std::max(most, id);
    }
    ranges.push_back(Range(least, most));
  }
  const bool equal =
      std::all_of(ranges.begin(), ranges.end(), [&](const std::string& each) { return each == ranges[0]; });
  if (equal) return ranges[0];
  for (int axis = 0; axis < response.axes_size(); ++axis) ranges[axis] = response.axes(axis) + " " + ranges[axis];
  return absl::StrJoin(ranges, ", ");
}

std::string SpanName(const v1::PositionSpan& span) {
  std::string name = EnumName(span.kind());
  if (span.has_grid()) absl::StrAppend(&name, " ", span.grid());
  if (span.has_frame()) absl::StrAppend(&name, ", frame ", span.frame());
  if (span.has_audio()) absl::StrAppend(&name, span.has_grid() ? ", audio " : " ", span.audio());
  return name;
}

// "0..1, 6..9": a row of key_ids by runs of neighbours.
std::string Runs(const v1::Tensor& ids, int64_t row) {
  const int64_t width = ids.shape(2);
  std::vector<std::string> runs;
  for (int64_t begin = 0, end; begin < width; begin = end) {
    end = begin + 1;
    while (end < width && At(ids, row * width + end) == At(ids, row * width + end - 1) + 1) ++end;
    runs.push_back(Range(At(ids, row * width + begin), At(ids, row * width + end - 1)));
  }
  return absl::StrJoin(runs, ", ");
}

// Ids of the sequence's keys in the cache and of tokens that are still to come, if the answer has them.
std::string OtherIds(const v1::PositionsResponse& response, int64_t sequence) {
  std::string text;
  if (response.has_key_ids()) absl::StrAppend(&text, "  keys: ", Runs(response.key_ids(), sequence), "\n");
  if (response.has_decode_ids()) {
    const int64_t count = response.decode_ids().shape(2);
    absl::StrAppend(&text, "  decode_ids, ", count,
                    count == 1 ? " token: " : " tokens: ", Ranges(response, response.decode_ids(), sequence, 0, count),
                    "\n");
  }
  return text;
}

std::string Report(const v1::PositionsRequest& request, const v1::PositionsResponse& response) {
  std::string text = absl::StrCat(response.rule().empty() ? "" : response.rule() + ": ", response.sentence(), "\n");
  const v1::Tensor& bounds = request.tokens().cu_seqlens();
  const bool packed = request.tokens().has_cu_seqlens();
  const int64_t width = response.ids().shape(2);
  int64_t sequence = -1;
  std::string others;
  for (const v1::PositionSpan& span : response.spans()) {
    if (span.sequence() != sequence) {
      sequence = span.sequence();
      absl::StrAppend(&text, others, "sequence ", sequence, ", delta ", Decimal(At(response.rope_deltas(), sequence)),
                      "\n");
      others = OtherIds(response, sequence);
    }
    // Number of the sequence's first token in the chunk; before 0 if the chunk begins later.
    const int64_t first = (packed ? static_cast<int64_t>(At(bounds, sequence)) : 0) - request.token_begin();
    const int64_t begin = std::clamp<int64_t>(first + span.begin(), 0, width);
    const int64_t end = std::clamp<int64_t>(first + span.end(), 0, width);
    if (begin >= end) continue;
    absl::StrAppend(&text, "  ", SpanName(span), begin + 1 == end ? ", token " : ", tokens ",
                    Range(static_cast<double>(begin - first), static_cast<double>(end - first - 1)), ": ",
                    Ranges(response, response.ids(), packed ? 0 : sequence, begin, end), "\n");
  }
  text += others;
  if (response.has_comparison()) absl::StrAppend(&text, response.comparison().sentence(), "\n");
  return text;
}

// True if the tensor has this type, rank and all of its bytes.
bool IsWhole(const v1::Tensor& tensor, int rank) {
  const bool known = tensor.dtype() == v1::DATA_TYPE_INT64 || tensor.dtype() == v1::DATA_TYPE_INT32 ||
                     tensor.dtype() == v1::DATA_TYPE_FP32;
  const auto bytes = ByteSize(HeaderOf("", tensor));
  return known && tensor.shape_size() == rank && bytes.ok() && *bytes == tensor.data().size();
}

// INTERNAL unless the report can be read from the answer.
absl::Status CheckAnswer(const v1::PositionsRequest& request, const v1::PositionsResponse& response) {
  const v1::Tensor& ids = response.ids();
  bool right = IsWhole(ids, 3) && IsWhole(response.rope_deltas(), 1) && ids.shape(0) == response.axes_size() &&
               response.axes_size() > 0;
  const int64_t sequences = right ? response.rope_deltas().shape(0) : 0;
  const auto has_rows = [&](const v1::Tensor& other) {
    return IsWhole(other, 3) && other.shape(0) == ids.shape(0) && other.shape(1) == sequences;
  };
  const v1::Tensor& bounds = request.tokens().cu_seqlens();
  right = right && (!response.has_key_ids() || has_rows(response.key_ids())) &&
          (!response.has_decode_ids() || has_rows(response.decode_ids())) &&
          (request.tokens().has_cu_seqlens() ? IsWhole(bounds, 1) && bounds.shape(0) == sequences + 1
                                             : ids.shape(1) == sequences);
  for (int n = 0; right && n < response.spans_size(); ++n) {
    const v1::PositionSpan& span = response.spans(n);
    right = span.sequence() >= 0 && span.sequence() < sequences && span.begin() >= 0 && span.begin() <= span.end() &&
            span.end() <= (int64_t{1} << 40);
  }
  return right ? absl::OkStatus() : absl::InternalError("the answer is empty or does not fit together");
}

// The tensors of a file; a .npy file holds the ids alone.
std::vector<NamedTensor> TensorsFor(const std::string& path, const v1::PositionsResponse& response) {
  std::vector<NamedTensor> tensors = {{"ids", &response.ids()}};
  if (!path.ends_with(".safetensors")) return tensors;
  tensors.push_back({"rope_deltas", &response.rope_deltas()});
  if (response.has_decode_ids()) tensors.push_back({"decode_ids", &response.decode_ids()});
  if (response.has_key_ids()) tensors.push_back({"key_ids", &response.key_ids()});
  return tensors;
}

absl::Status RunPositions(const PositionsFlags& flags, Session& session) {
  v1::PositionsRequest request = flags.request;
  const bool latents = IsSet(flags.latents);
  Missing missing;
  missing.Add(
      !latents && !IsSet(flags.tokens),
      "the tokens: --mm-token-type-ids, --input-ids, --attention-mask, --cu-seqlens or --length; of a diffusion "
      "model: --grid-thw");
  missing.Add(IsSet(flags.window) && flags.window.size() == 0,
              "--cache-size: the number of tokens that the cache holds");
  POSENC_RETURN_IF_ERROR(missing.Get());
  if (latents && IsSet(flags.tokens)) {
    return UsageError(absl::StrCat(FirstFlagOf(flags.latents), ": not with ", FirstFlagOf(flags.tokens)));
  }
  if (latents) {
    *request.mutable_latents() = flags.latents;
  } else {
    *request.mutable_tokens() = flags.tokens;
    if (IsSet(flags.window)) *request.mutable_tokens()->mutable_cache_window() = flags.window;
  }
  if (flags.model.given()) {
    POSENC_ASSIGN_OR_RETURN(*request.mutable_model(), flags.model.Get());
  } else {
    POSENC_RETURN_IF_ERROR(flags.model.CheckUnused());
  }
  if (IsSet(flags.given)) *request.mutable_given() = flags.given;
  if (!flags.out.empty()) POSENC_RETURN_IF_ERROR(CheckWritable(flags.out, v1::DATA_TYPE_INT64, 1));
  POSENC_ASSIGN_OR_RETURN(const v1::PositionsResponse response, session.backend().Positions(request));
  POSENC_RETURN_IF_ERROR(CheckAnswer(request, response));
  if (response.has_comparison() && !response.comparison().same()) session.set_exit_code(kNo);
  if (flags.out.empty()) {
    return session.json() ? PrintJson(session, response) : PrintReport(Report(request, response));
  }
  const std::vector<NamedTensor> tensors = TensorsFor(flags.out, response);
  POSENC_RETURN_IF_ERROR(WriteTensors(flags.out, tensors));
  for (const auto& [name, tensor] : tensors) {
    POSENC_RETURN_IF_ERROR(PrintTensor(session, flags.out, HeaderOf(name, *tensor)));
  }
  return absl::OkStatus();
}

void AddTokenFlags(CLI::App& app, PositionsFlags* flags) {
  v1::TokenDescription* tokens = &flags->tokens;
  using Tokens = v1::TokenDescription;
  AddTensorFlag(app, "--mm-token-type-ids", "FILE|0*4,1*6,..",
                "Kind of each token: 0 text, 1 image, 2 video, 3 audio; VALUE*COUNT repeats a value", tokens,
                &Tokens::mutable_mm_token_type_ids, ParseRuns);
  AddTensorFlag(app, "--input-ids", "FILE|NUMBER*COUNT,..", "Token ids, for classes that read them", tokens,
                &Tokens::mutable_input_ids, ParseRuns);
  AddTensorFlag(app, "--attention-mask", "FILE|0*3,1*5", "1 for a token, 0 for padding; default: no padding", tokens,
                &Tokens::mutable_attention_mask, ParseRuns);
  AddTensorFlag(app, "--image-grid-thw", "FILE|1x16x16,..", "Frames, rows and columns of patches of each image", tokens,
                &Tokens::mutable_image_grid_thw, ParseGrids3);
  AddTensorFlag(app, "--video-grid-thw", "FILE|4x16x16,..", "Frames, rows and columns of patches of each video", tokens,
                &Tokens::mutable_video_grid_thw, ParseGrids3);
  AddTensorFlag(app, "--target-sizes", "FILE|16x16,..", "MiniCPM-V: rows and columns of each crop of images", tokens,
                &Tokens::mutable_target_sizes, ParseGrids2);
  AddTensorFlag(app, "--target-sizes-videos", "FILE|16x16,..", "MiniCPM-V: the same of videos", tokens,
                &Tokens::mutable_target_sizes_videos, ParseGrids2);
  AddFieldFlags(app, "Tokens", tokens,
                {{"second_per_grid_ts", "Seconds between the temporal patches of each video"},
                 {"audio_seqlens", "Omni: feature frames of each audio"},
                 {"use_audio_in_video", "Omni: videos are interleaved with their audio"},
                 {"images_per_sample", "GLM-Image: number of grids of each sequence"},
                 {"downsample_mode", "MiniCPM-V: 4x or 16x; default: the file's"},
                 {"cu_seqlens", "Boundaries of packed sequences: 0, ..., number of tokens"},
                 {"sequences", "Number of sequences, if no tensor gives it"},
                 {"length", "Number of tokens of each sequence, if no tensor gives it"}});
  AddFieldFlags(app, "Cache", tokens,
                {{"cache_length", "Tokens before these that are in the cache"},
                 {"rope_deltas", "Deltas of the cached tokens, one for each sequence"}});
  AddFieldFlags(app, "Cache", &flags->window,
                {{"size", "Tokens that the cache holds", "--cache-size"},
                 {"sinks", "First tokens that are never dropped", "--cache-sinks"},
                 {"renumbers", "Positions are indexes in the cache (StreamingLLM)", "--cache-renumbers"}});
}

}  // namespace

Subcommand AddPositions(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand(
      "positions", "Computes the position ids of text, images, videos and audio as a model's class does");
  const auto flags = std::make_shared<PositionsFlags>();
  app->add_option("-o,--out", flags->out,
                  "Output file: .npy has the ids, .safetensors also rope_deltas, decode_ids and key_ids; default: a "
                  "report, or --json")
      ->type_name("FILE");
  flags->model.Add(*app);
  AddTokenFlags(*app, flags.get());
  AddFieldFlags(*app, "Latents, for a diffusion model", &flags->latents,
                {{"text_length", "Tokens of the text in the same sequence"},
                 {"rope_interpolation_scale", "LTX: factors of frames, rows and columns"}});
  app->add_option_function<std::string>(
         "--grid-thw",
         [flags](const std::string& text) {
           auto parsed = ParseGrids3(text);
           if (!parsed.ok()) Refuse("--grid-thw", parsed.status());
           *flags->latents.mutable_grid_thw() = *std::move(parsed);
         },
         "Frames, rows and columns of tokens; the first is generated, others are references")
      ->type_name("FILE|1x64x64,..")
      ->group("Latents, for a diffusion model");
  AddFieldFlags(*app, "Answer", &flags->request,
                {{"token_begin", "First token of each sequence in the answer"},
                 {"token_count", "Number of tokens in the answer; default: up to the last"}});
  AddFieldFlags(*app, "Comparison", &flags->given,
                {{"ids", "Ids of another system, to be compared: [axes, B, S], [B, S] or [S]", "--given-ids"},
                 {"rope_deltas", "Its deltas, [B]", "--given-deltas"}});
  return {app, [flags](Session& session) { return RunPositions(*flags, session); }};
}

}  // namespace posenc::command
