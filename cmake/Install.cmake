# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` writes of the command, by component:
#   runtime        the command, its manual pages and completions, units of systemd, LICENSE
#   library        libwideep.so.0
#   development    headers, archives, the CMake package, files for pkg-config
#   documentation  the documentation site, where `make docs` has made it
#   mpi            what the command loads under mpirun and srun, where MPI is
#   model          the reference model, for a first try without a download
#   monitoring     dashboards and alert rules
#   python         compiled modules (python/CMakeLists.txt; pyproject.toml installs those alone)
# The libraries are installed by Balancer.cmake, which a build without the command has as well.
# Packages are made of these components (Packages.cmake).
set(shared ${CMAKE_INSTALL_DATADIR})

install(TARGETS wideep RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT runtime)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT runtime)

# Manual pages and completions come from the option tables of the command that was built.
if(NOT CMAKE_CROSSCOMPILING AND NOT WIDEEP_SANITIZE)
  set(made ${PROJECT_BINARY_DIR}/share)
  add_custom_command(OUTPUT ${made}/made
    COMMAND ${CMAKE_COMMAND} -E rm -rf ${made}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${made}/man/man1 ${made}/completions
    COMMAND wideep man ${made}/man/man1
    COMMAND wideep completions bash > ${made}/completions/wideep
    COMMAND wideep completions zsh > ${made}/completions/_wideep
    COMMAND wideep completions fish > ${made}/completions/wideep.fish
    COMMAND ${CMAKE_COMMAND} -E touch ${made}/made
    DEPENDS wideep COMMENT "Writing manual pages and completions" VERBATIM)
  add_custom_target(wideep_manual ALL DEPENDS ${made}/made)
  install(DIRECTORY ${made}/man/man1 DESTINATION ${CMAKE_INSTALL_MANDIR} COMPONENT runtime)
  # Debian's zsh reads vendor-completions where a program is of a package.
  set(zsh zsh/site-functions)
  if(CMAKE_INSTALL_PREFIX STREQUAL "/usr" AND EXISTS /etc/debian_version)
    set(zsh zsh/vendor-completions)
  endif()
  install(FILES ${made}/completions/wideep
          DESTINATION ${shared}/bash-completion/completions COMPONENT runtime)
  install(FILES ${made}/completions/_wideep DESTINATION ${shared}/${zsh} COMPONENT runtime)
  install(FILES ${made}/completions/wideep.fish
          DESTINATION ${shared}/fish/vendor_completions.d COMPONENT runtime)
endif()

# All that is installed and built, for `make install`, which builds no tests.
add_custom_target(wideep_installed DEPENDS wideep_balancer wideep_communicator wideep_device
                                           wideep_shared wideep)
if(TARGET wideep_manual)
  add_dependencies(wideep_installed wideep_manual)
endif()

file(GLOB units CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/packaging/systemd/*.service)
if(units)
  install(FILES ${units} DESTINATION lib/systemd/system COMPONENT runtime)
endif()

file(GLOB monitoring CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/cluster/monitoring/*.json
                                       ${PROJECT_SOURCE_DIR}/cluster/monitoring/*.yaml)
if(monitoring)
  install(FILES ${monitoring} DESTINATION ${shared}/wideep/monitoring COMPONENT monitoring)
endif()

install(DIRECTORY ${PROJECT_SOURCE_DIR}/models/reference DESTINATION ${shared}/wideep/models
        COMPONENT model)
install(DIRECTORY ${PROJECT_BINARY_DIR}/docs/html/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/html
        COMPONENT documentation OPTIONAL)
