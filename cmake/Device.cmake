# SPDX-License-Identifier: Apache-2.0
# Dispatch and combine on GPUs as other programs embed them:
#   wideep::device  static library for C++: wideep/device_communicator.h
# wideep::c_api has them too. It needs fmt, and the CUDA toolkit to be built with kernels; without
# it there are the same functions, which say so. The runtime of CUDA is linked in, the driver is
# found when a program runs: it also starts where there is none.
include(GNUInstallDirs)

# The room src/exchange/cuda without the emulator, a tool for tests.
set(on_gpus "/(cuda_devices|symmetric_memory|gpu_place)\\.cc$")
set(without_gpus "/no_gpu_place\\.cc$")
wideep_objects(wideep_row_format HOUSES foundation numbers FILES numbers/kernels/row_format.cc)
wideep_sources(all exchange/cuda)
list(FILTER all EXCLUDE REGEX "/emulated/")
set(sources ${all})
list(FILTER sources EXCLUDE REGEX "${on_gpus}|${without_gpus}")
wideep_cuda_objects(kernels exchange/cuda/kernels.cu)
if(kernels)
  list(FILTER all INCLUDE REGEX "${on_gpus}")
  set(WIDEEP_HAS_KERNELS ON)
else()
  list(FILTER all INCLUDE REGEX "${without_gpus}")
  set(WIDEEP_HAS_KERNELS OFF)
endif()
add_library(wideep_device STATIC ${sources} ${all} ${kernels} $<TARGET_OBJECTS:wideep_row_format>)
target_include_directories(wideep_device
  PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
         $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
wideep_use_houses(wideep_device foundation numbers exchange)
target_compile_features(wideep_device PUBLIC cxx_std_20)
target_link_libraries(wideep_device PRIVATE wideep_communicator fmt::fmt)
if(WIDEEP_HAS_KERNELS)
  target_link_libraries(wideep_device PRIVATE CUDA::cudart_static)
endif()
set_target_properties(wideep_device PROPERTIES EXPORT_NAME device)
wideep_precompile(wideep_device)
add_library(wideep::device ALIAS wideep_device)
