// SPDX-License-Identifier: Apache-2.0
//
// The memory of a page server for peers on the same machine, who read it themselves
// (page_server.h): a socket without a file, on which the server lets in as on its port, and gives
// the memory's descriptor instead of an answer.
//
// Thread safety: functions without state.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "base/shared_bytes.h"
#include "wideep/status.h"

namespace wideep::store {

// This boot of this machine, and the numbers that its processes have for each other, by which a
// host tier knows who has died (process_mark.h). "": not known.
std::string this_machine();

// A socket that nobody's name is on, and its name. −1: there can be none.
int listen_for_memory(std::string& name);
// A process of the same user. fd: of a Unix socket.
bool is_of_this_user(int fd);
// False: the client is gone.
bool send_memory(int fd, const base::SharedBytes& memory);

// What a server gives at that name for these words of AUTH. Errors (failed): nobody is there, who
// may be in another network namespace, or the server refuses; (deadline exceeded): no answer.
Result<base::SharedBytes> take_memory(const std::string& name, std::string_view record_class,
                                      std::string_view token, std::chrono::milliseconds timeout);

}  // namespace wideep::store
