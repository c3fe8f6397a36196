# What `cmake --install` puts where, by component: server and client are the programs.
include(GNUInstallDirs)

install(TARGETS posenc-server-program RUNTIME COMPONENT server)
install(FILES deploy/posenc-server.service DESTINATION lib/systemd/system COMPONENT server)
install(FILES README.md DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/posenc-server COMPONENT server)
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/posenc-server COMPONENT server)

install(TARGETS posenc-program RUNTIME COMPONENT client)
