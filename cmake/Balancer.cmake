# SPDX-License-Identifier: Apache-2.0
# The balancer as other programs embed it, and its installation:
#   wideep::balancer  static library for C++: wideep/balancer.h, wideep/online_repairer.h
#   wideep::c_api     libwideep.so for C and every language that can call C: wideep/c_api.h
# Neither needs anything but fmt. `cmake --install` also writes the package that
# find_package(wideep) finds.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

wideep_objects(wideep_check HOUSES foundation FILES foundation/base/check.cc)
# What of src/balance/online chooses moves, without the threads and the copies of a running engine.
set(files equal_policy evidence layer_rota load_window move_search online_repairer placement_judge
    sample_set update_policies)
list(TRANSFORM files REPLACE "(.+)" "balance/online/\\1.cc")
wideep_objects(wideep_online_policy HOUSES foundation exchange balance FILES ${files})
wideep_sources(sources balance/plan)
wideep_sources(placement exchange/placement)
add_library(wideep_balancer STATIC ${sources} ${placement}
                                   $<TARGET_OBJECTS:wideep_check>
                                   $<TARGET_OBJECTS:wideep_exchange_base>
                                   $<TARGET_OBJECTS:wideep_online_policy>)
target_include_directories(wideep_balancer
  PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
         $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
wideep_use_houses(wideep_balancer foundation exchange balance)
target_compile_features(wideep_balancer PUBLIC cxx_std_20)
target_link_libraries(wideep_balancer PRIVATE fmt::fmt)
set_target_properties(wideep_balancer PROPERTIES EXPORT_NAME balancer)
wideep_precompile(wideep_balancer)
add_library(wideep::balancer ALIAS wideep_balancer)

# It exports the functions of wideep/c_api.h only.
wideep_sources(sources c_api)
set(exports ${PROJECT_SOURCE_DIR}/src/c_api/exports.map)
add_library(wideep_shared SHARED ${sources})
target_compile_definitions(wideep_shared PRIVATE WIDEEP_VERSION="${PROJECT_VERSION}")
target_include_directories(wideep_shared
  PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
         $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>
  PRIVATE ${PROJECT_SOURCE_DIR}/src)
wideep_use_houses(wideep_shared foundation numbers exchange balance)
target_link_libraries(wideep_shared PRIVATE wideep_balancer wideep_communicator wideep_device fmt::fmt)
target_link_options(wideep_shared PRIVATE -Wl,--version-script=${exports})
set_target_properties(wideep_shared PROPERTIES
  OUTPUT_NAME wideep VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
  LINK_DEPENDS ${exports} EXPORT_NAME c_api)
wideep_precompile(wideep_shared)
add_library(wideep::c_api ALIAS wideep_shared)

set(package_directory ${CMAKE_INSTALL_LIBDIR}/cmake/wideep)
install(TARGETS wideep_balancer wideep_communicator wideep_device wideep_shared EXPORT wideep
        ARCHIVE COMPONENT development
        LIBRARY COMPONENT library NAMELINK_COMPONENT development)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/wideep DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        COMPONENT development)
install(EXPORT wideep NAMESPACE wideep:: FILE wideep-targets.cmake DESTINATION ${package_directory}
        COMPONENT development)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/wideep-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_SOURCE_DIR}/cmake/wideep-config.cmake
              ${PROJECT_BINARY_DIR}/wideep-config-version.cmake
        DESTINATION ${package_directory} COMPONENT development)
# For pkg-config: wideep (C, libwideep.so) and wideep-cxx (C++, the archives). Their prefix is where
# they lie, so that `cmake --install --prefix` may move them.
set(pkgconfig ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH to_prefix /${pkgconfig} /)
string(REGEX REPLACE "/$" "" to_prefix ${to_prefix})
foreach(name IN ITEMS wideep wideep-cxx)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/${name}.pc.in ${PROJECT_BINARY_DIR}/${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${name}.pc DESTINATION ${pkgconfig} COMPONENT development)
endforeach()
