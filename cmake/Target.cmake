# SPDX-License-Identifier: Apache-2.0
include(GoogleTest)

# wideep_sources(<variable> <name>)
#
# The *.cc files of src/<name> and its sub-folders, but for tests, benchmarks and fuzzers.
function(wideep_sources variable name)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${name}/*.cc)
  list(FILTER sources EXCLUDE REGEX "_(test|bench|fuzz)\\.cc$")
  set(${variable} ${sources} PARENT_SCOPE)
endfunction()

# wideep_folder(<name> [LIBRARY <library>] [EXCLUDE <regex>] [DEPS <folder or library>...])
#
# One call per folder of src/. Makes, from the files beside it:
#   wideep_<name>    library of wideep_sources(<name>); or, of a folder that is installed as a
#                    library of its own (LIBRARY), that library with what the folder depends on;
#                    EXCLUDE: without the sources whose paths match
#   <name>_test      GoogleTest program of *_test.cc, each test registered with ctest
#   <name>_bench     Google Benchmark program of *_bench.cc
#   <stem>_fuzz      one libFuzzer program per *_fuzz.cc, when WIDEEP_FUZZ is on; the ctest test
#                    fuzz.<stem> runs it for WIDEEP_FUZZ_SECONDS from the seeds in tests/fuzz/<stem>
function(wideep_folder name)
  cmake_parse_arguments(ARG "" "LIBRARY;EXCLUDE" "DEPS" ${ARGN})
  file(GLOB_RECURSE all CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cc)
  set(tests ${all})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  set(benches ${all})
  list(FILTER benches INCLUDE REGEX "_bench\\.cc$")
  set(fuzzers ${all})
  list(FILTER fuzzers INCLUDE REGEX "_fuzz\\.cc$")
  set(deps)
  foreach(dep IN LISTS ARG_DEPS)
    if(EXISTS ${PROJECT_SOURCE_DIR}/src/${dep})
      if(TARGET wideep_${dep})
        list(APPEND deps wideep_${dep})
      endif()
    else()
      list(APPEND deps ${dep})
    endif()
  endforeach()

  if(ARG_LIBRARY)
    add_library(wideep_${name} INTERFACE)
    target_include_directories(wideep_${name} INTERFACE ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(wideep_${name} INTERFACE ${ARG_LIBRARY} ${deps})
  else()
    wideep_sources(sources ${name})
    if(ARG_EXCLUDE)
      list(FILTER sources EXCLUDE REGEX "${ARG_EXCLUDE}")
    endif()
    add_library(wideep_${name} STATIC ${sources})
    target_include_directories(wideep_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src
                                                     ${PROJECT_SOURCE_DIR}/include)
    target_link_libraries(wideep_${name} PUBLIC ${deps})
    wideep_precompile(wideep_${name} wideep_base <fmt/format.h> <nlohmann/json.hpp> <algorithm>
                      <functional> <map> <memory> <optional> <span> <string> <vector>)
  endif()

  if(tests)
    add_executable(${name}_test ${tests})
    target_link_libraries(${name}_test PRIVATE wideep_${name})
    wideep_test_program(${name}_test)
    gtest_discover_tests(${name}_test TEST_PREFIX "${name}." NO_PRETTY_VALUES DISCOVERY_MODE PRE_TEST
                         PROPERTIES TIMEOUT 300)
  endif()
  if(benches AND NOT WIDEEP_SANITIZE)
    add_executable(${name}_bench ${benches})
    target_link_libraries(${name}_bench PRIVATE wideep_${name} benchmark::benchmark_main)
  endif()
  if(WIDEEP_FUZZ)
    foreach(fuzzer IN LISTS fuzzers)
      get_filename_component(program ${fuzzer} NAME_WE)
      add_executable(${program} ${fuzzer})
      target_link_libraries(${program} PRIVATE wideep_${name} -fsanitize=fuzzer)
      wideep_fuzz_test(${program})
    endforeach()
  endif()
endfunction()

# wideep_precompile(<target> <first> <header>...)
#
# Headers of other projects that most files include, and that take longer to parse than those files
# themselves: parsed once, for the target <first>, whose options all others share. Files include what
# they need all the same, which the build with gcc sees to: it takes parsed headers for its user's
# own, warns of them, and therefore has none.
function(wideep_precompile target first)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    return()
  endif()
  if(TARGET ${first} AND NOT target STREQUAL first)
    target_precompile_headers(${target} REUSE_FROM ${first})
  else()
    target_precompile_headers(${target} PRIVATE ${ARGN})
  endif()
endfunction()

# wideep_embed_page(<target> <folder> HEADER <header> NAMESPACE <name>)
#
# Puts the page <folder>/page.html, with all the files that it names, into the target: as the
# function that is named like the folder and declared in the header.
function(wideep_embed_page target folder)
  cmake_parse_arguments(ARG "" "HEADER;NAMESPACE" "" ${ARGN})
  get_filename_component(name ${folder} NAME)
  set(directory ${CMAKE_CURRENT_SOURCE_DIR}/${folder})
  set(parts ${PROJECT_SOURCE_DIR}/src/formats/page_parts)
  set(script ${PROJECT_SOURCE_DIR}/cmake/embed_page.cmake)
  set(output ${CMAKE_CURRENT_BINARY_DIR}/${name}.cc)
  file(GLOB files CONFIGURE_DEPENDS ${directory}/* ${parts}/*)
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -DINPUT=${directory}/page.html -DPARTS=${parts} -DFUNCTION=${name}
            -DNAMESPACE=${ARG_NAMESPACE} -DHEADER=${ARG_HEADER} -DOUTPUT=${output} -P ${script}
    DEPENDS ${files} ${script}
    VERBATIM)
  target_sources(${target} PRIVATE ${output})
endfunction()

# What all test programs share. They run for a moment: it is not worth while to optimise them.
function(wideep_test_program program)
  target_link_libraries(${program} PRIVATE GTest::gmock GTest::gtest_main fmt::fmt)
  target_compile_definitions(${program} PRIVATE WIDEEP_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_compile_options(${program} PRIVATE $<IF:$<CONFIG:Debug>,-O0,-O1>)
  wideep_precompile(${program} base_test <gmock/gmock.h> <gtest/gtest.h> <fmt/format.h>
                    <nlohmann/json.hpp> <filesystem> <functional> <random>)
endfunction()

# New inputs that reach new code, and those that break it, stay in fuzz/ of the build directory.
function(wideep_fuzz_test program)
  string(REGEX REPLACE "_fuzz$" "" stem ${program})
  set(found ${PROJECT_BINARY_DIR}/fuzz/${stem})
  file(MAKE_DIRECTORY ${found})
  set(seeds ${PROJECT_SOURCE_DIR}/tests/fuzz/${stem})
  if(NOT EXISTS ${seeds})
    set(seeds)
  endif()
  add_test(NAME fuzz.${stem}
           COMMAND ${program} -max_total_time=${WIDEEP_FUZZ_SECONDS} -timeout=30
                   -artifact_prefix=${found}- ${found} ${seeds})
  if(NOT TARGET fuzzers)
    add_custom_target(fuzzers)
  endif()
  add_dependencies(fuzzers ${program})
endfunction()
