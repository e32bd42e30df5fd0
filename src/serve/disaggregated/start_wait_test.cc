// SPDX-License-Identifier: Apache-2.0
#include "disaggregated/start_wait.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/router_testing.h"

namespace wideep::disaggregated {
namespace {

using engine::Role;
using server::RouterMember;

TEST(StartWait, NamesWhoIsMissing) {
  const std::vector<RouterMember> all = {
      {{"a", 1}, Role::kPrefill}, {{"b", 2}, Role::kPrefill}, {{"c", 3}, Role::kBoth}};
  const Needed needed = needed_of(all);
  EXPECT_EQ(needed.context, 3);
  EXPECT_EQ(needed.generation, 1);
  EXPECT_EQ(missing_text(all, needed, all), "");
  EXPECT_EQ(missing_text({all[0], all[2]}, needed, all),
            "context_servers: 2 of 3, missing http://b:2");
  EXPECT_EQ(missing_text({all[0]}, needed, all),
            "context_servers: 1 of 3, missing http://b:2, missing http://c:3; generation_servers: "
            "0 of 1, missing http://c:3");
  // Of a cluster names are not known beforehand.
  EXPECT_EQ(missing_text({all[2]}, {.context = 1, .generation = 2}, {}),
            "generation_servers: 1 of 2");
}

TEST(StartWait, AsksForHealth) {
  server::TestReplica good([](const auto& each) { each->reply(404, "text/plain", ""); });
  server::TestReplica bad([](const auto& each) { each->reply(404, "text/plain", ""); });
  bad.health = 503;
  const RouterMember one{{"127.0.0.1", good.port()}, Role::kDecode};
  const auto healthy = healthy_of({{{"127.0.0.1", 1}, Role::kBoth},
                                   one,
                                   {{"127.0.0.1", bad.port()}, Role::kBoth},
                                   {{"no-such-host.invalid", 1}, Role::kBoth}});
  EXPECT_THAT(healthy, testing::ElementsAre(one));
}

}  // namespace
}  // namespace wideep::disaggregated
