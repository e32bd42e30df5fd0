// SPDX-License-Identifier: Apache-2.0
//
// Who is let in, and whom this side trusts: passwords, users with few rights, TLS.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "store/redis_place_testing.h"
#include "transport/programs_testing.h"

namespace wideep::store {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class RedisAccessTest : public RedisPlaceTest {
 protected:
  // What the server at the URL says to a client that wants to write and read a record.
  static void expect_works(const std::string& url) {
    const auto place = place_at(url);
    const Head head = page_at(20, 0, 200000);
    EXPECT_NE(offer(*place, head), OfferResult::kFailed) << place->trouble();
    EXPECT_THAT(fetch(*place, {head}).results, ElementsAre(FetchResult::kWhole));
    EXPECT_EQ(place->counts().failures, 0u) << place->trouble();
  }
  static std::string refusal(const std::string& url) {
    const auto place = place_at(url);
    const Head head = page_at(20, 0, 2000);
    EXPECT_THAT(place->find({&head, 1}), ElementsAre(false));
    EXPECT_EQ(offer(*place, head), OfferResult::kFailed);
    const Fetched fetched = fetch(*place, {head});
    EXPECT_FALSE(fetched.status.ok());
    EXPECT_EQ(fetched.status.message(), place->trouble());
    EXPECT_EQ(place->counts().failures, 3u);
    return fetched.status.message();
  }
};

TEST_F(RedisAccessTest, APasswordOpensIt) {
  RedisOptions client;
  client.password = "s@cret";
  const RedisServerForTest server({"--requirepass", "s@cret"}, client);
  const std::string where = fmt::format("127.0.0.1:{}", server.port());
  expect_works("redis://:s%40cret@" + where);
  expect_works("redis://default:s%40cret@" + where + "/5");
  EXPECT_THAT(refusal("redis://" + where), HasSubstr("NOAUTH"));
  EXPECT_THAT(refusal("redis://:other@" + where),
              testing::AllOf(HasSubstr("does not let this client in"), HasSubstr("WRONGPASS"),
                             Not(HasSubstr("other"))));
  EXPECT_THAT(refusal("redis://:s%40cret@" + where + "/99"), HasSubstr("index is out of range"));
  EXPECT_TRUE(place_at("redis://:s%40cret@" + where)->check().ok());
  EXPECT_EQ(place_at("redis://:other@" + where)->check().code(), StatusCode::kInvalidInput);
}

// With the rights that redis_place.h names.
TEST_F(RedisAccessTest, AUserNeedsFewRights) {
  const RedisServerForTest server(
      {"--user", "wideep",  "on",      ">pw",    "~wideep:*", "+hkeys",  "+hget",
       "+hset",  "+expire", "+unlink", "+multi", "+exec",     "+dbsize", "+info",
       "--user", "reader",  "on",      ">pw",    "~wideep:*", "+hkeys",  "+hget"});
  const std::string where = fmt::format("127.0.0.1:{}", server.port());
  expect_works(fmt::format("redis://wideep:pw@{}", where));
  const auto place = place_at(fmt::format("redis://wideep:pw@{}", where));
  EXPECT_EQ(place->size().records, 1u);
  const Head head = page_at(20, 0, 200000), other = page_at(20, 1, 100);
  // Who may only read, reads.
  const auto reader = place_at(fmt::format("redis://reader:pw@{}", where));
  EXPECT_THAT(fetch(*reader, {head}).results, ElementsAre(FetchResult::kWhole));
  EXPECT_EQ(offer(*reader, other), OfferResult::kFailed);
  EXPECT_THAT(reader->trouble(), HasSubstr("NOPERM"));
  EXPECT_EQ(reader->size().records, 0u);
  place->forget(head.name, head.kind);
  EXPECT_THAT(place->find({&head, 1}), ElementsAre(false));
  EXPECT_EQ(place->counts().failures, 0u) << place->trouble();
}

// An authority, a server's certificate for 127.0.0.1 and localhost, a client's, and one of another
// authority.
class Certificates {
 public:
  Certificates() {
    made_ = authority("ca") && certificate("server", "ca", "IP:127.0.0.1,DNS:localhost") &&
            certificate("other", "ca", "DNS:elsewhere.example") &&
            certificate("client", "ca", "DNS:client") && authority("stranger");
  }
  bool made() const { return made_; }
  std::string file(const std::string& name) const { return folder_.file(name); }

 private:
  bool run(const std::string& arguments) const {
    const std::string line =
        fmt::format("cd {} && openssl {} >/dev/null 2>&1", folder_.path(), arguments);
    return std::system(line.c_str()) == 0;
  }
  bool authority(const std::string& name) const {
    return run(fmt::format(
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN={0} "
        "-keyout {0}.key -out {0}.pem",
        name));
  }
  bool certificate(const std::string& name, const std::string& by, const std::string& names) const {
    std::ofstream(file(name + ".ext")) << "subjectAltName=" << names << "\n";
    return run(fmt::format("req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN={0} "
                           "-keyout {0}.key -out {0}.csr",
                           name)) &&
           run(fmt::format("x509 -req -days 2 -in {0}.csr -CA {1}.pem -CAkey {1}.key "
                           "-CAcreateserial -extfile {0}.ext -out {0}.pem",
                           name, by));
  }

  base::ScratchDirectory folder_;
  bool made_ = false;
};

std::vector<std::string> with_tls(const Certificates& files, const std::string& name,
                                  const std::string& clients) {
  return {"--tls-cert-file",    files.file(name + ".pem"),
          "--tls-key-file",     files.file(name + ".key"),
          "--tls-ca-cert-file", files.file("ca.pem"),
          "--tls-auth-clients", clients};
}

TEST_F(RedisAccessTest, TlsTrustsWhomItIsToldTo) {
  const Certificates files;
  if (!files.made()) GTEST_SKIP() << "openssl is missing (scripts/test_packages.txt)";
  const std::string trusted = "?ssl_ca_certs=" + files.file("ca.pem");
  RedisOptions client;
  client.is_tls = true;
  client.ca_file = files.file("ca.pem");
  const RedisServerForTest server(with_tls(files, "server", "no"), client);
  expect_works(server.url() + trusted);
  expect_works(fmt::format("rediss://localhost:{}{}", server.port(), trusted));
  EXPECT_THAT(refusal(server.url() + "?ssl_ca_certs=" + files.file("stranger.pem")),
              testing::AllOf(HasSubstr("certificate is refused"), HasSubstr("ssl_ca_certs=FILE")));
  EXPECT_THAT(refusal(server.url()), HasSubstr("certificate is refused"));
  EXPECT_FALSE(
      fetch(*place_at(fmt::format("redis://127.0.0.1:{}", server.port())), {page_at(20, 0, 10)})
          .status.ok());

  // As Redis wants it unless it is told otherwise: clients have certificates, too.
  client.certificate_file = files.file("client.pem");
  client.key_file = files.file("client.key");
  const RedisServerForTest strict(with_tls(files, "server", "yes"), client);
  expect_works(strict.url() + trusted + "&ssl_certfile=" + files.file("client.pem") +
               "&ssl_keyfile=" + files.file("client.key"));
  EXPECT_THAT(refusal(strict.url() + trusted), HasSubstr(std::to_string(strict.port())));

  const auto wrong = [&](const std::string& query) {
    auto options = parse_redis_url(server.url() + query);
    return RedisPlace::make(*options).status().message();
  };
  EXPECT_THAT(wrong("?ssl_ca_certs=/nowhere.pem"), HasSubstr("'/nowhere.pem': expected"));
  EXPECT_THAT(wrong("?ssl_ca_certs=" + files.file("ca.key")), HasSubstr("in PEM"));
  EXPECT_THAT(wrong(trusted + "&ssl_certfile=" + files.file("client.pem") +
                    "&ssl_keyfile=" + files.file("ca.key")),
              HasSubstr("the key of that certificate"));
}

TEST_F(RedisAccessTest, TlsWantsACertificateOfTheHost) {
  const Certificates files;
  if (!files.made()) GTEST_SKIP() << "openssl is missing (scripts/test_packages.txt)";
  RedisOptions client;
  client.is_tls = true;
  const std::string trusted = "?ssl_ca_certs=" + files.file("ca.pem");
  const int port = transport::free_port();
  // The fixture cannot get in either: it is started by hand.
  const std::string line = fmt::format(
      "redis-server --port 0 --tls-port {} --bind 127.0.0.1 --save '' --tls-cert-file {} "
      "--tls-key-file {} --tls-ca-cert-file {} --tls-auth-clients no --daemonize yes "
      "--dir {} --pidfile {} >/dev/null",
      port, files.file("other.pem"), files.file("other.key"), files.file("ca.pem"), files.file(""),
      files.file("pid"));
  ASSERT_EQ(std::system(line.c_str()), 0);
  std::string why;
  for (int i = 0; i < 200 && why.find("refused:") == std::string::npos; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const Head head = page_at(20, 0, 10);
    const auto place = place_at(fmt::format("rediss://127.0.0.1:{}{}", port, trusted));
    why = fetch(*place, {head}).status.message();
  }
  EXPECT_THAT(why, HasSubstr("mismatch"));
  EXPECT_EQ(std::system(fmt::format("kill -9 $(cat {})", files.file("pid")).c_str()), 0);
}

}  // namespace
}  // namespace wideep::store
