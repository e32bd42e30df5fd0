# SPDX-License-Identifier: Apache-2.0
# cmake -DINPUT=<page.html> -DPARTS=<folder> -DNAMESPACE=<name> -DFUNCTION=<name> -DHEADER=<file.h>
#       -DOUTPUT=<file.cc> -P embed_page.cmake
#
# Puts files into the page, "@FILE <name>@" from beside it and "@PART <name>@" from the folder of what
# pages share, and writes the page as a C++ source, which defines the function that the header declares.
get_filename_component(directory ${INPUT} DIRECTORY)
file(READ ${INPUT} page)
string(REGEX MATCHALL "@(FILE|PART) [a-z_.]+@" marks "${page}")
foreach(mark IN LISTS marks)
  string(REGEX REPLACE "@(FILE|PART) (.*)@" "\\2" name "${mark}")
  if(mark MATCHES "^@PART")
    file(READ ${PARTS}/${name} content)
  else()
    file(READ ${directory}/${name} content)
  endif()
  string(REPLACE "${mark}" "${content}" page "${page}")
endforeach()

# As numbers: string literals have a maximum length, bytes in an array have none.
string(HEX "${page}" bytes)
string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
file(WRITE ${OUTPUT} "// Made of ${FUNCTION}/ by embed_page.cmake.
#include \"${HEADER}\"

namespace ${NAMESPACE} {
namespace {

const unsigned char kPage[] = {${bytes}};

}  // namespace

std::string_view ${FUNCTION}() {
  return {reinterpret_cast<const char*>(kPage), sizeof(kPage)};
}

}  // namespace ${NAMESPACE}
")
