// SPDX-License-Identifier: Apache-2.0
#include "store/redis_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace wideep::store {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

TEST(RedisAddress, HasHostsUserDatabaseAndFiles) {
  const auto one = parse_redis_url("redis://cache");
  ASSERT_TRUE(one.ok());
  EXPECT_THAT(one->hosts, ElementsAre(RedisHost{"cache", 6379}));
  EXPECT_FALSE(one->is_tls);
  EXPECT_EQ(one->user + one->password, "");
  EXPECT_EQ(one->ttl, std::chrono::hours(7 * 24));

  const auto all = parse_redis_url(
      "rediss://rank%3a1:p%40s%2Fs:%25@10.0.0.1:7000/3?ssl_ca_certs=/a%20b.pem"
      "&ssl_certfile=c.pem&ssl_keyfile=k.pem");
  ASSERT_TRUE(all.ok()) << all.status().message();
  EXPECT_THAT(all->hosts, ElementsAre(RedisHost{"10.0.0.1", 7000}));
  EXPECT_TRUE(all->is_tls);
  EXPECT_EQ(all->user, "rank:1");
  EXPECT_EQ(all->password, "p@s/s:%");
  EXPECT_EQ(all->db, 3);
  EXPECT_EQ(all->ca_file, "/a b.pem");
  EXPECT_EQ(all->certificate_file, "c.pem");
  EXPECT_EQ(all->key_file, "k.pem");
  EXPECT_EQ(all->text(), "rediss://10.0.0.1:7000/3");

  const auto cluster = parse_redis_url("redis://:secret@a,b:7001,[::1]:7002,[fe80::2]");
  ASSERT_TRUE(cluster.ok()) << cluster.status().message();
  EXPECT_THAT(cluster->hosts, ElementsAre(RedisHost{"a", 6379}, RedisHost{"b", 7001},
                                          RedisHost{"::1", 7002}, RedisHost{"fe80::2", 6379}));
  EXPECT_EQ(cluster->user, "");
  EXPECT_EQ(cluster->password, "secret");
  EXPECT_EQ(cluster->text(), "redis://a:6379,b:7001,[::1]:7002,[fe80::2]:6379");
  EXPECT_EQ(parse_redis_url("redis://only@h")->user, "only");
  EXPECT_EQ(parse_redis_url("redis://a@b@h")->user, "a@b");
}

TEST(RedisAddress, WrongOnesAreRefusedWithoutTheirPassword) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "begins otherwise"},
      {"http://secret@h", "begins otherwise"},
      {"redis:/h", "begins otherwise"},
      {"redis://", "expected host[:port], found ''"},
      {"redis://u:secret@", "expected host[:port], found ''"},
      {"redis://a,,b", "expected host[:port], found ''"},
      {"redis://u:secret@h:0", "found 'h:0'"},
      {"redis://u:secret@h:65536", "found 'h:65536'"},
      {"redis://u:secret@h:7x", "found 'h:7x'"},
      {"redis://u:secret@[::1", "found '[::1'"},
      {"redis://u:secret@[::1]7", "found '[::1]7'"},
      {"redis://u:secret@h/x", "found 'x'"},
      {"redis://u:secret@h/-1", "found '-1'"},
      {"redis://u:7/secret@h", "'/' is %2F"},
      {"redis://:pa?secret@h", "'?' %3F"},
      {"redis://u:12?secret@h", "'?' %3F"},
      {"redis://:secret/1@h", "'/' is %2F"},
      {"redis://u:secret%@h", "%25"},
      {"redis://u:secret%4@h", "%25"},
      {"redis://u:secret%00@h", "%25"},
      {"redis://u:secret@a,b/1", "found /1"},
      {"redis://u:secret@h?ttl=5", "ttl=: not known"},
      {"redis://u:secret@h?ssl_ca_certs=f", "write rediss://"},
      {"rediss://u:secret@h?ssl_ca_certs=", "the name of a file"},
      {"rediss://u:secret@h?ssl_keyfile=k", "belong together"},
      {"rediss://u:secret@h?ssl_cert_reqs=none", "ssl_cert_reqs=: not known"},
  };
  for (const auto& [url, what] : cases) {
    const auto parsed = parse_redis_url(url);
    ASSERT_FALSE(parsed.ok()) << url;
    EXPECT_EQ(parsed.status().code(), StatusCode::kInvalidInput);
    EXPECT_THAT(parsed.status().message(), HasSubstr(what)) << url;
    EXPECT_THAT(parsed.status().message(), Not(HasSubstr("secret"))) << url;
  }
}

}  // namespace
}  // namespace wideep::store
