// Embedded files of the HTML report and its plotting library (cmake/embed.cmake).
#pragma once

#include <string_view>

namespace posenc::load {

extern const std::string_view kReportHtml, kReportCss, kReportJs, kChartMinJs;

}  // namespace posenc::load
