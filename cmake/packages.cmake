# Debian packages, one per component. scripts/package builds them.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "positional encodings for attention, exact and reproducible")
set(about "RoPE with the scalings of today's language models, ALiBi and sinusoidal\nembeddings.")
set(CPACK_PACKAGE_CONTACT "posenc maintainers <posenc@packages.invalid>")
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_ALL server client library)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

set(CPACK_DEBIAN_SERVER_PACKAGE_NAME posenc-server)
set(CPACK_DEBIAN_SERVER_PACKAGE_SECTION net)
set(CPACK_DEBIAN_SERVER_DESCRIPTION "${about} This package has the gRPC server.")
set(CPACK_DEBIAN_SERVER_PACKAGE_SUGGESTS posenc-client)
set(scripts ${PROJECT_SOURCE_DIR}/deploy/debian)
set(CPACK_DEBIAN_SERVER_PACKAGE_CONTROL_EXTRA
  ${scripts}/conffiles ${scripts}/postinst ${scripts}/prerm ${scripts}/postrm)

set(CPACK_DEBIAN_CLIENT_PACKAGE_NAME posenc-client)
set(CPACK_DEBIAN_CLIENT_PACKAGE_SECTION science)
set(CPACK_DEBIAN_CLIENT_DESCRIPTION
  "${about} This package has the command posenc, which computes by\nitself or asks a posenc-server, and the API's descriptors (posenc.protoset) for\ngrpcurl and ghz.")
set(CPACK_DEBIAN_CLIENT_PACKAGE_SUGGESTS gnuplot-nox)  # for posenc plot

set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME libposenc-dev)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_LIBRARY_DESCRIPTION
  "${about} This package has the C++ library (static), for CMake's\nfind_package, and the API's proto files.")
# The packages that cmake/library_dependencies.cmake finds, and the compilers that gRPC's CMake files require.
set(CPACK_DEBIAN_LIBRARY_PACKAGE_DEPENDS "libabsl-dev, libfmt-dev, libgmp-dev, libgrpc++-dev, libhwy-dev, libmpfr-dev, \
libprotobuf-dev, libxxhash-dev, pkg-config, protobuf-compiler, protobuf-compiler-grpc")

include(CPack)
