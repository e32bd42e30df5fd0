# SPDX-License-Identifier: Apache-2.0
# Dispatch and combine as other programs embed them:
#   wideep::communicator  static library for C++: wideep/communicator.h
# wideep::c_api has them too. It needs nothing but fmt and wideep::balancer.
include(GNUInstallDirs)

# The folder src/ep, and what it uses of base (which wideep::balancer has, too) and transport: the
# other files there need more than fmt, or start ranks, which the embedding program does.
wideep_objects(wideep_exchange_base base/shared_bytes.cc base/trace.cc)
wideep_objects(wideep_exchange_transport transport/bridge.cc transport/endpoint.cc
               transport/flag.cc transport/node_map.cc transport/shared_memory.cc)

wideep_sources(sources ep)
add_library(wideep_communicator STATIC ${sources} $<TARGET_OBJECTS:wideep_exchange_transport>)
target_include_directories(wideep_communicator
  PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
         $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>
  PRIVATE ${PROJECT_SOURCE_DIR}/src)
target_compile_features(wideep_communicator PUBLIC cxx_std_20)
target_link_libraries(wideep_communicator PRIVATE wideep_balancer fmt::fmt)
set_target_properties(wideep_communicator PROPERTIES EXPORT_NAME communicator)
wideep_precompile(wideep_communicator)
add_library(wideep::communicator ALIAS wideep_communicator)
