# Installation of the programs: the components server and client. cmake/install_library.cmake has the component library.
include(GNUInstallDirs)

install(TARGETS posenc-server-program RUNTIME COMPONENT server)
# The programs write their own man pages and completions, where they run on the machine that builds them.
if(NOT CMAKE_CROSSCOMPILING)
  install(CODE "
    set(folder \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}/man/man8\")
    file(MAKE_DIRECTORY \${folder})
    execute_process(COMMAND $<TARGET_FILE:posenc-server-program> --man-page OUTPUT_FILE \${folder}/posenc-server.8
      COMMAND_ERROR_IS_FATAL ANY)
  " COMPONENT server)
endif()
install(FILES deploy/posenc-server.service DESTINATION lib/systemd/system COMPONENT server)
# Installed only if the directory is /etc, where the unit reads the file. The preset package sets this directory.
if(CMAKE_INSTALL_SYSCONFDIR STREQUAL "/etc")
  install(FILES deploy/posenc-server.default DESTINATION /etc/default RENAME posenc-server COMPONENT server)
endif()
install(FILES README.md deploy/haproxy.cfg DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/posenc-server COMPONENT server)
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/posenc-server COMPONENT server)

install(TARGETS posenc-program RUNTIME COMPONENT client)
if(NOT CMAKE_CROSSCOMPILING)
  install(CODE "
    set(share \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}\")
    set(folders man/man1 bash-completion/completions zsh/vendor-completions fish/vendor_completions.d)
    list(TRANSFORM folders PREPEND \${share}/)
    file(MAKE_DIRECTORY \${folders})
    set(posenc $<TARGET_FILE:posenc-program>)
    execute_process(COMMAND \${posenc} help --man-pages \${share}/man/man1 COMMAND_ERROR_IS_FATAL ANY)
    foreach(pair bash:bash-completion/completions/posenc zsh:zsh/vendor-completions/_posenc
        fish:fish/vendor_completions.d/posenc.fish)
      string(REPLACE \":\" \";\" pair \${pair})
      list(GET pair 0 shell)
      list(GET pair 1 file)
      execute_process(COMMAND \${posenc} completion \${shell} OUTPUT_FILE \${share}/\${file} COMMAND_ERROR_IS_FATAL ANY)
    endforeach()
  " COMPONENT client)
endif()
install(FILES ${PROJECT_BINARY_DIR}/posenc.protoset DESTINATION ${CMAKE_INSTALL_DATADIR}/posenc COMPONENT client)

# Each package has the licence where Debian looks for it.
foreach(pair server/posenc-server client/posenc-client library/libposenc-dev)
  cmake_path(GET pair PARENT_PATH component)
  cmake_path(GET pair FILENAME name)
  install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${name} RENAME copyright COMPONENT ${component})
endforeach()
