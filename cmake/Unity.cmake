# SPDX-License-Identifier: Apache-2.0
# Several files compiled as one (WIDEEP_UNITY): headers and templates that they share take the
# compiler longer than the files themselves. scripts/group_sources.py says which.

# wideep_targets(<variable> <folder>): targets made in it and in the folders that it adds.
function(wideep_targets variable folder)
  get_property(all DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
  get_property(below DIRECTORY ${folder} PROPERTY SUBDIRECTORIES)
  foreach(each IN LISTS below)
    wideep_targets(found ${each})
    list(APPEND all ${found})
  endforeach()
  set(${variable} ${all} PARENT_SCOPE)
endfunction()

# wideep_group_sources(): for all targets that there are, but for installed libraries: who links one
# gets only the files that it needs.
function(wideep_group_sources)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  wideep_targets(targets ${PROJECT_SOURCE_DIR})
  set(lines)
  foreach(target IN LISTS targets)
    get_target_property(type ${target} TYPE)
    get_target_property(installed_as ${target} EXPORT_NAME)
    if(NOT installed_as AND type MATCHES "EXECUTABLE|(STATIC|SHARED|OBJECT|MODULE)_LIBRARY")
      get_target_property(folder ${target} SOURCE_DIR)
      get_target_property(sources ${target} SOURCES)
      list(FILTER sources INCLUDE REGEX "^[^$]*\\.cc$")
      foreach(source IN LISTS sources)
        get_filename_component(path ${source} ABSOLUTE BASE_DIR ${folder})
        if(EXISTS ${path})  # not one that the build writes
          string(APPEND lines "${target}\t${folder}\t${path}\n")
        endif()
      endforeach()
      set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
    endif()
  endforeach()
  set(list ${PROJECT_BINARY_DIR}/unity_sources.txt)
  set(groups ${PROJECT_BINARY_DIR}/unity_groups.cmake)
  file(WRITE ${list} "${lines}")
  execute_process(COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/scripts/group_sources.py
                          ${list} ${groups} COMMAND_ERROR_IS_FATAL ANY)
  include(${groups})
endfunction()
