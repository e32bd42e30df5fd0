// SPDX-License-Identifier: Apache-2.0
//
// The endpoint of the chat page. The page itself contains no data and needs no key: its script asks
// the user for the key, if the server requires one, and sends it with its requests to the API.
//
// Thread safety: the serving thread.
#pragma once

#include <memory>
#include <string>

#include "http/exchange.h"
#include "server/chat_page.h"
#include "server/page_policy.h"
#include "server/replies.h"

namespace wideep::server {

class ChatPageService {
 public:
  // replies: outlives it.
  explicit ChatPageService(Replies& replies) : replies_(replies) {}

  // Whether the command was built with it.
  static bool has_page() { return !chat_page().empty(); }
  void page(const std::shared_ptr<Exchange>& exchange);

 private:
  Replies& replies_;
  const std::string policy_ = policy_of_page(chat_page());
};

}  // namespace wideep::server
