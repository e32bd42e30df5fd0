# SPDX-License-Identifier: Apache-2.0
# cmake -DLOG=<file> -P run_and_log.cmake -- <program> <argument>...
#
# Runs a program and keeps what it says in a file; says it, too, if the program fails.
set(command)
set(is_command OFF)
math(EXPR last "${CMAKE_ARGC} - 1")
foreach(i RANGE ${last})
  if(is_command)
    list(APPEND command "${CMAKE_ARGV${i}}")
  elseif("${CMAKE_ARGV${i}}" STREQUAL "--")
    set(is_command ON)
  endif()
endforeach()
execute_process(COMMAND ${command} RESULT_VARIABLE result OUTPUT_VARIABLE text ERROR_VARIABLE text)
file(WRITE ${LOG} "${text}")
if(NOT result EQUAL 0)
  message(FATAL_ERROR "${text}")
endif()
