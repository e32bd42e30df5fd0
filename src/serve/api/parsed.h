// SPDX-License-Identifier: Apache-2.0
//
// What became of a step of a request: its result, or why the request is refused.
//
//   WIDEEP_REFUSE_IF(check(options));                            // std::optional<HttpError>
//   WIDEEP_PARSED(const std::string text, prompt_of(request));   // Parsed<std::string>
//
// Each returns from the function with the error of a step that has one, as base/try.h does with a
// Status.
#pragma once

#include <optional>
#include <utility>
#include <variant>

#include "http/http_error.h"

namespace wideep::server {

template <typename T>
using Parsed = std::variant<T, HttpError>;

}  // namespace wideep::server

#define WIDEEP_REFUSE_IF(expression)                                                        \
  do {                                                                                      \
    if (std::optional<::wideep::server::HttpError> refusal = (expression)) return *refusal; \
  } while (false)

#define WIDEEP_PARSED(declaration, expression) \
  WIDEEP_PARSED_(declaration, expression, WIDEEP_PARSED_NAME_(__LINE__))
#define WIDEEP_PARSED_NAME_(line) WIDEEP_PARSED_NAME2_(line)
#define WIDEEP_PARSED_NAME2_(line) parsed_##line
#define WIDEEP_PARSED_(declaration, expression, name)                                              \
  auto name = (expression);                                                                        \
  if (auto* refusal = std::get_if<::wideep::server::HttpError>(&name)) return std::move(*refusal); \
  declaration = std::get<0>(std::move(name))
