// SPDX-License-Identifier: Apache-2.0
#include "server/router_prompt_text.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <string>

#include "base/content_hash.h"

namespace wideep::server {
namespace {

// The members that decide the prompt, in the order in which chat templates use them. A salt keeps
// prompts apart, and so does a model.
constexpr std::string_view kPromptMembers[] = {"model",        "cache_salt", "tools",  "system",
                                               "instructions", "messages",   "prompt", "input"};
constexpr size_t kSalt = 1;
// The first of those without which there is no prompt.
constexpr size_t kFirstPrompt = 5;

// Goes over the members of an object. Values are skipped by their quotes and brackets alone.
class MemberScan {
 public:
  explicit MemberScan(std::string_view text) : text_(text) {
    skip_space();
    is_good_ = take('{');
  }
  // Whether what was read so far was an object, or the beginning of one.
  bool is_good() const { return is_good_; }

  // The next member; false: the end, or something is wrong.
  bool next(std::string_view* key, std::string_view* value) {
    if (!is_good_) return false;
    skip_space();
    if (at_ < text_.size() && text_[at_] == '}') return false;
    if (is_first_) {
      is_first_ = false;
    } else {
      is_good_ = take(',');
      skip_space();
    }
    const size_t name = at_ + 1;
    is_good_ = is_good_ && skip_string();
    if (!is_good_) return false;
    *key = text_.substr(name, at_ - 1 - name);
    skip_space();
    is_good_ = take(':');
    skip_space();
    const size_t begin = at_;
    is_good_ = is_good_ && skip_value();
    if (is_good_) *value = text_.substr(begin, at_ - begin);
    return is_good_;
  }

 private:
  void skip_space() {
    while (at_ < text_.size() && std::strchr(" \t\r\n", text_[at_]) != nullptr && text_[at_] != 0) {
      ++at_;
    }
  }
  bool take(char expected) {
    if (at_ >= text_.size() || text_[at_] != expected) return false;
    ++at_;
    return true;
  }
  bool skip_string() {
    if (!take('"')) return false;
    while (at_ < text_.size()) {
      const char found = text_[at_++];
      if (found == '"') return true;
      if (found == '\\') ++at_;
    }
    return false;
  }
  bool skip_value() {
    size_t depth = 0;
    const size_t begin = at_;
    while (at_ < text_.size()) {
      const char found = text_[at_];
      if (found == '"') {
        if (!skip_string()) return false;
      } else if (found == '{' || found == '[') {
        ++depth;
        ++at_;
      } else if (found == '}' || found == ']' || found == ',') {
        if (depth == 0) return at_ > begin;
        if (found != ',') --depth;
        ++at_;
      } else {
        ++at_;
        continue;
      }
      if (depth == 0) return true;
    }
    return false;
  }

  std::string_view text_;
  size_t at_ = 0;
  bool is_good_ = false;
  bool is_first_ = true;
};

uint64_t hash_of(std::string_view bytes) {
  return base::content_hash(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size());
}

std::vector<uint64_t> chain_of(uint64_t root, std::string_view text) {
  std::vector<uint64_t> chain;
  chain.reserve(text.size() / PromptText::kChunkBytes);
  std::array<char, sizeof(uint64_t) + PromptText::kChunkBytes> link;
  for (; text.size() >= PromptText::kChunkBytes; text.remove_prefix(PromptText::kChunkBytes)) {
    std::memcpy(link.data(), &root, sizeof(root));
    std::memcpy(link.data() + sizeof(root), text.data(), PromptText::kChunkBytes);
    root = hash_of({link.data(), link.size()});
    chain.push_back(root);
  }
  return chain;
}

std::string_view without_slash(std::string_view path) {
  if (path.ends_with('/')) path.remove_suffix(1);
  return path;
}

}  // namespace

bool is_for_text(std::string_view path) {
  path = without_slash(path);
  return path == "/v1/completions" || path == "/v1/chat/completions" || path == "/v1/responses" ||
         path == "/v1/messages";
}

std::optional<PromptText> read_prompt_text(std::string_view path, std::string_view body) {
  std::array<std::string_view, std::size(kPromptMembers)> found;
  MemberScan scan(body);
  std::string_view key, value;
  while (scan.next(&key, &value)) {
    const auto* const member = std::ranges::find(kPromptMembers, key);
    if (member != std::end(kPromptMembers)) {
      found[static_cast<size_t>(member - std::begin(kPromptMembers))] = value;
    }
  }
  const bool has_prompt = std::any_of(found.begin() + kFirstPrompt, found.end(),
                                      [](auto each) { return !each.empty(); });
  if (!scan.is_good() || !has_prompt) return std::nullopt;
  std::string text;
  text.reserve(body.size());
  for (const std::string_view each : found) {
    text += each;
    text += '\n';
  }
  const std::string_view salt = found[kSalt];
  return PromptText{.bytes = text.size(),
                    .chain = chain_of(hash_of(without_slash(path)), text),
                    .has_salt = !salt.empty() && salt != "null" && salt != "\"\""};
}

}  // namespace wideep::server
