// SPDX-License-Identifier: Apache-2.0
//
// Prompts for translations into German, each behind the same two examples: texts that repeat what
// stands before them. Written for this purpose.
#pragma once

#include <string>
#include <vector>

namespace wideep::tools {

inline std::vector<std::string> translation_prompts() {
  const std::string examples =
      "English: The file could not be opened.\n"
      "German: Die Datei konnte nicht geöffnet werden.\n\n"
      "English: The directory could not be created.\n"
      "German: Das Verzeichnis konnte nicht angelegt werden.\n\n";
  std::vector<std::string> prompts;
  for (const char* sentence : {"The file could not be closed.",
                               "The file could not be written.",
                               "The directory could not be opened.",
                               "The directory could not be removed.",
                               "The connection to the server was closed.",
                               "The connection could not be opened.",
                               "The password could not be changed.",
                               "The package could not be installed.",
                               "The package could not be removed.",
                               "The list of packages could not be read.",
                               "The image could not be loaded.",
                               "The image could not be saved.",
                               "The program was started.",
                               "The program could not be started.",
                               "The settings could not be saved.",
                               "The settings could not be read.",
                               "The disk is full.",
                               "The disk could not be found.",
                               "The device is not connected.",
                               "The device could not be found.",
                               "The printer is not connected.",
                               "The language could not be changed.",
                               "The message could not be sent.",
                               "The message was sent to all users."}) {
    prompts.push_back(examples + "English: " + sentence + "\nGerman:");
  }
  return prompts;
}

}  // namespace wideep::tools
