// SPDX-License-Identifier: Apache-2.0
#include "api/reply_part.h"

namespace wideep::server {

const char* path_of(Api api) {
  switch (api) {
    case Api::kCompletion:
      return "/v1/completions";
    case Api::kChat:
      return "/v1/chat/completions";
    case Api::kMessages:
      return "/v1/messages";
    default:
      return "/v1/responses";
  }
}

}  // namespace wideep::server
