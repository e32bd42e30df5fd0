// SPDX-License-Identifier: Apache-2.0
#include "server/page_sharing.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/random_hex.h"
#include "base/try.h"
#include "store/page_peer.h"

namespace wideep::server {
namespace {

constexpr size_t kTokenBytes = 16;

// 0.0.0.0 or ::
bool is_any(const transport::PeerAddress& address) {
  return std::ranges::all_of(address.host, [](uint8_t byte) { return byte == 0; });
}

}  // namespace

Result<std::unique_ptr<PageSharing>> PageSharing::create(const store::RedisHost& where,
                                                         std::string record_class) {
  WIDEEP_TRY_ASSIGN(const transport::PeerAddress address,
                    transport::resolve(where.name, where.port));
  WIDEEP_TRY_ASSIGN(const int reserved, transport::reserve_address(address));
  return std::unique_ptr<PageSharing>(
      new PageSharing(is_any(address) ? "" : where.name, std::move(record_class), reserved));
}

PageSharing::PageSharing(std::string host, std::string record_class, int reserved)
    : host_(std::move(host)),
      token_(base::random_hex(kTokenBytes)),
      record_class_(std::move(record_class)),
      reserved_(reserved),
      address_(transport::local_address(reserved)) {}

PageSharing::~PageSharing() {
  stop();
  ::close(reserved_);
}

Status PageSharing::start(const base::SharedBytes& memory) {
  WIDEEP_TRY_ASSIGN(
      server_,
      store::PageServer::start({.address = address_,
                                .token = token_,
                                .record_class = record_class_,
                                .state_of = [this](auto name) { return requests_.state_of(name); },
                                .counts = &counts_},
                               memory));
  return {};
}

std::string PageSharing::opaque_state(const std::string& local_host) const {
  std::string host = host_.empty() ? local_host : host_;
  if (host.empty()) host = address_.is_v6 ? "::1" : "127.0.0.1";
  return store::text_of({.host = {.name = std::move(host), .port = address_.port},
                         .token = token_,
                         .record_class = record_class_,
                         .request = ""});
}

}  // namespace wideep::server
