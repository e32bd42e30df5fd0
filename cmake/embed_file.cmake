# SPDX-License-Identifier: Apache-2.0
# cmake -DINPUT=<file> -DPARTS=<folder> -DNAMESPACE=<name> -DFUNCTION=<name> -DHEADER=<file.h>
#       -DOUTPUT=<file.cc> [-DLIBRARIES=<folder>] -P embed_file.cmake
#
# Puts other files into the text of the file, "@FILE <name>@" from beside it, "@PART <name>@" from
# the folder of what pages share and "@LIBRARY <path>@", a script of another project, from below
# LIBRARIES (/usr/share), and writes the text as a C++ source, which defines the function that
# the header declares.

# A script as it may stand between <script> and </script>: with what would end that, or hide the
# end, it is refused. Where its source map is means nothing in a page.
function(read_library path variable)
  if(NOT EXISTS ${path})
    message(FATAL_ERROR "${path}: not found; install its package (scripts/packages.txt), or build without the chat page: -DWIDEEP_PAGE=OFF")
  endif()
  file(READ ${path} content)
  string(TOLOWER "${content}" lower)
  foreach(tag "</script" "<script")
    string(FIND "${lower}" "${tag}" found)
    if(NOT found EQUAL -1)
      message(FATAL_ERROR "${path}: expected a script without '${tag}', which cannot stand in a page")
    endif()
  endforeach()
  string(REPLACE "\r" "" content "${content}")
  string(REGEX REPLACE "\n//# sourceMappingURL=[^\n]*" "" content "${content}")
  set(${variable} "${content}" PARENT_SCOPE)
endfunction()

get_filename_component(directory ${INPUT} DIRECTORY)
file(READ ${INPUT} text)
string(REGEX MATCHALL "@(FILE|PART|LIBRARY) [a-z_./]+@" marks "${text}")
foreach(mark IN LISTS marks)
  string(REGEX REPLACE "@(FILE|PART|LIBRARY) (.*)@" "\\2" name "${mark}")
  if(mark MATCHES "^@PART")
    file(READ ${PARTS}/${name} content)
  elseif(mark MATCHES "^@LIBRARY")
    read_library(${LIBRARIES}/${name} content)
  else()
    file(READ ${directory}/${name} content)
  endif()
  string(REPLACE "${mark}" "${content}" text "${text}")
endforeach()

# As numbers: string literals have a maximum length, bytes in an array have none.
string(HEX "${text}" bytes)
string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
file(WRITE ${OUTPUT} "// Made by embed_file.cmake.
#include \"${HEADER}\"

namespace ${NAMESPACE} {
namespace {

const unsigned char kText[] = {${bytes}};

}  // namespace

std::string_view ${FUNCTION}() {
  return {reinterpret_cast<const char*>(kText), sizeof(kText)};
}

}  // namespace ${NAMESPACE}
")
