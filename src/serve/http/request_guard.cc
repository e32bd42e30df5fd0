// SPDX-License-Identifier: Apache-2.0
//
// Hosts are compared without case, port and final dot. Any name without a dot is let in, as no
// foreign DNS can answer for it; 127.0.0.0/8 only as four numbers, since 127.0.0.1.example is a
// name. With a key only bodies that a browser sends unasked (Fetch, 2.2.2) are refused: before all
// others it asks. OPTIONS passes, for it is that question, and has no effect.
#include "http/request_guard.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/printable.h"

namespace wideep::server {
namespace {

constexpr size_t kMaxShown = 60;

std::string lower_case(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c | 0x20);
  }
  return result;
}

// Without the port, and without the dot at the end of a full name.
std::string name_of_host(std::string_view host) {
  const size_t bracket = host.rfind(']');
  const size_t colon = host.rfind(':');
  const bool has_port = colon != host.npos && (bracket == host.npos || colon > bracket);
  if (has_port) host = host.substr(0, colon);
  if (host.ends_with('.')) host.remove_suffix(1);
  return lower_case(host);
}

// 127.0.0.0/8: four numbers, so that no name such as 127.0.0.1.example is one.
bool is_loopback_number(std::string_view host) {
  if (!host.starts_with("127.")) return false;
  return std::ranges::count(host, '.') == 3 &&
         std::ranges::all_of(host, [](char c) { return c == '.' || (c >= '0' && c <= '9'); });
}

// Bodies that a browser sends for any page without asking first (Fetch, 2.2.2).
bool is_simple_type(std::string_view content_type) {
  std::string type = lower_case(content_type.substr(0, content_type.find(';')));
  type.erase(type.find_last_not_of(" \t") + 1);
  return type.empty() || type == "text/plain" || type == "application/x-www-form-urlencoded" ||
         type == "multipart/form-data";
}

}  // namespace

RequestGuard::RequestGuard(Options options) : options_(std::move(options)) {
  for (std::string& each : options_.hosts) each = name_of_host(each);
}

std::vector<std::string> RequestGuard::hosts_of(const std::string& host, bool is_loopback,
                                                const std::vector<std::string>& allowed) {
  if (!is_loopback && allowed.empty()) return {};
  std::vector<std::string> hosts = allowed;
  const bool is_v6 = host.find(':') != host.npos;
  hosts.insert(hosts.end(), {"localhost", "[::1]", is_v6 ? "[" + host + "]" : host});
  return hosts;
}

std::optional<HttpError> RequestGuard::check(const RequestHead& head) const {
  // Browsers send one; HTTP/1.0 may not, and an empty one names nobody.
  const std::string host = head.field("host");
  if (!options_.hosts.empty() && !host.empty() && !is_own_host(host)) {
    return HttpError{
        .status = 403,
        .message = fmt::format("Host: expected this server's address or localhost, found '{}'; "
                               "--allowed-hosts names others by which clients may ask",
                               base::printable(host, kMaxShown)),
        .code = "host_not_allowed"};
  }
  // What a browser asks before a request (OPTIONS) has no effect.
  const std::string origin = head.field("origin");
  if (!options_.checks_origins || origin.empty() || head.method == "OPTIONS" ||
      is_allowed_origin(head, origin)) {
    return std::nullopt;
  }
  const std::string shown = base::printable(origin, kMaxShown);
  if (!options_.has_key) {
    return HttpError{.status = 403,
                     .message = fmt::format("pages of '{}' may not use this server: start it with "
                                            "--cors-origin {} to let them, or with --api-key",
                                            shown, shown),
                     .code = "origin_not_allowed"};
  }
  if (head.method != "POST" || !is_simple_type(head.field("content-type"))) return std::nullopt;
  return HttpError{
      .status = 415,
      .message = fmt::format("Content-Type: expected application/json from a page of "
                             "'{}', found '{}'",
                             shown, base::printable(head.field("content-type"), kMaxShown)),
      .code = "unsupported_media_type"};
}

bool RequestGuard::is_own_host(std::string_view host) const {
  const std::string name = name_of_host(host);
  // Only this network can resolve a name without a dot: of a machine, or of a container.
  const bool is_local = name.find('.') == name.npos && !name.starts_with('[');
  return is_local || is_loopback_number(name) ||
         std::ranges::find(options_.hosts, name) != options_.hosts.end();
}

// Also that of the server's own pages: the scheme does not matter, as hosts are checked apart.
bool RequestGuard::is_allowed_origin(const RequestHead& head, const std::string& origin) const {
  const size_t scheme = origin.find("://");
  const bool is_own = scheme != origin.npos && !head.field("host").empty() &&
                      lower_case(origin.substr(scheme + 3)) == lower_case(head.field("host"));
  return is_own || std::ranges::any_of(options_.origins, [&](const std::string& each) {
           return each == "*" || each == origin;
         });
}

}  // namespace wideep::server
