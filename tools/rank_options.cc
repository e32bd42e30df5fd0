// SPDX-License-Identifier: Apache-2.0
//
// Both options end up as one list, the usable slots of each rank (PlanShape::rank_slots): a dead
// rank has 0. Two forms of --rank-slots are told apart by the colon. A rank in both options is
// refused, since they would say different things about it.
#include "rank_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "base/try.h"

namespace wideep::tools {
namespace {

using balance::PlanShape;

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t end = text.find(separator); end != text.npos; end = text.find(separator)) {
    parts.push_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  parts.push_back(text);
  return parts;
}

// Accepts digits only: from_chars alone would also take a minus sign.
std::optional<int> number_in(std::string_view text) {
  int number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  const bool whole = !text.empty() && stop == end && error == std::errc() && text[0] != '-';
  return whole ? std::optional(number) : std::nullopt;
}

Status check_rank(const char* option, int rank, int ep_size) {
  if (rank < ep_size) return {};
  return invalid_input(
      fmt::format("{}: expected ranks from 0 to {}, found {}", option, ep_size - 1, rank));
}

Status unreadable(const RankOptions& options) {
  return invalid_input(fmt::format(
      "--rank-slots: expected usable slots of every rank such as 9,9,8,9, or rank:slots "
      "such as 2:8, found \"{}\"",
      options.rank_slots));
}

// rank:slots,...; the other ranks keep what they have.
Status take_pairs(const RankOptions& options, std::vector<int>* slots) {
  std::vector<bool> seen(slots->size(), false);
  for (std::string_view item : split(options.rank_slots, ',')) {
    const auto parts = split(item, ':');
    const auto rank = number_in(parts[0]);
    const auto usable = parts.size() == 2 ? number_in(parts[1]) : std::nullopt;
    if (!rank || !usable) return unreadable(options);
    WIDEEP_TRY(check_rank("--rank-slots", *rank, static_cast<int>(slots->size())));
    const auto i = static_cast<size_t>(*rank);
    if (seen[i]) return invalid_input(fmt::format("--rank-slots: rank {} is given twice", *rank));
    seen[i] = true;
    (*slots)[i] = *usable;
  }
  return {};
}

Status take_list(const RankOptions& options, std::vector<int>* slots) {
  const auto items = split(options.rank_slots, ',');
  for (size_t i = 0; i < items.size(); ++i) {
    const auto usable = number_in(items[i]);
    if (!usable) return unreadable(options);
    if (i < slots->size()) (*slots)[i] = *usable;
  }
  if (items.size() == slots->size()) return {};
  return invalid_input(
      fmt::format("--rank-slots: expected a number of slots for each of {} ranks, found {}",
                  slots->size(), items.size()));
}

}  // namespace

void add_dead_ranks_option(command_line::Command command, RankOptions* options) {
  command.add_option("--dead-ranks", options->dead_ranks,
                     "Ranks that are down and get no experts, such as 3,7 (default: none)");
}

void add_rank_slots_option(command_line::Command command, RankOptions* options) {
  command.add_option("--rank-slots", options->rank_slots,
                     "Slots that fit into the memory of each rank, such as 9,9,8,9, or rank:slots "
                     "for some ranks, such as 2:8 (default: --num-slots / --ep-size for all)");
}

Result<std::vector<int>> choose_dead_ranks(const RankOptions& options, int ep_size) {
  std::vector<int> ranks;
  if (options.dead_ranks.empty()) return ranks;
  for (std::string_view item : split(options.dead_ranks, ',')) {
    const auto rank = number_in(item);
    if (!rank) {
      return invalid_input(fmt::format("--dead-ranks: expected ranks such as 3,7, found \"{}\"",
                                       options.dead_ranks));
    }
    WIDEEP_TRY(check_rank("--dead-ranks", *rank, ep_size));
    if (std::find(ranks.begin(), ranks.end(), *rank) != ranks.end()) {
      return invalid_input(fmt::format("--dead-ranks: rank {} is given twice", *rank));
    }
    ranks.push_back(*rank);
  }
  return ranks;
}

Result<std::vector<int>> choose_rank_slots(const RankOptions& options, const PlanShape& shape) {
  WIDEEP_TRY_ASSIGN(const std::vector<int> dead, choose_dead_ranks(options, shape.ep_size));
  if (dead.empty() && options.rank_slots.empty()) return std::vector<int>();
  std::vector<int> slots(static_cast<size_t>(shape.ep_size), shape.slots_per_rank());
  if (!options.rank_slots.empty()) {
    const bool pairs = options.rank_slots.find(':') != std::string::npos;
    WIDEEP_TRY(pairs ? take_pairs(options, &slots) : take_list(options, &slots));
  }
  for (int rank : dead) {
    int& usable = slots[static_cast<size_t>(rank)];
    if (usable != shape.slots_per_rank()) {
      return invalid_input(fmt::format(
          "--dead-ranks: rank {} has {} slots in --rank-slots; leave it out of one of the two",
          rank, usable));
    }
    usable = 0;
  }
  return slots;
}

std::string ranks_text(const PlanShape& shape) {
  if (shape.num_live_ranks() == shape.ep_size) return fmt::format("{} ranks", shape.ep_size);
  return fmt::format("{} live ranks of {}", shape.num_live_ranks(), shape.ep_size);
}

std::string slots_text(const PlanShape& shape) {
  if (shape.all_slots_usable()) return fmt::format("{} slots", shape.num_slots);
  return fmt::format("{} slots ({} usable)", shape.num_slots, shape.num_usable_slots());
}

}  // namespace wideep::tools
