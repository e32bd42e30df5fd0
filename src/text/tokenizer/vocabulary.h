// SPDX-License-Identifier: Apache-2.0
//
// Maps tokens to ids and back, and to the bytes that they represent.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "wideep/status.h"

namespace wideep::tokenizer {

// The greatest id that is accepted. Tables are indexed by id, so a wrong large id would cost
// gigabytes. Sixteen million is fifty times the largest vocabulary in use.
inline constexpr int32_t kMaxTokenId = (1 << 24) - 1;

// The origin of a token. A word can become a token of the model only.
enum class Origin { kModel, kAdded };

// Ids may have holes. Thread safety: as a plain value.
class Vocabulary {
 public:
  // Errors (invalid input): the token or the id is already present, the id is out of
  // [0, kMaxTokenId], or the token is empty.
  Status add(std::string_view token, int64_t id, Origin origin);

  // What a token stands for; before this call the bytes that it is in the byte-level alphabet.
  // REQUIRES: has(id).
  void set_bytes(int32_t id, std::string bytes) {
    entries_[static_cast<size_t>(id)].bytes = std::move(bytes);
  }

  // What a token is for the decoder, where that is not how the file has it: the normalizer has
  // changed it, or it is no text. REQUIRES: has(id); valid UTF-8.
  void set_written(int32_t id, std::string text);

  void mark_special(int32_t id) { entries_[static_cast<size_t>(id)].special = true; }

  std::optional<int32_t> find(std::string_view token) const;
  bool has(int64_t id) const;

  // Unknown ids give "", "" and false.
  std::string_view token(int32_t id) const;
  std::string_view bytes(int32_t id) const;
  std::string_view written(int32_t id) const;  // set_written(), else the token
  // REQUIRES: has(id).
  Origin origin(int32_t id) const { return entry(id).origin; }
  bool is_special(int32_t id) const { return has(id) && entry(id).special; }

  size_t size() const { return ids_.size(); }
  int32_t id_limit() const { return static_cast<int32_t>(entries_.size()); }

 private:
  struct Entry {
    std::string token;  // as in the file; empty: no such id
    std::string bytes;
    Origin origin = Origin::kModel;
    bool special = false;
  };
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };

  const Entry& entry(int32_t id) const { return entries_[static_cast<size_t>(id)]; }

  std::unordered_map<std::string, int32_t, Hash, std::equal_to<>> ids_;
  std::vector<Entry> entries_;                        // by id
  std::unordered_map<int32_t, std::string> written_;  // of few tokens
};

}  // namespace wideep::tokenizer
