// SPDX-License-Identifier: Apache-2.0
#include "store/redis_slots.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "base/printable.h"

namespace wideep::store {
namespace {

// CRC-16/XMODEM: polynomial 0x1021, from 0, highest bit first.
constexpr std::array<uint16_t, 256> crc_table() {
  std::array<uint16_t, 256> table = {};
  for (unsigned i = 0; i < table.size(); ++i) {
    unsigned crc = i << 8;
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 0x8000) != 0 ? (crc << 1) ^ 0x1021 : crc << 1;
    table[i] = static_cast<uint16_t>(crc);
  }
  return table;
}
constexpr std::array<uint16_t, 256> kCrcTable = crc_table();

Status no_slots(std::string_view what) { return failed(fmt::format("CLUSTER SLOTS: {}", what)); }

}  // namespace

int redis_slot(std::string_view key) {
  if (const size_t open = key.find('{'); open != std::string_view::npos) {
    const size_t close = key.find('}', open + 1);
    if (close != std::string_view::npos && close > open + 1) {
      key = key.substr(open + 1, close - open - 1);
    }
  }
  unsigned crc = 0;
  for (const char c : key) {
    crc = (crc << 8 ^ kCrcTable[(crc >> 8 ^ static_cast<unsigned char>(c)) & 0xff]) & 0xffff;
  }
  return static_cast<int>(crc % kRedisSlots);
}

std::optional<RedisRedirect> parse_redirect(std::string_view error, const RedisHost& asked) {
  RedisRedirect redirect;
  if (error.starts_with("ASK ")) {
    redirect.is_ask = true;
    error.remove_prefix(4);
  } else if (error.starts_with("MOVED ")) {
    error.remove_prefix(6);
  } else {
    return std::nullopt;
  }
  const auto [end, wrong] =
      std::from_chars(error.data(), error.data() + error.size(), redirect.slot);
  if (wrong != std::errc() || redirect.slot < 0 || redirect.slot >= kRedisSlots)
    return std::nullopt;
  std::string_view where = error.substr(static_cast<size_t>(end - error.data()));
  if (!where.starts_with(' ')) return std::nullopt;
  where.remove_prefix(1);
  const bool is_here = where.rfind(':') == 0 || where.starts_with("?:");
  const std::string filled =
      is_here ? asked.name + std::string(where.substr(where.find(':'))) : std::string(where);
  const Result<RedisHost> host = parse_redis_host(filled);
  if (!host.ok()) return std::nullopt;
  redirect.host = *host;
  return redirect;
}

Result<RedisSlots> RedisSlots::parse(const RedisReply& reply, const RedisHost& asked) {
  if (reply.is_error()) return no_slots(base::printable(reply.text));
  RedisSlots slots;
  const auto slot_in = [](const RedisReply& value) {
    return value.type == RedisReply::Type::kInteger && value.integer >= 0 &&
           value.integer < kRedisSlots;
  };
  for (const RedisReply& range : reply.elements) {
    if (range.elements.size() < 3 || !slot_in(range.elements[0]) || !slot_in(range.elements[1]) ||
        range.elements[2].elements.size() < 2) {
      return no_slots("a range is not as expected");
    }
    const std::vector<RedisReply>& primary = range.elements[2].elements;
    RedisHost host;
    host.name = primary[0].text.empty() || primary[0].text == "?" ? asked.name : primary[0].text;
    if (primary[1].integer < 1 || primary[1].integer > std::numeric_limits<uint16_t>::max()) {
      return no_slots(fmt::format("a server has the port {}", primary[1].integer));
    }
    host.port = static_cast<uint16_t>(primary[1].integer);
    for (int64_t slot = range.elements[0].integer; slot <= range.elements[1].integer; ++slot) {
      slots.move(static_cast<int>(slot), host);
    }
  }
  if (slots.hosts_.empty()) return no_slots("no server has any slot");
  return slots;
}

const RedisHost* RedisSlots::host_of(int slot) const {
  const int index = index_[static_cast<size_t>(slot)];
  return index == 0 ? nullptr : &hosts_[static_cast<size_t>(index - 1)];
}

void RedisSlots::move(int slot, const RedisHost& host) {
  index_[static_cast<size_t>(slot)] = static_cast<int16_t>(index_of(host) + 1);
}

int RedisSlots::index_of(const RedisHost& host) {
  const auto index = std::find(hosts_.begin(), hosts_.end(), host) - hosts_.begin();
  if (index == static_cast<ptrdiff_t>(hosts_.size())) hosts_.push_back(host);
  return static_cast<int>(index);
}

}  // namespace wideep::store
