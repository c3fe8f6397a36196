# find_package(posenc) defines the targets posenc::client (the gRPC client), posenc::in_process (the same interface
# without a server) and posenc::posenc (the computation alone).
include(${CMAKE_CURRENT_LIST_DIR}/library_dependencies.cmake)
include(${CMAKE_CURRENT_LIST_DIR}/posencTargets.cmake)
