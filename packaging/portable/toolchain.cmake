# SPDX-License-Identifier: Apache-2.0
# The portable build: what it makes runs on every Linux for x86_64 with glibc 2.27 or later, and
# needs libgcc_s beside it and nothing else. It is compiled here, by this machine's clang and
# against its libstdc++, which is linked in as all dependencies are, but against glibc 2.27
# (scripts/portable_sysroot.sh). docs/packaging.md says why so.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR x86_64)
set(CMAKE_C_COMPILER clang-19)
set(CMAKE_CXX_COMPILER clang++-19)

get_filename_component(portable_source ${CMAKE_CURRENT_LIST_DIR}/../.. ABSOLUTE)
if(NOT WIDEEP_SYSROOT)
  set(WIDEEP_SYSROOT ${portable_source}/build-portable/sysroot)
endif()
# The tests that CMake makes of the compiler read this file, too, and need to know the folder.
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES WIDEEP_SYSROOT)
if(NOT EXISTS ${WIDEEP_SYSROOT}/made)
  message(FATAL_ERROR "${WIDEEP_SYSROOT} is no sysroot: scripts/portable_sysroot.sh ${WIDEEP_SYSROOT} makes it")
endif()

set(CMAKE_SYSROOT ${WIDEEP_SYSROOT}/root)
set(CMAKE_FIND_ROOT_PATH ${WIDEEP_SYSROOT}/dependencies)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(CMAKE_PREFIX_PATH ${WIDEEP_SYSROOT}/dependencies)
set(ENV{PKG_CONFIG_LIBDIR} ${WIDEEP_SYSROOT}/dependencies/lib/pkgconfig)
set(ENV{PKG_CONFIG_SYSROOT_DIR} "")
set(OPENSSL_USE_STATIC_LIBS ON)
set(OPENSSL_ROOT_DIR ${WIDEEP_SYSROOT}/dependencies)
set(CMAKE_DISABLE_FIND_PACKAGE_MPI ON)
set(CMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit ON)

# Headers of dependencies come before glibc's. No path of this machine is in what is made.
string(JOIN " " portable_flags
  --gcc-install-dir=/usr/lib/gcc/x86_64-linux-gnu/12
  -include ${portable_source}/packaging/portable/compat.h
  -isystem ${WIDEEP_SYSROOT}/dependencies/include
  -isystem ${WIDEEP_SYSROOT}/dependencies/include/x86_64-linux-gnu
  -ffile-prefix-map=${portable_source}=.)
set(CMAKE_C_FLAGS_INIT "${portable_flags}")
set(CMAKE_CXX_FLAGS_INIT "${portable_flags}")
string(JOIN " " portable_link_flags
  --gcc-install-dir=/usr/lib/gcc/x86_64-linux-gnu/12 -static-libstdc++ -pthread -Wl,--as-needed
  # The copied libgcc_s is this machine's and wants its glibc; what is made finds another.
  -Wl,--allow-shlib-undefined
  # Other libraries in the process keep their own.
  -Wl,--exclude-libs,ALL -L${WIDEEP_SYSROOT}/dependencies/lib)
foreach(kind IN ITEMS EXE SHARED MODULE)
  set(CMAKE_${kind}_LINKER_FLAGS_INIT "${portable_link_flags}")
endforeach()
set(CMAKE_C_STANDARD_LIBRARIES "-lcompat -lrt -ldl -lm")
set(CMAKE_CXX_STANDARD_LIBRARIES "-lcompat -lrt -ldl -lm")
