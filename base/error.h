// SPDX-License-Identifier: BSD-2-Clause
// Why a packet I/O could not be opened, for people and for programs. Made by AfXdp::open and UdpIo::open; the engine
// prints it and hands the code to the application as errno.
#pragma once

#include <memory>
#include <string>
#include <variant>

namespace uroce::io {

struct IoError {
  int code = 0;        // errno value
  std::string what;    // one line: what failed
  std::string remedy;  // one line: what to do about it

  std::string text() const { return what + "; " + remedy; }
};

// `remedy`, unless what failed is that too many files are open, for which there is another.
std::string remedy_for(int error, std::string remedy);

template <class T>
using IoResult = std::variant<std::unique_ptr<T>, IoError>;

}  // namespace uroce::io
