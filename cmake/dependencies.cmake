# Every library comes from the system by find_package; nothing is downloaded (docs/dependencies.md says why each is here).
include(cmake/library_dependencies.cmake)

find_package(nlohmann_json 3.11 REQUIRED)
find_package(CLI11 REQUIRED)
find_package(spdlog REQUIRED)
find_package(ZLIB REQUIRED)
find_file(POSENC_CHART_JS chart.min.js PATHS /usr/share/javascript/chart.js NO_DEFAULT_PATH REQUIRED
  DOC "Chart.js, which reports of load tests are drawn with")

if(POSENC_BUILD_TESTS)
  find_package(GTest REQUIRED)
endif()
