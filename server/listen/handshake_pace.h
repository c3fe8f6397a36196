// Pace of the TLS handshakes of each peer, where clients may show certificates.
//
// OpenSSL parses all certificates of a client before it refuses one, on the thread that serves calls: 16 KiB of them,
// the most that the server accepts, can take 40 milliseconds. So a peer begins only so many handshakes a second. One
// that has led to a call, as those of honest callers do, does not count any more.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <unordered_map>

#include "server/listen/connections.h"

namespace posenc::server {

// Thread-safe.
class HandshakePace {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr int kAtOnce = 32, kPerSecond = 16;

  // Returns true if a connection of the peer, from this port, may begin its handshake, and counts it.
  bool Begin(Peer peer, uint16_t port, Clock::time_point now = Clock::now());
  // A call has come over the connection from this port.
  void End(Peer peer, uint16_t port, Clock::time_point now = Clock::now());

  // True while connections wait; otherwise End() need not be called.
  bool has_waiting() const { return has_waiting_; }
  void SetHasWaiting(bool has_waiting) { has_waiting_ = has_waiting; }

 private:
  struct Handshakes {
    double number = 0;  // begun, less those that ended and those that time allows
    Clock::time_point since;
    std::map<uint16_t, Clock::time_point> begun;  // by port: those that may still count

    double NumberAt(Clock::time_point now) const;
  };

  std::mutex mutex_;
  std::unordered_map<Peer, Handshakes> of_peer_;
  std::atomic<bool> has_waiting_{false};
};

}  // namespace posenc::server
