// SPDX-License-Identifier: Apache-2.0
#include "version.h"

#include <fmt/format.h>
#include <wideep_commit.h>  // written by the build

#include <cstdlib>
#include <string_view>

#include "kernels/kernels.h"

namespace wideep::tools {

std::string version_line() {
  std::string line = "wideep " WIDEEP_VERSION;
  if (!std::string_view(WIDEEP_COMMIT).empty()) line += ", commit " WIDEEP_COMMIT;
  const auto selected = kernels::select_kernels(std::getenv("WIDEEP_ISA"));
  if (selected.ok()) line += fmt::format(", kernels {}", (*selected)->isa);
  return line;
}

}  // namespace wideep::tools
