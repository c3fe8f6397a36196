// `posenc plot wavelets`: WPR's wavelets over distance, one line per scale.
#include <cmath>
#include <iterator>
#include <memory>

#include "absl/strings/str_format.h"
#include "posenc/base/status.h"
#include "posenc/command_line/arguments.h"
#include "tools/posenc/field_flags.h"
#include "tools/posenc/plot/plot.h"
#include "tools/posenc/report.h"

namespace posenc::command {
namespace {

constexpr const char* kColours[] = {kBlue, kOrange, kGreen, kGrey};
constexpr auto kMostLines = static_cast<int64_t>(std::size(kColours));

struct WaveletsPlotFlags {
  PictureFlags picture;
  v1::Wpr wpr;
  int64_t head_dim = 8, max_distance = 64;
};

v1::Tensor Tensor(std::vector<int64_t> shape, v1::DataType dtype, const void* data, size_t bytes) {
  v1::Tensor tensor;
  tensor.set_dtype(dtype);
  tensor.mutable_shape()->Assign(shape.begin(), shape.end());
  tensor.set_data(data, bytes);
  return tensor;
}

// Requests the scores of one one-hot query per channel, all at one position: they are the channel's wavelet.
v1::RelativeScoresRequest Request(const WaveletsPlotFlags& flags) {
  const int64_t d = flags.head_dim, keys = 2 * flags.max_distance + 1;
  v1::RelativeScoresRequest request;
  *request.mutable_method()->mutable_wpr() = flags.wpr;
  request.mutable_method()->mutable_wpr()->set_distance(v1::WPR_DISTANCE_KEY_MINUS_QUERY);
  if (!flags.wpr.has_scales()) request.mutable_method()->mutable_wpr()->set_scales(kMostLines);
  if (flags.wpr.channels() == v1::WPR_CHANNELS_UNSPECIFIED) {
    request.mutable_method()->mutable_wpr()->set_channels(v1::WPR_CHANNELS_SHIFT_FASTEST);
  }
  request.set_layout(v1::LAYOUT_BHSD);
  request.set_content(false);
  request.set_scale(1);
  request.set_dtype(v1::DATA_TYPE_FP32);
  request.mutable_hints()->set_return_plan(true);
  std::vector<float> q(d * d, 0.0f);
  for (int64_t n = 0; n < d; ++n) q[n * d + n] = 1;
  *request.mutable_q() = Tensor({1, 1, d, d}, v1::DATA_TYPE_FP32, q.data(), q.size() * sizeof(float));
  const std::vector<double> at(d, static_cast<double>(flags.max_distance));
  *request.mutable_geometry()->mutable_query_positions() =
      Tensor({d}, v1::DATA_TYPE_FP64, at.data(), at.size() * sizeof(double));
  request.mutable_geometry()->set_key_length(keys);
  return request;
}

absl::Status RunWaveletsPlot(const WaveletsPlotFlags& flags, Session& session) {
  Missing missing;
  missing.Add(flags.wpr.wavelet() == v1::WAVELET_UNSPECIFIED, "--wavelet ricker|gaussian|morlet|haar");
  POSENC_RETURN_IF_ERROR(flags.picture.Check(session, missing));
  const v1::RelativeScoresRequest request = Request(flags);
  POSENC_ASSIGN_OR_RETURN(const v1::RelativeScoresResponse response, session.backend().RelativeScores(request));
  const v1::Wpr& wpr = response.info().plan().relative().wpr();
  const int64_t shifts = flags.head_dim / wpr.scales(), keys = 2 * flags.max_distance + 1;
  if (wpr.scales() > kMostLines) {
    return UsageError(absl::StrFormat("--scales %d: a picture shows up to %d", wpr.scales(), kMostLines));
  }
  LineChart chart;
  chart.title = "Wavelets over distance";
  chart.settings = "wpr: " + SettingsLine(wpr);
  chart.x_label = "distance of query and key (tokens)";
  chart.y_label = "psi";
  const std::vector<double> values = Numbers(response.scores());
  for (int64_t scale = 0; scale < wpr.scales(); ++scale) {
    const bool by_shift = wpr.channels() == v1::WPR_CHANNELS_SHIFT_FASTEST;
    const int64_t channel = by_shift ? scale * shifts : scale;  // the channel with shift 0
    Series series{.name = absl::StrFormat("a = %g", std::ldexp(1.0, static_cast<int>(wpr.first_exponent() + scale))),
                  .colour = kColours[scale]};
    for (int64_t j = 0; j < keys; ++j) {
      series.x.push_back(static_cast<double>(j - flags.max_distance));
      series.y.push_back(values[channel * keys + j]);
    }
    chart.series.push_back(std::move(series));
  }
  return flags.picture.Deliver(session, response, chart);
}

}  // namespace

Subcommand AddWaveletsPlot(CLI::App& plot) {
  CLI::App* app = plot.add_subcommand("wavelets", "WPR's wavelets over distance, one line per scale");
  const auto flags = std::make_shared<WaveletsPlotFlags>();
  flags->picture.Add(*app);
  AddFieldFlags(*app, "Wavelets", &flags->wpr,
                {{"wavelet", "Wavelet function"},
                 {"scales", "Number of scales, up to 4; default 4"},
                 {"first_exponent", "Exponent of the first scale; each further scale is twice as large; default 0"},
                 {"morlet_frequency", "c, with --wavelet morlet"}});
  app->add_option("--head-dim", flags->head_dim, "Head dimension, a multiple of --scales; default 8")
      ->type_name("N")
      ->check(InRange(int64_t{1}, int64_t{65536}));
  app->add_option("--max-distance", flags->max_distance, "Largest distance on both sides; default 64")
      ->type_name("N")
      ->check(InRange(int64_t{1}, int64_t{100000}));
  return {app, [flags](Session& session) { return RunWaveletsPlot(*flags, session); }};
}

}  // namespace posenc::command
