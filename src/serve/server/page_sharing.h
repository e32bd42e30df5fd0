// SPDX-License-Identifier: Apache-2.0
//
// A server that shares the pages of its prompts with other servers: the server of this node's pages
// (store/page_server.h), and what others are told of it.
//
//   the process that forks     create(): has the address and the token
//   each that serves           start(): listens there
//
// Processes that serve one after the other have the same address and token, so that whoever was told
// of them goes on.
//
// Thread safety: create(), start() and stop() on one thread each; the rest: any thread, between
// start() and stop().
#pragma once

#include <memory>
#include <string>

#include "base/shared_bytes.h"
#include "server/context_requests.h"
#include "store/host_index.h"
#include "store/page_server.h"
#include "store/page_trust.h"
#include "store/redis_address.h"
#include "transport/tcp.h"
#include "wideep/status.h"

namespace wideep::server {

class PageSharing {
 public:
  // where: to listen; port 0: any that is free. trust: signs what is told. Errors (invalid input):
  // the host is none; (failed) the address is in use, or not of this machine.
  static Result<std::unique_ptr<PageSharing>> create(const store::RedisHost& where,
                                                     std::string record_class,
                                                     store::PageTrust trust);
  ~PageSharing();
  PageSharing(const PageSharing&) = delete;
  PageSharing& operator=(const PageSharing&) = delete;

  // memory: of HostTier::create_memory(); outlives it, or stop(). Errors (failed): it is not, or the
  // address was lost to another program.
  Status start(const base::SharedBytes& memory);
  void stop();

  // store::text_of a PagePeer without a request; "": start() has failed. local_host: by which the
  // client has reached this server, if that is known; said where the server listens at all
  // addresses.
  std::string opaque_state(const std::string& local_host) const;
  // The host by which ranks of other nodes reach it: the one that clients are told, or where it
  // listens at all addresses `node`, this node on the network between them ("": not known).
  // are_here: all nodes are on this machine. Errors (invalid input): there is none.
  Result<std::string> host_for_nodes(const std::string& node, bool are_here) const;
  // store::text_of a PagePeer at this host, with the token of those who offer pages; "": start() has
  // failed.
  std::string offering_state(const std::string& host) const;
  // What is said of requests whose prompts are computed for others.
  ContextRequests& requests() { return requests_; }
  const store::PageServerCounts& counts() const { return counts_; }
  int port() const { return address_.port; }

 private:
  struct Told {
    std::string host;  // "": as a client has reached this server
    std::string record_class;
    store::PageTrust trust;
  };
  PageSharing(Told told, int reserved);

  const Told told_;
  const std::string token_, offering_token_;
  const int reserved_;  // descriptor: holds the address while nobody listens
  const transport::PeerAddress address_;
  std::optional<store::HostIndex> index_;  // from start() on, before those that tell it
  ContextRequests requests_;
  store::PageServerCounts counts_;
  std::unique_ptr<store::PageServer> server_;
};

}  // namespace wideep::server
