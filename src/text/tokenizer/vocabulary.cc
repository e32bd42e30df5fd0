// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/vocabulary.h"

#include <fmt/format.h>

#include <utility>

#include "base/printable.h"
#include "tokenizer/byte_level.h"

namespace wideep::tokenizer {

Status Vocabulary::add(std::string_view token, int64_t id, Origin origin) {
  const std::string shown = base::printable(token, 60);
  if (token.empty()) return invalid_input(fmt::format("id {} has an empty token", id));
  if (id < 0 || id > kMaxTokenId) {
    return invalid_input(
        fmt::format("token '{}' has id {}; expected 0 to {}", shown, id, kMaxTokenId));
  }
  if (has(id)) {
    return invalid_input(fmt::format("tokens '{}' and '{}' both have id {}",
                                     base::printable(entry(static_cast<int32_t>(id)).token, 60),
                                     shown, id));
  }
  const auto small_id = static_cast<int32_t>(id);
  if (!ids_.emplace(token, small_id).second) {
    return invalid_input(fmt::format("token '{}' has two ids, {} and {}", shown, *find(token), id));
  }
  if (small_id >= id_limit()) entries_.resize(static_cast<size_t>(id) + 1);
  entries_[static_cast<size_t>(id)] = {std::string(token), bytes_of_token(token), origin};
  return {};
}

std::optional<int32_t> Vocabulary::find(std::string_view token) const {
  const auto found = ids_.find(token);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

std::string_view Vocabulary::token(int32_t id) const {
  if (!has(id)) return "";
  return entry(id).token;
}

std::string_view Vocabulary::bytes(int32_t id) const {
  if (!has(id)) return "";
  return entry(id).bytes;
}

std::string_view Vocabulary::written(int32_t id) const {
  const auto found = written_.find(id);
  return found == written_.end() ? token(id) : found->second;
}

void Vocabulary::set_written(int32_t id, std::string text) {
  set_bytes(id, bytes_of_token(text));
  written_[id] = std::move(text);
}

bool Vocabulary::has(int64_t id) const {
  return id >= 0 && id < id_limit() && !entry(static_cast<int32_t>(id)).token.empty();
}

}  // namespace wideep::tokenizer
