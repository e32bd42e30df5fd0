# SPDX-License-Identifier: Apache-2.0
# cmake -DINPUT=<file> -DPARTS=<folder> -DNAMESPACE=<name> -DFUNCTION=<name> -DHEADER=<file.h>
#       -DOUTPUT=<file.cc> -P embed_file.cmake
#
# Puts other files into the text of the file, "@FILE <name>@" from beside it and "@PART <name>@" from
# the folder of what pages share, and writes the text as a C++ source, which defines the function that
# the header declares.
get_filename_component(directory ${INPUT} DIRECTORY)
file(READ ${INPUT} text)
string(REGEX MATCHALL "@(FILE|PART) [a-z_.]+@" marks "${text}")
foreach(mark IN LISTS marks)
  string(REGEX REPLACE "@(FILE|PART) (.*)@" "\\2" name "${mark}")
  if(mark MATCHES "^@PART")
    file(READ ${PARTS}/${name} content)
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
