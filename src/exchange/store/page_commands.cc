// SPDX-License-Identifier: Apache-2.0
//
// Commands are arrays of texts, as replies of Redis are, so what reads replies reads them.
#include "store/page_commands.h"

#include <fmt/format.h>
#include <openssl/crypto.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>
#include <utility>

#include "base/content_hash.h"
#include "base/printable.h"
#include "store/page_memory.h"
#include "store/redis_record.h"

namespace wideep::store {
namespace {

using Words = std::vector<RedisReply>;

// Of one client, before others get their turn.
constexpr int kCommandsInTurn = 64;
constexpr uint64_t kBytesInTurn = uint64_t{4} << 20;

// The time does not tell how much of it was right.
bool is_token(std::string_view said, std::string_view token) {
  return !token.empty() && said.size() == token.size() &&
         ::CRYPTO_memcmp(said.data(), token.data(), token.size()) == 0;
}

// nullopt: it is none.
std::optional<int64_t> number_of(const std::string& text) {
  int64_t number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_number = error == std::errc() && end == text.data() + text.size() && number >= 0;
  return is_number ? std::optional(number) : std::nullopt;
}

size_t max_command_bytes(const PageCommands::Client& client) {
  if (!client.is_known) return PageCommands::kMaxBytesBeforeAuth;
  return client.may_offer ? PageServerLimits::kMaxOfferBytes : PageServerLimits::kMaxCommandBytes;
}

}  // namespace

void PageCommands::Client::error(std::string_view text) { out += fmt::format("-ERR {}\r\n", text); }

void PageCommands::Client::end(std::string_view text) {
  error(text);
  is_ending = true;
}

PageCommands::PageCommands(PageServerOptions options, std::unique_ptr<HostTier> tier,
                           std::string memory_name)
    : options_(std::move(options)),
      tier_(std::move(tier)),
      memory_name_(std::move(memory_name)),
      machine_(this_machine()) {}

void PageCommands::feed(Client& client, std::span<const std::byte> bytes) {
  client.reader.feed(bytes);
  client.fed += bytes.size();
  client.has_more = true;
}

void PageCommands::do_some(Client& client) {
  uint64_t made = 0;  // bytes
  for (int done = 0; done < kCommandsInTurn && made < kBytesInTurn; ++done) {
    if (client.is_ending || client.is_full()) return;
    const auto command = client.reader.next();
    if (!command.ok()) {
      client.end(command.status().message());
    } else if (*command) {
      client.fed = client.reader.num_pending_bytes();
      const size_t before = client.out.size();
      do_one(client, (*command)->elements);
      made += client.out.size() - before;
    } else {
      client.has_more = false;
      const size_t most = max_command_bytes(client);
      if (client.fed > most) client.end(fmt::format("a command of more than {} bytes", most));
      return;
    }
  }
}

void PageCommands::do_one(Client& client, const Words& words) {
  const auto is_text = [](const RedisReply& each) { return each.type == RedisReply::Type::kText; };
  if (words.empty() || !std::ranges::all_of(words, is_text)) {
    client.end("expected a command: an array of texts");
  } else if (words[0].text == "AUTH") {
    enter(client, words);
  } else if (!client.is_known) {
    client.out += "-NOAUTH expected AUTH\r\n";
    client.is_ending = true;
  } else if (words[0].text == "PAGES.HAS") {
    has(client, words);
  } else if (words[0].text == "PAGES.GET") {
    get(client, words);
  } else if (words[0].text == "PAGES.PUT") {
    put(client, words);
  } else if (words[0].text == "PAGES.STATE") {
    state(client, words);
  } else if (words[0].text == "PAGES.MEMORY") {
    memory(client);
  } else {
    client.error(
        fmt::format("'{}' is no command here: expected AUTH or PAGES.HAS, GET, PUT, STATE, MEMORY",
                    base::printable(words[0].text, 60)));
  }
}

void PageCommands::enter(Client& client, const Words& words) {
  client.is_known = client.may_offer = false;
  const std::string_view said = words.size() == 3 ? std::string_view(words[2].text) : "";
  const bool may_read = is_token(said, options_.token);
  const bool may_offer = is_token(said, options_.offering_token);
  if (!may_read && !may_offer) {
    client.out += "-WRONGPASS the token is not this server's\r\n";
    client.is_ending = true;
  } else if (words[1].text != options_.record_class) {
    client.end(fmt::format("pages of another class: expected {}, found {}",
                           base::printable(options_.record_class, 200),
                           base::printable(words[1].text, 200)));
  } else if (client.is_local) {
    client.takes_memory = client.is_ending = true;
  } else {
    client.is_known = true;
    client.may_offer = may_offer;
    client.out += "+OK\r\n";
  }
}

void PageCommands::has(Client& client, const Words& words) {
  const auto milliseconds = words.size() > 1 ? number_of(words[1].text) : std::nullopt;
  if (!milliseconds) return client.error("PAGES.HAS: expected a number of milliseconds");
  if (words.size() - 2 > PageServerLimits::kMaxHeads) {
    return client.error(fmt::format("PAGES.HAS: expected at most {} heads, found {}",
                                    PageServerLimits::kMaxHeads, words.size() - 2));
  }
  std::vector<Head> heads;
  for (size_t i = 2; i < words.size(); ++i) {
    const auto head = parse_redis_value_head(words[i].text);
    if (!head) return client.error(fmt::format("PAGES.HAS: head {}: it is none", i - 2));
    heads.push_back(*head);
  }
  const uint64_t failures = tier_->counts().failures;
  if (options_.counts != nullptr) ++options_.counts->looks;
  const std::vector<bool> found = tier_->lease(heads, static_cast<double>(*milliseconds) * 1e-3);
  if (tier_->counts().failures != failures) return client.end("the memory cannot be read now");
  client.out += fmt::format("*{}\r\n", found.size());
  for (const bool each : found) client.out += each ? ":1\r\n" : ":0\r\n";
}

// The value is made where it is sent from.
void PageCommands::get(Client& client, const Words& words) {
  const auto head = words.size() == 2 ? parse_redis_value_head(words[1].text) : std::nullopt;
  if (!head) return client.error("PAGES.GET: expected one head");
  const uint64_t failures = tier_->counts().failures;
  const bool is_there = tier_->find(std::span(&*head, 1)).front();
  if (tier_->counts().failures != failures) return client.end("the memory cannot be read now");
  if (!is_there) {
    client.out += "$-1\r\n";
    return;
  }
  const size_t before = client.out.size();
  client.out += fmt::format("${}\r\n", kRedisHeadBytes + head->part.bytes());
  const size_t head_at = client.out.size();
  client.out.resize(head_at + kRedisHeadBytes + head->part.bytes());
  auto* payload = reinterpret_cast<std::byte*>(client.out.data() + head_at + kRedisHeadBytes);
  const FetchOrder order = {.head = *head, .into = {payload, head->part.bytes()}};
  bool is_whole = false;
  const Status status = tier_->fetch(std::span(&order, 1), [&](size_t, FetchResult result) {
    is_whole = result == FetchResult::kWhole;
    return true;
  });
  if (!status.ok() || !is_whole) {
    client.out.resize(before);
    client.out += "$-1\r\n";
    return;
  }
  const auto value_head = redis_value_head(*head, base::content_hash(payload, order.into.size()));
  std::memcpy(client.out.data() + head_at, value_head.data(), value_head.size());
  if (options_.counts != nullptr) {
    ++options_.counts->records;
    options_.counts->bytes += order.into.size();
  }
  client.out += "\r\n";
}

void PageCommands::put(Client& client, const Words& words) {
  if (!client.may_offer) return client.error("PAGES.PUT: this token is one for reading");
  const auto microseconds = words.size() == 3 ? number_of(words[1].text) : std::nullopt;
  const auto head = microseconds ? parse_redis_value_head(words[2].text) : std::nullopt;
  const RedisValue value = head ? check_redis_value(words[2].text, *head) : RedisValue();
  if (value.result != FetchResult::kWhole) {
    return client.error("PAGES.PUT: expected microseconds and one whole value");
  }
  const double seconds = static_cast<double>(*microseconds) * 1e-6;
  const OfferResult result = tier_->offer(*head, value.payload, seconds, [] { return true; });
  if (result == OfferResult::kFailed) return client.end("the memory cannot be written now");
  client.out += fmt::format(":{}\r\n", static_cast<int>(result));
}

void PageCommands::state(Client& client, const Words& words) {
  client.out += fmt::format("*{}\r\n", words.size() - 1);
  for (size_t i = 1; i < words.size(); ++i) {
    const RequestStatus found =
        options_.state_of ? options_.state_of(words[i].text) : RequestStatus();
    int64_t number = static_cast<int64_t>(found.state);
    if (found.state == RequestState::kEnded) number += found.ended_before.count();
    client.out += fmt::format(":{}\r\n", number);
  }
}

void PageCommands::memory(Client& client) const {
  if (memory_name_.empty() || machine_.empty()) {
    client.out += "$-1\r\n";
    return;
  }
  client.out += fmt::format("*2\r\n${}\r\n{}\r\n${}\r\n{}\r\n", memory_name_.size(), memory_name_,
                            machine_.size(), machine_);
}

}  // namespace wideep::store
