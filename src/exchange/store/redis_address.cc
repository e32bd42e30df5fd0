// SPDX-License-Identifier: Apache-2.0
#include "store/redis_address.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>

#include "base/percent_decoding.h"
#include "base/printable.h"
#include "base/try.h"

namespace wideep::store {
namespace {

constexpr std::string_view kForm = "redis[s]://[user[:password]@]host[:port][,host…][/db]";

template <typename T>
std::optional<T> number(std::string_view text) {
  T value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// nullopt: no text in percent encoding, or %00.
std::optional<std::string> decoded(std::string_view text) {
  auto result = base::percent_decoded(text);
  if (result && result->find('\0') != std::string::npos) result.reset();
  return result;
}

// Takes what is before the separator, and leaves what is after it; all, where there is none.
std::string_view take_until(std::string_view& text, char separator) {
  const size_t at = text.find(separator);
  const std::string_view before = text.substr(0, at);
  text = at == std::string_view::npos ? std::string_view() : text.substr(at + 1);
  return before;
}

// The files are not part of what other clients call the address: a query, as redis-py has them.
Status set_query(std::string_view query, RedisOptions& options) {
  while (!query.empty()) {
    std::string_view value = take_until(query, '&');
    const std::string_view name = take_until(value, '=');
    const auto text = decoded(value);
    const auto expected = [&](std::string_view what) {
      return invalid_input(fmt::format("?{}=: expected {}, found '{}'", base::printable(name), what,
                                       base::printable(value)));
    };
    std::string* file = name == "ssl_ca_certs"   ? &options.ca_file
                        : name == "ssl_certfile" ? &options.certificate_file
                        : name == "ssl_keyfile"  ? &options.key_file
                                                 : nullptr;
    if (file != nullptr) {
      if (!text || text->empty()) return expected("the name of a file");
      if (!options.is_tls) {
        return invalid_input(fmt::format("?{}= is of TLS: write rediss:// to have it", name));
      }
      *file = *text;
    } else {
      return invalid_input(
          fmt::format("?{}=: not known; there are ssl_ca_certs, ssl_certfile and ssl_keyfile",
                      base::printable(name)));
    }
  }
  if (options.certificate_file.empty() != options.key_file.empty()) {
    return invalid_input("ssl_certfile and ssl_keyfile belong together; one of them is missing");
  }
  return {};
}

Status set_user(std::string_view text, RedisOptions& options) {
  const std::string_view name = take_until(text, ':');
  const auto user = decoded(name), password = decoded(text);
  if (!user || !password) {
    return invalid_input("user or password has a '%' without two digits; %25 is a '%'");
  }
  options.user = *user;
  options.password = *password;
  return {};
}

Status parse_into(std::string_view rest, RedisOptions& options) {
  // What is said of the rest repeats it: a password must not be in there.
  const size_t end_of_hosts = rest.find_first_of("/?");
  const bool has_user = rest.substr(0, end_of_hosts).find('@') != std::string_view::npos;
  if (!has_user && end_of_hosts != std::string_view::npos &&
      rest.find('@', end_of_hosts) != std::string_view::npos) {
    return invalid_input(
        "found an '@' behind the hosts; in a user, a password or the name of a file '/' is %2F, "
        "'?' "
        "%3F and '@' %40");
  }
  const size_t query_at = rest.find('?');
  const std::string_view query =
      query_at == std::string_view::npos ? std::string_view() : rest.substr(query_at + 1);
  rest = rest.substr(0, query_at);
  const size_t path_at = rest.find('/');
  const std::string_view path =
      path_at == std::string_view::npos ? std::string_view() : rest.substr(path_at + 1);
  std::string_view hosts = rest.substr(0, path_at);

  if (const size_t at = hosts.rfind('@'); at != std::string_view::npos) {
    WIDEEP_TRY(set_user(hosts.substr(0, at), options));
    hosts = hosts.substr(at + 1);
  }
  do {
    WIDEEP_TRY_ASSIGN(RedisHost host, parse_redis_host(take_until(hosts, ',')));
    options.hosts.push_back(std::move(host));
  } while (!hosts.empty());

  if (!path.empty()) {
    const auto db = number<int>(path);
    if (!db || *db < 0) {
      return invalid_input(
          fmt::format("expected the number of a database after '/', found '{}'; in a password, "
                      "'/' is %2F, '?' %3F and '@' %40",
                      path.find('@') == std::string_view::npos ? base::printable(path) : "…"));
    }
    options.db = *db;
  }
  if (options.hosts.size() > 1 && options.db != 0) {
    return invalid_input(fmt::format(
        "several hosts are a cluster, which has no database but 0, found /{}", options.db));
  }
  return set_query(query, options);
}

}  // namespace

std::string RedisHost::text() const {
  return name.find(':') == std::string::npos ? fmt::format("{}:{}", name, port)
                                             : fmt::format("[{}]:{}", name, port);
}

Result<RedisHost> parse_redis_host(std::string_view text) {
  RedisHost host;
  std::string_view name = text, port;
  if (text.starts_with('[') && text.find(']') != std::string_view::npos) {
    name = text.substr(1, text.find(']') - 1);
    port = text.substr(text.find(']') + 1);
  } else if (const size_t colon = text.rfind(':'); colon != std::string_view::npos) {
    name = text.substr(0, colon);
    port = text.substr(colon);
  }
  const auto found = port.empty() ? host.port : number<uint16_t>(port.substr(1));
  const bool is_name = !name.empty() && name.size() <= kMaxHostNameBytes &&
                       name.find_first_of(" \t\r\n[]/@") == std::string_view::npos;
  if (!is_name || (!port.empty() && port.front() != ':') || !found || *found == 0) {
    return invalid_input(fmt::format("expected host[:port], found '{}'", base::printable(text)));
  }
  host.name = name;
  host.port = *found;
  return host;
}

std::string RedisOptions::text() const {
  std::string result = is_tls ? "rediss://" : "redis://";
  for (const RedisHost& host : hosts) {
    if (&host != &hosts.front()) result += ',';
    result += host.text();
  }
  return db == 0 ? result : fmt::format("{}/{}", result, db);
}

Result<RedisOptions> parse_redis_url(std::string_view url) {
  RedisOptions options;
  std::string_view rest = url;
  if (url.starts_with("rediss://")) {
    options.is_tls = true;
    rest.remove_prefix(9);
  } else if (url.starts_with("redis://")) {
    rest.remove_prefix(8);
  } else {  // there may be a password in it
    return invalid_input(fmt::format("expected {}, found a text that begins otherwise", kForm));
  }
  if (Status status = parse_into(rest, options); !status.ok()) {
    return invalid_input(fmt::format("{}; the form is {}", status.message(), kForm));
  }
  return options;
}

}  // namespace wideep::store
