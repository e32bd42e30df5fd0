// SPDX-License-Identifier: Apache-2.0
#include "command_line/nearest.h"

#include <algorithm>

#include "base/spelling.h"

namespace wideep::command_line {
namespace {

std::string_view without_dashes(std::string_view word) {
  return word.substr(std::min(word.find_first_not_of('-'), word.size()));
}

}  // namespace

std::string nearest(std::string_view word, const std::vector<std::string>& names) {
  constexpr size_t kMinBeginning = 4;
  const std::string_view bare = without_dashes(word);
  if (bare.size() < 2) return "";
  std::vector<std::string> candidates;  // without dashes
  std::vector<const std::string*> meant;
  for (const std::string& name : names) {
    const std::string_view candidate = without_dashes(name);
    if (candidate.size() < 2) continue;
    candidates.emplace_back(candidate);
    meant.push_back(&name);
  }
  if (const auto closest = base::closest_word(bare, candidates)) {
    return *meant[static_cast<size_t>(std::ranges::find(candidates, *closest) -
                                      candidates.begin())];
  }
  const std::string* found = nullptr;
  for (const std::string* name : meant) {
    const bool begins = bare.size() >= kMinBeginning && without_dashes(*name).starts_with(bare);
    if (begins && (found == nullptr || name->size() < found->size())) found = name;
  }
  return found == nullptr ? "" : *found;
}

}  // namespace wideep::command_line
