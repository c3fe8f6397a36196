// `posenc plot bias`: the bias added to attention scores, queries by keys, one panel per head.
#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "posenc/base/status.h"
#include "tools/posenc/attention_flags.h"
#include "tools/posenc/bias_flags.h"
#include "tools/posenc/field_flags.h"
#include "tools/posenc/plot/plot.h"
#include "tools/posenc/report.h"

namespace posenc::command {
namespace {

constexpr int64_t kMaxPanels = 16;

struct BiasPlotFlags {
  PictureFlags picture;
  BiasFlags bias;
  PrecisionFlags precision;
  v1::BiasGeometry geometry;
  v1::Mask mask;
  bool index = false;
};

absl::StatusOr<v1::GenerateBiasRequest> Request(const BiasPlotFlags& flags, Session* session) {
  v1::GenerateBiasRequest request;
  POSENC_ASSIGN_OR_RETURN(*request.mutable_method(), flags.bias.Get(session));
  *request.mutable_geometry() = flags.geometry;
  request.set_form(flags.index ? v1::BIAS_FORM_INDEX : v1::BIAS_FORM_DENSE);
  request.set_dtype(flags.index ? v1::DATA_TYPE_INT32 : v1::DATA_TYPE_FP32);
  request.mutable_hints()->set_return_plan(true);
  if (IsSet(flags.mask)) {  // masked cells become -inf, which has no colour
    *request.mutable_mask() = flags.mask;
    if (request.mask().fill_case() == v1::Mask::FILL_NOT_SET) {
      request.mutable_mask()->set_fill_kind(v1::MASK_FILL_NEGATIVE_INFINITY);
    }
    if (request.mask().fully_masked_row() == v1::FULLY_MASKED_ROW_UNSPECIFIED) {
      request.mutable_mask()->set_fully_masked_row(v1::FULLY_MASKED_ROW_FILL);
    }
  }
  POSENC_RETURN_IF_ERROR(flags.precision.Put(&request));
  return request;
}

// Returns how many queries and keys show the whole method: to T5's largest distance, or a few.
int64_t LengthFor(const v1::BiasMethod& method) {
  constexpr int64_t kFew = 64, kMany = 512, kT5 = 128;
  if (!method.has_t5()) return kFew;
  return std::min(1 + (method.t5().has_max_distance() ? method.t5().max_distance() : kT5), kMany);
}

// Asks for the bias. Chooses the numbers of queries and keys, and of heads if there are many, that were not given.
absl::StatusOr<v1::GenerateBiasResponse> Generate(BiasPlotFlags* flags, v1::GenerateBiasRequest request,
                                                  Session* session) {
  v1::BiasGeometry& geometry = *request.mutable_geometry();
  const bool whole = !IsSet(geometry) && !request.has_mask();
  if (whole) {
    geometry.set_query_length(1);
    geometry.set_key_length(1);
  }
  absl::StatusOr<v1::GenerateBiasResponse> response = session->backend().GenerateBias(request);
  if (!whole || !response.ok()) return response;
  const v1::Tensor& bias = response->bias();
  const int64_t length = LengthFor(response->info().plan().bias());
  geometry.set_query_length(length);
  geometry.set_key_length(length);
  session->Assume("--query-length", absl::StrCat(length));
  session->Assume("--key-length", absl::StrCat(length));
  if (bias.shape_size() > 2 && bias.shape(bias.shape_size() - 3) > kMaxPanels) {
    geometry.set_head_count(kMaxPanels);
    session->Assume("--head-count", absl::StrCat(kMaxPanels));
  }
  flags->geometry = geometry;
  return session->backend().GenerateBias(request);
}

absl::StatusOr<HeatMaps> Maps(const BiasPlotFlags& flags, const v1::GenerateBiasResponse& response) {
  const v1::Tensor& bias = response.bias();
  const int rank = bias.shape_size();
  int64_t panels = 1;
  for (int axis = 0; axis + 2 < rank; ++axis) panels *= bias.shape(axis);
  HeatMaps maps;
  maps.rows = bias.shape(rank - 2);
  maps.columns = bias.shape(rank - 1);
  if (panels < 1 || panels > kMaxPanels) {
    return UsageError(absl::StrFormat(
        "%d heads: a picture shows 1 to %d; select them with --head-start and --head-count", panels, kMaxPanels));
  }
  if (maps.rows * maps.columns < 1 || panels * maps.rows * maps.columns > kMaxCells) {
    return UsageError(
        absl::StrFormat("%d x %d x %d cells: a picture shows 1 to %d", panels, maps.rows, maps.columns, kMaxCells));
  }
  const v1::BiasMethod& method = response.info().plan().bias();
  const auto* name = method.GetDescriptor()->FindFieldByNumber(method.method_case());
  maps.title = flags.index ? "Row of the bias table" : "Attention bias";
  maps.settings = (name == nullptr ? "" : absl::StrCat(name->name(), ": ")) + SettingsLine(method);
  maps.x_label = "key";
  maps.y_label = "query";
  maps.first_y = static_cast<double>(flags.geometry.query_offset());
  maps.colour_label = flags.index ? "row of the table" : "added to the score";
  maps.diverging = !flags.index;
  maps.square = true;
  const std::vector<double> values = Numbers(bias);
  const int64_t cells = static_cast<int64_t>(maps.rows * maps.columns);
  for (int64_t n = 0; n < panels; ++n) {
    std::string title = flags.index ? "" : absl::StrFormat("head %d", flags.geometry.head_start() + n);
    maps.panels.push_back({std::move(title), {values.begin() + n * cells, values.begin() + (n + 1) * cells}});
  }
  return maps;
}

absl::Status RunBiasPlot(BiasPlotFlags& flags, Session& session) {
  Missing missing;
  flags.bias.AddMissing(&missing);
  POSENC_RETURN_IF_ERROR(flags.picture.Check(session, missing));
  POSENC_ASSIGN_OR_RETURN(const v1::GenerateBiasRequest request, Request(flags, &session));
  POSENC_ASSIGN_OR_RETURN(const v1::GenerateBiasResponse response, Generate(&flags, request, &session));
  POSENC_ASSIGN_OR_RETURN(const HeatMaps maps, Maps(flags, response));
  return flags.picture.Deliver(session, response, maps);
}

}  // namespace

Subcommand AddBiasPlot(CLI::App& plot) {
  CLI::App* app =
      plot.add_subcommand("bias", "Heat maps of an attention bias, one panel per head, or of its table rows");
  const auto flags = std::make_shared<BiasPlotFlags>();
  flags->picture.Add(*app);
  app->add_flag("--index", flags->index, "T5, Swin, BEiT: plot each cell's table row instead of its bias");
  flags->bias.Add(*app);
  AddGeometryFlags(*app, &flags->geometry);
  AddHeadFlags(*app, &flags->geometry);
  AddMaskFlags(*app, &flags->mask);
  flags->precision.Add(*app);
  return {app, [flags](Session& session) { return RunBiasPlot(*flags, session); }};
}

}  // namespace posenc::command
