# SPDX-License-Identifier: Apache-2.0
# Packages by CPack, from the components of Install.cmake; scripts/packages.sh makes them all:
#   wideep                   command, manual pages, completions, units, dashboards, alert rules
#   wideep-mpi               what the command loads under mpirun and srun, where MPI is
#   libwideep0               libwideep.so.0
#   libwideep-dev            headers, archives, CMake package, pkg-config
#   wideep-model-reference   the reference model
# A .deb and an .rpm depend on the libraries of the distribution on which they are built. The modules
# for Python are in the wheel (packaging/wheel), which is no package of CPack.
set(CPACK_PACKAGE_NAME wideep)
set(CPACK_PACKAGE_VENDOR "the wideep authors")
set(WIDEEP_MAINTAINER "the wideep authors <wideep@localhost>" CACHE STRING
    "Who answers for packages: name <mail address>; whoever publishes them gives theirs")
set(CPACK_PACKAGE_CONTACT ${WIDEEP_MAINTAINER})
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "server of Mixture-of-Experts language models")
string(TOLOWER "${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR}" CPACK_SYSTEM_NAME)
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL runtime monitoring library development model)
if(TARGET wideep_mpi_module)
  list(APPEND CPACK_COMPONENTS_ALL mpi)
endif()
set(CPACK_COMPONENTS_GROUPING ONE_PER_GROUP)
set(CPACK_GENERATOR DEB RPM TZST)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
    OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_PROJECT_CONFIG_FILE ${PROJECT_SOURCE_DIR}/packaging/archive_prefix.cmake)
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/packaging/prepare_packages.cmake)
set(CPACK_WIDEEP_SOURCE ${PROJECT_SOURCE_DIR})

string(CONCAT about "wideep serves Mixture-of-Experts language models with wide expert\n"
              "parallelism, on processors, over OpenAI's HTTP endpoints.\n")
set(CPACK_COMPONENT_COMMAND_DESCRIPTION
    "${about}This package has the command, its manual pages and completions.")
set(CPACK_COMPONENT_LIBRARY_DESCRIPTION
    "${about}This package has its library: placement, dispatch and combine.")
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION
    "${about}This package has headers and archives of its library.")
set(CPACK_COMPONENT_MPI_DESCRIPTION
    "${about}This package has what mpirun and srun need of it.")
set(CPACK_COMPONENT_MODEL_DESCRIPTION
    "${about}This package has a small model for a first try.")

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_COMMAND_PACKAGE_NAME wideep)
set(CPACK_DEBIAN_COMMAND_PACKAGE_SECTION science)
set(CPACK_DEBIAN_COMMAND_PACKAGE_SUGGESTS "wideep-model-reference, wideep-mpi, libzmq5")
set(CPACK_DEBIAN_MPI_PACKAGE_NAME wideep-mpi)
set(CPACK_DEBIAN_MPI_PACKAGE_SECTION science)
set(CPACK_DEBIAN_MPI_PACKAGE_DEPENDS "wideep (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_MPI_PACKAGE_SUGGESTS "openmpi-bin")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME libwideep${PROJECT_VERSION_MAJOR})
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/packaging/debian/triggers
                                               ${PROJECT_BINARY_DIR}/packaging/shlibs)
file(CONFIGURE OUTPUT packaging/shlibs
     CONTENT "libwideep @PROJECT_VERSION_MAJOR@ libwideep@PROJECT_VERSION_MAJOR@ (>= @PROJECT_VERSION@)\n"
     @ONLY)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libwideep-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS
    "libwideep${PROJECT_VERSION_MAJOR} (= ${PROJECT_VERSION}), libfmt-dev")
set(CPACK_DEBIAN_MODEL_PACKAGE_NAME wideep-model-reference)
set(CPACK_DEBIAN_MODEL_PACKAGE_SECTION science)
set(CPACK_DEBIAN_MODEL_PACKAGE_ARCHITECTURE all)
set(CPACK_DEBIAN_MODEL_PACKAGE_SHLIBDEPS OFF)

set(CPACK_RPM_COMPONENT_INSTALL ON)
set(CPACK_RPM_FILE_NAME RPM-DEFAULT)
set(CPACK_RPM_PACKAGE_LICENSE Apache-2.0)
# Packed again, an .rpm has the same bytes.
set(CPACK_RPM_SPEC_MORE_DEFINE "%define use_source_date_epoch_as_buildtime 1
%define clamp_mtime_to_source_date_epoch 1
%define _buildhost localhost")
set(CPACK_RPM_PACKAGE_AUTOREQ ON)
set(CPACK_RPM_PACKAGE_AUTOPROV ON)
set(CPACK_RPM_COMMAND_PACKAGE_NAME wideep)
set(CPACK_RPM_MPI_PACKAGE_NAME wideep-mpi)
set(CPACK_RPM_LIBRARY_PACKAGE_NAME libwideep${PROJECT_VERSION_MAJOR})
set(CPACK_RPM_DEVELOPMENT_PACKAGE_NAME libwideep-devel)
set(CPACK_RPM_MODEL_PACKAGE_NAME wideep-model-reference)
set(CPACK_RPM_MODEL_PACKAGE_ARCHITECTURE noarch)
set(CPACK_RPM_EXCLUDE_FROM_AUTO_FILELIST_ADDITION
    /usr/lib/systemd /usr/lib/systemd/system /usr/share/man /usr/share/man/man1
    /usr/share/bash-completion /usr/share/bash-completion/completions /usr/share/fish
    /usr/share/fish/vendor_completions.d /usr/share/zsh /usr/share/zsh/vendor-completions
    /usr/share/zsh/site-functions)

include(CPack)
cpack_add_component_group(command)
cpack_add_component(runtime GROUP command)
cpack_add_component(monitoring GROUP command)
if(TARGET wideep_mpi_module)
  cpack_add_component(mpi)
endif()
cpack_add_component(library)
cpack_add_component(development)
cpack_add_component(model)
