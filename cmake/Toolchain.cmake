# SPDX-License-Identifier: Apache-2.0
# Language level, warnings, sanitizers and build helpers shared by every target.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_C_STANDARD 11)  # the examples that show the C ABI
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

find_program(CCACHE ccache)
if(CCACHE)
  # It repeats nothing that includes precompiled headers unless told that macros are looked at. What
  # a file includes it takes from the compiler's list: to preprocess each file would cost a tenth of
  # the build.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_DEPEND=1
                                  CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE})
endif()
find_program(MOLD mold)
if(MOLD)
  add_link_options(-fuse-ld=mold)
endif()

# -ffp-contract=off: a*b+c is two roundings unless the source says fma, on every compiler and at
# every call site. The promise of equal bits rests on it.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # gcc 12 warns of its own headers: intrinsics (GCC bug 105593), string concatenation (105651).
  add_compile_options(-Wno-maybe-uninitialized -Wno-uninitialized -Wno-restrict)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  # A precompiled header is the same each time it is made, as ccache wants it.
  add_compile_options("SHELL:-Xclang -fno-pch-timestamp")
endif()
if(WIDEEP_WERROR)
  add_compile_options(-Werror)
endif()
add_compile_options(-Wall -Wextra -Wpedantic -Wshadow
                    $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor>
                    -Wno-missing-field-initializers  # designated initialisers name what differs
                    -ffp-contract=off -fno-math-errno -g1)
if(WIDEEP_UNITY)
  # A header's enumerator may be hidden in another header, and then both are in front of one file.
  add_compile_options(-Wno-shadow)
endif()

if(WIDEEP_SANITIZE)
  if(WIDEEP_SANITIZE MATCHES "undefined")
    # A null pointer that is used stops the program anyway; what leaves an object, or is none any
    # more, AddressSanitizer sees. These four check every access, a third of the time to compile.
    set(unchecked -fno-sanitize=null,object-size,pointer-overflow,vptr)
  endif()
  add_compile_options(-fsanitize=${WIDEEP_SANITIZE} -fno-omit-frame-pointer
                      -fno-sanitize-recover=all ${unchecked})
  add_link_options(-fsanitize=${WIDEEP_SANITIZE})
endif()
