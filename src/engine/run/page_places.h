// SPDX-License-Identifier: Apache-2.0
//
// Which owner of requests has which pages in its cache, as ranks tell (run::PagesChanged), and which
// owner a request goes to where each rank has requests of its own.
//
//   cost(owner) = tokens that it has to compute + prompt tokens that it would have to compute
//
// A request goes to the owner with the least cost. So with a prefix of K tokens in its cache, an
// owner gets a request only if it has at most K tokens more to compute than the least busy one: a
// popular prefix makes no rank busier than computing the prefix again elsewhere would.
//
// It knows as many names as the caches have: a page that a cache drops is dropped here, too.
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "run/event.h"
#include "store/record.h"

namespace wideep::run {

class PagePlaces {
 public:
  // record_class: of the pages' names (store/record.h).
  explicit PagePlaces(std::string record_class) : record_class_(std::move(record_class)) {}

  void add(int owner, const PagesChanged& changed);
  void clear(int owner);

  struct Choice {
    int owner = 0;
    int64_t known_tokens = 0;  // first ones of the prompt, in whole pages
  };
  // tokens_of_owner: that each has to compute. Of equal ones the owner that knows more. The last
  // token of a prompt is always computed. REQUIRES: there is an owner.
  Choice choose(const std::map<int, int64_t>& tokens_of_owner, std::span<const int32_t> prompt,
                std::string_view salt) const;

  size_t num_names() const { return owners_.size(); }

 private:
  std::map<int, int> known_pages(std::span<const int32_t> prompt, std::string_view salt) const;
  void remove(int owner, const store::Name& name);

  std::string record_class_;
  std::unordered_map<store::Name, std::vector<int>, store::NameHash> owners_;  // never empty ones
};

}  // namespace wideep::run
