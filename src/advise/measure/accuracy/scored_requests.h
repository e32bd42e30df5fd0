// SPDX-License-Identifier: Apache-2.0
//
// What an evaluation asked a server, and what it got: each prompt with the answer's text and
// log-probabilities, as tools/accuracy_client.py records them. Two servers of one model must give
// the same bits, which equal figures of the evaluation do not show.
//
// Thread safety: plain values; pure functions.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "wideep/status.h"

namespace wideep::measure {

struct ScoredRequest {
  nlohmann::json prompt;  // token ids, or a text
  std::string text;       // of the answer, with an echoed prompt
  // Of the prompt's tokens and of the answer's, in the server's order; nothing: the first token of
  // a prompt. Empty: none were asked for.
  std::vector<std::optional<double>> logprobs;
  // The likely tokens of each, by text.
  std::vector<std::vector<std::pair<std::string, double>>> top_logprobs;
};

struct Evaluation {
  std::string version;  // of lm_eval
  std::string table;    // its figures, as it prints them
  nlohmann::ordered_json results;
  std::vector<ScoredRequest> requests;  // in the order in which they were asked

  int64_t num_logprobs() const;  // of tokens, without those of likely tokens
};

// text: the client's result file. Errors (failed): it is no such file.
Result<Evaluation> parse_evaluation(const std::string& text);

struct NamedEvaluation {
  std::string layout;
  Evaluation evaluation;
};
// Errors (failed): the first request whose prompt, text or log-probability is not the same to the
// last bit, with its index, its prompt's length and begin, the token and both values.
Status check_same_bits(const NamedEvaluation& first, const NamedEvaluation& other);

}  // namespace wideep::measure
