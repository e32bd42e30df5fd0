// SPDX-License-Identifier: Apache-2.0
#include "formats/complaint.h"

#include <fmt/format.h>

#include "base/printable.h"

namespace wideep::formats {

void Complaint::report(int line, std::string_view key, std::string_view what) {
  if (!status_.ok()) return;
  std::string message = file_;
  if (line > 0) message += fmt::format(":{}", line);
  if (!key.empty()) message += ": " + base::printable(key);
  status_ = invalid_input(fmt::format("{}: {}", message, what));
}

}  // namespace wideep::formats
