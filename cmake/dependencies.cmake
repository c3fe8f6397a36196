# Every library comes from the system by find_package; nothing is downloaded (docs/dependencies.md says why each is here).
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(MPFR REQUIRED IMPORTED_TARGET mpfr>=4.2 gmp)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
find_package(absl REQUIRED)
find_package(fmt REQUIRED)
find_package(hwy REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(CLI11 REQUIRED)
find_package(spdlog REQUIRED)

# Newer Protobuf ships a config that carries its own Abseil dependency; Debian bookworm's needs CMake's module.
find_package(Protobuf CONFIG QUIET)
if(NOT Protobuf_FOUND)
  find_package(Protobuf REQUIRED)
endif()
find_package(gRPC CONFIG REQUIRED)

if(POSENC_BUILD_TESTS)
  find_package(GTest REQUIRED)
endif()
