// SPDX-License-Identifier: Apache-2.0
//
// The fields of the requests' bodies, in a table: what is done with each. The reader of requests
// goes by it, and docs/serve.md contains it (request_fields_test.cc).
//
// Thread safety: immutable.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "api/request_field.h"

namespace wideep::server {

std::span<const RequestField> request_fields();

// Null: the body has no such field. Also of the bodies of responses_fields.h and
// messages_fields.h.
const RequestField* find_request_field(std::string_view name, Bodies body);

// The table as Markdown: a row for each field, with what the completions' and the chats' body do
// with it.
std::string request_fields_markdown();

}  // namespace wideep::server
