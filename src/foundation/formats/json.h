// SPDX-License-Identifier: Apache-2.0
//
// Reads JSON files that people write. Every access checks the type and the range of the value;
// errors name the file and the key.
//
//   WIDEEP_TRY_ASSIGN(JsonDocument document, JsonDocument::read("config.json"));
//   JsonObject root = document.root();
//   int64_t hidden = root.integer("hidden_size", {.min = 1, .max = 1 << 20});
//   bool tied = root.boolean_or("tie_word_embeddings", false);
//   WIDEEP_TRY(document.status());    // the first error of all accesses above
//
// integer() accepts integral values in any notation (10000.0, 1e4); number() accepts integers too.
// A null counts as absent. Views are valid as long as their document. Not thread safe: accessors
// write to the document's Complaint.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "formats/complaint.h"
#include "formats/files.h"
#include "formats/range.h"
#include "wideep/status.h"

namespace wideep::formats {

// One JSON object of a document, with its dotted path ("rope_scaling"). An accessor that finds an
// error reports it to the Complaint and returns 0, false, "" or the fallback.
class JsonObject {
 public:
  // Paths of the keys that were asked for, whether the file has them or not.
  using Asked = std::set<std::string, std::less<>>;

  // asked: null: not recorded.
  JsonObject(const nlohmann::json* value, std::string path, Complaint* complaint,
             Asked* asked = nullptr)
      : value_(value), path_(std::move(path)), complaint_(complaint), asked_(asked) {}

  bool has(std::string_view key) const;  // present and not null
  std::vector<std::string> keys() const;
  // The keys that no accessor has been asked for yet. (A null counts as absent.)
  std::vector<std::string> unasked_keys() const;
  // Whether an accessor has been asked for the key.
  bool was_asked(std::string_view key) const {
    return asked_ != nullptr && asked_->contains(path_of(key));
  }

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
  JsonObject object(std::string_view key) const;  // absent or another type: an error

  // Reports an error of the caller's about a key of this object. Only the first report of a
  // document has an effect.
  void complain(std::string_view key, std::string_view what) const;
  // Whether no access to the document has found an error yet.
  bool is_valid() const { return complaint_->status().ok(); }
  const nlohmann::json& raw() const { return *value_; }

 private:
  const nlohmann::json* find(std::string_view key) const;
  const nlohmann::json* require(std::string_view key, const std::string& expected) const;
  std::string path_of(std::string_view key) const;

  const nlohmann::json* value_;
  std::string path_;
  Complaint* complaint_;
  Asked* asked_;
};

class JsonDocument {
 public:
  // Errors (invalid input): missing or unreadable file, not JSON (with line and column), or a root
  // that is no object.
  static Result<JsonDocument> read(const std::string& path);
  // The same for text in memory; messages name `name` instead of the file.
  static Result<JsonDocument> parse(std::string_view text, const std::string& name);

  JsonObject root() const { return {value_.get(), "", complaint_.get(), asked_.get()}; }
  const Status& status() const { return complaint_->status(); }

 private:
  std::unique_ptr<nlohmann::json> value_;
  std::unique_ptr<Complaint> complaint_;
  std::unique_ptr<JsonObject::Asked> asked_ = std::make_unique<JsonObject::Asked>();
};

}  // namespace wideep::formats
