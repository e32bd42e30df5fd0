# SPDX-License-Identifier: Apache-2.0
# Kernels for GPUs. nvcc is called by commands of our own rather than as a language of CMake's: the
# project's options are those of another compiler, and what ptxas says has to be kept.

# The machines that kernels are compiled for, Hopper and Blackwell; nvcc 12.8 is the first with both.
set(WIDEEP_CUDA_ARCHITECTURES 90 100 CACHE STRING "Architectures of GPUs to compile kernels for")

# wideep_cuda_library(<target> <dependency> <file>...)
#
# A library of *.cu and *.cc files that need the CUDA toolkit. Without nvcc, and in builds with
# sanitizers, which cannot look into kernels, there is none. Says in <target>.ptxas.txt of the build
# directory what every kernel needs; the ctest test <target>_budgets compares it with
# src/cuda/budgets.txt.
function(wideep_cuda_library target dependency)
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
      -ccbin ${WIDEEP_NVCC_HOST} -Xptxas -v,-warn-spills -Werror all-warnings
      -Xcompiler -fPIC,-Wall,-Wextra
      -I${PROJECT_SOURCE_DIR}/src -I${PROJECT_SOURCE_DIR}/include)
  set(log ${PROJECT_BINARY_DIR}/${target}.ptxas.txt)
  set(objects)
  set(sources)
  foreach(file IN LISTS ARGN)
    if(NOT file MATCHES "\\.cu$")
      list(APPEND sources ${file})
      continue()
    endif()
    get_filename_component(stem ${file} NAME_WE)
    set(object ${CMAKE_CURRENT_BINARY_DIR}/${target}.${stem}.o)
    add_custom_command(
      OUTPUT ${object} ${log}
      COMMAND ${CMAKE_COMMAND} -DLOG=${log} -P ${PROJECT_SOURCE_DIR}/cmake/run_and_log.cmake --
              ${WIDEEP_NVCC} ${options} -MD -MF ${object}.d -c ${CMAKE_CURRENT_SOURCE_DIR}/${file}
              -o ${object}
      DEPENDS ${file} ${PROJECT_SOURCE_DIR}/cmake/run_and_log.cmake
      DEPFILE ${object}.d
      COMMENT "Building CUDA kernels ${file}"
      VERBATIM)
    list(APPEND objects ${object})
  endforeach()
  add_library(${target} STATIC ${sources} ${objects})
  target_link_libraries(${target} PUBLIC ${dependency} CUDA::cudart_static)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  wideep_precompile(${target})
  if(WIDEEP_TESTS)
    find_package(Python3 COMPONENTS Interpreter REQUIRED)
    add_test(NAME ${target}_budgets
             COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/scripts/check_cuda_budgets.py
                     ${log} ${PROJECT_SOURCE_DIR}/src/cuda/budgets.txt)
  endif()
endfunction()
