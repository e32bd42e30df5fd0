// SPDX-License-Identifier: Apache-2.0
#include "server/page_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/chat_page.h"

namespace wideep::server {
namespace {

using testing::HasSubstr;
using testing::Not;

// printf 'alert(1)' | openssl dgst -sha256 -binary | base64, and the same of "p{}" and of "".
TEST(PolicyOfPage, HasTheHashesOfScriptsAndStyles) {
  const std::string policy =
      policy_of_page("<style>p{}</style><script>alert(1)</script><p>x</p><script></script>");
  EXPECT_THAT(policy, HasSubstr("script-src 'sha256-bhHHL3z2vDgxUt0W3dWQOrprscmda2Y5pLsLg4GF+pI=' "
                                "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='; "));
  EXPECT_THAT(policy,
              HasSubstr("style-src 'sha256-gG2yISYereRMiG2lMXrbiUgi0Ubw9p7QCeWcroOvy9Y='; "));
}

TEST(PolicyOfPage, AllowsNothingElse) {
  const std::string policy = policy_of_page("<p>x</p>");
  EXPECT_THAT(policy, HasSubstr("default-src 'none'; script-src 'none'; style-src 'none'; "));
  EXPECT_THAT(policy, HasSubstr("require-trusted-types-for 'script'"));
  EXPECT_THAT(policy, Not(HasSubstr("unsafe")));
}

// What would end a script early, or begin another one, where the browser sees it.
TEST(PolicyOfPage, OfTheChatPageHasEachOfItsScripts) {
  const std::string_view page = chat_page();
  if (page.empty()) GTEST_SKIP() << "built without the page (WIDEEP_PAGE=OFF)";
  size_t scripts = 0;
  for (size_t at = 0; (at = page.find("<script>", at)) != page.npos; ++at) ++scripts;
  EXPECT_EQ(scripts, 4u);
  size_t hashes = 0;
  const std::string policy = policy_of_page(page);
  for (size_t at = 0; (at = policy.find("'sha256-", at)) != policy.npos; ++at) ++hashes;
  EXPECT_EQ(hashes, scripts + 1);
  EXPECT_EQ(page.find('\r'), page.npos) << "browsers hash scripts after they have made it \\n";
  EXPECT_EQ(page.find("@LIBRARY"), page.npos);
}

}  // namespace
}  // namespace wideep::server
