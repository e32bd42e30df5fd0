// SPDX-License-Identifier: Apache-2.0
//
// "Did you mean ...?": finds the known word that is closest to an unknown one.
//
// Thread safety: pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace wideep::base {

// The least number of inserted, removed or replaced bytes and exchanged neighbours that turns a into
// b, where no byte is exchanged twice ("optimal string alignment"). A distance above `limit` is
// returned as limit + 1, which ends the computation early.
size_t edit_distance(std::string_view a, std::string_view b, size_t limit);

// The candidate with the least edit distance to `word`, the first of equals; none when its distance
// is more than a third of the word's length (at least 1 is allowed).
std::optional<std::string> closest_word(std::string_view word,
                                        const std::vector<std::string>& candidates);

// "; did you mean 'tensor_parallel_size'?", or "" when no candidate is close.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace wideep::base
