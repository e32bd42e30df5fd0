// SPDX-License-Identifier: Apache-2.0
//
// Another server's memory as a place: what it has computed of a prompt is fetched, nothing is
// offered to it (page_server.h).
//
// Every call has a deadline, as those of RedisPlace; a peer that is slow, gone or another than it
// was makes it fail, and what it had is computed.
//
// Thread safety: one thread.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "store/page_server.h"
#include "store/place.h"
#include "store/redis_servers.h"

namespace wideep::store {

struct PeerOptions {
  RedisHost host;
  std::string token;
  std::string record_class;  // of the records that are wanted
  // How long the peer keeps what find() has found for this side.
  std::chrono::milliseconds lease{3'000};
};

class PeerPlace final : public Place {
 public:
  // Connects to nobody yet.
  static Result<std::unique_ptr<PeerPlace>> make(const PeerOptions& options);

  // [requests] what the peer says of them; one that it does not know how to name is unknown. Errors
  // (failed, deadline exceeded): no answer.
  Result<std::vector<RequestState>> states(std::span<const std::string> requests);

  std::string_view label() const override { return "peer"; }
  std::vector<bool> find(std::span<const Head> heads) override;
  Status fetch(std::span<const FetchOrder> orders,
               const std::function<bool(size_t index, FetchResult result)>& done) override;
  OfferResult offer(const Head&, std::span<const std::byte>, double,
                    const std::function<bool()>&) override {
    return OfferResult::kRefused;
  }
  void forget(const Name&, Kind) override {}  // the peer checks its bytes itself
  PlaceCounts counts() const override { return counts_; }
  std::string_view trouble() const override { return trouble_; }
  PlaceSize size() override { return {}; }

 private:
  PeerPlace(RedisServers servers, std::chrono::milliseconds lease)
      : servers_(std::move(servers)), lease_(lease) {}
  Status noted(Status status);

  RedisServers servers_;
  std::chrono::milliseconds lease_;
  PlaceCounts counts_;
  std::string trouble_;
};

}  // namespace wideep::store
