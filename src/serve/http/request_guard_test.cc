// SPDX-License-Identifier: Apache-2.0
#include "http/request_guard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace wideep::server {
namespace {

using testing::HasSubstr;
using Fields = std::vector<std::pair<std::string, std::string>>;

// The status of the refusal; 0: it passes.
int status(const RequestGuard& guard, Fields fields, std::string method = "POST") {
  RequestHead head;
  head.method = std::move(method);
  head.fields = std::move(fields);
  const auto error = guard.check(head);
  return error ? error->status : 0;
}

RequestGuard of_hosts(const std::string& host, bool is_loopback,
                      const std::vector<std::string>& allowed = {}) {
  return RequestGuard({.hosts = RequestGuard::hosts_of(host, is_loopback, allowed),
                       .checks_origins = false,
                       .has_key = false,
                       .origins = {}});
}

TEST(RequestGuardTest, HostsOfAServerOnALoopbackAddress) {
  const RequestGuard guard = of_hosts("my-box", true, {"proxy.example"});
  for (const char* own : {"localhost", "LOCALHOST:8000", "localhost.", "127.0.0.1",
                          "127.0.0.1:8000", "127.3.2.1", "[::1]", "[::1]:8000", "my-box:1",
                          "another-box", "proxy.example", "Proxy.Example.:8000", ""}) {
    EXPECT_EQ(status(guard, {{"host", own}}), 0) << own;
  }
  for (const char* other : {"evil.example", "evil.example:8000", "127.0.0.1.evil.example",
                            "localhost.evil.example", "127.evil.example", "10.0.0.1", "127.0.0.1.",
                            "127.0.0.1.1", "[::2]", "my-box.evil.example", "127.0.0.x"}) {
    const int expected = std::string(other) == "127.0.0.1." ? 0 : 403;
    EXPECT_EQ(status(guard, {{"host", other}}), expected) << other;
  }
  EXPECT_EQ(status(guard, {}), 0);  // HTTP/1.0
}

TEST(RequestGuardTest, OtherServersHaveHostsIfTheyAreNamed) {
  EXPECT_EQ(status(of_hosts("0.0.0.0", false), {{"host", "any.example"}}), 0);
  const RequestGuard guard = of_hosts("0.0.0.0", false, {"api.example"});
  EXPECT_EQ(status(guard, {{"host", "any.example"}}), 403);
  EXPECT_EQ(status(guard, {{"host", "api.example:443"}}), 0);
}

RequestGuard of_origins(bool has_key, std::vector<std::string> origins = {}) {
  return RequestGuard(
      {.hosts = {}, .checks_origins = true, .has_key = has_key, .origins = std::move(origins)});
}

TEST(RequestGuardTest, WithoutAKeyForeignPagesAreRefused) {
  const RequestGuard guard = of_origins(false, {"https://a.example"});
  const std::pair<std::string, std::string> host = {"host", "localhost:8000"};
  EXPECT_EQ(status(guard, {host}), 0);
  for (const char* origin :
       {"https://a.example", "http://localhost:8000", "https://LocalHost:8000"}) {
    EXPECT_EQ(status(guard, {host, {"origin", origin}}), 0) << origin;
  }
  for (const char* origin :
       {"https://b.example", "http://a.example", "null", "http://localhost",
        "http://localhost:80001", "file://", "https://a.example.evil.example"}) {
    EXPECT_EQ(status(guard, {host, {"origin", origin}}), 403) << origin;
    EXPECT_EQ(status(guard, {host, {"origin", origin}}, "GET"), 403) << origin;
    EXPECT_EQ(status(guard, {host, {"origin", origin}}, "OPTIONS"), 0) << origin;
  }
  EXPECT_EQ(status(of_origins(false, {"*"}), {host, {"origin", "https://b.example"}}), 0);
}

TEST(RequestGuardTest, WithAKeyPagesMustAskTheBrowser) {
  const RequestGuard guard = of_origins(true, {"https://a.example"});
  const std::pair<std::string, std::string> origin = {"origin", "https://b.example"};
  for (const char* type :
       {"text/plain", "Text/Plain;charset=utf-8", "multipart/form-data; boundary=x",
        "application/x-www-form-urlencoded ", ""}) {
    EXPECT_EQ(status(guard, {origin, {"content-type", type}}), 415) << type;
    EXPECT_EQ(status(guard, {{"content-type", type}}), 0) << type;  // no page
    EXPECT_EQ(status(guard, {{"origin", "https://a.example"}, {"content-type", type}}), 0) << type;
    EXPECT_EQ(status(guard, {origin, {"content-type", type}}, "GET"), 0) << type;
  }
  EXPECT_EQ(status(guard, {origin, {"content-type", "application/json"}}), 0);
}

}  // namespace
}  // namespace wideep::server
