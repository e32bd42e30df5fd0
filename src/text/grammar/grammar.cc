// SPDX-License-Identifier: Apache-2.0
#include "grammar/grammar.h"

#include <cstring>

#include "base/check.h"

namespace wideep::grammar {
namespace {

template <typename T>
void put(const std::vector<T>& values, std::string* out) {
  const auto count = static_cast<uint64_t>(values.size());
  out->append(reinterpret_cast<const char*>(&count), sizeof(count));
  out->append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

template <typename T>
void get(std::string_view* bytes, std::vector<T>* values) {
  uint64_t count = 0;
  WIDEEP_CHECK_LE(sizeof(count), bytes->size());
  std::memcpy(&count, bytes->data(), sizeof(count));
  bytes->remove_prefix(sizeof(count));
  WIDEEP_CHECK_LE(count, bytes->size() / sizeof(T));
  values->resize(count);
  if (count > 0) std::memcpy(values->data(), bytes->data(), count * sizeof(T));
  bytes->remove_prefix(count * sizeof(T));
}

}  // namespace

std::string Grammar::encode() const {
  std::string bytes(reinterpret_cast<const char*>(&matches_empty), sizeof(matches_empty));
  put(rules, &bytes);
  put(loops, &bytes);
  put(states, &bytes);
  put(edges, &bytes);
  put(calls, &bytes);
  return bytes;
}

Grammar Grammar::decode(std::string_view bytes) {
  Grammar grammar;
  WIDEEP_CHECK_LE(sizeof(grammar.matches_empty), bytes.size());
  std::memcpy(&grammar.matches_empty, bytes.data(), sizeof(grammar.matches_empty));
  bytes.remove_prefix(sizeof(grammar.matches_empty));
  get(&bytes, &grammar.rules);
  get(&bytes, &grammar.loops);
  get(&bytes, &grammar.states);
  get(&bytes, &grammar.edges);
  get(&bytes, &grammar.calls);
  return grammar;
}

}  // namespace wideep::grammar
