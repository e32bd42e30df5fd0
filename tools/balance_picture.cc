// SPDX-License-Identifier: Apache-2.0
// wideep balance picture: draws one or two routing logs as an HTML page.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "base/printable.h"
#include "base/try.h"
#include "commands.h"
#include "formats/files.h"
#include "output_file.h"
#include "recordings/routing_log.h"
#include "recordings/routing_picture.h"
#include "report_page.h"

namespace wideep::tools {
namespace {

using recordings::Picture;
using recordings::PictureRun;

struct PictureOptions {
  std::string before;
  std::string after;  // empty: only one run is drawn
  std::string output;
  std::string title;
  std::string names = "before,after";
};

// The names of the two runs: "static,online".
Result<std::pair<std::string, std::string>> split_names(const std::string& names) {
  constexpr size_t kMax = 12;  // columns of the summary
  const size_t comma = names.find(',');
  if (comma != names.npos) {
    std::pair<std::string, std::string> both(names.substr(0, comma), names.substr(comma + 1));
    const auto fits = [](const std::string& name) {
      return !name.empty() && name.size() <= kMax && name.find(',') == name.npos;
    };
    if (fits(both.first) && fits(both.second) && both.first != both.second) return both;
  }
  return invalid_input(fmt::format(
      "--names: expected two different names of at most {} characters with a comma between, as "
      "static,online, found {}",
      kMax, base::printable(names, 80)));
}

Result<PictureRun> read_run(const std::string& path, const std::string& name) {
  PictureRun run;
  run.name = name;
  run.file = std::filesystem::path(path).filename().string();
  WIDEEP_TRY_ASSIGN(run.log, recordings::read_routing_log(path));
  return run;
}

Result<Picture> read_picture(const PictureOptions& options) {
  Picture picture;
  picture.title = options.title;
  WIDEEP_TRY_ASSIGN(const auto names, split_names(options.names));
  WIDEEP_TRY_ASSIGN(picture.before, read_run(options.before, names.first));
  if (options.after.empty()) return picture;
  WIDEEP_TRY_ASSIGN(picture.after, read_run(options.after, names.second));
  WIDEEP_TRY(recordings::check_comparable(picture.before, *picture.after));
  return picture;
}

Status run(const PictureOptions& options) {
  WIDEEP_TRY(check_output_file(options.output));
  WIDEEP_TRY_ASSIGN(const Picture picture, read_picture(options));
  const std::string page = recordings::fill_page(report_page(), picture);
  WIDEEP_TRY(formats::write_file(options.output, page));
  std::fputs(
      fmt::format("{}wrote {}\n", recordings::picture_summary(picture), options.output).c_str(),
      stdout);
  return {};
}

}  // namespace

void add_balance_picture_command(command_line::Command balance, Status* status) {
  auto options = std::make_shared<PictureOptions>();
  const command_line::Command command = balance.add_command(
      "picture", "Draw routing logs (wideep generate --routing-log) as one HTML page");
  command.add_option("--before", options->before, "The routing log to draw").required();
  command
      .add_option("--after", options->after,
                  "A second log of the same model and ranks, drawn beside the first")
      .path();
  command.add_option("--output,--output-path", options->output, "The HTML file to write")
      .path()
      .required();
  command
      .add_option("--names", options->names,
                  "Names of the two runs on the page, for example static,online")
      .show_default();
  command.add_option("--title", options->title, "Title of the page (default: the model's name)");
  command.on_run([options, status] { *status = run(*options); });
}

}  // namespace wideep::tools
