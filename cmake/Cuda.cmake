# SPDX-License-Identifier: Apache-2.0
# Kernels for GPUs. nvcc is called by commands of our own rather than as a language of CMake's: the
# project's options are those of another compiler, and what ptxas says has to be kept.

# The machines that kernels are compiled for, Hopper and Blackwell; nvcc 12.8 is the first with both.
set(WIDEEP_CUDA_ARCHITECTURES 90 100 CACHE STRING "Architectures of GPUs to compile kernels for")

if(WIDEEP_CUDA STREQUAL "AUTO")
  find_package(CUDAToolkit 11 QUIET)
  if(NOT TARGET CUDA::cudart_static)
    set(CUDAToolkit_FOUND OFF)  # what is there is not enough to build with
  endif()
elseif(WIDEEP_CUDA)
  find_package(CUDAToolkit 11 REQUIRED)
endif()

# wideep_cuda_objects(<variable> <file.cu>...)
#
# The object files of *.cu files of src/. Without nvcc, and in builds with sanitizers, which cannot
# look into kernels, there are none, and the variable is empty. What ptxas says that every kernel
# needs is kept in wideep_cuda_gpu.ptxas.txt of the build directory, for wideep_cuda_budgets.
set(WIDEEP_PTXAS_LOG ${PROJECT_BINARY_DIR}/wideep_cuda_gpu.ptxas.txt)
function(wideep_cuda_objects variable)
  set(${variable} "" PARENT_SCOPE)
  if(NOT CUDAToolkit_FOUND OR CUDAToolkit_VERSION VERSION_LESS 12.8 OR WIDEEP_SANITIZE)
    return()
  endif()
  find_program(WIDEEP_NVCC nvcc HINTS ${CUDAToolkit_BIN_DIR})
  find_program(WIDEEP_NVCC_HOST NAMES g++-12 g++)
  if(NOT WIDEEP_NVCC OR NOT WIDEEP_NVCC_HOST)
    return()
  endif()
  set(architectures)
  foreach(architecture IN LISTS WIDEEP_CUDA_ARCHITECTURES)
    list(APPEND architectures -gencode arch=compute_${architecture},code=sm_${architecture})
  endforeach()
  # -fmad=false: as -ffp-contract=off elsewhere; where two operations are one, the source says so.
  set(options -std=c++20 -O3 -fmad=false --expt-relaxed-constexpr -lineinfo ${architectures}
      -ccbin ${WIDEEP_NVCC_HOST} -Xptxas -v,-warn-spills
      -Xcompiler -fPIC,-Wall,-Wextra
      -I${PROJECT_SOURCE_DIR}/include)
  foreach(house foundation numbers exchange)
    list(APPEND options -I${PROJECT_SOURCE_DIR}/src/${house})
  endforeach()
  if(WIDEEP_WERROR)
    list(APPEND options -Werror all-warnings)
  endif()
  set(objects)
  foreach(file IN LISTS ARGN)
    get_filename_component(stem ${file} NAME_WE)
    set(object ${PROJECT_BINARY_DIR}/src/wideep_cuda_gpu.${stem}.o)
    add_custom_command(
      OUTPUT ${object} ${WIDEEP_PTXAS_LOG}
      COMMAND ${CMAKE_COMMAND} -DLOG=${WIDEEP_PTXAS_LOG}
              -P ${PROJECT_SOURCE_DIR}/cmake/run_and_log.cmake --
              ${WIDEEP_NVCC} ${options} -MD -MF ${object}.d -c ${PROJECT_SOURCE_DIR}/src/${file}
              -o ${object}
      DEPENDS ${PROJECT_SOURCE_DIR}/src/${file} ${PROJECT_SOURCE_DIR}/cmake/run_and_log.cmake
      DEPFILE ${object}.d
      COMMENT "Building CUDA kernels ${file}"
      VERBATIM)
    list(APPEND objects ${object})
  endforeach()
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/src)
  set(${variable} ${objects} PARENT_SCOPE)
endfunction()

# The ctest test wideep_cuda_gpu_budgets: what kernels need is what src/exchange/cuda/budgets.txt says.
function(wideep_cuda_budgets)
  find_package(Python3 COMPONENTS Interpreter REQUIRED)
  add_test(NAME wideep_cuda_gpu_budgets
           COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/scripts/check_cuda_budgets.py
                   ${WIDEEP_PTXAS_LOG} ${PROJECT_SOURCE_DIR}/src/exchange/cuda/budgets.txt)
endfunction()
