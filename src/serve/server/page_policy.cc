// SPDX-License-Identifier: Apache-2.0
#include "server/page_policy.h"

#include <fmt/format.h>

#include "base/sha256.h"
#include "formats/base64.h"

namespace wideep::server {
namespace {

std::string hash_of(std::string_view text) {
  base::Sha256 sha;
  sha.update(text.data(), text.size());
  const auto digest = sha.digest();
  return formats::base64({reinterpret_cast<const char*>(digest.data()), digest.size()});
}

// As "'sha256-…' 'sha256-…'"; 'none' if the page has no element of this name.
std::string hashes_of(std::string_view page, std::string_view name) {
  const std::string begin = fmt::format("<{}>", name), end = fmt::format("</{}>", name);
  std::string hashes;
  for (size_t at = page.find(begin); at != page.npos; at = page.find(begin, at)) {
    at += begin.size();
    const std::string_view text = page.substr(at, page.find(end, at) - at);
    hashes += fmt::format("{}'sha256-{}'", hashes.empty() ? "" : " ", hash_of(text));
    at += text.size();
  }
  return hashes.empty() ? "'none'" : hashes;
}

}  // namespace

std::string policy_of_page(std::string_view page) {
  return fmt::format(
      "default-src 'none'; script-src {}; style-src {}; img-src data:; connect-src 'self'; "
      "form-action 'none'; base-uri 'none'; frame-ancestors 'none'; "
      "require-trusted-types-for 'script'; trusted-types dompurify",
      hashes_of(page, "script"), hashes_of(page, "style"));
}

}  // namespace wideep::server
