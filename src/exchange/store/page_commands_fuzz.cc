// SPDX-License-Identifier: Apache-2.0
//
// A client that says anything, in pieces of any length, before AUTH and after it: the answers are
// the same in pieces as in one, nothing is taken that is not whole, and nothing grows past its
// bound.
#include "store/page_commands.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "base/shared_bytes.h"
#include "store/records_testing.h"
#include "store/redis_connection.h"

namespace {

using namespace wideep;
using store::HostTier;
using store::PageCommands;

constexpr uint64_t kBlocks = 8;

void check(bool holds) {
  if (!holds) std::abort();
}

struct Server {
  Server()
      : memory(HostTier::create_memory(kBlocks * store::HostIndex::kBlockBytes).value()),
        commands(options(), HostTier::open(memory).value(), "memory") {
    const auto tier = HostTier::open(memory).value();
    for (const store::Head& head : store::sequence_of(1, 2, 16)) {
      tier->offer(head, store::payload_of(head), 1.0, store::kIntact);
    }
    first.assign(memory.data(), memory.data() + memory.size());
  }
  // As it was.
  void reset() { std::copy(first.begin(), first.end(), memory.data()); }
  static store::PageServerOptions options() {
    return {.address = {},
            .token = "secret",
            .record_class = "class",
            .offering_token = "offers",
            .state_of = [](std::string_view name) {
              return store::RequestStatus{.state = name == "1" ? store::RequestState::kComputes
                                                               : store::RequestState::kUnknown};
            }};
  }

  base::SharedBytes memory;
  PageCommands commands;
  std::vector<std::byte> first;
};

std::string answers(std::span<const std::byte> bytes, size_t step, bool is_let_in) {
  static Server server;
  server.reset();
  PageCommands::Client client;
  if (is_let_in) {
    std::string enter;
    store::append_command(enter, {"AUTH", "class", "offers"});
    PageCommands::feed(client, std::as_bytes(std::span(enter)));
  }
  for (size_t at = 0; at < bytes.size() && !client.is_ending; at += step) {
    PageCommands::feed(client, bytes.subspan(at, std::min(step, bytes.size() - at)));
    while (client.can_go_on()) server.commands.do_some(client);
    check(client.is_ending || client.is_full() || client.fed <= bytes.size());
  }
  check(!client.takes_memory);  // it has not come for it
  const auto tier = HostTier::open(server.memory).value();
  const store::HostIndex::Lock lock(tier->index());
  check(tier->index().disagreement().empty());
  return client.out;
}

}  // namespace

// data: the length of pieces and whether AUTH has been said, then what the client says.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0 || size > PageCommands::kMaxBytesBeforeAuth) return 0;
  const auto bytes = std::as_bytes(std::span(data + 1, size - 1));
  const bool is_let_in = data[0] % 2 == 1;
  check(answers(bytes, bytes.size() + 1, is_let_in) ==
        answers(bytes, size_t{1} + data[0] / 2, is_let_in));
  return 0;
}
