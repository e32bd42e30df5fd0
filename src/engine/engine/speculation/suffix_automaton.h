// SPDX-License-Identifier: Apache-2.0
//
// A suffix automaton over texts that grow token by token: finds the longest end of a text that has
// occurred before, in constant time per token (Blumer et al. 1985, "The smallest automaton
// recognizing the subwords of a text"; of several texts: Mohri, Moreno and Weinstein 2009).
//
// All texts lie one after the other in one array. A state stands for token strings that occur at
// the same places; `place` is the end of an occurrence in that array: the first one, or the latest
// at which the state was the longest repeated end of a text.
//
// About 100 bytes per token. Deterministic. Not thread safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace wideep::engine {

class SuffixAutomaton {
 public:
  using State = int32_t;
  static constexpr State kRoot = 0;

  SuffixAutomaton();

  // ---- growing ----

  // Begins another text. The first one needs no call.
  void begin_text();
  void append(int32_t token);
  // The longest end of the text that has occurred in it before: its state, until the next append().
  // kRoot: there is none. REQUIRES: it is the only text.
  State repeated() const { return last_ == kRoot ? kRoot : states_[last_].link; }

  // ---- reading ----

  // A place in a text of this automaton or in another one, as the longest end of it that this
  // automaton knows.
  struct Cursor {
    State state = kRoot;
    int32_t length = 0;  // tokens
  };
  void advance(Cursor& cursor, int32_t token) const;
  // The number of tokens of the state's longest string.
  int length(State state) const { return states_[state].length; }
  // What has followed an occurrence of the state in its text, at most `most` tokens. REQUIRES: not
  // kRoot.
  std::span<const int32_t> continuation(State state, int max) const;

  // Soon the state will be asked for its edge with this token: begins to load where that is listed,
  // and after some time (late) the edge.
  void expect(State from, int32_t token, bool late) const;
  // The state whose edges the next append() asks for first.
  State present() const { return last_; }

  size_t num_tokens() const { return tokens_.size(); }
  size_t bytes() const;

 private:
  struct Node {
    int32_t length = 0;
    State link = -1;          // of the longest end that occurs at more places
    int32_t place = -1;       // of the last token of an occurrence
    int32_t first_edge = -1;  // a list
  };
  struct Edge {
    int32_t token = 0;
    State to = 0;
    State from = 0;
    int32_t next = -1;  // of the same state
  };
  int32_t find_edge(State from, int32_t token) const;
  void add_edge(State from, int32_t token, State to);
  void grow_table();
  State clone(State original, int32_t length);
  void redirect(State from, int32_t token, State to, State copy);
  State exact_end(State from, const Edge& edge);

  static constexpr int32_t kEndOfText = -1;

  std::vector<int32_t> tokens_;  // texts, with kEndOfText between them
  std::vector<Node> states_;
  std::vector<Edge> edges_;
  std::vector<int32_t> table_;  // open addressing: edges by (from, token)
  State last_ = kRoot;          // the whole of the present text
};

}  // namespace wideep::engine
