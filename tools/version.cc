// SPDX-License-Identifier: Apache-2.0
#include "version.h"

#include <wideep_commit.h>  // written by the build

#include <cstdlib>

#include "kernels/kernels.h"

namespace wideep::tools {

std::string version_line() {
  std::string line = "wideep " WIDEEP_VERSION;
  if (!commit().empty()) line += ", commit " + commit();
  if (!isa().empty()) line += ", kernels " + isa();
  return line;
}

std::string commit() { return WIDEEP_COMMIT; }

std::string isa() {
  const auto selected = kernels::select_kernels(std::getenv("WIDEEP_ISA"));
  return selected.ok() ? std::string((*selected)->isa) : "";
}

}  // namespace wideep::tools
