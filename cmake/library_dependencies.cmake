# The library's dependencies. This file is installed too, because posencConfig.cmake finds the same packages.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(MPFR REQUIRED IMPORTED_TARGET mpfr>=4.2 gmp)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
find_package(absl REQUIRED)
find_package(fmt REQUIRED)
find_package(hwy REQUIRED)
find_package(OpenSSL REQUIRED)

# Newer Protobuf ships a config that carries its own Abseil dependency; Debian bookworm's needs CMake's module.
find_package(Protobuf CONFIG QUIET)
if(NOT Protobuf_FOUND)
  find_package(Protobuf REQUIRED)
endif()
if(NOT DEFINED POSENC_GRPC OR POSENC_GRPC)
  find_package(gRPC CONFIG REQUIRED)
endif()
