// SPDX-License-Identifier: Apache-2.0
#include "server/chat_page_service.h"

namespace wideep::server {

void ChatPageService::page(const std::shared_ptr<Exchange>& exchange) {
  exchange->add_header("Content-Security-Policy", policy_);
  exchange->add_header("X-Content-Type-Options", "nosniff");
  exchange->add_header("Referrer-Policy", "no-referrer");
  exchange->add_header("Cross-Origin-Opener-Policy", "same-origin-allow-popups");
  exchange->add_header("Cross-Origin-Resource-Policy", "same-origin");
  exchange->add_header("Cache-Control", "no-cache");
  replies_.reply(exchange, "text/html; charset=utf-8", chat_page());
}

}  // namespace wideep::server
