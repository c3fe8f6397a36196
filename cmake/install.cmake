# What `cmake --install` puts where, by component: server and client are the programs, library is what a C++ program
# needs that is built on posenc.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS posenc-server-program RUNTIME COMPONENT server)
install(FILES deploy/posenc-server.service DESTINATION lib/systemd/system COMPONENT server)
# Only where the unit reads it: no prefix has the system's /etc, which the package preset names.
if(CMAKE_INSTALL_SYSCONFDIR STREQUAL "/etc")
  install(FILES deploy/posenc-server.default DESTINATION /etc/default RENAME posenc-server COMPONENT server)
endif()
install(FILES README.md DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/posenc-server COMPONENT server)
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/posenc-server COMPONENT server)

install(TARGETS posenc-program RUNTIME COMPONENT client)
install(FILES ${PROJECT_BINARY_DIR}/posenc.protoset DESTINATION ${CMAKE_INSTALL_DATADIR}/posenc COMPONENT client)

# Each package has the licence where Debian looks for it.
foreach(pair server/posenc-server client/posenc-client library/libposenc-dev)
  cmake_path(GET pair PARENT_PATH component)
  cmake_path(GET pair FILENAME name)
  install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${name} RENAME copyright COMPONENT ${component})
endforeach()

# The public headers. Those of the kernels and formulas are not among them: what computes must be compiled here, with
# our options (cmake/rooms.cmake). An inline function in a consumer's object, compiled with FMA, could take the place of
# ours.
target_sources(posenc PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES
  posenc/apply_rotary.h posenc/bias_geometry.h posenc/byte_source.h posenc/device.h posenc/distance_curves.h posenc/dtype.h
  posenc/generate_bias.h
  posenc/generate_embedding.h posenc/generate_table.h posenc/head_rows.h posenc/interruption.h posenc/limits.h posenc/pair_scaling.h
  posenc/position_segments.h posenc/positions.h posenc/relative_scores.h posenc/relative_spec.h posenc/relative_values.h
  posenc/rotary_plan.h posenc/shared_cache.h posenc/spec.h posenc/status.h posenc/table_rows.h posenc/tensor.h
  posenc/version.h posenc/work_pool.h
  posenc/kernels/distance_bias.h posenc/kernels/rotate_pairs.h posenc/kernels/sincos_rows.h
  posenc/methods/bias.h posenc/methods/fire.h posenc/methods/relative_shape.h posenc/methods/xpos.h
  posenc/model/model.h)
target_sources(posenc_wire PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES
  wire/operations.h wire/payloads.h)
target_sources(posenc_client PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES
  client/backend.h client/client.h client/in_process.h client/placed.h client/retry.h client/shared_memory.h)

# One directory is the root of every include, so that "client/client.h" is the same text here and there, and nothing but
# `posenc` appears in a shared include directory.
set(include ${CMAKE_INSTALL_INCLUDEDIR}/posenc)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/posenc)
set_target_properties(posenc_proto PROPERTIES EXPORT_NAME proto)
set_target_properties(posenc_proto_grpc PROPERTIES EXPORT_NAME proto_grpc)
set_target_properties(posenc_wire PROPERTIES EXPORT_NAME wire)
set_target_properties(posenc_transport PROPERTIES EXPORT_NAME transport)
set_target_properties(posenc_client PROPERTIES EXPORT_NAME client)
install(TARGETS posenc posenc_proto posenc_proto_grpc posenc_wire posenc_transport posenc_client EXPORT posenc
  ARCHIVE COMPONENT library
  FILE_SET HEADERS DESTINATION ${include} COMPONENT library
  INCLUDES DESTINATION ${include})
install(DIRECTORY ${PROJECT_BINARY_DIR}/proto/posenc DESTINATION ${include} COMPONENT library
  FILES_MATCHING PATTERN "*.pb.h")
install(DIRECTORY proto/posenc DESTINATION ${CMAKE_INSTALL_DATADIR}/posenc/proto COMPONENT library)

install(EXPORT posenc NAMESPACE posenc:: FILE posencTargets.cmake DESTINATION ${package} COMPONENT library)
write_basic_package_version_file(posencConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES cmake/posencConfig.cmake cmake/library_dependencies.cmake
  ${PROJECT_BINARY_DIR}/posencConfigVersion.cmake
  DESTINATION ${package} COMPONENT library)
