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
                                                         std::string record_class,
                                                         store::PageTrust trust) {
  WIDEEP_TRY_ASSIGN(const transport::PeerAddress address,
                    transport::resolve(where.name, where.port));
  WIDEEP_TRY_ASSIGN(const int reserved, transport::reserve_address(address));
  Told told{.host = is_any(address) ? "" : where.name,
            .record_class = std::move(record_class),
            .trust = std::move(trust)};
  return std::unique_ptr<PageSharing>(new PageSharing(std::move(told), reserved));
}

PageSharing::PageSharing(Told told, int reserved)
    : told_(std::move(told)),
      token_(base::random_hex(kTokenBytes)),
      offering_token_(base::random_hex(kTokenBytes)),
      reserved_(reserved),
      address_(transport::local_address(reserved)) {}

PageSharing::~PageSharing() {
  stop();
  ::close(reserved_);
}

Status PageSharing::start(const base::SharedBytes& memory) {
  WIDEEP_TRY_ASSIGN(index_, store::HostIndex::open(memory));
  index_->take_all();
  // Peers that have mapped the memory see that there is something to ask for.
  requests_.on_end([this] { index_->add_news(); });
  WIDEEP_TRY_ASSIGN(
      server_,
      store::PageServer::start({.address = address_,
                                .token = token_,
                                .record_class = told_.record_class,
                                .offering_token = offering_token_,
                                .state_of = [this](auto name) { return requests_.status_of(name); },
                                .counts = &counts_},
                               memory));
  return {};
}

void PageSharing::stop() {
  requests_.on_end({});
  server_.reset();
}

std::string PageSharing::opaque_state(const std::string& local_host) const {
  if (server_ == nullptr) return "";
  std::string host = told_.host.empty() ? local_host : told_.host;
  if (host.empty()) host = address_.is_v6 ? "::1" : "127.0.0.1";
  store::PagePeer self{.host = {.name = std::move(host), .port = address_.port},
                       .token = token_,
                       .record_class = told_.record_class};
  self.mac = told_.trust.sign(self);
  return store::text_of(self);
}

Result<std::string> PageSharing::host_for_nodes(const std::string& node, bool are_here) const {
  const std::string& host = told_.host.empty() ? node : told_.host;
  if (!host.empty()) {
    WIDEEP_TRY_ASSIGN(const transport::PeerAddress address, transport::resolve(host, 0));
    if (!is_any(address) && (are_here || !address.is_loopback())) return host;
  }
  return invalid_input(
      fmt::format("expected an address of this node by which the other nodes reach it, found {}",
                  told_.host.empty() && node.empty() ? "all addresses" : host));
}

std::string PageSharing::offering_state(const std::string& host) const {
  if (server_ == nullptr) return "";
  return store::text_of({.host = {.name = host, .port = address_.port},
                         .token = offering_token_,
                         .record_class = told_.record_class});
}

}  // namespace wideep::server
