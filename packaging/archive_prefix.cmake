# SPDX-License-Identifier: Apache-2.0
# CPack reads this for each format: an archive has bin/, lib/ and share/ at its top, for any prefix.
if(CPACK_GENERATOR STREQUAL "TZST")
  set(CPACK_PACKAGING_INSTALL_PREFIX "/")
endif()
