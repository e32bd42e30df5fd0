# SPDX-License-Identifier: Apache-2.0
# Dispatch and combine as other programs embed them:
#   wideep::communicator  static library for C++: wideep/communicator.h
# wideep::c_api has them too. It needs nothing but fmt.
include(GNUInstallDirs)

set(sources base/check.cc base/shared_bytes.cc base/trace.cc
            transport/bridge.cc transport/endpoint.cc transport/flag.cc transport/node_map.cc
            transport/shared_memory.cc
            ep/buffer_layout.cc ep/check_shapes.cc ep/communicator.cc ep/dispatch_call.cc
            ep/dispatch_combine.cc ep/dispatch_receiver.cc ep/dispatch_sender.cc ep/node_crossing.cc
            ep/row_delivery.cc ep/token_destinations.cc)
list(TRANSFORM sources PREPEND ${PROJECT_SOURCE_DIR}/src/)

add_library(wideep_communicator STATIC ${sources})
target_include_directories(wideep_communicator
  PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
         $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>
  PRIVATE ${PROJECT_SOURCE_DIR}/src)
target_compile_features(wideep_communicator PUBLIC cxx_std_20)
target_link_libraries(wideep_communicator PRIVATE fmt::fmt)
set_target_properties(wideep_communicator PROPERTIES EXPORT_NAME communicator)
add_library(wideep::communicator ALIAS wideep_communicator)
