// Turns of the connections of busy peers, so that each peer has its share of the receiving threads.
//
// gRPC reads its connections one after the other, and of each all calls that it has sent: 100 by default, which keep a
// receiving thread for 4 milliseconds or longer. A peer that sends over 128 connections, over and over, would make each
// call of others wait for half a second or longer. So what takes a thread a few hundredths of a second is read of a
// peer at a time, and while the threads do not keep up, no peer may have more calls a second than a common level, which
// sinks until they do. The other connections of a peer that has more are paused until it is their turn, which comes
// sooner for those that send little at once.
//
// gRPC cannot be told to stop reading, but it need not learn that a socket can be read (polls.h).
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "server/listen/connections.h"
#include "server/listen/received_calls.h"

namespace posenc::server {

// Not thread-safe.
class ReadingTurns {
 public:
  using Clock = std::chrono::steady_clock;

  explicit ReadingTurns(size_t threads) : threads_(static_cast<double>(threads)) {}  // that receive

  // The work of the receiving threads. The first two count from the last call of Take().
  struct Receiving {
    ReceivedCalls::OfPeers calls;  // calls that came
    double run_seconds = 0;        // time that the threads ran, all together
    Clock::duration since_poll{};  // time since one of them last polled the connections; zero while one waits for them
  };
  // Pauses and resumes connections; those without a peer are never paused. `open`: all connections. Call it every few
  // milliseconds while many calls come, and as long as it returns true: connections are paused.
  bool Take(const std::vector<Connections::Open>& open, const Receiving& receiving,
            Clock::time_point now = Clock::now());
  // True while connections of the peer must wait for their turns.
  bool IsLimited(Peer peer, Clock::time_point now = Clock::now()) const;
  // Pauses a new connection of a peer that is limited, before gRPC has it.
  void Add(int descriptor);
  void ResumeAll();

  // At the last look: the number of connections that were paused, the busiest peer, and the calls a second that a peer
  // could have, if that was limited.
  size_t paused() const { return paused_; }
  Peer busiest() const { return busiest_; }
  std::optional<double> level() const { return level_; }

 private:
  // Calls of the bytes that have come.
  struct Density {
    double calls = 0, bytes = 0;

    void Add(double more_calls, double more_bytes);
    double CallsPerByte() const;
  };
  struct Seen {
    ino_t inode = 0;
    bool paused = false;
    bool is_left = false;      // gRPC does not read it, though it is not paused
    int unread = 0;            // bytes
    uint64_t read = 0;         // bytes since the connection began
    uint64_t timed = 0;        // bytes that had been read when the time for it was last looked at
    double uncounted = 0;      // calls that would have taken that time, less those that were counted
    double calls_at_once = 0;  // between two looks, on average of those with calls
    size_t looks = 0;          // with calls
    int64_t counted = 0;       // bytes that had been read at the last of them
    Clock::time_point called_at;
    Density density;

    bool is_waiting() const { return unread > 0; }
    Clock::time_point waiting_since;   // nothing was read
    Clock::time_point readable_since;  // nor was it paused
  };
  struct Account {
    double rate = 0;           // calls a second
    double calls_at_once = 1;  // of a connection that is not known yet
    Density density;
    double credit = 0;  // calls that it may have now
    Clock::time_point limited_at;
  };
  struct Candidate {
    int descriptor;
    uint16_t port;
    Seen* seen;
  };
  struct OfPeer {
    std::vector<Candidate> connections;  // without those that gRPC does not read
    bool is_waiting = false;             // one of them is
    bool is_late = false;                // one of them could have been read for a while, but was not
  };
  std::map<Peer, OfPeer> Look(const std::vector<Connections::Open>& open, bool is_behind, Clock::time_point now);
  // Returns the calls of a connection since the last look: those that were counted, or more if gRPC took longer for
  // what it has read, because it has refused calls, or because their headers are long.
  static double CallsOf(int descriptor, double counted, Seen* seen);
  void UpdateAccounts(const std::map<Peer, OfPeer>& peers, const Receiving& receiving, double seconds,
                      Clock::time_point now);
  void SetLevel(const std::map<Peer, OfPeer>& peers, double busy);
  // Pauses and resumes the connections of a peer, of which so many calls may be read now; none if it must wait.
  void Choose(double calls, bool must_wait, OfPeer* of_peer, Account* account, Clock::time_point now);
  static void Pause(int descriptor, Seen* seen);
  static void Resume(int descriptor);

  const double threads_;
  std::optional<double> level_;
  double run_ = 0, calls_ = 0;  // at a look, on average: seconds that the threads run, and calls that are received
  double seconds_of_call_ = 0;
  double most_calls_ = 0;  // of a peer, that may be read at a time, also without a level
  size_t paused_ = 0;
  Peer busiest_;
  Clock::time_point last_look_;
  std::map<Peer, Account> accounts_;    // of peers with connections
  std::unordered_map<int, Seen> seen_;  // at the last look, by descriptor
};

}  // namespace posenc::server
