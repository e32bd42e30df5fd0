// SPDX-License-Identifier: Apache-2.0
#include "base/printable.h"

#include <fmt/format.h>

namespace wideep::base {
namespace {

void append_escaped(std::string& out, char c) {
  if (c == '\n') {
    out += "\\n";
  } else if (c == '\t') {
    out += "\\t";
  } else if (c >= 0x20 && c < 0x7f) {
    out += c;
  } else {
    out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  }
}

}  // namespace

std::string printable(std::string_view text, size_t max_bytes) {
  std::string out;
  for (const char c : text.substr(0, max_bytes)) append_escaped(out, c);
  if (text.size() > max_bytes) out += "...";
  return out;
}

}  // namespace wideep::base
