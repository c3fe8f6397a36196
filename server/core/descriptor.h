// Owning file descriptor, and the text of an errno.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

namespace posenc::server {

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) {
      Close();
      number_ = std::exchange(other.number_, -1);
    }
    return *this;
  }
  ~Descriptor() { Close(); }

  bool valid() const { return number_ >= 0; }
  int get() const { return number_; }
  // Gives up ownership.
  int Release() { return std::exchange(number_, -1); }

 private:
  void Close() {
    if (number_ >= 0) close(number_);
  }

  int number_ = -1;
};

// True for an error of a function that makes a descriptor, for lack of descriptors or memory.
inline bool IsOutOfDescriptors(int error) {
  return error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS;
}

// Returns the message of an errno.
inline std::string TextOf(int error) { return std::generic_category().message(error); }

}  // namespace posenc::server
