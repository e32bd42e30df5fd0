// SPDX-License-Identifier: Apache-2.0
//
// The free text that a model gives to a custom tool of OpenAI's Responses API. Models know only
// functions, so that a custom tool is offered as one with a single argument: its call is
// {"input": "…"}, from which the text is taken as it comes.
//
// Not thread safe; one per call.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace wideep::server {

class CustomInput {
 public:
  // The schema of the arguments, and the arguments of a call with this text.
  static nlohmann::ordered_json parameters();
  static std::string arguments(const std::string& text);

  // More of the arguments; returns more of the text, in whole characters.
  std::string push(std::string_view arguments);
  // All have come: returns the rest. Arguments of another form are the text themselves, so that the
  // client sees what the model has written.
  std::string finish();
  // All of the text has come.
  bool is_whole() const { return state_ == State::kEnded; }

 private:
  enum class State { kStart, kText, kEnded, kOther };
  void find_text();

  State state_ = State::kStart;
  std::string all_;
  size_t at_ = 0;  // in all_: where the text goes on
};

}  // namespace wideep::server
