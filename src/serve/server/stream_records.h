// SPDX-License-Identifier: Apache-2.0
//
// A stream that another server can go on with: how records of the answer travel in it, and back.
//
//   POST /v1/chat/completions            → data: {"id":…}
//   X-Wideep-Journal: 1                    (blank line)
//                                          : wideep-record AQIDBA==
//                                          (blank line)
//                                          data: {"id":…
//
// Whoever asks for it gets the records (answer_records.h) as comments of the stream, each before the
// first byte that follows from it. What would not be made again, such as the progress of a prompt,
// comes behind a comment with its number of bytes: ": wideep-aside 312". All other bytes follow from
// the request and the records alone.
//
//   POST /v1/chat/completions            → the whole stream from its first byte, but for asides and
//   X-Wideep-Resume: 57                    records that were sent before
//   (57 bytes of the first request's body, then the records as they came, one a line)
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "wideep/status.h"

namespace wideep::server {

inline constexpr const char* kJournalHeader = "X-Wideep-Journal";
inline constexpr const char* kResumeHeader = "X-Wideep-Resume";

// Every comment of this kind begins with the first, and ends with a blank line.
inline constexpr std::string_view kStreamMark = ": wideep-";
inline constexpr std::string_view kRecordMark = ": wideep-record ";
inline constexpr std::string_view kAsideMark = ": wideep-aside ";

std::string record_comment(std::string_view record);
// "" stays "".
std::string marked_aside(std::string_view bytes);

struct ResumedBody {
  std::string_view request;  // of `body`
  std::vector<std::string> records;
};
// header: of kResumeHeader. Errors (invalid input): it is no length of a part of the body; the rest
// are no lines of base64.
Result<ResumedBody> split_resumed(std::string_view header, std::string_view body);

}  // namespace wideep::server
