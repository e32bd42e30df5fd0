# SPDX-License-Identifier: Apache-2.0
# find_package(wideep): the targets wideep::balancer, wideep::communicator and wideep::device (C++),
# wideep::c_api (C).
include(CMakeFindDependencyMacro)
find_dependency(fmt)
find_package(CUDAToolkit QUIET)  # wideep::device needs its runtime if it has kernels
include(${CMAKE_CURRENT_LIST_DIR}/wideep-targets.cmake)
