// SPDX-License-Identifier: Apache-2.0
//
// Nothing is downloaded by wideep, so a name on Hugging Face is answered with the command that does.
// Formats are told by their first bytes, since names of old files (.bin) say little.
#include "model/config/model_path.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>
#include <system_error>
#include <vector>

#include "formats/files.h"
#include "tensor_files/gguf.h"

namespace wideep::model {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWantedModel =
    "expected a model's directory, with config.json, model.safetensors (or its index) and "
    "tokenizer.json, or a GGUF file";

bool is_there(const fs::path& path) {
  std::error_code absent;
  return fs::exists(path, absent);
}

bool is_folder(const fs::path& path) {
  std::error_code absent;
  return fs::is_directory(path, absent);
}

// ---- what is not there ----

// ORG/NAME, of which GGUF repositories are often named with a precision: ORG/NAME:Q4_K_M.
struct HubName {
  std::string repository, name, precision;
};

std::optional<HubName> hub_name(std::string_view text) {
  for (const std::string_view site : {"https://huggingface.co/", "hf.co/", "huggingface.co/"}) {
    if (text.starts_with(site)) text.remove_prefix(site.size());
  }
  HubName found;
  const size_t colon = text.find(':');
  if (colon != std::string_view::npos) found.precision = text.substr(colon + 1);
  found.repository = text.substr(0, colon);
  const size_t slash = found.repository.find('/');
  if (slash == std::string::npos || slash == 0) return {};
  found.name = found.repository.substr(slash + 1);
  const auto is_part = [](std::string_view part) {
    const auto is_good = [](unsigned char c) {
      return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
    };
    return !part.empty() && part.front() != '.' && std::ranges::all_of(part, is_good);
  };
  const bool is_name = is_part(found.repository.substr(0, slash)) && is_part(found.name) &&
                       (found.precision.empty() || is_part(found.precision));
  // A folder that is there is meant, and something in it misspelt.
  if (!is_name || is_folder(found.repository.substr(0, slash))) return {};
  return found;
}

Status complain_of_absent(const std::string& path) {
  const std::optional<HubName> hub = hub_name(path);
  if (!hub)
    return invalid_input(fmt::format("{}: No such file or directory; {}", path, kWantedModel));
  if (hub->precision.empty()) {
    return invalid_input(
        fmt::format("{}: No such directory; if it is a model on Hugging Face, download it first, "
                    "wideep does not: hf download {} --local-dir {}, and name that directory",
                    path, hub->repository, hub->name));
  }
  return invalid_input(fmt::format(
      "{}: No such file; if it is a model on Hugging Face, download it first, wideep does not: hf "
      "download {} --include '*{}*.gguf' --local-dir {}, and name the GGUF file",
      path, hub->repository, hub->precision, hub->name));
}

Status unreadable(const std::string& path, const std::error_code& error) {
  return invalid_input(fmt::format("{}: cannot be read: {}", path, error.message()));
}

// ---- directories ----

struct FolderContent {
  std::error_code error;  // why it cannot be listed
  bool is_empty = true;
  std::vector<std::string> gguf_files;    // sorted
  std::vector<std::string> model_within;  // directories within that have a config.json, sorted
};

// Of the files of a split model only the first.
bool is_later_part(const std::string& file) {
  const size_t of = file.rfind("-of-");
  return of != std::string::npos && file.ends_with(".gguf") &&
         !file.substr(0, of).ends_with("-00001");
}

void look_for_models(const fs::path& dir, std::vector<std::string>* found) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(dir, error)) {
    if (is_there(entry.path() / "config.json")) found->push_back(entry.path().string());
  }
}

FolderContent content_of(const fs::path& dir) {
  constexpr int kMostFiles = 10'000;  // to look into; a model's directory has some hundreds
  FolderContent content;
  int files = 0;
  for (const auto& entry : fs::directory_iterator(dir, content.error)) {
    content.is_empty = false;
    if (++files > kMostFiles) break;
    const std::string path = entry.path().string();
    if (tensor_files::is_gguf(path) && !is_later_part(path)) content.gguf_files.push_back(path);
  }
  look_for_models(dir, &content.model_within);
  look_for_models(dir / "snapshots", &content.model_within);  // as the cache of hf download has it
  std::ranges::sort(content.gguf_files);
  std::ranges::sort(content.model_within);
  return content;
}

// The first ones, with commas.
std::string first_paths(std::vector<std::string> paths) {
  constexpr size_t kMax = 5;
  const size_t more = paths.size() - std::min(paths.size(), kMax);
  paths.resize(std::min(paths.size(), kMax));
  return fmt::format("{}{}", fmt::join(paths, ", "),
                     more > 0 ? fmt::format(" and {} more", more) : "");
}

// Many repositories hold GGUF files only, of several precisions, with or without a config.json.
Status check_directory(const fs::path& dir) {
  const bool has_weights =
      is_there(dir / "model.safetensors") || is_there(dir / "model.safetensors.index.json");
  const bool has_config = is_there(dir / "config.json");
  if (has_config && has_weights) return {};
  const FolderContent content = content_of(dir);
  const std::string shown = dir.string();
  if (content.error) return unreadable(shown, content.error);
  if (!content.gguf_files.empty() && !has_weights) {
    return invalid_input(
        fmt::format("{}: a directory of GGUF files without model.safetensors: name the file, for "
                    "example {}",
                    shown, first_paths(content.gguf_files)));
  }
  if (has_config) return {};
  if (content.is_empty) {
    return invalid_input(
        fmt::format("{}: an empty directory; {}; hf download ORG/NAME --local-dir {} fills it",
                    shown, kWantedModel, shown));
  }
  if (!content.model_within.empty()) {
    return invalid_input(fmt::format("{}/config.json: No such file; name the model's directory: {}",
                                     shown, first_paths(content.model_within)));
  }
  if (is_there(dir / "params.json")) {
    return invalid_input(
        fmt::format("{}/config.json: No such file; params.json is what a maker's own programs read "
                    "(Mistral's), and wideep does not; expected the same model's files for "
                    "transformers, config.json and model.safetensors, or a GGUF file",
                    shown));
  }
  return invalid_input(fmt::format("{}/config.json: No such file; {}", shown, kWantedModel));
}

// ---- files ----

std::string first_bytes(const fs::path& file) {
  constexpr size_t kMost = 64;
  std::array<char, kMost> bytes{};
  std::ifstream stream(file, std::ios::binary);
  stream.read(bytes.data(), bytes.size());
  return {bytes.data(), static_cast<size_t>(stream.gcount())};
}

// A little-endian integer names each of them, so that the letters stand backwards in the file.
std::optional<const char*> old_ggml(std::string_view begin) {
  if (begin.starts_with("lmgg")) return "GGML";
  if (begin.starts_with("fmgg")) return "GGMF";
  if (begin.starts_with("tjgg")) return "GGJT";
  return {};
}

// The header is a u64 and then JSON.
bool is_safetensors(const fs::path& file, std::string_view begin) {
  constexpr size_t kLength = 8;
  return file.extension() == ".safetensors" || (begin.size() > kLength && begin[kLength] == '{');
}

Status complain_of_safetensors(const fs::path& file) {
  const fs::path dir = file.has_parent_path() ? file.parent_path() : fs::path(".");
  const std::string shown = file.string();
  if (is_there(dir / "config.json")) {
    return invalid_input(fmt::format(
        "{}: weights alone; name their directory, which has config.json: {}", shown, dir.string()));
  }
  return invalid_input(
      fmt::format("{}: weights alone; expected their directory, with config.json and "
                  "tokenizer.json beside them: download the whole model",
                  shown));
}

Status check_file(const fs::path& file) {
  const std::string begin = first_bytes(file);
  const std::string shown = file.string();
  if (const auto old = old_ggml(begin)) {
    return invalid_input(fmt::format(
        "{}: a file of the old format {}, which llama.cpp left in 2023; expected a file "
        "that begins with 'GGUF': get the model's GGUF file, or its directory with "
        "model.safetensors",
        shown, *old));
  }
  if (begin.starts_with("algg")) {
    return invalid_input(fmt::format("{}: a LoRA adapter of the old format GGLA, no model; {}",
                                     shown, kWantedModel));
  }
  if (tensor_files::is_gguf(file.string())) return {};
  if (formats::is_lfs_pointer(begin)) return formats::lfs_pointer(file.string());
  if (begin.empty())
    return invalid_input(fmt::format("{}: an empty file; {}", shown, kWantedModel));
  if (is_safetensors(file, begin)) return complain_of_safetensors(file);
  if (file.filename() == "config.json") {
    const fs::path dir = file.has_parent_path() ? file.parent_path() : fs::path(".");
    return invalid_input(fmt::format("{}: name the model's directory: {}", shown, dir.string()));
  }
  return invalid_input(fmt::format("{}: neither a directory nor a file that begins with 'GGUF'; {}",
                                   shown, kWantedModel));
}

}  // namespace

Status check_model_path(const std::string& path) {
  if (path.empty())
    return invalid_input(fmt::format("the model's path is empty; {}", kWantedModel));
  std::error_code error;
  const fs::file_status found = fs::status(path, error);
  if (fs::is_directory(found)) return check_directory(path);
  if (fs::is_regular_file(found)) return check_file(path);
  // Nobody may ever write into it, and the reading of a device may do something.
  if (fs::exists(found)) {
    return invalid_input(fmt::format("{}: a pipe or a device; {}", path, kWantedModel));
  }
  if (error == std::errc::permission_denied) return unreadable(path, error);
  return complain_of_absent(path);
}

}  // namespace wideep::model
