// gRPC's polls of its connections: functions of this program take the places of epoll_wait() and epoll_ctl().
//
// gRPC asks Linux for up to 100 connections that can be read, and reads all of them before it asks again. It cannot be
// told to ask for fewer, nor to leave one unread. All functions here are thread-safe.
#pragma once

#include <sys/epoll.h>

#include <chrono>
#include <optional>

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

// Hides the socket until this thread polls or calls ShowHeld(). Other threads that poll show it if this one has ended
// or uses no processor time, and after 100 milliseconds. Then gRPC also learns that bytes have come meanwhile. TCP
// only.
void HoldFromPolls(int descriptor);
void ShowHeld();

// While an object lives, a socket that this thread gives to gRPC is not polled; afterwards it is. Else another thread
// could read it meanwhile, and gRPC leaves what was read to the thread that works on the connection at that time: as
// long as bytes come, it would not return from gRPC. One object a thread, and one socket an object.
class PollLater {
 public:
  PollLater();
  PollLater(const PollLater&) = delete;
  PollLater& operator=(const PollLater&) = delete;
  ~PollLater();

  // Takes the place of epoll_ctl(EPOLL_CTL_ADD). Returns false if the object has a socket.
  bool Take(int epoll, int descriptor, const epoll_event& event);

 private:
  struct Addition {
    int epoll, descriptor;
    std::optional<ino_t> inode;
    epoll_event event;
  };
  std::optional<Addition> addition_;
};

}  // namespace posenc::server
