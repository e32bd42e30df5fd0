// SPDX-License-Identifier: Apache-2.0
#include "server/router_prompt_text.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <string>

#include "base/content_hash.h"
#include "server/router_json_members.h"

namespace wideep::server {
namespace {

// The members that decide the prompt, in the order in which chat templates use them. A salt keeps
// prompts apart, and so does a model.
constexpr std::string_view kPromptMembers[] = {"model",        "cache_salt", "tools",  "system",
                                               "instructions", "messages",   "prompt", "input"};
constexpr size_t kSalt = 1;
// The first of those without which there is no prompt.
constexpr size_t kFirstPrompt = 5;

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
  JsonMembers members(body);
  while (members.next()) {
    const auto* const member = std::ranges::find(kPromptMembers, members.key());
    if (member != std::end(kPromptMembers)) {
      found[static_cast<size_t>(member - std::begin(kPromptMembers))] = members.value();
    }
  }
  const bool has_prompt = std::any_of(found.begin() + kFirstPrompt, found.end(),
                                      [](auto each) { return !each.empty(); });
  if (!members.is_good() || !has_prompt) return std::nullopt;
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
