// The files of this directory, and the plotting library, as the build embeds them (cmake/embed.cmake).
#pragma once

#include <string_view>

namespace posenc::load {

extern const std::string_view kReportHtml, kReportCss, kReportJs, kChartMinJs;

}  // namespace posenc::load
