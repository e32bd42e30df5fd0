// SPDX-License-Identifier: Apache-2.0
#include "base/numeric_address.h"

#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>

#include "base/printable.h"

namespace wideep::base {

Result<std::string> numeric_address(std::string host) {
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  const addrinfo hints{.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
  addrinfo* all = nullptr;
  if (const int error = ::getaddrinfo(host.c_str(), nullptr, &hints, &all); error != 0) {
    return failed(fmt::format("the host '{}' has no address: {}", printable(host, 80),
                              ::gai_strerror(error)));
  }
  // IPv4 first: most servers listen on it by default, but "localhost" may resolve to ::1 first.
  const addrinfo* best = all;
  for (const addrinfo* each = all; each != nullptr; each = each->ai_next) {
    if (each->ai_family == AF_INET && best->ai_family != AF_INET) best = each;
  }
  char numbers[NI_MAXHOST];
  const int error = ::getnameinfo(best->ai_addr, best->ai_addrlen, numbers, sizeof(numbers),
                                  nullptr, 0, NI_NUMERICHOST);
  ::freeaddrinfo(all);
  if (error == 0) return std::string(numbers);
  return failed(::gai_strerror(error));
}

}  // namespace wideep::base
