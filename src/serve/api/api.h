// SPDX-License-Identifier: Apache-2.0
//
// An API for text, as one value: where it is, how a body is read, how the reply is written, and the
// form of its errors. What serves a request takes the value and asks no further which API it is;
// the fields of each body are in request_fields.h, responses_fields.h and messages_fields.h.
//
// Thread safety: immutable.
#pragma once

#include <memory>
#include <string_view>

#include "api/error_form.h"
#include "api/parsed.h"
#include "api/reply_writer.h"
#include "api/response_store.h"
#include "api/text_request.h"
#include "run/sampling_defaults.h"

namespace wideep::server {

// What a body does not say of itself.
struct ParseContext {
  const run::SamplingDefaults& sampling;  // what requests do not say
  ResponseStore* responses = nullptr;     // null: no API that stores any may be read
  // Another process may go on with the request (Exchange::keeps_records).
  bool keeps_records = false;
};

struct ApiSpec {
  Api api;
  const char* path;
  const char* id_start;       // of the ids of replies
  const char* call_id_start;  // of the ids of calls of tools
  bool stores = false;        // replies can be read by their ids, which must not be guessed
  const ErrorStyle& errors;
  Parsed<TextRequest> (*parse)(std::string_view body, const ParseContext& context);
  std::unique_ptr<ReplyWriter> (*make_writer)(const ReplyHead& head,
                                              const GenerationOptions& options);
};

const ApiSpec& spec_of(Api api);

}  // namespace wideep::server
