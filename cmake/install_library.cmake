# Installation of the component library: what a C or C++ program needs to build with posenc. Without POSENC_GRPC it has no
# client of servers.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# The public headers. Headers with inline arithmetic are not public, because it must be compiled with our options
# (cmake/libraries.cmake): the linker could prefer a copy that a consumer compiled with FMA.
function(public_headers target)
  target_sources(${target} PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${ARGN})
endfunction()
public_headers(posenc_base
  posenc/base/busy_threads.h posenc/base/byte_source.h posenc/base/dtype.h posenc/base/fork.h posenc/base/input_file.h
  posenc/base/interruption.h posenc/base/limits.h posenc/base/memory_account.h posenc/base/modes.h posenc/base/shared_cache.h posenc/base/status.h
  posenc/base/task_queue.h posenc/base/tensor.h posenc/base/version.h posenc/base/work_pool.h)
public_headers(posenc
  posenc/settings/fields.h posenc/settings/model_layers.h posenc/settings/settings.h posenc/settings/relative_settings.h
  posenc/kernels/distance_bias.h posenc/kernels/rotate_pairs.h posenc/kernels/sincos_rows.h
  posenc/device/device.h
  posenc/methods/rope/xpos.h posenc/methods/bias/bias.h posenc/methods/bias/fire.h
  posenc/methods/relative/relative_shape.h
  posenc/rotary/apply_rotary.h posenc/rotary/distance_curves.h posenc/rotary/generate_table.h
  posenc/rotary/moved_keys.h posenc/rotary/pair_scaling.h posenc/rotary/position_segments.h posenc/rotary/positions.h posenc/rotary/rotary_plan.h
  posenc/rotary/table_rows.h
  posenc/bias/bias_geometry.h posenc/bias/generate_bias.h
  posenc/embedding/generate_embedding.h
  posenc/relative/head_rows.h posenc/relative/relative_scores.h posenc/relative/relative_values.h)
public_headers(posenc_model posenc/model/model.h)
public_headers(posenc_wire posenc/wire/model_file.h posenc/wire/payloads.h posenc/wire/rpcs.h posenc/wire/walker.h)
public_headers(posenc_backend posenc/backend/backend.h)
public_headers(posenc_in_process posenc/in_process/in_process.h)
if(POSENC_GRPC)
  public_headers(posenc_client
    posenc/client/client.h posenc/client/retry.h posenc/client/shared_memory.h
    posenc/client/tls.h)
endif()

# Installed headers keep their include paths, e.g. "posenc/client/client.h".
set(include ${CMAKE_INSTALL_INCLUDEDIR})
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/posenc)
set(libraries posenc posenc_base posenc_model posenc_positions posenc_diagnose posenc_proto posenc_wire posenc_service
  posenc_backend posenc_in_process)
if(POSENC_GRPC)
  list(APPEND libraries posenc_proto_grpc posenc_transport posenc_client)
endif()
foreach(library ${libraries})
  string(REPLACE "posenc_" "" name ${library})
  set_target_properties(${library} PROPERTIES EXPORT_NAME ${name})
endforeach()
install(TARGETS ${libraries} EXPORT posenc
  ARCHIVE COMPONENT library
  FILE_SET HEADERS DESTINATION ${include} COMPONENT library
  INCLUDES DESTINATION ${include})
install(DIRECTORY ${PROJECT_BINARY_DIR}/proto/posenc DESTINATION ${include} COMPONENT library
  FILES_MATCHING PATTERN "*.pb.h")
install(DIRECTORY proto/posenc DESTINATION ${CMAKE_INSTALL_DATADIR}/posenc/proto COMPONENT library)

# The library in plain C, for programs in any language.
install(TARGETS posenc_c_api LIBRARY COMPONENT library)
install(FILES posenc/c_api/posenc.h DESTINATION ${include}/posenc/c_api COMPONENT library)

install(EXPORT posenc NAMESPACE posenc:: FILE posencTargets.cmake DESTINATION ${package} COMPONENT library)
configure_file(cmake/posencConfig.cmake.in posencConfig.cmake @ONLY)
write_basic_package_version_file(posencConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES cmake/library_dependencies.cmake
  ${PROJECT_BINARY_DIR}/posencConfig.cmake ${PROJECT_BINARY_DIR}/posencConfigVersion.cmake
  DESTINATION ${package} COMPONENT library)
