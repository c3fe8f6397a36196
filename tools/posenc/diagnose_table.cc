#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "posenc/base/status.h"
#include "posenc/kernels/convert.h"
#include "posenc/wire/values.h"
#include "tools/files/tensor_file.h"
#include "tools/posenc/deliver.h"
#include "tools/posenc/field_flags.h"
#include "tools/posenc/request_flags.h"
#include "tools/posenc/session.h"

namespace posenc::command {
namespace {

struct DiagnoseTableFlags {
  ModelFlags model;
  v1::TableResize resize;  // target, rows_before, rows_after
  std::string table, resized;
  std::optional<double> tolerance_ulp;
};

// Units that count as rounding, unless --tolerance says. A float32 coordinate is off by its own last place, which grows
// with the grid, and so are weights; torch rounds weights to narrow types on a CPU.
double UsualTolerance(v1::DataType dtype, const v1::TableResize& resize, int64_t source_side) {
  if (dtype == v1::DATA_TYPE_BF16 || dtype == v1::DATA_TYPE_FP16) return 4;
  for (const int64_t length : resize.source()) source_side = std::max(source_side, length);
  return std::max(16.0, 4 * static_cast<double>(source_side));
}

// A way of resizing, and how far from the given tensor its rows are.
struct Candidate {
  v1::TableResize resize;
  bool exchanged = false;  // rows and columns of the target
  double distance = 0;     // units in the last place of the tensor's largest element
  int64_t equal = 0;
};

// The flags of `posenc embedding` that resize so.
std::string FlagsOf(const Candidate& candidate) {
  const v1::TableResize& resize = candidate.resize;
  std::string flags = "--resize-mode " + EnumName(resize.mode());
  if (resize.align_corners()) flags += " --resize-align-corners";
  if (resize.antialias()) flags += " --resize-antialias";
  if (resize.padding() == v1::RESIZE_PADDING_ZEROS) flags += " --resize-padding zeros";
  if (resize.scale_factor_size() > 0) {
    flags += fmt::format(" --resize-scale-factor {}", fmt::join(resize.scale_factor(), ","));
  }
  if (resize.spatial_merge_size() > 1) {
    flags += fmt::format(" --resize-spatial-merge-size {}", resize.spatial_merge_size());
  }
  if (candidate.exchanged) flags += ", with the target's rows and columns exchanged";
  return flags;
}

// Returns every kernel, border and alignment, without and with the 0.1 that DINOv2's original adds to the target.
std::vector<Candidate> Candidates(const v1::TableResize& given, int64_t source_side) {
  std::vector<Candidate> all;
  const auto add = [&](v1::ResizeMode mode, bool align_corners, bool antialias, bool zeros, double added) {
    v1::TableResize resize = given;
    resize.set_mode(mode);
    resize.set_align_corners(align_corners);
    resize.set_antialias(antialias);
    if (zeros) resize.set_padding(v1::RESIZE_PADDING_ZEROS);
    for (int n = 0; added != 0 && n < given.target_size(); ++n) {
      const int64_t side = n < given.source_size() ? given.source(n) : source_side;
      resize.add_scale_factor((static_cast<double>(given.target(n)) + added) / static_cast<double>(side));
    }
    all.push_back({std::move(resize)});
  };
  const auto kernels = given.target_size() == 1 ? std::vector{v1::RESIZE_MODE_LINEAR}
                                                : std::vector{v1::RESIZE_MODE_BICUBIC, v1::RESIZE_MODE_BILINEAR};
  for (const v1::ResizeMode mode : kernels) {
    for (const bool align_corners : {false, true}) {
      for (const bool antialias : {false, true}) add(mode, align_corners, antialias, false, 0);
    }
    add(mode, false, false, true, 0);
    for (const bool antialias : {false, true}) add(mode, false, antialias, false, 0.1);
  }
  add(v1::RESIZE_MODE_NEAREST, false, false, false, 0);
  return all;
}

// Returns the candidates with exchanged sides, in blocks of 2, and with both: ports often change the order of the
// cells.
std::vector<Candidate> InOtherOrders(const std::vector<Candidate>& candidates) {
  std::vector<Candidate> all;
  for (const Candidate& candidate : candidates) {
    const int64_t height = candidate.resize.target(0), width = candidate.resize.target(1);
    for (const int64_t block : {1, 2}) {
      for (const bool exchanged : {false, true}) {
        if ((block == 1 && !exchanged) || (exchanged && height == width)) continue;
        if (exchanged && candidate.resize.scale_factor_size() > 0) continue;  // its factors belong to the axes
        if (height % block != 0 || width % block != 0) continue;
        Candidate other = candidate;
        other.resize.set_spatial_merge_size(block);
        other.exchanged = exchanged;
        if (exchanged) other.resize.mutable_target()->SwapElements(0, 1);
        all.push_back(std::move(other));
      }
    }
  }
  return all;
}

// Returns the elements of an FP64, FP32, FP16 or BF16 tensor.
absl::StatusOr<std::vector<double>> ValuesOf(const std::string& file, const v1::Tensor& tensor) {
  const auto dtype = wire::Choose(file, tensor.dtype(), wire::kDataTypes);
  if (!dtype.ok() ||
      (*dtype != DType::kFP64 && *dtype != DType::kFP32 && *dtype != DType::kFP16 && *dtype != DType::kBF16)) {
    return absl::InvalidArgumentError(fmt::format("{} must be FP64, FP32, FP16 or BF16", file));
  }
  std::vector<double> values(tensor.data().size() / SizeOf(*dtype));
  Convert(*dtype, DType::kFP64, tensor.data().data(), values.data(), values.size());
  return values;
}

// Makes [N, D] of a tensor of more axes, of which the last is D.
absl::Status Flatten(const std::string& file, v1::Tensor& tensor) {
  const int axes = tensor.shape_size();
  if (axes < 2) {
    return absl::InvalidArgumentError(fmt::format("{} must be [N, D], [1, N, D] or [rows, columns, D]", file));
  }
  int64_t rows = 1;
  for (int n = 0; n + 1 < axes; ++n) rows *= tensor.shape(n);
  const int64_t width = tensor.shape(axes - 1);
  tensor.clear_shape();
  tensor.add_shape(rows);
  tensor.add_shape(width);
  return absl::OkStatus();
}

class Search {
 public:
  // `request` has the table and the model's config.json, if any.
  Search(Session& session, v1::GenerateEmbeddingRequest request, std::vector<double> resized)
      : session_(session), request_(std::move(request)), resized_(std::move(resized)) {
    double largest = 0;
    for (const double value : resized_) largest = std::max(largest, std::abs(value));
    const int bits = request_.dtype() == v1::DATA_TYPE_BF16 ? 8 : request_.dtype() == v1::DATA_TYPE_FP16 ? 11 : 24;
    ulp_ = largest == 0 ? 1 : std::ldexp(1, std::ilogb(largest) + 1 - bits);
  }

  // Measures a candidate, and takes the settings that a config.json gave. Returns false if its factors round to another
  // target.
  absl::StatusOr<bool> Measure(Candidate& candidate) {
    *request_.mutable_learned()->mutable_resize() = candidate.resize;
    const auto response = session_.backend().GenerateEmbedding(request_);
    if (!response.ok()) {
      const bool other_target = DetailsOf(response.status()).reason == "MISMATCH";
      if (candidate.resize.scale_factor_size() > 0 && other_target) return false;
      return response.status();
    }
    if (response->info().plan().has_learned()) candidate.resize = response->info().plan().learned().resize();
    POSENC_ASSIGN_OR_RETURN(const std::vector<double> values, ValuesOf("the answer", response->embedding()));
    if (values.size() != resized_.size()) {
      return absl::InvalidArgumentError(
          fmt::format("the resized tensor has {} elements; table and target give {}", resized_.size(), values.size()));
    }
    for (size_t n = 0; n < values.size(); ++n) {
      const double distance = std::abs(values[n] - resized_[n]) / ulp_;
      candidate.distance = std::isnan(distance) ? HUGE_VAL : std::max(candidate.distance, distance);
      candidate.equal += values[n] == resized_[n];
    }
    return true;
  }

  // Returns the candidates that can be, the nearest first.
  absl::StatusOr<std::vector<Candidate>> Sorted(std::vector<Candidate> candidates) {
    std::vector<Candidate> measured;
    for (Candidate& candidate : candidates) {
      POSENC_ASSIGN_OR_RETURN(const bool can_be, Measure(candidate));
      if (can_be) measured.push_back(std::move(candidate));
    }
    std::stable_sort(measured.begin(), measured.end(),
                     [](const Candidate& a, const Candidate& b) { return a.distance < b.distance; });
    return measured;
  }

  int64_t elements() const { return static_cast<int64_t>(resized_.size()); }

 private:
  Session& session_;
  v1::GenerateEmbeddingRequest request_;
  const std::vector<double> resized_;
  double ulp_ = 1;
};

// Takes the target from the tensor's shape, or from its rows if they are a square.
absl::Status CompleteTarget(const v1::Tensor& resized, v1::TableResize& resize) {
  if (resize.target_size() > 0) return absl::OkStatus();
  const int axes = resized.shape_size();
  const bool extra = resize.rows_before() + resize.rows_after() > 0;
  if (axes >= 3 && resized.shape(axes - 3) > 1 && !extra) {
    resize.add_target(resized.shape(axes - 3));
    resize.add_target(resized.shape(axes - 2));
    return absl::OkStatus();
  }
  const int64_t cells = axes < 2 ? 0 : resized.shape(axes - 2) - resize.rows_before() - resize.rows_after();
  const auto side = static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(std::max<int64_t>(cells, 0)))));
  if (side < 1 || side * side != cells) {
    return UsageError(fmt::format("give --resize-target ROWS,COLUMNS, which {} rows do not tell", cells));
  }
  resize.add_target(side);
  resize.add_target(side);
  return absl::OkStatus();
}

struct Finding {
  std::string verdict;  // the first line
  int exit_code = kCannotTell;
  std::vector<Candidate> fitting;
  std::optional<Candidate> nearest;
};

// Compares with the model's way if a config.json is given, and with all others. The config.json then gives the grid of
// the table and its other rows.
absl::StatusOr<Finding> Find(double tolerance, v1::TableResize given, int64_t source_side, Search& search,
                             Search* model) {
  const auto describe = [&](const Candidate& candidate) {
    return fmt::format("{} of {} elements are equal, worst {:.3g} ulp of the largest", candidate.equal,
                       search.elements(), candidate.distance);
  };
  std::optional<Candidate> expected;
  if (model != nullptr) {
    expected.emplace();
    *expected->resize.mutable_target() = given.target();
    POSENC_RETURN_IF_ERROR(model->Measure(*expected).status());
    if (expected->distance <= tolerance) {
      return Finding{"MATCHES: resized as config.json says; " + describe(*expected), kDone};
    }
    *given.mutable_source() = expected->resize.source();
    given.set_rows_before(expected->resize.rows_before());
    given.set_rows_after(expected->resize.rows_after());
  }
  std::vector<Candidate> candidates = Candidates(given, source_side);
  POSENC_ASSIGN_OR_RETURN(std::vector<Candidate> sorted, search.Sorted(candidates));
  if (given.target_size() == 2 && (sorted.empty() || sorted[0].distance > tolerance)) {
    POSENC_ASSIGN_OR_RETURN(std::vector<Candidate> others, search.Sorted(InOtherOrders(candidates)));
    sorted.insert(sorted.end(), others.begin(), others.end());
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const Candidate& a, const Candidate& b) { return a.distance < b.distance; });
  }
  Finding finding;
  for (const Candidate& candidate : sorted) {
    if (candidate.distance <= tolerance) finding.fitting.push_back(candidate);
  }
  if (!sorted.empty()) finding.nearest = sorted[0];
  const std::string instead =
      expected ? fmt::format("; config.json says {}: {}", FlagsOf(*expected), describe(*expected)) : "";
  if (finding.fitting.empty()) {
    finding.verdict = (expected ? "DIFFERS" : "UNKNOWN") + (": no way that was tried gives this tensor" + instead);
    if (expected) finding.exit_code = kNo;
    return finding;
  }
  finding.exit_code = expected ? kNo : kDone;
  finding.verdict = fmt::format("{}: resized by {}; {}{}", expected ? "DIFFERS" : "FOUND", FlagsOf(sorted[0]),
                                describe(sorted[0]), instead);
  return finding;
}

absl::Status Print(const Finding& finding, Session& session) {
  session.set_exit_code(finding.exit_code);
  if (session.json()) {
    nlohmann::ordered_json json = {{"verdict", finding.verdict}, {"fitting", nlohmann::ordered_json::array()}};
    for (const Candidate& candidate : finding.fitting) {
      json["fitting"].push_back({{"flags", FlagsOf(candidate)}, {"worst_ulp", candidate.distance}});
    }
    if (finding.nearest) {
      json["nearest"] = {{"flags", FlagsOf(*finding.nearest)}, {"worst_ulp", finding.nearest->distance}};
    }
    return PrintReport(json.dump(2) + "\n");
  }
  std::string report = finding.verdict + "\n";
  for (size_t n = 1; n < finding.fitting.size(); ++n) {
    report += fmt::format("  or, as near on this data: {}\n", FlagsOf(finding.fitting[n]));
  }
  if (finding.fitting.empty() && finding.nearest) {
    report += fmt::format("  nearest: {}; worst {:.3g} ulp of the largest\n", FlagsOf(*finding.nearest),
                          finding.nearest->distance);
  }
  return PrintVerdict(report, finding.exit_code);
}

absl::Status RunDiagnoseTable(const DiagnoseTableFlags& flags, Session& session) {
  Missing missing;
  missing.Add(flags.resized.empty(), "FILE, the resized table");
  missing.Add(flags.table.empty(), "--learned-table, the table before");
  POSENC_RETURN_IF_ERROR(missing.Get());
  if (!flags.model.given()) POSENC_RETURN_IF_ERROR(flags.model.CheckUnused());
  v1::GenerateEmbeddingRequest request;
  v1::Tensor& table = *request.mutable_learned()->mutable_table();
  POSENC_ASSIGN_OR_RETURN(table, ReadTensor(flags.table));
  POSENC_ASSIGN_OR_RETURN(v1::Tensor resized, ReadTensor(flags.resized));
  v1::TableResize given = flags.resize;
  POSENC_RETURN_IF_ERROR(CompleteTarget(resized, given));
  POSENC_RETURN_IF_ERROR(Flatten("the table", table));
  POSENC_RETURN_IF_ERROR(Flatten("the resized table", resized));
  request.set_dtype(resized.dtype());
  request.mutable_precision()->set_preset(v1::PRECISION_PRESET_EXACT);
  POSENC_ASSIGN_OR_RETURN(std::vector<double> values, ValuesOf("the resized table", resized));
  const double cells = static_cast<double>(table.shape(0) - given.rows_before() - given.rows_after());
  Search search(session, request, values);
  std::optional<Search> model;
  if (flags.model.given()) {
    POSENC_RETURN_IF_ERROR(flags.model.PutBeside(request.mutable_learned()));
    request.mutable_hints()->set_return_plan(true);
    model.emplace(session, std::move(request), std::move(values));
  }
  const int64_t side = std::llround(std::sqrt(std::max(cells, 0.0)));
  const double tolerance = flags.tolerance_ulp.value_or(UsualTolerance(resized.dtype(), given, side));
  POSENC_ASSIGN_OR_RETURN(const Finding finding, Find(tolerance, given, side, search, model ? &*model : nullptr));
  return Print(finding, session);
}

}  // namespace

Subcommand AddDiagnoseTable(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand(
      "diagnose-table", std::string("Finds how a learned table of positions was resized, and whether as a model does "
                                    "it.\n") +
                            kExitCodes);
  const auto flags = std::make_shared<DiagnoseTableFlags>();
  app->add_option("resized,--resized", flags->resized,
                  "The resized table: FP64, FP32, FP16 or BF16, [N, D], [1, N, D] or [rows, columns, D]")
      ->type_name("FILE");
  app->add_option("--learned-table", flags->table, "The table before, [N, D], [1, N, D] or [rows, columns, D]")
      ->type_name("FILE");
  AddFieldFlags(*app, "Grids", &flags->resize,
                {{"target", "Rows and columns after; default: the shape's, or a square", "--resize-target"},
                 {"source", "Rows and columns before; default: a square", "--resize-source"},
                 {"rows_before", "Rows before the grid's: a class token", "--resize-rows-before"},
                 {"rows_after", "Rows after the grid's", "--resize-rows-after"}});
  app->add_option("--tolerance", flags->tolerance_ulp,
                  "Units in the last place of the largest element that count as rounding; default 4, for FP32 16, or "
                  "four times the side of the grid if that is more")
      ->check(CLI::Range(0.0, 1e6));
  flags->model.Add(*app);
  return {app, [flags](Session& session) { return RunDiagnoseTable(*flags, session); }};
}

}  // namespace posenc::command
