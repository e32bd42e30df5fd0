// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace wideep::transport {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

TEST(Tcp, AddressesAreWrittenAndRead) {
  for (const char* text : {"127.0.0.1:29501", "10.1.2.3:1", "[::1]:65535", "[fe80::1:2]:80"}) {
    const auto address = parse_address(text);
    ASSERT_TRUE(address.ok()) << text;
    EXPECT_EQ(address->text(), text);
  }
}

TEST(Tcp, RefusesWhatIsNoAddress) {
  for (const char* text : {"", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:70000",
                           "1.2.3:4", "::1:5", "[::1:5", "127.0.0.1:5 "}) {
    EXPECT_FALSE(parse_address(text).ok()) << text;
  }
}

TEST(Tcp, ConnectsToWhoListens) {
  const auto any = resolve("127.0.0.1", 0);
  ASSERT_TRUE(any.ok());
  const auto listener = listen_on(*any);
  ASSERT_TRUE(listener.ok()) << listener.status().message();
  const PeerAddress there = local_address(*listener);
  EXPECT_NE(there.port, 0);
  const auto socket = connect_to(there, 1s);
  ASSERT_TRUE(socket.ok()) << socket.status().message();
  EXPECT_EQ(remote_address(*socket), there);
  EXPECT_THAT(listen_on(there).status().message(), HasSubstr(there.text()));  // in use
  ::close(*listener);
  ::close(*socket);
  EXPECT_THAT(connect_to(there, 1s).status().message(),
              HasSubstr("no connection to " + there.text()));
}

TEST(Tcp, NamesWhatItCannotResolve) {
  EXPECT_THAT(resolve("no.such.host.invalid", 1).status().message(),
              HasSubstr("'no.such.host.invalid'"));
}

}  // namespace
}  // namespace wideep::transport
