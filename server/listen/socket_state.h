// These functions ask Linux about a connection that gRPC owns, and pause it. They take its descriptor.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>

namespace posenc::server {

// Inode of the socket; empty if the descriptor is closed or not a socket.
std::optional<ino_t> InodeOf(int descriptor);

// In bytes; 0 if the connection is closed.
int UnsentTo(int descriptor);           // those that the other host has not acknowledged
int UnreadOf(int descriptor);           // those that have come and were not read
uint64_t TakenBy(int descriptor);       // those that the other host has acknowledged; TCP only
uint64_t ReceivedFrom(int descriptor);  // those that have come; TCP only

// A paused connection becomes readable only once 64 KiB are unread, or when it ends. Linux keeps no more for it than
// for others. Resume() makes it readable, and says so to those who poll it. TCP only.
void Pause(int descriptor);
void Resume(int descriptor);
bool IsPaused(int descriptor);

// True if the other host has closed or reset the connection; bytes that it sent before may be unread. TCP only.
bool IsClosedByPeer(int descriptor);

// The port at the other end; 0 if the connection is closed. TCP only.
uint16_t PortOf(int descriptor);
// Ends the connection by a reset. The bytes that have come are dropped; after shutdown() they could be read. TCP only.
bool Reset(int descriptor);

}  // namespace posenc::server
