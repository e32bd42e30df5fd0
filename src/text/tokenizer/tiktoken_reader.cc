// SPDX-License-Identifier: Apache-2.0
//
// The file holds no merges: in tiktoken two neighbours merge if their bytes together are a token,
// the lowest rank first. All cuts of each token into two tokens, ranked by its id, are the same
// rule as a table, so that one BPE serves both kinds of tokenizers. Tokens are written in the
// byte-level alphabet for the same reason.
#include "tokenizer/tiktoken_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/printable.h"
#include "base/try.h"
#include "formats/base64.h"
#include "formats/files.h"
#include "tokenizer/byte_level.h"

namespace wideep::tokenizer {
namespace {

// Words, of which Chinese characters are never a part; then digits, punctuation, white space.
constexpr std::string_view kKimiPattern =
    R"([\p{Han}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*)"
    R"([\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+)"
    R"([\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kHunyuanPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr TiktokenFamily kFamilies[] = {{"tiktoken.model", "TikTokenTokenizer", kKimiPattern, true},
                                        {"hy.tiktoken", "HYTokenizer", kHunyuanPattern, false}};

constexpr int kKimiSpecialTokens = 256;
constexpr int kHunyuanExtraTokens = 205;

// A token of n bytes has n - 1 ways to be cut in two, each of which is looked up by its text.
constexpr size_t kMaxTokenBytes = 1024;

std::optional<int64_t> number(std::string_view text) {
  int64_t value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

Result<std::string> read_line(std::string_view line, size_t rank) {
  const std::string shown = base::printable(line, 60);
  const size_t space = line.find(' ');
  const std::optional<std::string> token = formats::from_base64(line.substr(0, space));
  const std::optional<int64_t> found =
      space == std::string_view::npos ? std::nullopt : number(line.substr(space + 1));
  if (!token || token->empty() || !found) {
    return invalid_input(fmt::format("expected a token in base64 and its rank, found '{}'", shown));
  }
  if (token->size() > kMaxTokenBytes) {
    return invalid_input(fmt::format("expected tokens of at most {} bytes, found one of {}",
                                     kMaxTokenBytes, token->size()));
  }
  if (*found != static_cast<int64_t>(rank)) {
    return invalid_input(fmt::format(
        "found rank {}, expected {}: ranks follow each other without gaps", *found, rank));
  }
  return *token;
}

// A merge for each way to cut a token into two tokens, with the token's id as its rank.
class MergeMaker {
 public:
  explicit MergeMaker(const std::vector<std::string>& tokens) : tokens_(tokens) {
    for (size_t i = 0; i < tokens.size(); ++i) ids_.emplace(tokens[i], static_cast<int32_t>(i));
  }

  MergeTable table() const {
    size_t count = 0;
    for_each([&](int32_t, int32_t, int32_t) { ++count; });
    MergeTable merges(count);
    for_each([&](int32_t left, int32_t right, int32_t merged) {
      merges.set(left, right, {.rank = merged, .merged = merged});
    });
    return merges;
  }

 private:
  template <typename Use>
  void for_each(Use use) const {
    for (size_t id = 0; id < tokens_.size(); ++id) {
      const std::string_view token = tokens_[id];
      for (size_t cut = 1; cut < token.size(); ++cut) {
        const auto left = ids_.find(token.substr(0, cut));
        if (left == ids_.end()) continue;
        const auto right = ids_.find(token.substr(cut));
        if (right != ids_.end()) use(left->second, right->second, static_cast<int32_t>(id));
      }
    }
  }

  const std::vector<std::string>& tokens_;
  std::unordered_map<std::string_view, int32_t> ids_;
};

Result<Symbols::ByteIds> byte_ids_of(const std::vector<std::string>& tokens,
                                     const std::string& name) {
  Symbols::ByteIds ids;
  ids.fill(Symbols::kNone);
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i].size() == 1) ids[static_cast<uint8_t>(tokens[i][0])] = static_cast<int32_t>(i);
  }
  for (size_t byte = 0; byte < ids.size(); ++byte) {
    if (ids[byte] != Symbols::kNone) continue;
    return invalid_input(fmt::format(
        "{}: no token for the byte 0x{:02X}; expected one for each of the 256 bytes", name, byte));
  }
  return ids;
}

// The special tokens of Kimi: those of added_tokens_decoder, by their ids, and reserved ones.
Result<std::vector<AddedToken>> kimi_tokens(int32_t first, const std::string& name,
                                            const OtherFiles& more) {
  std::map<int32_t, AddedToken> by_id;
  for (const MoreToken& each : more.tokens) {
    if (!each.id) continue;
    if (*each.id < first || *each.id >= first + kKimiSpecialTokens) {
      return invalid_input(
          fmt::format("{}: token '{}' has id {}, expected {} to {}, after the {} tokens of {}",
                      each.file, base::printable(each.token.content, 60), *each.id, first,
                      first + kKimiSpecialTokens - 1, first, name));
    }
    by_id[*each.id] = each.token;
  }
  std::vector<AddedToken> tokens;
  for (int32_t id = first; id < first + kKimiSpecialTokens; ++id) {
    const auto found = by_id.find(id);
    const bool is_named = found != by_id.end();
    tokens.push_back(
        {.id = id,
         .content = is_named ? found->second.content : fmt::format("<|reserved_token_{}|>", id),
         .special = is_named && found->second.special});
  }
  return tokens;
}

std::vector<AddedToken> hunyuan_tokens(int32_t first) {
  std::vector<std::string> names = {"<|endoftext|>", "<|startoftext|>", "<|bos|>", "<|eos|>",
                                    "<|pad|>"};
  for (int i = 0; i < kHunyuanExtraTokens; ++i) names.push_back(fmt::format("<|extra_{}|>", i));
  std::vector<AddedToken> tokens;
  for (const std::string& content : names) {
    tokens.push_back({.id = first++, .content = content, .special = true});
  }
  return tokens;
}

// Tokens are written in the byte-level alphabet, special ones as they are.
Result<Vocabulary> vocabulary_of(const std::vector<std::string>& tokens,
                                 const std::vector<AddedToken>& special, const std::string& name) {
  Vocabulary vocabulary;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const Status status =
        vocabulary.add(to_byte_level(tokens[i]), static_cast<int64_t>(i), Origin::kModel);
    if (!status.ok()) return status.at(name);
  }
  for (const AddedToken& token : special) {
    const Status status = vocabulary.add(token.content, token.id, Origin::kAdded);
    if (!status.ok()) return status.at(name);
    vocabulary.set_bytes(token.id, token.content);
    if (token.special) vocabulary.mark_special(token.id);
  }
  return vocabulary;
}

}  // namespace

std::span<const TiktokenFamily> tiktoken_families() { return kFamilies; }

const TiktokenFamily* find_tiktoken_family(const std::string& model_dir) {
  std::error_code error;
  for (const TiktokenFamily& family : kFamilies) {
    if (std::filesystem::exists(model_dir + "/" + family.file, error)) return &family;
  }
  return nullptr;
}

Result<std::vector<std::string>> read_ranks(std::string_view text, const std::string& name) {
  std::vector<std::string> tokens;
  std::unordered_map<std::string, size_t> lines;
  if (text.empty()) return invalid_input(fmt::format("{}: empty; expected tokens", name));
  while (!text.empty()) {
    const size_t number_of_line = tokens.size() + 1;
    const std::string at = fmt::format("{}: line {}", name, number_of_line);
    const size_t end = std::min(text.find('\n'), text.size());
    Result<std::string> token = read_line(text.substr(0, end), tokens.size());
    if (!token.ok() && end == text.size()) {
      return invalid_input(fmt::format("{}, the last one: {}; is the file cut short?", at,
                                       token.status().message()));
    }
    if (!token.ok()) return token.status().at(at);
    const auto [found, is_new] = lines.emplace(*token, number_of_line);
    if (!is_new) {
      return invalid_input(fmt::format("{}: the token '{}' is that of line {} too", at,
                                       base::printable(*token, 60), found->second));
    }
    tokens.push_back(std::move(*token));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return tokens;
}

Result<std::shared_ptr<const TokenizerParts>> tiktoken_parts(std::string_view text,
                                                             const std::string& name,
                                                             const TiktokenFamily& family,
                                                             const OtherFiles& more) {
  const std::string& found_class = more.ends.tokenizer_class;
  if (!found_class.empty() && found_class != family.tokenizer_class) {
    return invalid_input(fmt::format(
        "{}: tokenizer_class: '{}' with {} is not supported; expected '{}', or a tokenizer.json",
        more.ends.file, base::printable(found_class, 60), family.file, family.tokenizer_class));
  }
  WIDEEP_TRY_ASSIGN(const std::vector<std::string> tokens, read_ranks(text, name));
  WIDEEP_TRY_ASSIGN(const Symbols::ByteIds byte_ids, byte_ids_of(tokens, name));
  const auto num_tokens = static_cast<int32_t>(tokens.size());
  std::vector<AddedToken> special = hunyuan_tokens(num_tokens);
  if (family.is_kimi) {
    WIDEEP_TRY_ASSIGN(special, kimi_tokens(num_tokens, name, more));
  }
  WIDEEP_TRY_ASSIGN(Vocabulary vocabulary, vocabulary_of(tokens, special, name));
  WIDEEP_TRY_ASSIGN(Pattern pattern, Pattern::from_regex(family.pattern));
  PreTokenizer pre_tokenizer;
  pre_tokenizer.add(std::move(pattern));
  Normalizer normalizer;
  if (!family.is_kimi) {
    WIDEEP_TRY(check_form_available(UnicodeForm::kNfc));
    normalizer.add(FormStep{.form = UnicodeForm::kNfc, .tables = UnicodeTables::kNewest});
  }
  // tiktoken takes a word that is a token as it is, whatever its merges would give.
  return std::make_shared<const TokenizerParts>(
      TokenizerParts{.run_limits = family.is_kimi ? std::optional(RunLimits()) : std::nullopt,
                     .added_as_written = {},
                     .normalizer = std::move(normalizer),
                     .added_normalized = AddedTokenFinder(std::move(special)),
                     .pre_tokenizer = std::move(pre_tokenizer),
                     .ignore_merges = true,
                     .bpe = Bpe(Symbols(byte_ids), MergeMaker(tokens).table()),
                     .post_processor = {},
                     .decoder = {},
                     .vocabulary = std::move(vocabulary),
                     .notes = {}});
}

Result<std::shared_ptr<const TokenizerParts>> read_tiktoken(const std::string& model_dir,
                                                            const TiktokenFamily& family,
                                                            const OtherFiles& more) {
  const std::string file = model_dir + "/" + family.file;
  WIDEEP_TRY_ASSIGN(const std::string text, formats::read_file(file));
  return tiktoken_parts(text, file, family, more);
}

}  // namespace wideep::tokenizer
