// SPDX-License-Identifier: Apache-2.0
//
// Reads the body of a request field by field, by the table of request_fields.h. The first complaint
// stays; a reader of requests goes on after one, as if the field were absent.
//
//   BodyReader body(kChatBody, text);
//   request.stream = body.flag("stream");
//   if (const auto error = body.finish()) return *error;
//
// Not thread safe; one per request.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/nested_fields.h"
#include "api/request_field.h"
#include "http/http_error.h"

namespace wideep::server {

class BodyReader {
 public:
  // Of an object. With 512 a body of 8 MiB takes a second at worst (formats/json_parse.h).
  static constexpr size_t kMaxMembers = 512;

  BodyReader(Bodies kind, std::string_view text);

  // The value of a field, or null if it is absent. REQUIRES: the table has it for this body.
  const nlohmann::ordered_json& take(const char* name);
  // Null is "absent". A value that is none of these, or that the table does not allow, is a
  // complaint, and then absent. REQUIRES: the table has the field with that type; flags and texts
  // may be kOther there.
  bool flag(const char* name, bool by_default = false);
  std::optional<int64_t> integer(const char* name);
  std::optional<double> number(const char* name);
  std::string string(const char* name);  // "": absent
  // Where the type depends on the body, so that the table does not have the range.
  std::optional<int64_t> integer(const char* name, int64_t min, int64_t max);
  // A list of texts that are not empty.
  struct TextLimits {
    size_t max = 0;        // texts
    size_t max_bytes = 0;  // of each
  };
  std::vector<std::string> texts(const char* name, const TextLimits& limits);
  // Where only one value, or none, changes nothing.
  void only(const char* name, const nlohmann::ordered_json& harmless, const char* what);

  // "<param>: <what>", unless there was a complaint before.
  void complain(const std::string& param, const std::string& what);
  bool is_valid() const { return !error_; }
  // Whether the table has the field for this body.
  bool knows(std::string_view name) const;
  // Members of an object in the body that `fields` does not have are complaints, with their path,
  // unless they are null. place: of the object. Returns whether there are none.
  bool check_members(const std::string& place, const nlohmann::ordered_json& object,
                     const NestedFields& fields);
  // Something in the body that is taken no notice of, for without_effect().
  void ignore(std::string what) { ignored_.insert(std::move(what)); }
  void ignore_member(const NestedFields& fields, std::string_view name);
  // The fields that the body has and the tables take no notice of; of objects in it, those that
  // check_members() has seen.
  std::vector<std::string> without_effect() const;
  // After everything was taken: fields that the table does not have are complaints, too.
  std::optional<HttpError> finish();

  // A value for a message, shortened.
  static std::string shown(const nlohmann::ordered_json& value);

 private:
  void read(std::string_view text);
  const FieldValue& allowed(const char* name, FieldValue::Type type) const;

  Bodies kind_;
  nlohmann::ordered_json body_ = nlohmann::ordered_json::object();
  std::vector<std::string> taken_;
  std::set<std::string> ignored_;  // of objects in the body
  std::optional<HttpError> error_;
};

// The member, or null if there is none.
const nlohmann::ordered_json& member_of(const nlohmann::ordered_json& object, const char* name);

}  // namespace wideep::server
