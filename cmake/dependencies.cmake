# Every library comes from the system by find_package; nothing is downloaded (docs/dependencies.md says why each is here).
include(cmake/library_dependencies.cmake)

find_package(nlohmann_json 3.11 REQUIRED)
find_package(CLI11 REQUIRED)
if(POSENC_SERVER)
  find_package(spdlog REQUIRED)
  find_package(ZLIB REQUIRED)
  find_package(Boost 1.74 REQUIRED)  # headers only: Asio and Beast
  # Debian's prometheus-cpp-dev can be installed for one architecture only. For another one, its headers serve too, and the
  # library is that of the package libprometheus-cpp-core1.0.
  find_path(PROMETHEUS_CPP_INCLUDE_DIR prometheus/registry.h REQUIRED)
  find_library(PROMETHEUS_CPP_CORE NAMES prometheus-cpp-core libprometheus-cpp-core.so.1.0 REQUIRED)
  add_library(prometheus_cpp INTERFACE)
  target_link_libraries(prometheus_cpp INTERFACE ${PROMETHEUS_CPP_CORE})
  target_include_directories(prometheus_cpp SYSTEM INTERFACE ${PROMETHEUS_CPP_INCLUDE_DIR})
  find_file(POSENC_CHART_JS chart.min.js PATHS /usr/share/javascript/chart.js NO_DEFAULT_PATH REQUIRED
    DOC "Chart.js, which reports of load tests are drawn with")
endif()

if(POSENC_BUILD_TESTS)
  find_package(GTest REQUIRED)
endif()
