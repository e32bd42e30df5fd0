// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace wideep::tools {

// "wideep 0.3.0, commit 417bade9ab, kernels avx512": what a report of a fault needs. Kernels are
// those that this machine, or WIDEEP_ISA, selects; the commit is left out where git did not tell.
std::string version_line();
// "" where git did not tell.
std::string commit();
// Of those kernels; "" if there are none.
std::string isa();

}  // namespace wideep::tools
