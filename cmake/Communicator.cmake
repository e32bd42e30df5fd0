# SPDX-License-Identifier: Apache-2.0
# Dispatch and combine as other programs embed them:
#   wideep::communicator  static library for C++: wideep/communicator.h
# wideep::c_api has them too. It needs nothing but fmt and wideep::balancer.
include(GNUInstallDirs)

# The room src/exchange/ep, and what it uses of base (which wideep::balancer has, too) and transport: the
# other files there need more than fmt, or start ranks, which the embedding program does.
wideep_objects(wideep_exchange_base HOUSES foundation
               FILES foundation/base/shared_bytes.cc foundation/base/trace.cc)
set(files bridge endpoint flag node_map shared_memory)
list(TRANSFORM files REPLACE "(.+)" "exchange/transport/\\1.cc")
wideep_objects(wideep_exchange_transport HOUSES foundation exchange FILES ${files})

wideep_sources(sources exchange/ep)
add_library(wideep_communicator STATIC ${sources} $<TARGET_OBJECTS:wideep_exchange_transport>)
target_include_directories(wideep_communicator
  PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
         $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
wideep_use_houses(wideep_communicator foundation numbers exchange)
target_compile_features(wideep_communicator PUBLIC cxx_std_20)
target_link_libraries(wideep_communicator PRIVATE wideep_balancer fmt::fmt)
set_target_properties(wideep_communicator PROPERTIES EXPORT_NAME communicator)
wideep_precompile(wideep_communicator)
add_library(wideep::communicator ALIAS wideep_communicator)
