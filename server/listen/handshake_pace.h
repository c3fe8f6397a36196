// Pace of the TLS handshakes of each peer, where clients show certificates.
//
// OpenSSL parses all certificates of a client before it refuses one, on the thread that serves calls: 16 KiB of them,
// the most that the server accepts, can take 40 milliseconds. So the connections of a peer begin their handshakes one
// after another, unless the peer shows that it has a good certificate.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <mutex>
#include <unordered_map>

#include "server/listen/connections.h"

namespace posenc::server {

// Thread-safe.
class HandshakePace {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr double kAtOnce = 32;
  static constexpr double kPerSecond = 16;

  // Returns true if a connection of the peer may begin its handshake, and counts it.
  bool Begin(Peer peer, Clock::time_point now = Clock::now());

  // A connection whose handshake was counted has ended before it.
  void GiveBack(Peer peer);
  // A call came over a connection with a verified certificate: the peer may begin kAtOnce handshakes again.
  void Trust(Peer peer);
  // True while connections wait; otherwise Trust() need not be called.
  bool has_waiting() const { return has_waiting_; }
  void SetHasWaiting(bool has_waiting) { has_waiting_ = has_waiting; }

 private:
  struct Begun {
    double number = 0;  // handshakes begun, less those that time allows
    Clock::time_point since;
  };
  // `begun.number` at a later time.
  static double NumberAt(const Begun& begun, Clock::time_point now);

  std::mutex mutex_;
  std::unordered_map<Peer, Begun> of_peer_;
  std::atomic<bool> has_waiting_{false};
};

}  // namespace posenc::server
