#include "posenc/positions/latents.h"

#include <fmt/format.h>

#include <algorithm>

#include "posenc/base/interruption.h"
#include "posenc/base/memory_account.h"
#include "posenc/base/status.h"
#include "posenc/positions/sequences.h"

namespace posenc {
namespace {

// Appends tokens to ids that have room for all of them.
class Tokens {
 public:
  explicit Tokens(CountedPositions* result) : result_(*result) {}

  // One token; `at` has one id for each axis.
  void Add(std::initializer_list<double> at) {
    int64_t axis = 0;
    for (const double id : at) result_.id(axis++, next_) = id;
    ++next_;
    InterruptionPointOfStep(next_);
  }
  void AddSpan(PositionSpan span) {
    span.begin = begin_;
    span.end = begin_ = next_;
    if (span.begin < span.end) result_.spans.push_back(span);
  }
  // Calls add(frame, row, column) for all tokens of the n-th grid.
  template <typename AddToken>
  void AddGrid(const PatchGrid& grid, size_t n, const AddToken& add) {
    for (int64_t t = 0; t < grid.t; ++t) {
      for (int64_t h = 0; h < grid.h; ++h) {
        for (int64_t w = 0; w < grid.w; ++w)
          add(static_cast<double>(t), static_cast<double>(h), static_cast<double>(w));
      }
    }
    AddSpan({.kind = grid.t > 1 ? SpanKind::kVideo : SpanKind::kImage, .grid = static_cast<int64_t>(n)});
  }

 private:
  CountedPositions& result_;
  int64_t next_ = 0, begin_ = 0;
};

absl::Status CountFlux(const ConfigObject&, const LatentDescription& latents, CountedPositions* result) {
  Tokens tokens(result);
  for (int64_t n = 0; n < latents.text_length; ++n) tokens.Add({0, 0, 0});
  tokens.AddSpan({.kind = SpanKind::kText});
  for (size_t n = 0; n < latents.grids.size(); ++n) {
    tokens.AddGrid(latents.grids[n], n, [&](double, double h, double w) {
      tokens.Add({static_cast<double>(n), h, w});
    });
  }
  return absl::OkStatus();
}

absl::Status CountFlux2(const ConfigObject&, const LatentDescription& latents, CountedPositions* result) {
  Tokens tokens(result);
  for (int64_t n = 0; n < latents.text_length; ++n) tokens.Add({0, 0, 0, static_cast<double>(n)});
  tokens.AddSpan({.kind = SpanKind::kText});
  for (size_t n = 0; n < latents.grids.size(); ++n) {
    constexpr double kReferenceStep = 10;
    tokens.AddGrid(latents.grids[n], n, [&](double, double h, double w) {
      tokens.Add({kReferenceStep * static_cast<double>(n), h, w, 0});
    });
  }
  return absl::OkStatus();
}

// Rows and columns are counted from the centre; text follows the largest half on all axes. With layers the last grid is
// the condition, at frame -1.
absl::Status CountQwenImage(const ConfigObject& model, const LatentDescription& latents, CountedPositions* result) {
  constexpr int64_t kTableRows = 4096;
  POSENC_ASSIGN_OR_RETURN(const auto layers, model.Bool("use_layer3d_rope"));
  const bool layered = layers.value_or(false);
  const auto count = static_cast<int64_t>(latents.grids.size());
  int64_t text = layered ? count - 1 : 0;
  for (int64_t n = 0; n < count; ++n) {
    const PatchGrid& grid = latents.grids[n];
    text = std::max({text, grid.h / 2, grid.w / 2});
    if (n + grid.t > kTableRows || (grid.h + 1) / 2 > kTableRows || (grid.w + 1) / 2 > kTableRows) {
      return InvalidArgument("OUT_OF_RANGE", fmt::format("grid_thw[{}]", n), ToString(grid),
                             fmt::format("must be within the class's table of -{0} .. {0}", kTableRows));
    }
    if (layered && n == count - 1 && grid.t != 1) {
      return InvalidArgument("OUT_OF_RANGE", fmt::format("grid_thw[{}]", n), ToString(grid),
                             "must have one frame: the last layer is the condition");
    }
  }
  if (text + latents.text_length > kTableRows) {
    return InvalidArgument("OUT_OF_RANGE", "text_length", fmt::format("{}", latents.text_length),
                           fmt::format("must be at most {}, the class's table after the image", kTableRows - text));
  }
  Tokens tokens(result);
  for (int64_t n = 0; n < latents.text_length; ++n) {
    const auto at = static_cast<double>(text + n);
    tokens.Add({at, at, at});
  }
  tokens.AddSpan({.kind = SpanKind::kText});
  for (int64_t n = 0; n < count; ++n) {
    const PatchGrid& grid = latents.grids[n];
    const int64_t above = grid.h / 2, before = grid.w / 2;
    const auto top = static_cast<double>(grid.h - above), left = static_cast<double>(grid.w - before);
    const double frame = layered && n == count - 1 ? -1 : static_cast<double>(n);
    tokens.AddGrid(grid, n, [&](double t, double h, double w) { tokens.Add({frame + t, h - top, w - left}); });
  }
  return absl::OkStatus();
}

absl::Status CountCells(const ConfigObject&, const LatentDescription& latents, CountedPositions* result) {
  Tokens tokens(result);
  tokens.AddGrid(latents.grids[0], 0, [&](double t, double h, double w) { tokens.Add({t, h, w}); });
  return absl::OkStatus();
}

// Size of a patch in the file.
absl::StatusOr<float> PatchSizeOf(const ConfigObject& model, std::string_view field) {
  constexpr double kLargestPatch = 65536;
  POSENC_ASSIGN_OR_RETURN(const auto given, model.Number({field}));
  const double size = given.value_or(1);
  if (size > 0 && size <= kLargestPatch) return static_cast<float>(size);  // not NaN
  return InvalidArgument("OUT_OF_RANGE", model.Path(field), fmt::format("{}", size),
                         fmt::format("must be above 0 and at most {}", kLargestPatch));
}

// Fractions f of the base size, as 2 f - 1, in float32 and in the class's order of operations.
absl::Status CountLtx(const ConfigObject& model, const LatentDescription& latents, CountedPositions* result) {
  constexpr float kBase[] = {20, 2048, 2048};
  POSENC_ASSIGN_OR_RETURN(const float size, PatchSizeOf(model, "patch_size"));
  POSENC_ASSIGN_OR_RETURN(const float frames, PatchSizeOf(model, "patch_size_t"));
  const float sizes[] = {frames, size, size};
  const auto place = [&](int axis, double index) {
    auto value = static_cast<float>(index);
    if (!latents.rope_interpolation_scale.empty()) {
      value = value * static_cast<float>(latents.rope_interpolation_scale[axis]) * sizes[axis] / kBase[axis];
    }
    return static_cast<double>(value * 2 - 1);
  };
  Tokens tokens(result);
  tokens.AddGrid(latents.grids[0], 0, [&](double t, double h, double w) {
    tokens.Add({place(0, t), place(1, h), place(2, w)});
  });
  return absl::OkStatus();
}

int64_t PaddingOf(int64_t tokens) {
  constexpr int64_t kMultiple = 32;
  return (kMultiple - tokens % kMultiple) % kMultiple;
}

// The image goes first. Its tokens, and the caption's, are padded to multiples of 32; the image's padding is at 0.
absl::Status CountZImage(const ConfigObject&, const LatentDescription& latents, CountedPositions* result) {
  const int64_t caption = latents.text_length + PaddingOf(latents.text_length);
  const auto frame = static_cast<double>(caption + 1);
  Tokens tokens(result);
  tokens.AddGrid(latents.grids[0], 0, [&](double t, double h, double w) { tokens.Add({frame + t, h, w}); });
  for (int64_t n = PaddingOf(Cells(latents.grids[0])); n > 0; --n) tokens.Add({0, 0, 0});
  tokens.AddSpan({.kind = SpanKind::kText});
  for (int64_t n = 0; n < caption; ++n) tokens.Add({static_cast<double>(n + 1), 0, 0});
  tokens.AddSpan({.kind = SpanKind::kText});
  return absl::OkStatus();
}

LatentRule LatentRow(std::string_view name, LatentRule::Count count, std::string_view sentence,
                     std::vector<std::string_view> axes = {"t", "h", "w"}) {
  return {.rule = {.model_type = name, .count = nullptr, .reads = {}, .sentence = sentence},
          .count = count,
          .max_grids = 1,
          .has_text = false,
          .reads_scale = false,
          .one_frame = count == CountFlux || count == CountFlux2,
          .axes = std::move(axes)};
}

std::vector<LatentRule> MakeLatentRules() {
  constexpr size_t kAny = 4096;
  std::vector<LatentRule> rules;
  const auto add = [&rules](LatentRule rule, size_t max_grids, bool has_text, bool reads_scale = false) {
    rule.max_grids = max_grids;
    rule.has_text = has_text;
    rule.reads_scale = reads_scale;
    rules.push_back(std::move(rule));
  };
  for (const std::string_view name : {"FluxTransformer2DModel", "ChromaTransformer2DModel", "BriaTransformer2DModel"}) {
    add(LatentRow(name, CountFlux,
                  "Text is at 0 on all axes; an image's token has the image's number, its row and its column.",
                  {"image", "h", "w"}),
        name.starts_with("Flux") ? 2 : 1, true);
  }
  add(LatentRow(
          "Flux2Transformer2DModel", CountFlux2,
          "Text is at (0, 0, 0, n); an image's token has its row and column, and reference k is at 10 k on the first "
          "axis.",
          {"t", "h", "w", "l"}),
      kAny, true);
  add(LatentRow(
          "QwenImageTransformer2DModel", CountQwenImage,
          "An image's token has the image's number, and its row and column from the centre; text follows the larger "
          "half on all axes."),
      kAny, true);
  for (const std::string_view name :
       {"WanTransformer3DModel", "WanVACETransformer3DModel", "SkyReelsV2Transformer3DModel",
        "HunyuanVideoTransformer3DModel", "HunyuanVideo15Transformer3DModel"}) {
    add(LatentRow(name, CountCells, "A token has its frame, row and column; text does not rotate."), 1, false);
  }
  add(LatentRow("LTXVideoTransformer3DModel", CountLtx,
                "A token has its time, row and column as fractions f of the base size, as 2 f - 1."),
      1, false, true);
  add(LatentRow("ZImageTransformer2DModel", CountZImage,
                "The image goes first, at the caption's padded length + 1 on the first axis, with row and column; the "
                "caption is at (n + 1, 0, 0)."),
      1, true);
  for (LatentRule& rule : rules) rule.rule.fractions = rule.reads_scale;
  return rules;
}

absl::Status CheckLatents(const LatentRule& rule, const LatentDescription& latents) {
  if (latents.grids.empty() || latents.grids.size() > rule.max_grids) {
    return InvalidArgument("MISMATCH", "grid_thw", fmt::format("{} grids", latents.grids.size()),
                           fmt::format("must be 1 .. {} grids for {}", rule.max_grids, rule.rule.model_type));
  }
  for (size_t n = 0; rule.one_frame && n < latents.grids.size(); ++n) {
    if (latents.grids[n].t == 1) continue;
    return InvalidArgument("OUT_OF_RANGE", fmt::format("grid_thw[{}]", n), ToString(latents.grids[n]),
                           fmt::format("must have one frame: a grid is an image of {}", rule.rule.model_type));
  }
  if (latents.text_length > 0 && !rule.has_text) {
    return InvalidArgument("NOT_READ", "text_length", fmt::format("{}", latents.text_length),
                           fmt::format("must be 0: {} does not rotate text", rule.rule.model_type));
  }
  const size_t scales = latents.rope_interpolation_scale.size();
  if (scales > 0 && !rule.reads_scale) {
    return InvalidArgument("NOT_READ", "rope_interpolation_scale", "",
                           fmt::format("must be absent: {} does not read it", rule.rule.model_type));
  }
  if (scales == 0 || scales == 3) return absl::OkStatus();
  return InvalidArgument("MISMATCH", "rope_interpolation_scale", fmt::format("{} values", scales),
                         "must be 3: of frames, rows and columns");
}

}  // namespace

const LatentRule* FindLatentRule(std::string_view class_name) {
  static const std::vector<LatentRule>& rules = *new std::vector<LatentRule>(MakeLatentRules());
  for (const LatentRule& rule : rules) {
    if (rule.rule.model_type == class_name) return &rule;
  }
  return nullptr;
}

absl::StatusOr<const LatentRule*> SelectLatentRule(const ConfigObject& file) {
  POSENC_ASSIGN_OR_RETURN(const auto name, file.String("_class_name"));
  if (!name)
    return InvalidArgument("MISSING", file.Path("_class_name"), "",
                           "must be given with latents: a diffusers file has it");
  const LatentRule* rule = FindLatentRule(*name);
  if (rule != nullptr) return rule;
  return InvalidArgument("UNSUPPORTED", file.Path("_class_name"), *name, "must be a class whose positions are known");
}

absl::StatusOr<CountedPositions> CountLatents(const LatentRule& rule, const ConfigObject& model,
                                              const LatentDescription& latents, const Limits& limits) {
  POSENC_RETURN_IF_ERROR(CheckLatents(rule, latents));
  const LargeBlocksMayBeRefused scope;
  CountedPositions result;
  result.size_field = "grid_thw";
  result.fractions = rule.rule.fractions;
  result.axes.assign(rule.axes.begin(), rule.axes.end());
  result.values_left = limits.max_output_bytes / static_cast<int64_t>(sizeof(int64_t));
  const auto reserve = [&result](int64_t tokens) -> absl::Status {
    result.tokens += tokens;
    const auto axes = static_cast<int64_t>(result.axes.size());
    return result.Reserve(std::min(tokens, result.values_left + 1) * axes);
  };
  const bool padded = rule.count == CountZImage;
  POSENC_RETURN_IF_ERROR(reserve(latents.text_length + (padded ? PaddingOf(latents.text_length) : 0)));
  for (const PatchGrid& grid : latents.grids) {
    POSENC_RETURN_IF_ERROR(reserve(Cells(grid)));
    if (padded) POSENC_RETURN_IF_ERROR(reserve(PaddingOf(Cells(grid))));
  }
  result.ids.assign(result.tokens * static_cast<int64_t>(result.axes.size()), 0);
  POSENC_RETURN_IF_ERROR(rule.count(model, latents, &result));
  result.deltas = {0};
  return result;
}

}  // namespace posenc
