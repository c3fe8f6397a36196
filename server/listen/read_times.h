// gRPC's reads of each connection, their length and the time that gRPC needs for them: a function of this program takes
// the place of recvmsg().
//
// gRPC hands most calls over, and then they are counted. It refuses some itself, which nobody learns of, and parses
// headers, handshakes and frames without a call. It does so on the thread that has read them, before it reads another
// connection: up to four megabytes at once, and again and again without a poll while bytes come. So it gets no more
// bytes at once than it handled in four milliseconds before, and after that time it is told that none are there, and
// must poll before it reads more. All functions here are thread-safe.
#pragma once

#include <chrono>

namespace posenc::server {

// From now on, the time of this thread's reads is kept. (Threads of gRPC's own read, too.)
void TimeReadsOfThisThread();
// Tells that this thread turns to other work than what it has read.
void EndRead();

// Tells that the descriptor is that of a new connection.
void BeginReads(int descriptor);
// Returns the processor time that was needed for what was read of this descriptor since the last such call.
std::chrono::nanoseconds TakeReadTime(int descriptor);

}  // namespace posenc::server
