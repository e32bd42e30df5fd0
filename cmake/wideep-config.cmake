# SPDX-License-Identifier: Apache-2.0
# find_package(wideep): the targets wideep::balancer and wideep::communicator (C++), wideep::c_api (C).
include(CMakeFindDependencyMacro)
find_dependency(fmt)
include(${CMAKE_CURRENT_LIST_DIR}/wideep-targets.cmake)
