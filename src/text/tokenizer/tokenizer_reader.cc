// SPDX-License-Identifier: Apache-2.0
//
// The order follows from what depends on what: model → normalizer → added tokens of this file →
// those of others → the rest of the pipeline → how added tokens are written → what comes before and
// after a text. Ids of added tokens are computed as the library computes them and compared with the
// file's: where they differ, a model would get other ids than it was trained with, whoever is
// right.
#include "tokenizer/tokenizer_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/printable.h"
#include "base/try.h"
#include "formats/json_parse.h"
#include "tokenizer/component.h"
#include "tokenizer/model_reader.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pipeline_reader.h"

namespace wideep::tokenizer {
namespace {

// Reads the list "added_tokens". The tokenizers library ignores the ids in this list: a token of
// the model keeps the model's id, and the others get consecutive ids in their order, from the
// number of the model's tokens on. A file with other ids is refused, because the library would
// encode with other ids than the file contains.
class AddedTokenReader {
 public:
  AddedTokenReader(const Component& root, Vocabulary* vocabulary)
      : root_(root),
        vocabulary_(vocabulary),
        num_model_tokens_(static_cast<int64_t>(vocabulary->size())) {}

  void read() {
    if (!root_.has("added_tokens")) return;
    for (const Component& entry : root_.children("added_tokens")) {
      if (root_.ok()) read_token(entry);
    }
  }

  // Adds tokens of other files, or changes the flags of those that are there. Tokens without an id
  // that would be beyond `limit` are left out, and a note says so.
  Status add_more(const std::vector<MoreToken>& more, int32_t limit,
                  std::vector<std::string>* notes) {
    for (const MoreToken& each : more) {
      if (each.named && find(each.token.content) != nullptr) continue;
      AddedToken token = each.token;
      const std::optional<int32_t> known = vocabulary_->find(token.content);
      token.id = static_cast<int32_t>(known ? *known : next_id());
      if (each.id && *each.id != token.id) return other_id(each, token.id);
      if (!each.id && token.id >= limit) {
        notes->push_back(
            fmt::format("{}: '{}' would be token {}, which the model does not have, so "
                        "it is text",
                        each.file, base::printable(token.content, 60), token.id));
        continue;
      }
      if (!known) {
        const Status status = vocabulary_->add(token.content, token.id, Origin::kAdded);
        if (!status.ok()) return status.at(each.file);
      }
      greatest_id_ = std::max<int64_t>(greatest_id_, token.id);
      if (token.special) vocabulary_->mark_special(token.id);
      add_or_change(token);
    }
    return {};
  }

  const std::vector<AddedToken>& tokens() const { return tokens_; }

 private:
  AddedToken* find(const std::string& content) {
    const auto found = std::find_if(tokens_.begin(), tokens_.end(), [&](const AddedToken& token) {
      return token.content == content;
    });
    return found == tokens_.end() ? nullptr : &*found;
  }

  // As the library: new flags count wherever the token is searched; a token that was not special
  // is searched as the new `normalized` says too, and a special one as before only.
  void add_or_change(const AddedToken& token) {
    AddedToken* known = find(token.content);
    const bool again = known != nullptr && !known->special && known->normalized != token.normalized;
    for (AddedToken& each : tokens_) {
      if (each.content != token.content) continue;
      each.single_word = token.single_word;
      each.lstrip = token.lstrip;
      each.rstrip = token.rstrip;
      if (!again) each.special |= token.special;
    }
    if (known == nullptr || again) tokens_.push_back(token);
  }

  static Status other_id(const MoreToken& token, int32_t expected) {
    return invalid_input(fmt::format(
        "{}: token '{}' has id {}, expected {}, as in tokenizer.json or after its tokens",
        token.file, base::printable(token.token.content, 60), *token.id, expected));
  }

  void read_token(const Component& entry) {
    const formats::JsonObject& object = entry.object();
    entry.allow_keys({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
    AddedToken token{
        .id = static_cast<int32_t>(object.integer("id", {.min = 0, .max = kMaxTokenId})),
        .content = object.string("content"),
        .single_word = object.boolean("single_word"),
        .lstrip = object.boolean("lstrip"),
        .rstrip = object.boolean("rstrip"),
        .normalized = object.boolean("normalized"),
        .special = object.boolean("special")};
    if (entry.ok()) check_content(entry, token);
    if (entry.ok()) number(entry, token);
    if (!entry.ok()) return;
    if (token.special) vocabulary_->mark_special(token.id);
    tokens_.push_back(std::move(token));
  }

  void check_content(const Component& entry, const AddedToken& token) {
    const std::string shown = base::printable(token.content, 60);
    if (token.content.empty()) entry.complain_at("content", "empty");
    for (const AddedToken& other : tokens_) {
      if (other.content != token.content) continue;
      entry.complain_at("content", fmt::format("token '{}' is added twice", shown));
    }
  }

  // Adds the token to the vocabulary with the id that the library gives it, which must be the
  // file's.
  void number(const Component& entry, const AddedToken& token) {
    const std::optional<int32_t> in_model = vocabulary_->find(token.content);
    const int64_t expected = in_model ? *in_model : next_id();
    if (token.id != expected) {
      entry.complain_at(
          "id", fmt::format("token '{}' has id {}, expected {}: {}",
                            base::printable(token.content, 60), token.id, expected,
                            in_model ? "its id in model.vocab"
                                     : "ids of added tokens follow those of model.vocab in their "
                                       "order, without holes"));
      return;
    }
    greatest_id_ = std::max<int64_t>(greatest_id_, token.id);
    if (in_model) return;
    const Status status = vocabulary_->add(token.content, token.id, Origin::kAdded);
    if (!status.ok()) entry.complain_at("id", status.message());
  }

  int64_t next_id() const { return std::max(greatest_id_ + 1, num_model_tokens_); }

  const Component& root_;
  Vocabulary* vocabulary_;
  int64_t num_model_tokens_;
  int64_t greatest_id_ = -1;  // of the added tokens so far
  std::vector<AddedToken> tokens_;
};

void check_root(const Component& root) {
  root.allow_keys({"version", "truncation", "padding", "added_tokens", "normalizer",
                   "pre_tokenizer", "post_processor", "decoder", "model"});
  root.expect(root.object().string_or("version", "1.0") == "1.0", "version", "'1.0'");
}

// Both concern batches of texts of equal length, which are not made here.
std::vector<std::string> notes_of(const Component& root, const std::string& name) {
  std::vector<std::string> notes;
  for (const char* key : {"padding", "truncation"}) {
    if (root.has(key)) notes.push_back(fmt::format("{}: {}: no effect on prompts", name, key));
  }
  return notes;
}

// The token that the class of tokenizer_config.json adds on one side; none, or one.
Result<std::vector<int32_t>> ids_of(const TextEnds& ends, const EndToken& end,
                                    const Vocabulary& vocabulary) {
  if (!end.asks.value_or(end.by_default)) return std::vector<int32_t>();
  const std::optional<int32_t> id = vocabulary.find(end.content);
  if (id) return std::vector<int32_t>{*id};
  return invalid_input(
      fmt::format("{}: {} adds '{}' to every text ({}), and there is no such token", ends.file,
                  ends.tokenizer_class, base::printable(end.content, 60), end.key));
}

// A note where the file asks for something else than tokenizer.json does.
void note_unused(const TextEnds& ends, const EndToken& end, const std::vector<int32_t>& ids,
                 const Vocabulary& vocabulary, std::vector<std::string>* notes) {
  if (!end.asks) return;
  const std::optional<int32_t> id = vocabulary.find(end.content);
  const bool adds = id ? std::find(ids.begin(), ids.end(), *id) != ids.end() : !ids.empty();
  if (adds == *end.asks) return;
  notes->push_back(fmt::format(
      "{}: {}: {} is not used: {} adds what tokenizer.json says", ends.file, end.key, *end.asks,
      ends.tokenizer_class.empty() ? "a tokenizer without a class" : ends.tokenizer_class));
}

Status apply_ends(const TextEnds& ends, const Vocabulary& vocabulary, PostProcessor* processor,
                  std::vector<std::string>* notes) {
  if (ends.replaces) {
    WIDEEP_TRY_ASSIGN(processor->before, ids_of(ends, ends.before, vocabulary));
    WIDEEP_TRY_ASSIGN(processor->after, ids_of(ends, ends.after, vocabulary));
    return {};
  }
  note_unused(ends, ends.before, processor->before, vocabulary, notes);
  note_unused(ends, ends.after, processor->after, vocabulary, notes);
  return {};
}

// Special tokens come first, as in the library: of tokens with the same text the first is used.
std::vector<AddedToken> in_order(const std::vector<AddedToken>& tokens, bool normalized) {
  std::vector<AddedToken> selected;
  for (const bool special : {true, false}) {
    for (const AddedToken& token : tokens) {
      if (token.normalized == normalized && token.special == special) selected.push_back(token);
    }
  }
  return selected;
}

// Tokens with `normalized` are found as the normalizer writes them.
Result<AddedTokenFinder> normalized_finder(const std::vector<AddedToken>& tokens,
                                           const Normalizer& normalizer, const std::string& name) {
  std::vector<AddedToken> selected = in_order(tokens, true);
  for (AddedToken& token : selected) {
    std::string content = normalizer.apply(token.content);
    if (content.empty()) {
      return invalid_input(fmt::format("{}: added_tokens: the normalizer leaves nothing of '{}'",
                                       name, base::printable(token.content, 60)));
    }
    token.content = std::move(content);
  }
  return AddedTokenFinder(std::move(selected));
}

// Such a token is decoded as the normalizer writes it, too.
void set_written(const std::vector<AddedToken>& tokens, const Normalizer& normalizer,
                 Vocabulary* vocabulary) {
  if (normalizer.empty()) return;
  for (const AddedToken& token : tokens) {
    if (!token.normalized) continue;
    std::string content = normalizer.apply(token.content);
    if (content != token.content) vocabulary->set_written(token.id, std::move(content));
  }
}

// What each token stands for, where that is not what it is in the byte-level alphabet.
void set_bytes(const Decoder& decoder, Vocabulary* vocabulary) {
  if (decoder.is_bytes()) return;
  for (int32_t id = 0; id < vocabulary->id_limit(); ++id) {
    if (vocabulary->has(id)) vocabulary->set_bytes(id, decoder.bytes_of(vocabulary->written(id)));
  }
}

}  // namespace

Result<std::shared_ptr<const TokenizerParts>> read_parts(std::string_view text,
                                                         const std::string& name,
                                                         const OtherFiles& more, int32_t id_limit) {
  WIDEEP_TRY_ASSIGN(const nlohmann::json json, formats::parse_json(text, name));
  if (!json.is_object()) {
    return invalid_input(
        fmt::format("{}: expected an object, found {}", name, formats::describe(json)));
  }
  formats::Complaint complaint(name);
  const Component root(&json, "", &complaint);
  check_root(root);
  WIDEEP_TRY(root.status());
  // The model first: ids of added tokens depend on its vocabulary, and templates refer to both.
  WIDEEP_TRY_ASSIGN(BpeModel model, read_model(root.child("model"), ends_with_byte_level(root)));
  Normalizer normalizer = read_normalizer(root);
  WIDEEP_TRY(root.status());
  AddedTokenReader reader(root, &model.vocabulary);
  reader.read();
  WIDEEP_TRY(root.status());
  std::vector<std::string> notes = notes_of(root, name);
  WIDEEP_TRY(reader.add_more(more.tokens, id_limit, &notes));
  const std::vector<AddedToken>& added = reader.tokens();
  PreTokenizer pre_tokenizer = read_pre_tokenizer(root);
  PostProcessor post_processor = read_post_processor(root, model.vocabulary);
  Decoder decoder = read_decoder(root);
  WIDEEP_TRY(root.status());
  set_written(added, normalizer, &model.vocabulary);
  set_bytes(decoder, &model.vocabulary);
  WIDEEP_TRY_ASSIGN(AddedTokenFinder added_normalized, normalized_finder(added, normalizer, name));
  WIDEEP_TRY(apply_ends(more.ends, model.vocabulary, &post_processor, &notes));
  return std::make_shared<const TokenizerParts>(
      TokenizerParts{.run_limits = std::nullopt,
                     .added_as_written = AddedTokenFinder(in_order(added, false)),
                     .normalizer = std::move(normalizer),
                     .added_normalized = std::move(added_normalized),
                     .pre_tokenizer = std::move(pre_tokenizer),
                     .ignore_merges = model.ignore_merges,
                     .bpe = std::move(model.bpe),
                     .post_processor = std::move(post_processor),
                     .decoder = std::move(decoder),
                     .vocabulary = std::move(model.vocabulary),
                     .notes = std::move(notes)});
}

}  // namespace wideep::tokenizer
