// SPDX-License-Identifier: Apache-2.0
#include "server/prometheus_text.h"

namespace wideep::server {

std::string label_text(std::string_view value) {
  std::string text;
  for (const char each : value) {
    if (each == '\n') {
      text += "\\n";
      continue;
    }
    if (each == '"' || each == '\\') text += '\\';
    text += each;
  }
  return text;
}

}  // namespace wideep::server
