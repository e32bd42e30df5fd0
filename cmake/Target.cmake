# SPDX-License-Identifier: Apache-2.0

# wideep_house(<name>)
#
# One call per folder of src/ that has rooms: adds its CMakeLists.txt, and makes wideep_<name>_house,
# the library of all its rooms, which is whole with the houses above it.
function(wideep_house name)
  set_property(GLOBAL PROPERTY WIDEEP_ROOMS "")
  add_subdirectory(${name})
  get_property(rooms GLOBAL PROPERTY WIDEEP_ROOMS)
  add_library(wideep_${name}_house INTERFACE)
  target_link_libraries(wideep_${name}_house INTERFACE ${rooms})
endfunction()

# wideep_use_houses(<target> <house>...): files of the target include what these have.
function(wideep_use_houses target)
  list(TRANSFORM ARGN PREPEND ${PROJECT_SOURCE_DIR}/src/)
  target_include_directories(${target} PRIVATE ${ARGN})
endfunction()

# wideep_sources(<variable> <path>)
#
# The *.cc files of src/<path> and its sub-folders, but for tests, benchmarks, fuzzers and programs.
function(wideep_sources variable path)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${path}/*.cc)
  list(FILTER sources EXCLUDE REGEX "_(test|testing|bench|fuzz)\\.cc$|/programs/")
  set(${variable} ${sources} PARENT_SCOPE)
endfunction()

# wideep_objects(<target> HOUSES <house>... FILES <file>...)
#
# Files of src/, compiled once for several libraries, of which some are installed.
function(wideep_objects target)
  cmake_parse_arguments(ARG "" "" "HOUSES;FILES" ${ARGN})
  list(TRANSFORM ARG_FILES PREPEND ${PROJECT_SOURCE_DIR}/src/)
  add_library(${target} OBJECT ${ARG_FILES})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/include)
  wideep_use_houses(${target} ${ARG_HOUSES})
  target_link_libraries(${target} PRIVATE fmt::fmt)
  wideep_precompile(${target})
endfunction()

# wideep_room(<name> [LIBRARY <library>] [OBJECTS <target>...] [EXCLUDE <regex>] [WITH_RUN]
#             [COMPUTING_TESTS] [TESTS <name>] [SHARDS <number>] [DEPS <room or library>...])
#
# One call per room of a house, in the house's CMakeLists.txt. Its files include those of rooms by
# <room>/<file>: each house is an include path. Makes, from the files of the folder:
#   wideep_<name>    library of its sources (wideep_sources); or, of a folder that is installed as a
#                    library of its own (LIBRARY), that library with what the folder depends on;
#                    OBJECTS: with these (wideep_objects), whose sources are not compiled again;
#                    EXCLUDE: without the sources whose paths match; WITH_RUN: wideep_precompile
#   <name>_test      in tests/ of the build directory: GoogleTest program of *_test.cc, with
#                    *_testing.cc (wideep_test_program; COMPUTING_TESTS, SHARDS), which ctest knows
#                    as <name>; TESTS: under this name instead
#   <name>_bench     in bench/: Google Benchmark program of *_bench.cc
#   <stem>_fuzz      one libFuzzer program per *_fuzz.cc, when WIDEEP_FUZZ is on; the ctest test
#                    fuzz.<stem> runs it for WIDEEP_FUZZ_SECONDS from the seeds in tests/fuzz/<stem>
# Programs in a sub-folder programs/ have a CMakeLists.txt of their own.
function(wideep_room name)
  cmake_parse_arguments(ARG "WITH_RUN;COMPUTING_TESTS" "LIBRARY;EXCLUDE;TESTS;SHARDS"
                        "OBJECTS;DEPS" ${ARGN})
  set_property(GLOBAL APPEND PROPERTY WIDEEP_ROOMS wideep_${name})
  file(GLOB_RECURSE all CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cc)
  list(FILTER all EXCLUDE REGEX "/programs/")
  set(tests ${all})
  list(FILTER tests INCLUDE REGEX "_test(ing)?\\.cc$")
  set(benches ${all})
  list(FILTER benches INCLUDE REGEX "_bench\\.cc$")
  set(fuzzers ${all})
  list(FILTER fuzzers INCLUDE REGEX "_fuzz\\.cc$")
  set(deps)
  foreach(dep IN LISTS ARG_DEPS)
    if(TARGET wideep_${dep})
      set(dep wideep_${dep})
    endif()
    list(APPEND deps ${dep})
  endforeach()

  if(ARG_LIBRARY)
    add_library(wideep_${name} INTERFACE)
    target_include_directories(wideep_${name} INTERFACE ${CMAKE_CURRENT_SOURCE_DIR})
    target_link_libraries(wideep_${name} INTERFACE ${ARG_LIBRARY} ${deps})
  else()
    file(RELATIVE_PATH path ${PROJECT_SOURCE_DIR}/src ${CMAKE_CURRENT_SOURCE_DIR}/${name})
    wideep_sources(sources ${path})
    if(ARG_EXCLUDE)
      list(FILTER sources EXCLUDE REGEX "${ARG_EXCLUDE}")
    endif()
    foreach(objects IN LISTS ARG_OBJECTS)
      get_target_property(compiled ${objects} SOURCES)
      list(REMOVE_ITEM sources ${compiled})
      list(APPEND sources $<TARGET_OBJECTS:${objects}>)
    endforeach()
    set(precompile)
    if(ARG_WITH_RUN)
      set(precompile WITH_RUN)
    endif()
    if(WIDEEP_FUZZ AND fuzzers)
      list(APPEND precompile FUZZED)
    endif()
    add_library(wideep_${name} STATIC ${sources})
    target_include_directories(wideep_${name} PUBLIC ${CMAKE_CURRENT_SOURCE_DIR}
                                                     ${PROJECT_SOURCE_DIR}/include)
    target_link_libraries(wideep_${name} PUBLIC ${deps})
    wideep_precompile(wideep_${name} ${precompile})
  endif()

  if(tests AND WIDEEP_TESTS)
    set(options)
    if(ARG_COMPUTING_TESTS)
      list(APPEND options COMPUTING)
    endif()
    if(ARG_SHARDS)
      list(APPEND options SHARDS ${ARG_SHARDS})
    endif()
    set(program ${name}_test)
    if(ARG_TESTS)
      set(program ${ARG_TESTS}_test)
    endif()
    add_executable(${program} ${tests})
    target_link_libraries(${program} PRIVATE wideep_${name})
    wideep_test_program(${program} ${options})
  endif()
  if(benches AND WIDEEP_TESTS AND NOT WIDEEP_SANITIZE)
    add_executable(${name}_bench ${benches})
    target_link_libraries(${name}_bench PRIVATE wideep_${name} benchmark::benchmark_main)
    set_target_properties(${name}_bench PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bench)
  endif()
  if(WIDEEP_FUZZ AND fuzzers)
    foreach(fuzzer IN LISTS fuzzers)
      get_filename_component(program ${fuzzer} NAME_WE)
      add_executable(${program} ${fuzzer})
      target_link_libraries(${program} PRIVATE wideep_${name} -fsanitize=fuzzer)
      wideep_fuzz_test(${program})
    endforeach()
  endif()
endfunction()

# wideep_precompile(<target> [WITH_RUN] [FUZZED])
#
# Headers that most files include, and that take longer to parse than those files themselves: parsed
# once, for the first target, whose options all others share. WITH_RUN: those of src/run, too, for
# it and what lies below it. FUZZED: the target reports the branches that an input takes, which the
# fuzzers follow. Files include what they need all the same, which the build with gcc sees
# to: it takes parsed headers for its user's own, warns of them, and therefore has none.
function(wideep_precompile target)
  cmake_parse_arguments(ARG "WITH_RUN;FUZZED" "" "" ${ARGN})
  set(kind product)
  set(headers <fmt/format.h> <algorithm> <array> <atomic> <chrono> <condition_variable> <deque>
      <functional> <map> <memory> <mutex> <optional> <set> <span> <string> <thread> <unordered_map>
      <variant> <vector>)
  if(TARGET nlohmann_json::nlohmann_json)
    list(APPEND headers <nlohmann/json.hpp>)
  endif()
  if(ARG_WITH_RUN)
    set(kind run)
    list(APPEND headers <run/event.h> <run/iteration_log.h> <run/run_options.h> <run/run_plan.h>)
  endif()
  if(ARG_FUZZED)
    string(APPEND kind _fuzzed)
    target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
  wideep_precompile_headers(${target} ${kind} ${headers})
  target_compile_options(${target} PRIVATE -fPIC)  # else programs would differ, which have -fPIE
endfunction()

# wideep_precompile_headers(<target> <kind> <header>...): once for all targets of a kind.
function(wideep_precompile_headers target kind)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    return()
  endif()
  get_property(first GLOBAL PROPERTY WIDEEP_PRECOMPILED_${kind})
  if(first)
    target_precompile_headers(${target} REUSE_FROM ${first})
  else()
    target_precompile_headers(${target} PRIVATE ${ARGN})
    set_property(GLOBAL PROPERTY WIDEEP_PRECOMPILED_${kind} ${target})
  endif()
endfunction()

# wideep_embed_page(<target> <folder> HEADER <header> NAMESPACE <name>)
#
# Puts the page <folder>/page.html, with all the files that it names, into the target: as the
# function that is named like the folder and declared in the header. Scripts of other projects come
# from WIDEEP_PAGE_LIBRARIES.
function(wideep_embed_page target folder)
  cmake_parse_arguments(ARG "" "HEADER;NAMESPACE" "" ${ARGN})
  get_filename_component(name ${folder} NAME)
  set(parts ${PROJECT_SOURCE_DIR}/src/foundation/formats/page_parts)
  file(GLOB files CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/* ${parts}/*)
  wideep_embed_file(${target} ${folder}/page.html FUNCTION ${name} HEADER ${ARG_HEADER}
                    NAMESPACE ${ARG_NAMESPACE} PARTS ${parts} DEPENDS ${files})
endfunction()

# wideep_embed_file(<target> <file> FUNCTION <name> HEADER <header> NAMESPACE <name>
#                   [PARTS <folder>] [DEPENDS <file>...])
#
# Puts the text of the file into the target, as the function that is declared in the header.
function(wideep_embed_file target file)
  cmake_parse_arguments(ARG "" "FUNCTION;HEADER;NAMESPACE;PARTS" "DEPENDS" ${ARGN})
  set(input ${CMAKE_CURRENT_SOURCE_DIR}/${file})
  set(script ${PROJECT_SOURCE_DIR}/cmake/embed_file.cmake)
  set(output ${CMAKE_CURRENT_BINARY_DIR}/${ARG_FUNCTION}.cc)
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -DINPUT=${input} -DPARTS=${ARG_PARTS} -DFUNCTION=${ARG_FUNCTION}
            -DNAMESPACE=${ARG_NAMESPACE} -DHEADER=${ARG_HEADER}
            -DLIBRARIES=${WIDEEP_PAGE_LIBRARIES} -DOUTPUT=${output} -P ${script}
    DEPENDS ${input} ${ARG_DEPENDS} ${script}
    VERBATIM)
  target_sources(${target} PRIVATE ${output})
endfunction()

# wideep_test_program(<program> [COMPUTING] [SHARDS <number>] [TIMEOUT <seconds>])
#
# What all test programs share. ctest runs the program <name>_test as one test <name>, or as several
# (SHARDS) <name>.1 and so on, because a process for each of two thousand tests costs more than most
# of the tests. test_results/<test>.xml, in the build directory, has them one by one. Programs that
# compute (COMPUTING) are optimised a little; the others run for so short a time that it would cost
# more than it saves.
function(wideep_test_program program)
  cmake_parse_arguments(ARG "COMPUTING" "SHARDS;TIMEOUT" "" ${ARGN})
  set(kind test)
  set(level -O0)
  if(ARG_COMPUTING AND NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
    set(kind computing_test)
    set(level -O1)
  endif()
  target_link_libraries(${program} PRIVATE GTest::gmock GTest::gtest_main fmt::fmt)
  target_compile_definitions(${program} PRIVATE WIDEEP_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_compile_options(${program} PRIVATE ${level})
  set_target_properties(${program} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  wideep_precompile_headers(${program} ${kind} <gmock/gmock.h> <gtest/gtest.h> <fmt/format.h>
                            <nlohmann/json.hpp> <filesystem> <functional> <random>)

  string(REGEX REPLACE "_test$" "" name ${program})
  set(shards ${ARG_SHARDS})
  if(NOT shards)
    set(shards 1)
  endif()
  set(timeout ${ARG_TIMEOUT})
  if(NOT timeout)
    set(timeout 600)
  endif()
  if(WIDEEP_SANITIZE)
    math(EXPR timeout "3 * ${timeout}")
  endif()
  foreach(shard RANGE 1 ${shards})
    set(test ${name})
    if(shards GREATER 1)
      set(test ${name}.${shard})
    endif()
    math(EXPR index "${shard} - 1")
    add_test(NAME ${test}
             COMMAND ${program} --gtest_brief=1
                     --gtest_output=xml:${PROJECT_BINARY_DIR}/test_results/${test}.xml)
    set_tests_properties(${test} PROPERTIES TIMEOUT ${timeout})
    if(shards GREATER 1)
      set_tests_properties(${test} PROPERTIES COST 40  # long: it starts before the rest
                           ENVIRONMENT "GTEST_TOTAL_SHARDS=${shards};GTEST_SHARD_INDEX=${index}")
    endif()
  endforeach()
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
