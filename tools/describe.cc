// SPDX-License-Identifier: Apache-2.0
//
// wideep man DIR and wideep completions SHELL: what the build writes from the option tables. Hidden,
// because users have the files.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "base/try.h"
#include "commands.h"
#include "completions.h"
#include "formats/files.h"
#include "man_pages.h"

namespace wideep::tools {
namespace {

Status write_pages(const command_line::Program& program, const std::string& directory) {
  WIDEEP_TRY_ASSIGN(const std::string date, man_date(std::getenv("SOURCE_DATE_EPOCH")));
  WIDEEP_TRY_ASSIGN(const std::vector<ManPage> pages,
                    man_pages(program.facts(), WIDEEP_VERSION, date));
  for (const ManPage& page : pages) {
    WIDEEP_TRY(formats::write_file(directory + "/" + page.name, page.text));
  }
  return {};
}

void print_completion(const command_line::Program& program, const std::string& shell) {
  const command_line::CommandFacts facts = program.facts();
  const std::string text = shell == "bash"  ? bash_completion(facts)
                           : shell == "zsh" ? zsh_completion(facts)
                                            : fish_completion(facts);
  std::fwrite(text.data(), 1, text.size(), stdout);  // main() sees whether that went well
}

}  // namespace

void add_describe_commands(const command_line::Program& program, Status* status) {
  const auto argument = std::make_shared<std::string>();
  const command_line::Command man = program.add_command("man", "Write manual pages into a folder");
  man.hide();
  man.add_option("DIR", *argument, "The folder").required();
  man.on_run([&program, argument, status] { *status = write_pages(program, *argument); });

  const command_line::Command completions =
      program.add_command("completions", "Print the completions of a shell");
  completions.hide();
  completions.add_option("SHELL", *argument, "The shell")
      .required()
      .one_of({"bash", "zsh", "fish"});
  completions.on_run([&program, argument] { print_completion(program, *argument); });
}

}  // namespace wideep::tools
