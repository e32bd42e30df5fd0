// SPDX-License-Identifier: Apache-2.0
//
// For the soak of the server: the requests that it sends, and what each must get.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "http/http_request_cases_testing.h"

namespace wideep::tests {

// The chat template that the requests expect of the model "m".
extern const char* const kSoakTemplate;

// Has an answer, always the same one: it is sampled with a seed, if at all.
struct AnsweredRequest {
  std::string kind;
  std::string path;
  nlohmann::json body;  // without "stream"
};
// Request number `index`, 0 … kAnsweredRequests − 1.
AnsweredRequest answered_request(int index);
inline constexpr int kAnsweredRequests = 96;

// What of an answer is always the same, for comparisons: texts, tokens, log probabilities and
// reasons to finish. parts: the reply, or the events of a stream, which give the same.
std::string lasting_part(const std::vector<nlohmann::json>& parts);

// Has a body that is no JSON or asks for what there is not.
struct RefusedRequest {
  std::string kind;
  std::string path;
  std::string body;
  int status;
};
const std::vector<RefusedRequest>& refused_requests();
// As above, of megabytes.
const std::vector<RefusedRequest>& huge_requests();

// Needs no engine. The router answers some itself.
struct PlainRequest {
  const char* method;
  const char* path;
  int status;
  int router_status;
};
const std::vector<PlainRequest>& plain_requests();

// HTTP as RFC 9112 has it, and as it does not. Well-formed ones ask for what there is not.
const std::vector<server::RequestCase>& http_requests();

}  // namespace wideep::tests
