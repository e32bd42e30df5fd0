# SPDX-License-Identifier: Apache-2.0
# cmake -DINPUT=<page.html> -DNAMESPACE=<name> -DFUNCTION=<name> -DHEADER=<file.h>
#       -DOUTPUT=<file.cc> -P embed_page.cmake
#
# Puts the files named by "@FILE <name>@" into the page and writes the page as a C++ source, which
# defines the function that the header declares.
get_filename_component(directory ${INPUT} DIRECTORY)
file(READ ${INPUT} page)
string(REGEX MATCHALL "@FILE [a-z_./]+@" marks "${page}")
foreach(mark IN LISTS marks)
  string(REGEX REPLACE "@FILE (.*)@" "\\1" name "${mark}")
  file(READ ${directory}/${name} content)
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
