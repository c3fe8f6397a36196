# The port builds what computes in process. The server needs gRPC and Chart.js, which vcpkg does not have.
# Replace the URL and the SHA-512 by those of the release's source archive.
vcpkg_download_distfile(ARCHIVE
  URLS "https://git.example/posenc/archive/v${VERSION}.tar.gz"
  FILENAME "posenc-${VERSION}.tar.gz"
  SHA512 0)
vcpkg_extract_source_archive(SOURCE_PATH ARCHIVE "${ARCHIVE}")
vcpkg_find_acquire_program(PKGCONFIG)
vcpkg_cmake_configure(SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS
    -DPOSENC_SERVER=OFF
    -DPOSENC_GRPC=OFF
    -DPOSENC_BUILD_TESTS=OFF
    "-DPKG_CONFIG_EXECUTABLE=${PKGCONFIG}")
vcpkg_cmake_install()
vcpkg_copy_tools(TOOL_NAMES posenc AUTO_CLEAN)
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/posenc)
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include" "${CURRENT_PACKAGES_DIR}/debug/share")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
