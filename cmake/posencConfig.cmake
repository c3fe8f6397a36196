# find_package(posenc): the targets posenc::client (the client, and the service in process) and posenc::posenc (the
# computation alone).
include(${CMAKE_CURRENT_LIST_DIR}/library_dependencies.cmake)
include(${CMAKE_CURRENT_LIST_DIR}/posencTargets.cmake)
