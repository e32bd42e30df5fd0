// SPDX-License-Identifier: Apache-2.0
//
// Pages are taken over real sockets. A failure means that whoever was told of a server does not find
// its pages any more when another process serves.
#include "server/page_sharing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "store/host_tier.h"
#include "store/page_peer.h"
#include "store/peer_place.h"
#include "store/records_testing.h"

namespace wideep::server {
namespace {

using testing::HasSubstr;

TEST(PageSharingTest, WhoServesNextIsWhereTheOneBeforeWas) {
  const auto memory =
      store::HostTier::create_memory(uint64_t{1} << 20, base::SharedBytes::create).value();
  auto sharing =
      PageSharing::create({.name = "127.0.0.1", .port = 0}, "00ff", store::PageTrust()).value();
  EXPECT_EQ(sharing->opaque_state("10.0.0.1"), "");  // nobody serves
  ASSERT_TRUE(sharing->start(memory).ok());
  const store::PagePeer told = store::parse_page_peer(sharing->opaque_state("10.0.0.1")).value();
  EXPECT_EQ(told.host.name, "127.0.0.1");
  EXPECT_GT(told.host.port, 0);
  EXPECT_EQ(told.host.port, sharing->port());
  EXPECT_EQ(told.record_class, "00ff");
  EXPECT_EQ(told.mac, "");
  EXPECT_EQ(told.request, "");
  sharing->requests().begin("7");
  sharing->stop();
  for (int process = 0; process < 3; ++process) {
    ASSERT_TRUE(sharing->start(memory).ok());
    auto peer = store::PeerPlace::make(
        {.host = told.host, .token = told.token, .record_class = told.record_class});
    ASSERT_TRUE(peer.ok());
    EXPECT_EQ((*peer)->state("7").value().state, store::RequestState::kComputes);
    EXPECT_EQ((*peer)->state("8").value().state, store::RequestState::kUnknown);
    sharing->stop();
  }
}

TEST(PageSharingTest, WhoListensEverywhereIsWhereTheClientHasReachedIt) {
  const auto memory =
      store::HostTier::create_memory(uint64_t{1} << 20, base::SharedBytes::create).value();
  const auto sharing =
      PageSharing::create({.name = "0.0.0.0", .port = 0}, "00ff", store::PageTrust()).value();
  ASSERT_TRUE(sharing->start(memory).ok());
  EXPECT_THAT(sharing->opaque_state("10.1.2.3"), HasSubstr("1;10.1.2.3:"));
  EXPECT_THAT(sharing->opaque_state("fd00::7"), HasSubstr("1;[fd00::7]:"));
  EXPECT_THAT(sharing->opaque_state(""), HasSubstr("1;127.0.0.1:"));
}

TEST(PageSharingTest, WhatIsToldIsSigned) {
  const auto memory =
      store::HostTier::create_memory(uint64_t{1} << 20, base::SharedBytes::create).value();
  const store::PageTrust trust("a key of the servers");
  const auto sharing = PageSharing::create({.name = "0.0.0.0", .port = 0}, "00ff", trust).value();
  ASSERT_TRUE(sharing->start(memory).ok());
  for (const char* reached : {"10.1.2.3", "10.1.2.4"}) {
    const auto told = store::parse_page_peer(sharing->opaque_state(reached)).value();
    EXPECT_EQ(told.host.name, reached);
    EXPECT_TRUE(trust.check(told).ok());
    EXPECT_FALSE(store::PageTrust("the key of others").check(told).ok());
  }
}

TEST(PageSharingTest, RanksOfOtherNodesAreToldWhereTheyReachIt) {
  const auto make = [](const char* host) {
    return PageSharing::create({.name = host, .port = 0}, "00ff", store::PageTrust()).value();
  };
  const auto everywhere = make("0.0.0.0"), here = make("127.0.0.1");
  EXPECT_EQ(everywhere->host_for_nodes("10.1.2.3", false).value(), "10.1.2.3");
  EXPECT_EQ(everywhere->host_for_nodes("127.0.0.1", true).value(), "127.0.0.1");
  EXPECT_EQ(here->host_for_nodes("10.1.2.3", true).value(), "127.0.0.1");
  const auto complaint = [](const auto& host) { return host.status().message(); };
  EXPECT_THAT(complaint(here->host_for_nodes("10.1.2.3", false)), HasSubstr("found 127.0.0.1"));
  EXPECT_THAT(complaint(everywhere->host_for_nodes("", false)), HasSubstr("found all addresses"));
  EXPECT_THAT(complaint(everywhere->host_for_nodes("0.0.0.0", false)), HasSubstr("found 0.0.0.0"));

  const auto memory =
      store::HostTier::create_memory(uint64_t{1} << 20, base::SharedBytes::create).value();
  EXPECT_EQ(here->offering_state("127.0.0.1"), "");  // nobody serves
  ASSERT_TRUE(here->start(memory).ok());
  const auto told = store::parse_page_peer(here->offering_state("127.0.0.1")).value();
  const auto read = store::parse_page_peer(here->opaque_state("")).value();
  EXPECT_EQ(told.host, read.host);
  EXPECT_NE(told.token, read.token);
  for (const auto& [peer, result] : {std::pair(told, store::OfferResult::kTaken),
                                     std::pair(read, store::OfferResult::kFailed)}) {
    const auto place = store::PeerPlace::make({.host = peer.host,
                                               .token = peer.token,
                                               .record_class = peer.record_class,
                                               .offers = true})
                           .value();
    const store::Head head = store::sequence_of(1, 1, 4096).front();
    EXPECT_EQ(place->offer(head, store::payload_of(head), 1.0, store::kIntact), result);
  }
}

TEST(PageSharingTest, AnAddressIsHadByOne) {
  const auto memory =
      store::HostTier::create_memory(uint64_t{1} << 20, base::SharedBytes::create).value();
  auto sharing =
      PageSharing::create({.name = "127.0.0.1", .port = 0}, "00ff", store::PageTrust()).value();
  ASSERT_TRUE(sharing->start(memory).ok());
  const auto port = static_cast<uint16_t>(sharing->port());
  const auto other =
      PageSharing::create({.name = "127.0.0.1", .port = port}, "00ff", store::PageTrust());
  ASSERT_FALSE(other.ok());
  EXPECT_THAT(other.status().message(), HasSubstr("cannot listen on 127.0.0.1:"));
  EXPECT_FALSE(
      PageSharing::create({.name = "no such host", .port = 0}, "00ff", store::PageTrust()).ok());
}

}  // namespace
}  // namespace wideep::server
