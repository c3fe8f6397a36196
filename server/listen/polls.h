// gRPC's polls of its connections: functions of this program take the places of epoll_wait() and epoll_ctl().
//
// gRPC asks Linux for up to 100 connections that can be read, and reads all of them before it asks again. It cannot be
// told to ask for fewer, nor to leave one unread. All functions here are thread-safe.
#pragma once

#include <chrono>

namespace posenc::server {

// Tells that this thread takes events from gRPC's completion queue. (Threads of gRPC's own poll, too.)
void CountPollsOfThisThread();

// Time since one of these threads last polled the connections; zero while one of them waits for them; a millisecond if
// none ever did. gRPC polls only once nothing that it has read waits to be handled.
std::chrono::steady_clock::duration SincePoll();

// From now on, gRPC does not learn that this socket can be read, unless the other host has closed it. Does not outlast
// the socket.
void HideFromPolls(int descriptor);
// Ends that. gRPC only learns what happens from now on.
void ShowToPolls(int descriptor);

}  // namespace posenc::server
