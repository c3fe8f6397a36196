// These functions ask Linux about a connection that gRPC owns, and end it. They take its descriptor.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>

namespace posenc::server {

// Inode of the socket; empty if the descriptor is closed or not a socket.
std::optional<ino_t> InodeOf(int descriptor);

// In bytes; 0 if the connection is closed.
int UnsentTo(int descriptor);  // those that the other host has not acknowledged
int UnreadOf(int descriptor);  // those that have come and were not read

// The port at the other end; 0 if the connection is closed. TCP only.
uint16_t PortOf(int descriptor);
// Ends the connection by a reset. The bytes that have come are dropped; after shutdown() they could be read. TCP only.
bool Reset(int descriptor);

}  // namespace posenc::server
