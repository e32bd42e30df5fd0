// SPDX-License-Identifier: Apache-2.0
//
// A failure means that anybody who may send requests can name a server whose pages everybody gets.
#include "store/page_trust.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace wideep::store {
namespace {

PagePeer peer_at(const std::string& host) {
  return {.host = {.name = host, .port = 7000}, .token = "t", .record_class = "ab"};
}

PagePeer signed_by(const std::string& key, PagePeer peer) {
  peer.mac = PageTrust(key).sign(peer);
  return peer;
}

const std::string kKey = "a key of 32 bytes, as from a file";

// As `openssl dgst -sha256 -hmac KEY` makes it of the purpose, a zero byte and the text.
TEST(PageTrust, WhoHasTheKeyIsTrustedWhereverItIs) {
  PagePeer peer = signed_by(kKey, peer_at("10.0.0.1"));
  EXPECT_EQ(peer.mac, "ce05e6b33aa4fc43bda6e6b54800292373e529410e77c20ee7b4ad4b64098e17");
  EXPECT_TRUE(PageTrust(kKey).check(peer).ok());
  peer.request = "12";  // a client adds it
  EXPECT_TRUE(PageTrust(kKey).check(peer).ok());
}

TEST(PageTrust, WhateverElseAServerSaysOfItselfIsSigned) {
  const PagePeer peer = signed_by(kKey, peer_at("10.0.0.1"));
  std::vector<PagePeer> others(6, peer);
  others[0].host.name = "10.0.0.2";
  others[1].host.port = 7001;
  others[2].token = "u";
  others[3].record_class = "ac";
  others[4].mac = "";
  others[5].mac.back() = others[5].mac.back() == '0' ? '1' : '0';
  others.push_back(signed_by("another key of thirty-two bytes.", peer));
  others.push_back(signed_by("", peer_at("127.0.0.1")));
  for (const PagePeer& other : others) {
    EXPECT_FALSE(PageTrust(kKey).check(other).ok()) << text_of(other);
  }
  EXPECT_EQ(PageTrust(kKey).check(others[5]).message(),
            "the server 10.0.0.1:7000 has another page key: all servers need the same "
            "--page-key-file");
}

TEST(PageTrust, WithoutAKeyThisMachineIsTrusted) {
  const PageTrust trust;
  EXPECT_EQ(trust.sign(peer_at("127.0.0.1")), "");
  for (const char* host : {"127.0.0.1", "127.1.2.3", "::1", "localhost"}) {
    EXPECT_TRUE(trust.check(peer_at(host)).ok()) << host;
  }
  for (const char* host : {"10.0.0.1", "128.0.0.1", "127.0.0.1.example.org", "127.1", "0.0.0.0",
                           "::", "fe80::1", "localhost.", "LOCALHOST", "example.org", "::1%lo"}) {
    EXPECT_FALSE(trust.check(peer_at(host)).ok()) << host;
  }
  EXPECT_EQ(trust.check(peer_at("10.0.0.1")).message(),
            "the server 10.0.0.1:7000 is on another machine: all servers need the same "
            "--page-key-file");
}

}  // namespace
}  // namespace wideep::store
