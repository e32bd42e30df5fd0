// SPDX-License-Identifier: Apache-2.0
//
// Reading JSON that people wrote: every access checks and an error names file and key.
//
//   WIDEEP_TRY_ASSIGN(JsonDocument document, JsonDocument::read("config.json"));
//   JsonObject root = document.root();
//   int64_t hidden = root.integer("hidden_size", {.min = 1, .max = 1 << 20});
//   bool tied = root.boolean_or("tie_word_embeddings", false);
//   WIDEEP_TRY(document.status());    // the first complaint of any access above
//
// integer() takes integral values however written (10000.0, 1e4); number() takes integers as well.
// A null counts as absent. Views are valid as long as their document. Not thread safe: accessors
// share the document's complaint.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "formats/complaint.h"
#include "formats/files.h"
#include "formats/range.h"
#include "wideep/status.h"

namespace wideep::formats {

// One JSON object of a document, with the dotted path that leads to it ("rope_scaling").
// After a complaint accessors return 0, false, "" or their default.
class JsonObject {
 public:
  JsonObject(const nlohmann::json* value, std::string path, Complaint* complaint)
      : value_(value), path_(std::move(path)), complaint_(complaint) {}

  bool has(std::string_view key) const;  // present and not null
  std::vector<std::string> keys() const;

  int64_t integer(std::string_view key, IntegerRange range = {}) const;
  int64_t integer_or(std::string_view key, int64_t fallback, IntegerRange range = {}) const;
  double number(std::string_view key, NumberRange range = {}) const;
  double number_or(std::string_view key, double fallback, NumberRange range = {}) const;
  bool boolean(std::string_view key) const;
  bool boolean_or(std::string_view key, bool fallback) const;
  std::string string(std::string_view key) const;
  std::string string_or(std::string_view key, std::string fallback) const;
  std::vector<int64_t> integers(std::string_view key, IntegerRange range = {}) const;
  std::vector<int64_t> integers_or(std::string_view key, std::vector<int64_t> fallback,
                                   IntegerRange range = {}) const;
  JsonObject object(std::string_view key) const;  // complains when absent or no object

  // Complains about a key of this object with a message of the caller's. No effect after the first.
  void complain(std::string_view key, std::string_view what) const;
  const nlohmann::json& raw() const { return *value_; }

 private:
  const nlohmann::json* find(std::string_view key) const;
  const nlohmann::json* require(std::string_view key, const std::string& expected) const;
  std::string path_of(std::string_view key) const;

  const nlohmann::json* value_;
  std::string path_;
  Complaint* complaint_;
};

class JsonDocument {
 public:
  // Errors (invalid input): missing or unreadable file, not JSON (with line and column), or a root
  // that is no object.
  static Result<JsonDocument> read(const std::string& path);
  // The same of text in memory; `name` stands for the file in messages.
  static Result<JsonDocument> parse(std::string_view text, const std::string& name);

  JsonObject root() const { return {value_.get(), "", complaint_.get()}; }
  const Status& status() const { return complaint_->status(); }

 private:
  std::unique_ptr<nlohmann::json> value_;
  std::unique_ptr<Complaint> complaint_;
};

}  // namespace wideep::formats
