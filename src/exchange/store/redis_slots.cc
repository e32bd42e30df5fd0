// SPDX-License-Identifier: Apache-2.0
#include "store/redis_slots.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "base/printable.h"
#include "base/try.h"

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

Result<RedisSlots::Range> RedisSlots::parse_range(const RedisReply& reply, const RedisHost& asked) {
  const auto slot_of = [](const RedisReply& value) {
    const bool is_slot = value.type == RedisReply::Type::kInteger && value.integer >= 0 &&
                         value.integer < kRedisSlots;
    return is_slot ? static_cast<int>(value.integer) : -1;
  };
  const std::vector<RedisReply>& parts = reply.elements;
  if (parts.size() < 3 || parts[2].elements.size() < 2)
    return no_slots("a range is not as expected");
  Range range{.first = slot_of(parts[0]), .last = slot_of(parts[1])};
  if (range.first < 0 || range.last < range.first) {
    return no_slots(fmt::format("expected a range in 0 to {}, found {} to {}", kRedisSlots - 1,
                                parts[0].integer, parts[1].integer));
  }
  const std::string& name = parts[2].elements[0].text;
  const RedisReply& port = parts[2].elements[1];
  if (name.size() > kMaxHostNameBytes) {
    return no_slots(fmt::format("the name of a server has {} bytes", name.size()));
  }
  if (port.integer < 1 || port.integer > std::numeric_limits<uint16_t>::max()) {
    return no_slots(fmt::format("a server has the port {}", port.integer));
  }
  range.host.name = name.empty() || name == "?" ? asked.name : name;
  range.host.port = static_cast<uint16_t>(port.integer);
  return range;
}

Status RedisSlots::add(const Range& range) {
  const auto index = index_of(range.host);
  if (!index) return no_slots(fmt::format("more than {} servers", kMaxRedisHosts));
  for (int slot = range.first; slot <= range.last; ++slot) {
    int16_t& here = index_[static_cast<size_t>(slot)];
    if (here != 0) return no_slots(fmt::format("slot {} is in two ranges", slot));
    here = static_cast<int16_t>(*index + 1);
  }
  return {};
}

Result<RedisSlots> RedisSlots::parse(const RedisReply& reply, const RedisHost& asked) {
  if (reply.is_error()) return no_slots(base::printable(reply.text));
  if (reply.elements.size() > kRedisSlots) {
    return no_slots(fmt::format("{} ranges of {} slots", reply.elements.size(), kRedisSlots));
  }
  RedisSlots slots;
  for (const RedisReply& each : reply.elements) {
    WIDEEP_TRY_ASSIGN(const Range range, parse_range(each, asked));
    WIDEEP_TRY(slots.add(range));
  }
  if (slots.hosts_.empty()) return no_slots("no server has any slot");
  return slots;
}

const RedisHost* RedisSlots::host_of(int slot) const {
  const int index = index_[static_cast<size_t>(slot)];
  return index == 0 ? nullptr : &hosts_[static_cast<size_t>(index - 1)];
}

bool RedisSlots::move(int slot, const RedisHost& host) {
  const auto index = index_of(host);
  if (index) index_[static_cast<size_t>(slot)] = static_cast<int16_t>(*index + 1);
  return index.has_value();
}

std::optional<int16_t> RedisSlots::index_of(const RedisHost& host) {
  const auto index = std::find(hosts_.begin(), hosts_.end(), host) - hosts_.begin();
  if (index == static_cast<ptrdiff_t>(hosts_.size())) {
    if (hosts_.size() == kMaxRedisHosts) return std::nullopt;
    hosts_.push_back(host);
  }
  return static_cast<int16_t>(index);
}

}  // namespace wideep::store
